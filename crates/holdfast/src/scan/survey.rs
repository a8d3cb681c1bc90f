//! Reads what is declared and judges every object of it.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use anyhow::Context as _;
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use holdfast_api::report::{DriftReportStatus, SourceKind, Verdict};
use holdfast_engine::{
    case::{Permit, Word},
    manager::Writer,
};
use holdfast_fleet::{
    call::ApiClient,
    clock::{Clock, SystemClock},
    discovery::{Catalog, Discovery},
};
use holdfast_helm::{ApplyMethod, Judged, Record, RecordMeta, Status, Store};
use holdfast_hub::{
    cluster::{
        book::{Book, Phase, Revision, same_record},
        claims::Claims,
        context::{Context as JudgeContext, Examined},
        guarded::Guarded,
        inquiry::Examiner,
        records::ReleaseName,
        release::{self, Declared},
        scalers::Scalers,
        source::{Contact, Guardianship, Loaded},
        state::{ObjectState, StateId, States},
    },
    policy::Guard,
};
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

/// One look at a cluster.
#[derive(Debug)]
pub struct Survey {
    examiner: Examiner,
    catalog: Arc<Catalog>,
    scope: Scope,
}

/// A release with what it declares.
struct Subject {
    guardianship: Guardianship,
    objects: Vec<Arc<Guarded>>,
}

/// What all judgements of a scan share.
struct Surroundings {
    scalers: Scalers,
    claims: Claims,
    preloaded: Preloaded,
    shapes: Shapes,
    progress: Progress,
}

impl Survey {
    /// Reads which kinds the cluster serves.
    pub async fn prepare(client: ApiClient, scope: Scope) -> anyhow::Result<Self> {
        let mut discovery = Discovery::default();
        if let Err(error) = discovery.refresh(&client).await {
            // Discovery does not keep why a call failed; the plainest of all calls does.
            return Err(client.get_raw("/version", "application/json", None).await.map_or_else(Into::into, |_| error.into()));
        }
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        Ok(Self {
            examiner: Examiner { client, states: States::default(), clock, intents: None, halt: CancellationToken::new() },
            catalog: discovery.catalog(),
            scope,
        })
    }

    /// Judges releases.
    pub async fn releases(&self, only: Option<&str>) -> anyhow::Result<Vec<DriftReportStatus>> {
        let book = lists::book(&self.examiner.client, &self.scope).await?;
        if let Some(only) = only
            && !book.releases().any(|release| release.name == only)
        {
            anyhow::bail!("there is no release {only} {}; -A looks in all namespaces", self.scope);
        }
        // What the other releases declare matters too: an object with two owners belongs to neither.
        let mut claims = Claims::default();
        let mut subjects = self.subjects(&book, &mut claims).await;
        subjects.retain(|release, _| only.is_none_or(|only| release.name == only));
        let objects = || subjects.values().flat_map(|subject| &subject.objects);
        let mut surroundings = self.surroundings(claims, objects().count(), objects()).await?;
        surroundings.preloaded = Preloaded::read(&self.examiner.client, objects()).await;
        for (release, subject) in &mut subjects {
            self.judge(release, subject, &mut surroundings).await?;
        }
        if subjects.values().any(|subject| differs(&subject.guardianship)) {
            self.confirm(&book, &mut subjects).await?;
        }
        Ok(subjects.values().map(|subject| self.status(&subject.guardianship)).collect())
    }

    async fn subjects(&self, book: &Book, claims: &mut Claims) -> BTreeMap<ReleaseName, Subject> {
        let loads = book.releases().flat_map(|release| book.in_force(release).into_iter().map(move |record| (release, record)));
        let loads = loads.map(|(release, record)| async move {
            let declared = release::load(&self.examiner.client, &self.catalog, &record).await;
            (release, record, declared)
        });
        let mut loads = Box::pin(stream::iter(loads).buffer_unordered(LOADING));
        let guard = Arc::new(Guard::default_warn());
        let subject = |release: &ReleaseName| {
            let guardianship = Guardianship::new(release.clone(), Arc::clone(&guard), book.phase(release));
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
                (Err(error), Some(_)) => subject.guardianship.load_error = Some(error),
                (Err(_), None) => {}
            }
        }
        subjects
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
        Ok(Surroundings { scalers, claims, preloaded: Preloaded::default(), shapes: Shapes::default(), progress: Progress::new(total) })
    }

    /// Helm may have been at work during the scan: what differs from a revision that is no longer the newest is no drift.
    async fn confirm(&self, before: &Book, subjects: &mut BTreeMap<ReleaseName, Subject>) -> anyhow::Result<()> {
        let now = lists::book(&self.examiner.client, &self.scope).await?;
        for (release, subject) in subjects {
            if now.phase(release) != before.phase(release) {
                let message = "the release changed during the scan; scan again".to_owned();
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
        let mut guardianship = Guardianship::new(name.clone(), Arc::new(Guard::default_warn()), Phase::Desired(revision.clone()));
        let declared = release::declared(&record, &self.catalog, None);
        let objects = install(&mut guardianship, revision, declared);
        let mut surroundings = self.surroundings(Claims::default(), objects.len(), objects.iter()).await?;
        let mut subject = Subject { guardianship, objects };
        self.judge(&name, &mut subject, &mut surroundings).await?;
        let mut status = self.status(&subject.guardianship);
        if let Some(source) = &mut status.source {
            source.kind = SourceKind::Manifests;
            source.revision = None;
        }
        Ok(status)
    }

    async fn judge(&self, release: &ReleaseName, subject: &mut Subject, surroundings: &mut Surroundings) -> anyhow::Result<()> {
        let Subject { guardianship, objects } = subject;
        let Surroundings { scalers, claims, preloaded, shapes, progress } = surroundings;
        let revision = guardianship.judgeable().cloned();
        let prefer = guardianship.loaded.as_ref().map(|loaded| loaded.prefer);
        let deployed_at = revision.as_ref().and_then(|revision| revision.deployed_at);
        let context = |guarded: &Guarded, writer: Option<Writer>| JudgeContext {
            permit: Permit::Report(None),
            recreate: false,
            ignore: Vec::new(),
            ledger: None,
            writer,
            prefer,
            deployed_at,
            scaler: scalers.of(&guarded.key).cloned(),
            word: Word::OwnNamespace,
            also_declared_by: claims.others(StateId::of(CLUSTER, &guarded.key), release).first().map(|other| format!("release {other}")),
            held: None,
            fence: None,
            leave: None,
        };
        // Shared by the judgements under way: what one learns spares the next a question.
        let shapes = RefCell::new(shapes);
        let preloaded = RefCell::new(preloaded);
        let judgements = stream::iter(objects.iter()).map(|guarded| {
            let (context, shapes, preloaded) = (context(guarded, None), &shapes, &preloaded);
            async move {
                let live = preloaded.borrow_mut().take(StateId::of(CLUSTER, &guarded.key));
                (guarded, self.examine(guarded, &context, live, shapes).await)
            }
        });
        let mut judgements = Box::pin(judgements.buffer_unordered(JUDGING));
        let mut judged = Vec::with_capacity(objects.len());
        while let Some((guarded, examined)) = judgements.next().await {
            if let Some(error) = examined.unreachable {
                return Err(error).context("the cluster stopped answering");
            }
            progress.step();
            judged.push((guarded, examined));
        }
        // Whoever created an object again holds the release's metadata on it, and is told from the release by its other objects.
        for learnt in judged.iter().filter_map(|(_, examined)| examined.writer.clone()) {
            guardianship.learn(learnt);
        }
        let usual = guardianship.writer().filter(|_| deployed_at.is_some()).cloned();
        for (guarded, mut examined) in judged {
            if let (Some(usual), Some(own)) = (&usual, &examined.writer)
                && *usual != own.writer
            {
                examined = self.examine(guarded, &context(guarded, Some(usual.clone())), None, &shapes).await;
            }
            let id = StateId::of(CLUSTER, &guarded.key);
            guardianship.judged(id, &guarded.key, &examined.uid, &examined.judgement, self.examiner.clock.now());
        }
        Ok(())
    }

    async fn examine(&self, guarded: &Guarded, context: &JudgeContext, live: Option<Bytes>, shapes: &RefCell<&mut Shapes>) -> Examined {
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

    fn status(&self, guardianship: &Guardianship) -> DriftReportStatus {
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
