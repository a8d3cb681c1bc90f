//! Fields that somebody added to an object beside the declared ones, and fields that an earlier revision declared and that stayed behind.
//!
//! What somebody added is held in `managedFields` by somebody: by a manager that is neither the release's nor a part of the cluster, at a
//! path that the declared object does not claim. What admission adds is held by nobody (measured: it runs after ownership is noted), so a
//! sidecar injector is never taken for a person. Server defaults are held by nobody or by whoever created the object; where a held field
//! could be one, the dry-run create tells what the server itself puts there.

use holdfast_api::{
    policy::Foreign,
    report::{Change, PathFinding, Reason},
};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::{
    answer::Answer,
    assess::{Assessment, Drift},
    bookkeeping,
    canonical::Digester,
    case::Case,
    items,
    manager::{self, Entry, Operation, Writer},
    normalise::{RELEASE_NAME, RELEASE_NAMESPACE},
    object::Gvk,
    owned::{Node, OwnedSet},
    path::{Path, Segment},
    positional, project, redact,
    sorter::{self, Sorter},
};

/// Maps whose keys are anybody's: the server puts no default into them, and each key is an addition of its own.
const OPEN_MAPS: [&str; 4] = ["labels", "annotations", "data", "binaryData"];

/// Who wrote within this time of an object's creation may be its creator.
const CREATED_WITHIN: SignedDuration = SignedDuration::from_secs(2);

/// What is done about additions to one object.
#[derive(Clone, Copy)]
pub struct Rules<'a> {
    /// What the policy says of all of them.
    pub handling: Foreign,
    /// Whether anything added at a path is drift, whatever `handling` says.
    pub exclusive: &'a dyn Fn(&Path) -> bool,
    /// Stands for all rules of the policy that bear on additions.
    pub tag: u64,
    /// [`Additions::digest`] of the last judgement; [`NOT_LOOKED_FOR`] where there was none.
    pub known: u64,
    /// What the revision before this one declared, until the object was in sync with this one.
    pub previous: Option<&'a OwnedSet>,
}

impl Rules<'_> {
    /// The default of a policy, at first sight.
    pub const fn reporting() -> Self {
        Self { handling: Foreign::Report, exclusive: &|_| false, tag: 0, known: NOT_LOOKED_FOR, previous: None }
    }
}

/// The digest of additions that nobody looked for.
pub const NOT_LOOKED_FOR: u64 = 0;

/// What somebody added and that only is reported.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Additions {
    /// Stands for everything that was added and for the rules it was judged by, and in its lowest bit for whether any of it is reported;
    /// [`NOT_LOOKED_FOR`] where nobody looked.
    pub digest: u64,
    /// What is reported of it; `None` where it is what the last judgement said.
    pub listed: Option<Vec<PathFinding>>,
}

/// Something added to an object.
#[derive(Clone, Debug)]
struct Addition<'a> {
    path: Path,
    holder: &'a Entry,
    doubt: Doubt,
}

/// Why the server itself may have put something there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doubt {
    /// It does no such thing.
    None,
    /// It could be a default that somebody changed and changed back.
    Default,
    /// Its holder may have created the object, and holds every default since.
    Creator,
}

/// A live object whose additions are looked for.
#[derive(Clone, Copy)]
pub struct Look<'a> {
    /// Its kind.
    pub gvk: &'a Gvk,
    /// What the declared object claims of it.
    pub owned: &'a OwnedSet,
    /// The object.
    pub live: &'a Value,
    /// Its `managedFields`.
    pub entries: &'a [Entry],
    /// How its release writes. Without it nobody can be told from the release.
    pub writer: Option<&'a Writer>,
}

impl<'a> Look<'a> {
    /// Whether `known`, the [`Additions::digest`] of an earlier judgement, still holds by the rules that `tag` stands for.
    pub fn is_as_before(&self, known: u64, tag: u64) -> bool {
        self.writer.is_some_and(|writer| is_same(known, digest(&self.additions(writer), self.live, tag)))
    }

    fn additions(&self, writer: &Writer) -> Vec<Addition<'a>> {
        let (somebody, others): (Vec<&'a Entry>, Vec<&'a Entry>) = self.entries.iter().partition(|entry| is_somebody(entry, writer));
        if somebody.is_empty() {
            return Vec::new();
        }
        // What the release or the cluster holds too is nobody's addition.
        let mut shared = OwnedSet::default();
        for entry in others.iter().filter(|entry| !bookkeeping::is_unknown(&entry.manager)) {
            shared.extend(&entry.fields);
        }
        let mut found: Vec<Path> = Vec::new();
        for entry in &somebody {
            let at = Place { held: entry.fields.root(), owned: Some(self.owned.root()), shared: Some(shared.root()), live: self.live };
            at.walk(&mut Path::root(), &mut found);
        }
        found.sort();
        found.dedup();
        let mut additions: Vec<Addition<'a>> = Vec::with_capacity(found.len());
        for path in found {
            // Of an added item, what is in it comes and goes with it.
            if additions.last().is_some_and(|last| last.path.contains(&path)) || bookkeeping::is_bookkeeping(self.gvk, &path) {
                continue;
            }
            let holders = somebody.iter().copied().filter(|entry| entry.fields.node(&path).is_some());
            let Some(holder) = holders.max_by_key(|entry| (entry.fields.has(&path), entry.time)) else { continue };
            let doubt = self.doubt(&path, holder);
            additions.push(Addition { path, holder, doubt });
        }
        additions
    }

    fn doubt(&self, path: &Path, holder: &Entry) -> Doubt {
        if self.may_have_created(holder) {
            Doubt::Creator
        } else if matches!(path.segments(), [.., Segment::Field(_)]) && !is_in_open_map(path) {
            Doubt::Default
        } else {
            Doubt::None
        }
    }

    /// Whoever creates an object is given everything in it, defaults included. Nothing says who that was, but it shows.
    fn may_have_created(&self, entry: &Entry) -> bool {
        if entry.operation == Operation::Apply {
            return false;
        }
        let created =
            self.live.pointer("/metadata/creationTimestamp").and_then(Value::as_str).and_then(|text| text.parse::<Timestamp>().ok());
        let wrote_at_once =
            matches!((entry.time, created), (Some(wrote), Some(created)) if wrote.duration_since(created) <= CREATED_WITHIN);
        let adopted =
            [RELEASE_NAME, RELEASE_NAMESPACE].iter().any(|name| entry.fields.has(&Path::of_fields(&["metadata", "annotations", name])));
        let is_declared = |path: &&Path| !matches!(path.segments(), [Segment::Field(first), ..] if &**first == "metadata");
        let declared = self.owned.paths();
        let (declared, held) = declared
            .iter()
            .filter(is_declared)
            .fold((0_usize, 0_usize), |(all, held), path| (all + 1, held + usize::from(entry.fields.has(path))));
        wrote_at_once || adopted || (held > 0 && held * 2 >= declared)
    }
}

fn is_somebody(entry: &Entry, writer: &Writer) -> bool {
    is_somebodys_name(&entry.manager, &entry.subresource, writer)
}

fn is_somebodys_name(manager: &str, subresource: &str, writer: &Writer) -> bool {
    // A subresource is the server's own door for others: scale, status, resize, ephemeral containers.
    subresource.is_empty() && manager != writer.manager && !bookkeeping::is_of_the_cluster(manager)
}

/// Whether nobody holds anything of an object but its release and the cluster, so that nothing can have been added: told from names alone,
/// which is the usual case and costs nothing.
pub fn is_untouched(live: &Value, writer: &Writer) -> bool {
    fn text<'a>(entry: &'a Value, field: &str) -> &'a str {
        entry.get(field).and_then(Value::as_str).unwrap_or_default()
    }
    let mut entries = live.pointer("/metadata/managedFields").and_then(Value::as_array).into_iter().flatten();
    entries.all(|entry| !is_somebodys_name(text(entry, "manager"), text(entry, "subresource"), writer))
}

fn digest(additions: &[Addition<'_>], live: &Value, tag: u64) -> u64 {
    let mut digester = Digester::new();
    digester.add(&tag.to_le_bytes());
    for addition in additions {
        digester.add(addition.path.to_string().as_bytes());
        digester.add(addition.holder.manager.as_bytes());
        digester.add(project::find(live, &addition.path).digest().bytes());
    }
    let number = digester.finish().number();
    // The lowest bit is for what is reported, and no digest is that of nobody looking.
    (number | 2) & !LISTED
}

const LISTED: u64 = 1;

const fn is_same(known: u64, now: u64) -> bool {
    known & !LISTED == now
}

/// Whether something of what this [`Additions::digest`] stands for is reported.
pub const fn is_listed(digest: u64) -> bool {
    digest & LISTED == LISTED
}

/// Whether this [`Additions::digest`] says that nothing at all was added, by the rules that `tag` stands for.
pub fn is_nothing(known: u64, tag: u64) -> bool {
    known == digest(&[], &Value::Null, tag)
}

/// One place of a walk through what somebody holds, side by side with what is claimed, what others hold and what is there.
#[derive(Clone, Copy)]
struct Place<'a> {
    held: &'a Node,
    owned: Option<&'a Node>,
    shared: Option<&'a Node>,
    live: &'a Value,
}

impl Place<'_> {
    fn walk(self, path: &mut Path, found: &mut Vec<Path>) {
        for (segment, held) in self.held.children() {
            let owned = self.owned.and_then(|node| node.child(segment));
            // Where somebody holds something inside, the map was only declared empty: it is not owned as a whole.
            let is_whole = owned.is_some_and(|node| node.is_own() && node.is_leaf()) && held.is_leaf();
            if is_whole || is_key_of_item(path, segment) {
                continue;
            }
            let Some(live) = step(self.live, segment) else { continue };
            let shared = self.shared.and_then(|node| node.child(segment));
            path.push(segment.clone());
            if owned.is_none() && held.is_own() && shared.is_none() && (held.is_leaf() || !is_open(path, live)) {
                found.push(path.clone());
            } else {
                Place { held, owned, shared, live }.walk(path, found);
            }
            path.pop();
        }
    }
}

fn step<'a>(value: &'a Value, segment: &Segment) -> Option<&'a Value> {
    match (value, segment) {
        (Value::Object(members), Segment::Field(name)) => members.get(&**name),
        (Value::Array(list), _) => items::positions(list, segment).first().and_then(|position| list.get(*position)),
        _ => None,
    }
}

/// The key fields of a list item are the item.
fn is_key_of_item(path: &Path, segment: &Segment) -> bool {
    match (path.segments().last(), segment) {
        (Some(Segment::Key(keys)), Segment::Field(name)) => keys.iter().any(|(key, _)| key == name),
        _ => false,
    }
}

/// Whether each member of a container is an addition of its own, rather than the container.
fn is_open(path: &Path, live: &Value) -> bool {
    match path.segments().last() {
        Some(Segment::Field(name)) => live.is_array() || (live.is_object() && OPEN_MAPS.contains(&&**name)),
        _ => false,
    }
}

fn is_in_open_map(path: &Path) -> bool {
    matches!(path.segments(), [.., Segment::Field(map), Segment::Field(_)] if OPEN_MAPS.contains(&&**map))
}

/// Sorts what somebody added to the object: into what is reported, what is to be removed, and what the server must be asked about first.
/// Then what an earlier revision left behind.
pub fn sort(sorter: &Sorter<'_>, owned: &OwnedSet, out: &mut Assessment) {
    let (case, live) = (sorter.case, sorter.live);
    let Some(writer) = sorter.writer.as_ref().filter(|_| case.is_ours(live)) else { return };
    let gvk = &case.desired.key.gvk;
    let look = Look { gvk, owned, live, entries: &sorter.entries, writer: Some(writer) };
    let additions = look.additions(writer);
    let now = digest(&additions, live, case.foreign.tag);
    let is_known = is_same(case.foreign.known, now);
    let renamed: Vec<Path> = if additions.is_empty() { Vec::new() } else { renamed_items(case, owned, live, out) };
    let is_mine = |addition: &&Addition<'_>| {
        let path = &addition.path;
        let is_drift = case.foreign.handling == Foreign::Remove || (case.foreign.exclusive)(path);
        (is_drift || case.foreign.handling == Foreign::Report)
            && !renamed.iter().any(|item| item.contains(path))
            && !(case.ignored)(path, Some(&addition.holder.actor()))
            && !sorter.is_yielded(path)
    };
    let mut listed = Vec::new();
    for addition in additions.iter().filter(is_mine) {
        let is_drift = case.foreign.handling == Foreign::Remove || (case.foreign.exclusive)(&addition.path);
        match is_added(case, live, addition) {
            Some(false) => {}
            // What is only reported was asked about when it came.
            None if is_known && !is_drift => {}
            None => out.needs.create = true,
            // What only may have been added is shown, never removed.
            Some(true) if is_drift && (addition.doubt == Doubt::None || !matches!(case.create, Answer::Refused(_))) => {
                sorter.place(out, drift(gvk, live, &addition.path, Some(addition.holder), Reason::ForeignField));
            }
            Some(true) => listed.push(drift(gvk, live, &addition.path, Some(addition.holder), Reason::ForeignField).finding),
        }
    }
    out.additions = if is_known {
        Additions { digest: case.foreign.known, listed: None }
    } else {
        Additions { digest: now | u64::from(!listed.is_empty()), listed: Some(listed) }
    };
    left_over(sorter, owned, out);
}

/// Whether it was added, and is not what the server puts there itself; `None` while the server has not been asked.
fn is_added(case: &Case<'_>, live: &Value, addition: &Addition<'_>) -> Option<bool> {
    match (addition.doubt, case.create) {
        (Doubt::None, _) => Some(true),
        (_, Answer::NotAsked) => None,
        (_, Answer::Given(created)) => Some(!project::find(created, &addition.path).same(project::find(live, &addition.path))),
        // An edit needs no proof to be shown. A default needs one to be called an edit.
        (doubt, Answer::Refused(_)) => Some(doubt == Doubt::Default),
    }
}

/// Items that are nothing but declared ones under another key: undone with these.
fn renamed_items(case: &Case<'_>, owned: &OwnedSet, live: &Value, out: &Assessment) -> Vec<Path> {
    let differing = out.drifts.iter().chain(out.held.iter().map(|(drift, _)| drift)).chain(out.unverified.iter().map(|(drift, _)| drift));
    differing.filter_map(|drift| positional::renamed_to(&case.desired.value, owned, live, &drift.path)).collect()
}

/// What the revision before declared, this one does not, and only the release's own manager still holds, if anybody. Helm leaves such
/// fields behind: keys of `stringData` always, others where a release changed its way of applying.
fn left_over(sorter: &Sorter<'_>, owned: &OwnedSet, out: &mut Assessment) {
    let (case, live) = (sorter.case, sorter.live);
    let (Some(previous), Some(writer)) = (case.foreign.previous, sorter.writer.as_ref()) else { return };
    let gvk = &case.desired.key.gvk;
    let is_elses = |path: &Path| {
        let others = sorter.entries.iter().filter(|entry| entry.manager != writer.manager || !entry.subresource.is_empty());
        others.into_iter().any(|entry| entry.fields.node(path).is_some())
    };
    let mut last: Option<Path> = None;
    for path in previous.paths() {
        let stayed = owned.node(&path).is_none()
            && !is_below_leaf(owned, &path)
            && last.as_ref().is_none_or(|last| !last.contains(&path))
            && project::find(live, &path).is_there()
            && !bookkeeping::is_bookkeeping(gvk, &path)
            && !is_elses(&path)
            && !(case.ignored)(&path, None)
            && !sorter.is_yielded(&path);
        if !stayed {
            continue;
        }
        match case.create {
            Answer::NotAsked => out.needs.create = true,
            // What the server puts there itself, such as a default, would come back.
            Answer::Given(created) if !project::find(created, &path).same(project::find(live, &path)) => {
                let holder = manager::holder(&sorter.entries, &path);
                sorter.place(out, drift(gvk, live, &path, holder, Reason::LeftOver));
            }
            Answer::Given(_) | Answer::Refused(_) => {}
        }
        last = Some(path);
    }
}

/// Whether the path lies inside a value that is claimed as a whole.
fn is_below_leaf(owned: &OwnedSet, path: &Path) -> bool {
    let mut node = owned.root();
    for segment in path.segments() {
        if node.is_own() && node.is_leaf() {
            return true;
        }
        let Some(next) = node.child(segment) else { return false };
        node = next;
    }
    false
}

pub(crate) fn drift(gvk: &Gvk, live: &Value, path: &Path, holder: Option<&Entry>, reason: Reason) -> Drift {
    let there = project::find(live, path);
    let finding = PathFinding {
        path: redact::path_text(gvk, path),
        change: Change::Added,
        desired: None,
        accepted: None,
        live: redact::shown(gvk, path, there.value()),
        actor: holder.map(Entry::actor),
    };
    Drift { path: path.clone(), target: None, pair: sorter::pair(None, there.value()), finding, reason }
}

/// Whether a correction of this drift takes something away that nobody declares.
pub const fn is_removal(drift: &Drift) -> bool {
    matches!(drift.reason, Reason::ForeignField | Reason::LeftOver)
}
