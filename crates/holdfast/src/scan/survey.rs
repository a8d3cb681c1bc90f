//! Reads what is declared and judges every object of it.

use std::{collections::BTreeMap, sync::Arc};

use anyhow::Context as _;
use futures::{StreamExt as _, stream};
use holdfast_api::report::{DriftReportStatus, SourceKind, Verdict};
use holdfast_engine::{case::Permit, object::Gvk};
use holdfast_fleet::{
    call::{ApiClient, CallError, Endpoint, ListQuery, Shape},
    clock::{Clock, SystemClock},
    discovery::{Catalog, Discovery, Lookup},
    meta::Meta,
};
use holdfast_helm::{ApplyMethod, Judged, Record, RecordMeta, Status};
use holdfast_hub::{
    cluster::{
        book::{Book, Phase, Revision},
        claims::Claims,
        guarded::Guarded,
        inquiry::{Context as JudgeContext, Examined, Examiner},
        records::{RECORD_FIELDS, RECORD_LABELS, RecordSight, ReleaseName},
        release::{self, Declared},
        scalers::{ScalerSight, Scalers},
        source::{Contact, Guardianship, Loaded},
        state::{ObjectState, StateId, States},
    },
    policy::Guard,
};

use super::{CLUSTER, pages, preload::Preloaded, progress::Progress, shapes::{self, Shapes}};

/// Judgements at the same time: two requests each, if they need any.
const JUDGING: usize = 16;
/// Release records read at the same time. Each may hold megabytes.
const LOADING: usize = 8;

/// Where releases are looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Everywhere.
    Cluster,
    /// In one namespace.
    Namespace(String),
}

/// One look at a cluster.
#[derive(Debug)]
pub struct Survey {
    examiner: Examiner,
    catalog: Arc<Catalog>,
    scalers: Scalers,
    scope: Scope,
}

impl Survey {
    /// Reads what every judgement needs: the kinds the cluster serves, and its autoscalers.
    pub async fn prepare(client: ApiClient, scope: Scope) -> anyhow::Result<Self> {
        let mut discovery = Discovery::default();
        discovery.refresh(&client).await.context("cannot read which kinds the cluster serves")?;
        let catalog = discovery.catalog();
        let scalers = scalers(&client, &catalog, &scope).await?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        Ok(Self { examiner: Examiner { client, states: States::default(), clock }, catalog, scalers, scope })
    }

    /// Judges releases.
    pub async fn releases(&self, only: Option<&str>) -> anyhow::Result<Vec<DriftReportStatus>> {
        let book = self.book().await?;
        let names: Vec<ReleaseName> = book.releases().filter(|release| only.is_none_or(|only| release.name == only)).cloned().collect();
        if let (Some(only), true) = (only, names.is_empty()) {
            anyhow::bail!("there is no release {only} here");
        }
        // What the other releases declare matters too: an object with two owners belongs to neither.
        let mut claims = Claims::default();
        let mut loaded = BTreeMap::new();
        for release in book.releases() {
            let mut guardianship = Guardianship::new(release.clone(), Arc::new(Guard::default_warn()), book.phase(release));
            let mut objects = Vec::new();
            if let Some(revision) = guardianship.judgeable().cloned() {
                match release::load(&self.examiner.client, &self.catalog, &revision.meta).await {
                    Ok(declared) => {
                        let ids = declared.objects.iter().map(|object| StateId::of(CLUSTER, &object.key)).collect();
                        claims.put(release, revision.clone(), ids);
                        objects = install(&mut guardianship, revision, declared);
                    }
                    Err(error) => guardianship.load_error = Some(error),
                }
            }
            if names.contains(release) {
                loaded.insert(release.clone(), (guardianship, objects));
            }
        }
        let mut statuses = Vec::new();
        let total = loaded.values().map(|(_, objects)| objects.len()).sum();
        let mut progress = Progress::new(total);
        for (release, (mut guardianship, objects)) in loaded {
            self.judge(&mut guardianship, objects, &claims, &release, &mut progress).await;
            statuses.push(self.status(&guardianship));
        }
        Ok(statuses)
    }

    /// Judges plain manifests.
    pub async fn manifests(&self, text: &str, namespace: &str) -> DriftReportStatus {
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
        let mut progress = Progress::new(objects.len());
        self.judge(&mut guardianship, objects, &Claims::default(), &name, &mut progress).await;
        let mut status = self.status(&guardianship);
        if let Some(source) = &mut status.source {
            source.kind = SourceKind::Manifests;
            source.revision = None;
        }
        status
    }

    async fn book(&self) -> anyhow::Result<Book> {
        let mut secrets = Endpoint::new("", "v1", "secrets")?;
        if let Scope::Namespace(namespace) = &self.scope {
            secrets = secrets.in_namespace(namespace)?;
        }
        let query = ListQuery { labels: RECORD_LABELS.to_owned(), fields: RECORD_FIELDS.to_owned(), ..ListQuery::default() };
        let mut book = Book::default();
        book.reset();
        pages(&self.examiner.client, &secrets, Shape::Metadata, query, |page| {
            for meta in parse_list(page).map_err(|_| CallError::BadAnswer)?.metas() {
                book.put(RecordSight::of(&meta.map_err(|_| CallError::BadAnswer)?));
            }
            Ok(())
        })
        .await
        .context("cannot list the release records (Secrets)")?;
        book.list_complete();
        Ok(book)
    }

    async fn judge(&self, guardianship: &mut Guardianship, objects: Vec<Arc<Guarded>>, claims: &Claims, release: &ReleaseName, progress: &mut Progress) {
        let revision = guardianship.judgeable().cloned();
        let prefer = guardianship.loaded.as_ref().map(|loaded| loaded.prefer);
        let judgements = stream::iter(objects).map(|guarded| {
            let others = claims.others(StateId::of(CLUSTER, &guarded.key), release);
            let context = JudgeContext {
                permit: Permit::Report(None),
                ignore: Vec::new(),
                ledger: None,
                writer: None,
                prefer,
                deployed_at: revision.as_ref().and_then(|revision| revision.deployed_at),
                scaler: self.scalers.of(&guarded.key).cloned(),
                trusted: false,
                also_declared_by: others.first().map(|other| format!("release {other}")),
                fence: None,
            };
            async move {
                let state = ObjectState::new(Arc::clone(&guarded.key), guarded.hash);
                let examined = self.examiner.examine(&guarded, state, &context).await;
                (guarded, examined)
            }
        });
        let mut judgements = Box::pin(judgements.buffer_unordered(JUDGING));
        while let Some((guarded, examined)) = judgements.next().await {
            let now = self.examiner.clock.now();
            guardianship.judged(StateId::of(CLUSTER, &guarded.key), &guarded.key, &examined.uid, &examined.judgement, now);
            progress.step();
        }
    }

    fn status(&self, guardianship: &Guardianship) -> DriftReportStatus {
        guardianship.status(&Contact { unreachable: None, stale: false, paused: false }, self.examiner.clock.now())
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
        // Nobody can compare it with another run: the key would have to be kept.
        hash: String::new(),
    });
    objects
}

fn revision_of(record: &Record) -> Revision {
    let meta = RecordMeta {
        secret_name: String::new(),
        name: record.name.clone(),
        namespace: record.namespace.clone(),
        version: record.version,
        status: record.status,
        uid: String::new(),
        resource_version: String::new(),
        created: None,
        modified: None,
    };
    Revision { judged: Judged { version: record.version, uid: String::new(), newest: record.version }, meta, deployed_at: None }
}

async fn scalers(client: &ApiClient, catalog: &Catalog, scope: &Scope) -> anyhow::Result<Scalers> {
    let mut scalers = Scalers::default();
    scalers.reset();
    if catalog.lookup(&Gvk::new("autoscaling/v2", "HorizontalPodAutoscaler")) != Lookup::NotServed {
        let mut endpoint = Endpoint::new("autoscaling", "v2", "horizontalpodautoscalers")?;
        if let Scope::Namespace(namespace) = scope {
            endpoint = endpoint.in_namespace(namespace)?;
        }
        let listed = pages(client, &endpoint, Shape::Full, ListQuery::default(), |page| {
            for item in parse_list(page).map_err(|_| CallError::BadAnswer)?.items {
                if let Some(scaler) = ScalerSight::of_hpa(item.get()) {
                    scalers.put(scaler);
                }
            }
            Ok(())
        })
        .await;
        match listed {
            Err(CallError::Forbidden) => eprintln!("holdfast: autoscalers cannot be listed with these rights; replicas they set show as drift"),
            other => other.context("cannot list autoscalers")?,
        }
    }
    scalers.list_complete();
    Ok(scalers)
}

async fn pages(
    client: &ApiClient,
    endpoint: &Endpoint,
    shape: Shape,
    query: ListQuery,
    mut page_read: impl FnMut(&[u8]) -> Result<(), CallError>,
) -> Result<(), CallError> {
    let mut query = ListQuery { limit: PAGE, consistent: true, ..query };
    loop {
        let answer = client.list(endpoint, shape, &query).await?;
        page_read(answer.bytes())?;
        let page = parse_list(answer.bytes()).map_err(|_| CallError::BadAnswer)?;
        match page.continue_token {
            Some(token) if !token.is_empty() => query.continue_token = token.into_owned(),
            _ => return Ok(()),
        }
    }
}

/// A counter on a terminal, so that a long scan does not look stuck.
struct Progress {
    total: usize,
    done: usize,
    shown: bool,
}

impl Progress {
    fn new(total: usize) -> Self {
        Self { total, done: 0, shown: std::io::stderr().is_terminal() }
    }

    fn step(&mut self) {
        self.done += 1;
        if self.shown && (self.done % 20 == 0 || self.done == self.total) {
            eprint!("\r{} of {} objects", self.done, self.total);
            if self.done == self.total {
                eprint!("\r\x1b[K");
            }
        }
    }
}
