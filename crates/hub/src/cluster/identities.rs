//! Which names lead to which workload cluster, and under which of them it may be written to.
//!
//! A workload cluster is what its `kube-system` namespace says it is, whatever it is called on the management cluster. Where two names lead to
//! one cluster, two policies would correct the same objects, so only the older name writes (design §2.1). [`Names`] holds the rule and is
//! pure; [`Identities`] shares it among the cluster tasks and takes the leave to write from a name at the moment it loses its right, before any
//! other name gets it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use holdfast_fleet::kubeconfig::Fingerprint;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{
    fleet_view::{ClusterEntry, ClusterName, Credential, FleetView, Gate},
    reports::{ReportKey, Reports},
};

/// Names that a message lists; of more it says how many.
const LISTED: usize = 3;

/// What a name may do, as far as other names of the same cluster are concerned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Claim {
    /// Not known: nothing is written.
    #[default]
    Unsettled,
    /// The oldest name of its cluster, which writes. The others, if there are any.
    Held(Arc<[ClusterName]>),
    /// This older name leads to the same cluster: under this one nothing is written.
    Yielded(ClusterName),
}

impl Claim {
    /// What to tell users of other names, in a sentence; `None` where there are none.
    pub fn shared_with(&self) -> Option<String> {
        match self {
            Self::Unsettled => None,
            Self::Held(others) if others.is_empty() => None,
            Self::Held(others) => {
                let mut named: Vec<String> = others.iter().take(LISTED).map(ToString::to_string).collect();
                if others.len() > LISTED {
                    named.push(format!("{} more", others.len() - LISTED));
                }
                Some(format!("{} is the same cluster; only this older name writes", named.join(", ")))
            }
            Self::Yielded(older) => Some(format!("{older} is an older name of the same cluster; nothing is written under this one")),
        }
    }
}

/// A name as the management cluster describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate<P = Fingerprint> {
    /// Namespace and name.
    pub name: ClusterName,
    /// UID of the object that the name stands for: with another one it is another name.
    pub owner: Arc<str>,
    /// Since when that object exists.
    pub created: Timestamp,
    /// Where its kubeconfig leads; `None` while it is not to be used.
    pub place: Option<P>,
    /// Which cluster an earlier hub saw under it. That only keeps other names from writing, so nobody who can change it gains anything.
    pub remembered: Option<Arc<str>>,
}

impl Candidate {
    fn of(entry: &ClusterEntry, reports: &Reports) -> Self {
        let place = match (&entry.credential, entry.gate) {
            (Credential::Ready(kubeconfig), Gate::Open | Gate::Paused) => Some(kubeconfig.place_fingerprint()),
            _ => None,
        };
        let reported = reports.stored_of(&ReportKey::cluster(&entry.name), &entry.owner);
        let remembered = reported.and_then(|status| status.cluster_uid.as_deref().map(Arc::from));
        Self { name: entry.name.clone(), owner: Arc::clone(&entry.owner.uid), created: entry.created, place, remembered }
    }
}

#[derive(Debug)]
struct Known<P> {
    candidate: Candidate<P>,
    /// UID of the `kube-system` namespace, as last seen under this name.
    uid: Option<Arc<str>>,
}

/// The names of the fleet and where they lead. Pure.
///
/// A name whose cluster does not answer keeps what it was last seen to lead to, also by an earlier hub, and one that was never seen anywhere
/// counts as leading to where other kubeconfigs with the same server and authorities lead: so neither an outage nor a restart during one hands
/// the cluster to the younger name. Of what there is at a start, nobody writes before every older name was tried once.
#[derive(Debug)]
pub struct Names<P = Fingerprint> {
    known: BTreeMap<ClusterName, Known<P>>,
    /// Names of the start that were not tried yet; `None` before the start.
    awaited: Option<BTreeSet<ClusterName>>,
}

impl<P> Default for Names<P> {
    fn default() -> Self {
        Self { known: BTreeMap::new(), awaited: None }
    }
}

impl<P: Clone + Ord> Names<P> {
    /// Takes in the fleet as it is now. The tasks of names that left, or stand for something else, have ended.
    pub fn follow(&mut self, fleet: impl IntoIterator<Item = Candidate<P>>) {
        let mut before = std::mem::take(&mut self.known);
        for candidate in fleet {
            let same = before.remove(&candidate.name).filter(|known| known.candidate.owner == candidate.owner);
            let uid = same.map_or_else(|| candidate.remembered.clone(), |known| known.uid);
            self.known.insert(candidate.name.clone(), Known { candidate, uid });
        }
        let known = &self.known;
        match &mut self.awaited {
            None => {
                let tried = known.values().filter(|known| known.candidate.place.is_some());
                self.awaited = Some(tried.map(|known| known.candidate.name.clone()).collect());
            }
            Some(awaited) => awaited.retain(|name| known.get(name).is_some_and(|known| known.candidate.place.is_some())),
        }
    }

    /// A name was seen to lead to this cluster. Answers whether that is news.
    pub fn identified(&mut self, name: &ClusterName, uid: &Arc<str>) -> bool {
        let Some(known) = self.known.get_mut(name) else { return false };
        let before = known.uid.replace(Arc::clone(uid));
        self.tried(name) || before.as_ref() != Some(uid)
    }

    /// It was tried where a name leads, with or without success. Answers whether somebody waited for that.
    pub fn tried(&mut self, name: &ClusterName) -> bool {
        self.awaited.as_mut().is_some_and(|awaited| awaited.remove(name))
    }

    /// What each name may do now.
    pub fn claims(&self) -> BTreeMap<ClusterName, Claim> {
        let mut by_uid: BTreeMap<&str, Vec<&Known<P>>> = BTreeMap::new();
        let mut unseen: BTreeMap<&P, Vec<&Known<P>>> = BTreeMap::new();
        for known in self.known.values() {
            match (&known.uid, &known.candidate.place) {
                (Some(uid), _) => by_uid.entry(uid).or_default().push(known),
                (None, Some(place)) => unseen.entry(place).or_default().push(known),
                (None, None) => {}
            }
        }
        let awaited = self.awaited.iter().flatten().filter_map(|name| self.known.get(name)).map(Known::age).min();
        let claim = |known: &Known<P>| {
            let (Some(uid), true) = (&known.uid, self.awaited.is_some()) else { return Claim::Unsettled };
            if awaited.is_some_and(|oldest| oldest < known.age()) {
                return Claim::Unsettled;
            }
            let seen = by_uid.get(&**uid).into_iter().flatten().copied();
            // Wherever any name of this cluster leads, one that was never seen leads as well.
            let places: BTreeSet<&P> = seen.clone().filter_map(|known| known.candidate.place.as_ref()).collect();
            let unseen = places.into_iter().filter_map(|place| unseen.get(place)).flatten().copied();
            let mut others: Vec<&Known<P>> = seen.chain(unseen).filter(|other| other.age() != known.age()).collect();
            others.sort_by_key(|other| other.age());
            match others.first() {
                Some(oldest) if oldest.age() < known.age() => Claim::Yielded(oldest.candidate.name.clone()),
                _ => Claim::Held(others.into_iter().map(|other| other.candidate.name.clone()).collect()),
            }
        };
        self.known.iter().map(|(name, known)| (name.clone(), claim(known))).collect()
    }
}

impl<P> Known<P> {
    /// What is smaller is older. No two names are of one age.
    const fn age(&self) -> (Timestamp, &ClusterName) {
        (self.candidate.created, &self.candidate.name)
    }
}

/// A name's place at the table: what it may do, and the leave to write that ends when that changes.
#[derive(Clone, Debug)]
pub struct Seat {
    /// What the name may do now.
    pub claim: watch::Receiver<Claim>,
    /// Moves with everything that a write depends on.
    pub leave: Arc<AtomicU64>,
}

struct Table {
    names: Names,
    seats: BTreeMap<ClusterName, (watch::Sender<Claim>, Arc<AtomicU64>)>,
}

/// The names of one hub's clusters, shared by all cluster tasks. Cheap to clone.
#[derive(Clone)]
pub struct Identities {
    table: Arc<Mutex<Table>>,
}

impl Default for Identities {
    fn default() -> Self {
        Self { table: Arc::new(Mutex::new(Table { names: Names::default(), seats: BTreeMap::new() })) }
    }
}

impl fmt::Debug for Identities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identities").finish_non_exhaustive()
    }
}

impl Identities {
    /// Takes in the guarded clusters of a complete view, before the tasks of new ones start and after those of gone ones ended.
    pub fn follow(&self, view: &FleetView, reports: &Reports) {
        let guarded = view.clusters.values().filter(|entry| view.guards(&entry.name));
        let mut table = self.table.lock();
        table.names.follow(guarded.map(|entry| Candidate::of(entry, reports)));
        let Table { names, seats } = &mut *table;
        seats.retain(|name, _| names.known.contains_key(name));
        table.settle();
    }

    /// A name was seen to lead to the cluster with this `kube-system` UID.
    pub fn identified(&self, name: &ClusterName, uid: &Arc<str>) {
        let mut table = self.table.lock();
        if table.names.identified(name, uid) {
            table.settle();
        }
    }

    /// A name leads nowhere for now.
    pub fn tried(&self, name: &ClusterName) {
        let mut table = self.table.lock();
        if table.names.tried(name) {
            table.settle();
        }
    }

    /// The seat of a name of the fleet.
    pub fn seat(&self, name: &ClusterName) -> Seat {
        let mut table = self.table.lock();
        let (claim, leave) = table.seats.entry(name.clone()).or_default();
        let seat = Seat { claim: claim.subscribe(), leave: Arc::clone(leave) };
        table.settle();
        seat
    }
}

impl Table {
    fn settle(&mut self) {
        let claims = self.names.claims();
        let changed: Vec<_> = self
            .seats
            .iter()
            .filter_map(|(name, seat)| Some((seat, claims.get(name)?)))
            .filter(|((now, _), next)| *now.borrow() != **next)
            .collect();
        // First of all nobody writes by the old rule any more.
        for ((_, leave), _) in &changed {
            leave.fetch_add(1, Ordering::AcqRel);
        }
        for ((now, _), next) in changed {
            now.send_replace(next.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Name, age and place; a place of its own where none is given.
    fn candidate(name: &str, created: i64, place: &'static str) -> Candidate<&'static str> {
        Candidate {
            name: ClusterName::new("fleet", name),
            owner: Arc::from(format!("owner of {name}")),
            created: Timestamp::from_second(created).unwrap(),
            place: (!place.is_empty()).then_some(place),
            remembered: None,
        }
    }

    fn seen(names: &mut Names<&'static str>, name: &str, uid: &str) {
        names.identified(&ClusterName::new("fleet", name), &Arc::from(uid));
    }

    fn tried(names: &mut Names<&'static str>, name: &str) {
        names.tried(&ClusterName::new("fleet", name));
    }

    /// `-` unsettled, `+` held, and who an older name is.
    fn claims(names: &Names<&'static str>) -> String {
        let word = |(name, claim): (ClusterName, Claim)| match claim {
            Claim::Unsettled => format!("{}-", name.name),
            Claim::Held(others) => format!("{}+{}", name.name, others.iter().map(|other| &*other.name).collect::<String>()),
            Claim::Yielded(older) => format!("{}<{}", name.name, older.name),
        };
        names.claims().into_iter().map(word).collect::<Vec<_>>().join(" ")
    }

    fn fleet(names: &mut Names<&'static str>, candidates: &[(&str, i64, &'static str)]) {
        names.follow(candidates.iter().map(|(name, created, place)| candidate(name, *created, place)));
    }

    #[test]
    fn the_oldest_name_of_a_cluster_writes_and_the_next_one_when_it_leaves() {
        let mut names = Names::default();
        assert_eq!(claims(&names), "");
        fleet(&mut names, &[("a", 2, "here"), ("b", 1, "there"), ("c", 1, "elsewhere"), ("d", 3, "far")]);
        assert_eq!(claims(&names), "a- b- c- d-");
        for (name, uid) in [("a", "one"), ("b", "one"), ("c", "one"), ("d", "two")] {
            seen(&mut names, name, uid);
        }
        assert_eq!(claims(&names), "a<b b+ca c<b d+", "by age, then by name");
        fleet(&mut names, &[("a", 2, "here"), ("c", 1, "elsewhere"), ("d", 3, "far")]);
        assert_eq!(claims(&names), "a<c c+a d+");
        seen(&mut names, "c", "three");
        assert_eq!(claims(&names), "a+ c+ d+", "it leads elsewhere now");
        seen(&mut names, "d", "one");
        assert_eq!(claims(&names), "a+d c+ d<a");
    }

    #[test]
    fn at_a_start_nobody_writes_before_every_older_name_was_tried() {
        let mut names = Names::default();
        seen(&mut names, "b", "one");
        assert_eq!(claims(&names), "", "before the fleet is known");
        fleet(&mut names, &[("a", 1, "here"), ("b", 2, "there"), ("c", 3, ""), ("d", 0, "")]);
        seen(&mut names, "b", "one");
        assert_eq!(claims(&names), "a- b- c- d-", "a may be the older one; c and d have nothing that could be tried");
        tried(&mut names, "a");
        assert_eq!(claims(&names), "a- b+ c- d-");
        seen(&mut names, "a", "one");
        assert_eq!(claims(&names), "a+b b<a c- d-", "found out late");

        let mut names = Names::default();
        fleet(&mut names, &[("a", 1, "here"), ("b", 2, "there")]);
        seen(&mut names, "b", "one");
        fleet(&mut names, &[("a", 1, ""), ("b", 2, "there")]);
        assert_eq!(claims(&names), "a- b+", "what was awaited is not to be used any more");
        fleet(&mut names, &[("a", 1, "here"), ("b", 2, "there")]);
        assert_eq!(claims(&names), "a- b+", "who comes later holds up nobody");
    }

    #[test]
    fn an_outage_hands_the_cluster_to_nobody() {
        let mut names = Names::default();
        fleet(&mut names, &[("a", 1, "here"), ("b", 2, "there")]);
        seen(&mut names, "a", "one");
        seen(&mut names, "b", "one");
        tried(&mut names, "a");
        assert_eq!(claims(&names), "a+b b<a", "it was seen before");
        fleet(&mut names, &[("a", 1, ""), ("b", 2, "there")]);
        assert_eq!(claims(&names), "a+b b<a", "nor do lost credentials");

        // Restarted meanwhile, with what an earlier hub wrote down.
        let mut names = Names::default();
        names.follow([Candidate { remembered: Some(Arc::from("one")), ..candidate("a", 1, "") }, candidate("b", 2, "there")]);
        seen(&mut names, "b", "one");
        assert_eq!(claims(&names), "a+b b<a");
        seen(&mut names, "a", "two");
        assert_eq!(claims(&names), "a+ b+");

        // Restarted meanwhile, and nothing written down: a was never seen, but leads where b leads.
        let mut names = Names::default();
        fleet(&mut names, &[("a", 1, "here"), ("b", 2, "here"), ("c", 3, "there")]);
        tried(&mut names, "a");
        seen(&mut names, "b", "one");
        seen(&mut names, "c", "one");
        assert_eq!(claims(&names), "a- b<a c<a");
        seen(&mut names, "a", "two");
        assert_eq!(claims(&names), "a+ b+c c<b", "what is seen goes before what is thought");
    }

    #[test]
    fn a_name_that_stands_for_something_else_is_another_one() {
        let mut names = Names::default();
        fleet(&mut names, &[("a", 1, "here"), ("b", 2, "there")]);
        seen(&mut names, "a", "one");
        seen(&mut names, "b", "one");
        let anew = Candidate { owner: Arc::from("another"), ..candidate("a", 3, "here") };
        names.follow([anew, candidate("b", 2, "there")]);
        assert_eq!(claims(&names), "a- b+");
        seen(&mut names, "a", "one");
        assert_eq!(claims(&names), "a<b b+a");
    }

    #[test]
    fn who_loses_the_right_has_no_leave_when_another_gets_it() {
        let identities = Identities::default();
        let [a, b] = ["a", "b"].map(|name| ClusterName::new("fleet", name));
        let candidate = |name: &ClusterName, created| Candidate {
            name: name.clone(),
            owner: Arc::from("owner"),
            created: Timestamp::from_second(created).unwrap(),
            place: None,
            remembered: None,
        };
        identities.table.lock().names.follow([candidate(&a, 1), candidate(&b, 2)]);
        let (mut older, mut younger) = (identities.seat(&a), identities.seat(&b));
        let uid = Arc::from("one");
        identities.identified(&b, &uid);
        assert_eq!(*younger.claim.borrow_and_update(), Claim::Held(Arc::default()));
        let leave = younger.leave.load(Ordering::Acquire);
        identities.identified(&a, &uid);
        assert_ne!(younger.leave.load(Ordering::Acquire), leave);
        assert_eq!(*younger.claim.borrow_and_update(), Claim::Yielded(a));
        assert_eq!(*older.claim.borrow_and_update(), Claim::Held(Arc::from([b.clone()])));
        let leave = older.leave.load(Ordering::Acquire);
        identities.identified(&b, &uid);
        assert_eq!(older.leave.load(Ordering::Acquire), leave, "nothing changed");
        assert!(!older.claim.has_changed().unwrap());

        let said = |claim: &Claim| claim.shared_with().unwrap_or_default();
        assert_eq!(said(&older.claim.borrow()), "fleet/b is the same cluster; only this older name writes");
        assert_eq!(said(&younger.claim.borrow()), "fleet/a is an older name of the same cluster; nothing is written under this one");
        let many = (0..5).map(|number| ClusterName::new("fleet", &format!("c{number}"))).collect();
        assert_eq!(said(&Claim::Held(many)), "fleet/c0, fleet/c1, fleet/c2, 2 more is the same cluster; only this older name writes");
        assert_eq!(said(&Claim::Held(Arc::default())), "");
    }
}
