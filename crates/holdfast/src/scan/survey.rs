//! Reads what is declared and judges every object of it.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use anyhow::Context as _;
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use holdfast_api::{
    policy::Mode,
    report::{DriftReportStatus, Reason, SourceKind, Verdict},
};
use holdfast_engine::case::{Permit, Word};
use holdfast_fleet::{
    call::ApiClient,
    clock::{Clock, SystemClock},
    discovery::{Catalog, Discovery},
};
use holdfast_helm::{ApplyMethod, Judged, Record, RecordMeta, Status, Store};
use holdfast_hub::{
    cluster::{
        admission::Admission,
        book::{Book, Phase, Revision, same_record},
        claims::Claims,
        context::{Context as JudgeContext, Examined, Leave, Sends},
        guarded::Guarded,
        inquiry::{Examiner, Intents},
        records::{FenceQuestion, ReleaseName},
        release::{self, Declared, LoadError},
        rules::ObjectRules,
        scalers::Scalers,
        source::{Contact, Guardianship, Loaded},
        state::{ObjectState, StateId, States},
        word_of,
    },
    policy::Guard,
};
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::{
    CLUSTER, Scope, lists,
    preload::Preloaded,
    progress::Progress,
    shapes::{self, Shapes},
};

/// Judgements at the same time: two requests each, if they need any.
const JUDGING: usize = 16;
/// Release records read at the same time. Each may hold megabytes.
const LOADING: usize = 8;
/// How often the records are listed anew when one of them changed before it was read.
const ATTEMPTS: usize = 5;

/// The guard of a release, as far as anybody gave it one.
pub type Guards = Box<dyn Fn(&ReleaseName) -> Arc<Guard>>;

/// What is to come of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Nothing is written, so what may not be read is told and done without.
    Look,
    /// Something may be written, so everything must be known that could speak against it.
    Write,
}

/// A release of which nobody knows what it declares.
struct Unread(ReleaseName, LoadError);

/// One look at a cluster.
pub struct Survey {
    /// Asks the cluster.
    pub examiner: Examiner,
    catalog: Arc<Catalog>,
    scope: Scope,
    purpose: Purpose,
    guards: Guards,
}

/// A release with what it declares.
pub struct Subject {
    /// What was found.
    pub guardianship: Guardianship,
    /// The objects it declares.
    pub objects: Vec<Arc<Guarded>>,
}

/// Releases that were looked at.
pub struct Look {
    /// The releases.
    pub subjects: BTreeMap<ReleaseName, Subject>,
    /// What their judgements share.
    pub around: Surroundings,
}

/// What all judgements of a look share.
pub struct Surroundings {
    scalers: Scalers,
    admission: Arc<Admission>,
    claims: Claims,
    preloaded: RefCell<Preloaded>,
    /// Shared by the judgements under way: what one learns spares the next a question.
    shapes: RefCell<Shapes>,
    progress: RefCell<Progress>,
}

impl Surroundings {
    /// What an object of a release is judged with where nothing is written.
    pub fn context(&self, known: &Guardianship, guarded: &Guarded, now: Timestamp) -> JudgeContext {
        let revision = known.judgeable();
        let ObjectRules { ignore, enforce, exclusive } = ObjectRules::of(&known.guard, guarded, now);
        JudgeContext {
            permit: Permit::Report(None),
            recreate: false,
            ignore,
            enforce,
            foreign: known.guard.foreign,
            exclusive,
            foreign_tag: known.guard.foreign_tag,
            ledger: None,
            writer: None,
            prefer: known.loaded.as_ref().map(|loaded| loaded.prefer),
            deployed_at: revision.and_then(|revision| revision.deployed_at),
            scalers: self.scalers.of(StateId::of(CLUSTER, &guarded.key)),
            admission: Arc::clone(&self.admission),
            word: revision.map_or(Word::OwnNamespace, |revision| word_of(known, revision.meta.store)),
            also_declared_by: self
                .claims
                .others(StateId::of(CLUSTER, &guarded.key), &known.name)
                .first()
                .map(|other| format!("release {other}")),
            held: None,
            fence: None,
            leave: None,
            sends: Sends::Nothing,
        }
    }

    /// The same where it may be written: what policy and phase permit, fenced by the release's records.
    pub fn writing(&self, known: &Guardianship, guarded: &Guarded, now: Timestamp, leave: Leave, sends: Sends) -> JudgeContext {
        let permit = match known.permit() {
            // Nobody knows which replicas are an autoscaler's.
            Permit::Write if self.scalers.may_rule(guarded) && !self.scalers.are_complete() => Permit::Report(Some(Reason::Forbidden)),
            // The manifest asks for less.
            Permit::Write if guarded.most != Mode::Correct => Permit::Report(Some(Reason::Suspended)),
            permit => permit,
        };
        let fence = known.judgeable().map(|revision| FenceQuestion {
            store: revision.meta.store,
            namespace: known.name.namespace.clone(),
            name: known.name.name.clone(),
            judged: revision.judged.clone(),
        });
        JudgeContext { permit, writer: known.writer().cloned(), fence, leave: Some(leave), sends, ..self.context(known, guarded, now) }
    }
}

impl Survey {
    /// Every release is reported, and no policy accepts anything.
    pub fn unguarded() -> Guards {
        let guard = Arc::new(Guard::default_warn());
        Box::new(move |_| Arc::clone(&guard))
    }

    /// Reads which kinds the cluster serves.
    pub async fn prepare(client: ApiClient, scope: Scope, purpose: Purpose, guards: Guards) -> anyhow::Result<Self> {
        let mut discovery = Discovery::default();
        if let Err(error) = discovery.refresh(&client).await {
            // Discovery does not keep why a call failed; the plainest of all calls does.
            return Err(client.get_raw("/version", "application/json", None).await.map_or_else(Into::into, |_| error.into()));
        }
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        Ok(Self {
            examiner: Examiner { client, states: States::default(), clock, intents: Intents::InProcess, halt: CancellationToken::new() },
            catalog: discovery.catalog(),
            scope,
            purpose,
            guards,
        })
    }

    /// Judges releases of a scope, all or those of one name.
    pub async fn releases(&self, scope: &Scope, only: Option<&str>) -> anyhow::Result<Vec<DriftReportStatus>> {
        let is_wanted = |release: &ReleaseName| scope.holds(&release.namespace) && only.is_none_or(|only| release.name == only);
        let look = self.look(scope, only, |release, _| is_wanted(release)).await?;
        Ok(look.subjects.values().map(|subject| self.status(&subject.guardianship)).collect())
    }

    /// Judges the releases that are `wanted`, given what they declare.
    pub async fn look(&self, scope: &Scope, only: Option<&str>, wanted: impl Fn(&ReleaseName, &Subject) -> bool) -> anyhow::Result<Look> {
        let (book, mut subjects, claims) = self.declared().await?;
        if let Some(only) = only
            && !book.releases().any(|release| release.name == only && scope.holds(&release.namespace))
        {
            anyhow::bail!("there is no release {only} {scope}; -A looks in all namespaces");
        }
        subjects.retain(|release, subject| wanted(release, subject));
        let objects = || subjects.values().flat_map(|subject| &subject.objects);
        let mut around = self.surroundings(claims, objects().count(), objects()).await?;
        around.preloaded = RefCell::new(Preloaded::read(&self.examiner.client, objects()).await);
        for subject in subjects.values_mut() {
            self.judge(subject, &around).await?;
        }
        around.progress.borrow_mut().end();
        if subjects.values().any(|subject| differs(&subject.guardianship)) {
            self.confirm(&book, &mut subjects).await?;
        }
        Ok(Look { subjects, around })
    }

    /// What every release declares, wanted or not: an object with two owners belongs to neither.
    async fn declared(&self) -> anyhow::Result<(Book, BTreeMap<ReleaseName, Subject>, Claims)> {
        let mut attempts = 1;
        loop {
            let book = lists::book(&self.examiner.client, &self.scope, self.purpose).await?;
            let mut claims = Claims::default();
            match self.subjects(&book, &mut claims).await {
                Ok(subjects) => return Ok((book, subjects, claims)),
                // Somewhere Helm is at work, which says nothing about any other release.
                Err(_) if attempts < ATTEMPTS => attempts += 1,
                Err(Unread(release, error)) => {
                    anyhow::bail!("release {release} may declare the same objects: {error}; try again")
                }
            }
        }
    }

    async fn subjects(&self, book: &Book, claims: &mut Claims) -> Result<BTreeMap<ReleaseName, Subject>, Unread> {
        let loads = book.releases().flat_map(|release| book.in_force(release).into_iter().map(move |record| (release, record)));
        let loads = loads.map(|(release, record)| async move {
            let declared = release::load(&self.examiner.client, &self.catalog, &record).await;
            (release, record, declared)
        });
        let mut loads = Box::pin(stream::iter(loads).buffer_unordered(LOADING));
        let subject = |release: &ReleaseName| {
            let guardianship = Guardianship::new(release.clone(), (self.guards)(release), book.phase(release));
            (release.clone(), Subject { guardianship, objects: Vec::new() })
        };
        let mut subjects: BTreeMap<ReleaseName, Subject> = book.releases().map(subject).collect();
        while let Some((release, record, declared)) = loads.next().await {
            let Some(subject) = subjects.get_mut(release) else { continue };
            let judged = subject.guardianship.judgeable().filter(|revision| same_record(&revision.meta, &record)).cloned();
            match (declared, judged) {
                (Ok(declared), judged) => {
                    let ids = declared.objects.iter().map(|object| StateId::of(CLUSTER, &object.key)).collect();
                    if let Phase::Pending(pending) = &mut subject.guardianship.phase
                        && record.status.is_pending()
                    {
                        pending.since = pending.since.into_iter().chain(declared.begun).min();
                    }
                    claims.put(release, record, ids, declared.incomplete);
                    if let Some(revision) = judged {
                        subject.objects = install(&mut subject.guardianship, revision, declared);
                    }
                }
                // What it declares is not known, and could be anything. A broken record declares nothing.
                (Err(error @ (LoadError::Read(_) | LoadError::Overtaken)), _) if self.purpose == Purpose::Write => {
                    return Err(Unread(release.clone(), error));
                }
                (Err(error), Some(_)) => subject.guardianship.load_error = Some(error),
                (Err(_), None) => {}
            }
        }
        Ok(subjects)
    }

    async fn surroundings<'a>(
        &self,
        claims: Claims,
        total: usize,
        objects: impl Iterator<Item = &'a Arc<Guarded>>,
    ) -> anyhow::Result<Surroundings> {
        let namespaces: BTreeSet<&str> = objects.filter_map(|object| object.key.namespace.as_deref()).collect();
        let namespaces = if self.scope == Scope::Cluster { None } else { Some(&namespaces) };
        let scalers = lists::scalers(&self.examiner.client, &self.catalog, namespaces).await?;
        let admission = Arc::new(lists::admission(&self.examiner.client, &self.catalog).await);
        Ok(Surroundings {
            scalers,
            admission,
            claims,
            preloaded: RefCell::default(),
            shapes: RefCell::default(),
            progress: RefCell::new(Progress::new(total)),
        })
    }

    /// Helm may have been at work during the scan: what differs from a revision that is no longer the newest is no drift.
    async fn confirm(&self, before: &Book, subjects: &mut BTreeMap<ReleaseName, Subject>) -> anyhow::Result<()> {
        let now = lists::book(&self.examiner.client, &self.scope, self.purpose).await?;
        for (release, subject) in subjects {
            if now.phase(release) != before.phase(release) {
                let message = "the release changed while it was looked at; try again".to_owned();
                subject.guardianship.phase = Phase::Held { reason: "ReleasePending", message };
            }
        }
        Ok(())
    }

    /// Judges plain manifests.
    pub async fn manifests(&self, text: &str, namespace: &str) -> anyhow::Result<DriftReportStatus> {
        let record = Record {
            name: "manifests".to_owned(),
            namespace: namespace.to_owned(),
            version: 1,
            status: Status::Deployed,
            first_deployed: None,
            last_deployed: None,
            deleted: None,
            chart: None,
            apply_method: ApplyMethod::ServerSide,
            manifest: text.to_owned(),
        };
        let name = ReleaseName { namespace: namespace.to_owned(), name: record.name.clone() };
        let revision = revision_of(&record);
        let mut guardianship = Guardianship::new(name, Arc::new(Guard::default_warn()), Phase::Desired(revision.clone()));
        let declared = release::declared(&record, &self.catalog, None);
        let objects = install(&mut guardianship, revision, declared);
        let around = self.surroundings(Claims::default(), objects.len(), objects.iter()).await?;
        let mut subject = Subject { guardianship, objects };
        self.judge(&mut subject, &around).await?;
        let mut status = self.status(&subject.guardianship);
        if let Some(source) = &mut status.source {
            source.kind = SourceKind::Manifests;
            source.revision = None;
        }
        Ok(status)
    }

    async fn judge(&self, subject: &mut Subject, around: &Surroundings) -> anyhow::Result<()> {
        let Subject { guardianship, objects } = subject;
        let deployed_at = guardianship.judgeable().and_then(|revision| revision.deployed_at);
        let now = self.examiner.clock.now();
        let judgements = stream::iter(objects.iter()).map(|guarded| {
            let context = around.context(guardianship, guarded, now);
            async move {
                let live = around.preloaded.borrow_mut().take(StateId::of(CLUSTER, &guarded.key));
                (guarded, self.examine(guarded, &context, live, around).await)
            }
        });
        let mut judgements = Box::pin(judgements.buffer_unordered(JUDGING));
        let mut judged = Vec::with_capacity(objects.len());
        while let Some((guarded, examined)) = judgements.next().await {
            if let Some(error) = examined.unreachable {
                return Err(error).context("the cluster stopped answering");
            }
            around.progress.borrow_mut().step();
            judged.push((guarded, examined));
        }
        drop(judgements);
        // Whoever created an object again holds the release's metadata on it, and is told from the release by its other objects.
        for learnt in judged.iter().filter_map(|(_, examined)| examined.writer.clone()) {
            guardianship.learn(learnt);
        }
        let usual = guardianship.writer().filter(|_| deployed_at.is_some()).cloned();
        for (guarded, mut examined) in judged {
            if let (Some(usual), Some(own)) = (&usual, &examined.writer)
                && *usual != own.writer
            {
                let context = JudgeContext { writer: Some(usual.clone()), ..around.context(guardianship, guarded, now) };
                examined = self.examine(guarded, &context, None, around).await;
            }
            let id = StateId::of(CLUSTER, &guarded.key);
            guardianship.judged(id, &guarded.key, &examined.uid, &examined.judgement, self.examiner.clock.now());
        }
        Ok(())
    }

    /// Judges one object at first sight.
    pub async fn examine(&self, guarded: &Guarded, context: &JudgeContext, live: Option<Bytes>, around: &Surroundings) -> Examined {
        let shapes = &around.shapes;
        let shape = shapes::shape(&guarded.key.gvk, &guarded.desired().value);
        let state = || {
            let mut state = ObjectState::new(guarded.hash);
            state.owned = shapes.borrow().get(shape);
            state
        };
        let was_listed = live.is_some();
        let mut examined = self.examiner.examine_read(guarded, state(), context, live).await;
        if was_listed && examined.judgement.verdict != Verdict::InSync {
            // A list is a little older than the answers it was compared with.
            examined = self.examiner.examine(guarded, state(), context).await;
        }
        if let Some(owned) = &examined.state.owned {
            shapes.borrow_mut().put(shape, Arc::clone(owned));
        }
        examined
    }

    /// What was found of a release, as a report says it.
    pub fn status(&self, guardianship: &Guardianship) -> DriftReportStatus {
        let mut status = guardianship.status(&Contact::default(), self.examiner.clock.now());
        if let Some(source) = &mut status.source {
            // Nobody could compare it with another run: the key would have to be kept.
            source.desired_hash = None;
        }
        status
    }
}

/// Takes over what a revision declares; answers with the objects to judge.
fn install(guardianship: &mut Guardianship, revision: Revision, declared: Declared) -> Vec<Arc<Guarded>> {
    let objects: Vec<Arc<Guarded>> = declared.objects.into_iter().map(Arc::new).collect();
    guardianship.load(Loaded {
        revision,
        prefer: declared.prefer,
        objects: objects.iter().map(|object| StateId::of(CLUSTER, &object.key)).collect(),
        problems: declared.problems,
        incomplete: declared.incomplete,
        hash: String::new(),
    });
    objects
}

fn revision_of(record: &Record) -> Revision {
    let meta = RecordMeta {
        store: Store::Secrets,
        stored_name: String::new(),
        name: record.name.clone(),
        namespace: record.namespace.clone(),
        version: record.version,
        status: record.status,
        uid: String::new(),
        resource_version: String::new(),
        created: None,
        modified: None,
    };
    Revision {
        judged: Judged { version: record.version, uid: String::new(), newest: record.version },
        meta,
        deployed_at: None,
        deployed: 1,
    }
}

/// Whether anything is to be told beside "in sync".
fn differs(guardianship: &Guardianship) -> bool {
    let summary = guardianship.summary();
    summary.in_sync != summary.objects
}
