//! The one task that owns everything known about a connected cluster. Watches deliver to it, calls run beside it, and every change of
//! state happens here, so there is nothing to lock.
//!
//! In: deliveries of the watches, finished [`Job`]s, the fleet view, timers. Out: jobs, reports, Events, metrics.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, stream::FuturesUnordered};
use holdfast_api::report::DriftReportStatus;
use holdfast_engine::{contest::Ledger, object::Gvk};
use holdfast_fleet::{
    call::{ApiClient, CallError},
    discovery::{Catalog, Discovery, DiscoveryError, Refreshed},
    kubeconfig::Kubeconfig,
    watch::{Delivery, SourceError},
};
use holdfast_helm::RecordMeta;
use jiff::Timestamp;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until, timeout_at},
};
use tokio_util::sync::CancellationToken;

use super::{
    admission::Admission,
    audit::Audit,
    book::Book,
    breaker::Breaker,
    claims::Claims,
    context::Examined,
    credentials::Credentials,
    definitions::Definitions,
    discovering::{DISCOVER_EVERY, SETTLED},
    following::Probe,
    guarded::Guarded,
    identities::{Claim, Seat},
    inquiry::Examiner,
    loads::Loads,
    memory::{Memory, Written},
    queue::{Due, Queue},
    records::ReleaseName,
    release::{self, Declared, LoadError},
    scalers::Scalers,
    shared::Shared,
    sighting::Sighting,
    source::{Contact, Guardianship},
    state::{ClusterId, StateId},
    suspensions::Suspensions,
    watching::Watching,
};
use crate::{
    fleet_view::{ClusterEntry, ClusterName, FleetView, Gate},
    policy::PolicySet,
    reports::ReportKey,
    state_secrets::{ClusterSecrets, StoredStanding},
};

/// Judgements that run at the same time on one cluster: each has at most two requests open.
const JUDGING: usize = 16;
/// Records read at the same time.
const LOADING: usize = 4;
/// Reports are computed this long after the first change, so that a burst is computed once.
const GATHER: Duration = Duration::from_millis(20);
/// How long judgements under way get when the hub stops or the cluster leaves. None of them begins a call any more; a write that was begun
/// is awaited for that long.
const WIND_DOWN: Duration = Duration::from_secs(2);
/// How often expired listings and stale watches are looked for.
const HOUSEKEEPING: Duration = Duration::from_secs(5);
/// Autoscalers that cannot be listed for this long keep writes off, not judgements.
const SCALERS_WITHIN: Duration = Duration::from_secs(30);

type Running = Pin<Box<dyn Future<Output = Job> + Send>>;

/// A call that has ended.
pub(super) enum Job {
    Examined { under: UnderWay, examined: Box<Examined> },
    Loaded { release: ReleaseName, meta: Box<RecordMeta>, catalog: Arc<Catalog>, result: Result<Declared, LoadError> },
    Discovered { discovery: Box<Discovery>, result: Result<Refreshed, DiscoveryError> },
    Audited { gvk: Gvk, result: Result<Audit, CallError> },
    Probed { number: u64, probe: Probe },
    Kept(Written),
    Asked { question: u64, answer: Result<Arc<str>, SourceError> },
    Reread(Option<Arc<Kubeconfig>>),
}

/// A judgement under way.
pub(super) struct UnderWay {
    pub(super) due: Due,
    pub(super) release: ReleaseName,
    pub(super) guarded: Arc<Guarded>,
    /// It relies on no earlier one.
    pub(super) afresh: bool,
}

/// A declared object and who declares it. Two claimants are possible, and then nobody writes.
pub(super) struct Slot {
    pub(super) claimants: Vec<(ReleaseName, Arc<Guarded>)>,
}

/// Why the actor ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The cluster left the fleet, is being deleted, or lost its credentials.
    Released,
    /// The credentials lead somewhere else: connect anew.
    Reconnect,
}

impl Ended {
    /// A word for logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Released => "Released",
            Self::Reconnect => "Reconnect",
        }
    }
}

/// What the actor starts with.
pub struct Start {
    /// Handles.
    pub shared: Arc<Shared>,
    /// The cluster as the management cluster describes it.
    pub entry: Arc<ClusterEntry>,
    /// The credentials that `client` has.
    pub credentials: Credentials,
    /// The policies.
    pub policies: Arc<PolicySet>,
    /// Id in the hash state.
    pub cluster: ClusterId,
    /// UID of its `kube-system` namespace.
    pub uid: Arc<str>,
    /// What may be done under this name of it.
    pub seat: Seat,
    /// Calls.
    pub client: ApiClient,
    /// Where what is known of the cluster is kept; `None` where it is not.
    pub secrets: Option<ClusterSecrets>,
    /// What an earlier process kept.
    pub(super) memory: Memory,
    /// Discovery, refreshed at least once.
    pub discovery: Discovery,
    /// Watches.
    pub watching: Watching,
    /// What they deliver.
    pub deliveries: mpsc::Receiver<Delivery<Sighting>>,
}

pub(super) struct Actor {
    pub(super) shared: Arc<Shared>,
    pub(super) name: ClusterName,
    pub(super) entry: Arc<ClusterEntry>,
    pub(super) policies: Arc<PolicySet>,
    pub(super) cluster: ClusterId,
    pub(super) credentials: Credentials,
    pub(super) uid: Arc<str>,
    pub(super) started: Instant,
    /// The leave to write, which moves with everything that a write depends on, and what this name of the cluster may do.
    pub(super) seat: Seat,
    /// Releases may be permitted otherwise now.
    pub(super) permits_due: bool,
    /// Why the actor is to end.
    pub(super) ended: Option<Ended>,
    pub(super) examiner: Examiner,
    pub(super) discovery: Option<Box<Discovery>>,
    pub(super) catalog: Arc<Catalog>,
    /// Answers of discovery since definitions changed last, or there was no doubt.
    pub(super) discoveries: u32,
    pub(super) definitions: Definitions,
    pub(super) suspensions: Suspensions,
    pub(super) watching: Watching,
    pub(super) book: Book,
    pub(super) scalers: Scalers,
    pub(super) admission: Arc<Admission>,
    scalers_due: Instant,
    pub(super) releases: BTreeMap<ReleaseName, Guardianship>,
    pub(super) claims: Claims,
    pub(super) loads: Loads,
    pub(super) objects: HashMap<StateId, Slot>,
    pub(super) skipped: HashSet<StateId>,
    /// Newest version seen of objects that are being judged: the echo of our own write is no news.
    pub(super) echoes: HashMap<StateId, u64>,
    /// Versions between the two writes of positional repairs: theirs are echoes too.
    pub(super) passed: HashMap<StateId, u64>,
    pub(super) ledgers: HashMap<StateId, Ledger>,
    pub(super) retries: HashMap<StateId, u32>,
    /// Objects that were read lately because somebody holds other fields of them than before, or are about to be.
    pub(super) additions_looked_for: HashMap<StateId, Instant>,
    /// Objects whose next judgement must not rely on an earlier one.
    pub(super) afresh: HashSet<StateId>,
    pub(super) secrets: Option<ClusterSecrets>,
    pub(super) memory: Memory,
    /// Objects that an earlier process has judged, until a fresh list shows whether that still holds.
    pub(super) awaiting: HashSet<StateId>,
    /// What was found of those that were not.
    pub(super) standing: HashMap<StateId, StoredStanding>,
    /// The lists for them are on their way.
    pub(super) is_confirming: bool,
    /// Until when ignore rules that ended were noticed.
    pub(super) rules_checked: Timestamp,
    pub(super) queue: Queue,
    pub(super) jobs: FuturesUnordered<Running>,
    pub(super) audits: HashMap<Gvk, Instant>,
    pub(super) auditing: HashSet<Gvk>,
    /// Kinds whose verdicts nothing backs.
    pub(super) stale_kinds: BTreeSet<Gvk>,
    /// Releases of which objects wait for their turn to be corrected.
    pub(super) paced: BTreeSet<ReleaseName>,
    pub(super) dirty: BTreeSet<ReleaseName>,
    pub(super) flush_at: Option<Instant>,
    /// Whether everything was judged when the policies were told last; `None` where they must be told anew.
    pub(super) tallied: Option<bool>,
    pub(super) discover_at: Instant,
    housekeeping_at: Instant,
    pub(super) contact: Contact,
    pub(super) breaker: Breaker,
}

/// What the actor leaves.
#[derive(Debug)]
pub struct Last {
    /// Why it ended.
    pub ended: Ended,
    /// The last statuses of the releases that were judged: what is stored may be a moment older.
    pub statuses: BTreeMap<ReportKey, DriftReportStatus>,
}

/// Runs a connected cluster until it is released, must be connected anew, or is told to stop.
pub async fn run(start: Start, mut fleet: watch::Receiver<Arc<FleetView>>, stop: &CancellationToken) -> Last {
    let Start {
        shared,
        entry,
        credentials,
        policies,
        cluster,
        uid,
        seat,
        client,
        secrets,
        memory,
        discovery,
        mut watching,
        mut deliveries,
    } = start;
    let now = Instant::now();
    let catalog = discovery.catalog();
    watching.start();
    let examiner = Examiner {
        client,
        states: shared.states.clone(),
        clock: Arc::clone(&shared.clock),
        intents: secrets.clone().into(),
        halt: CancellationToken::new(),
    };
    let rules_checked = shared.clock.now();
    let mut claim = seat.claim.clone();
    let mut actor = Actor {
        name: entry.name.clone(),
        contact: Contact {
            uid: Some(Arc::clone(&uid)),
            unreachable: None,
            stale: false,
            paused: entry.gate == Gate::Paused,
            claim: claim.borrow_and_update().clone(),
        },
        shared,
        entry,
        policies,
        cluster,
        credentials,
        uid,
        started: now,
        seat,
        permits_due: false,
        ended: None,
        examiner,
        discovery: Some(Box::new(discovery)),
        catalog,
        discoveries: SETTLED,
        definitions: Definitions::default(),
        suspensions: Suspensions::default(),
        watching,
        book: Book::default(),
        scalers: Scalers::default(),
        admission: Arc::default(),
        scalers_due: now + SCALERS_WITHIN,
        releases: BTreeMap::new(),
        claims: Claims::default(),
        loads: Loads::default(),
        objects: HashMap::new(),
        skipped: HashSet::new(),
        echoes: HashMap::new(),
        passed: HashMap::new(),
        ledgers: HashMap::new(),
        retries: HashMap::new(),
        additions_looked_for: HashMap::new(),
        afresh: HashSet::new(),
        secrets,
        memory,
        awaiting: HashSet::new(),
        standing: HashMap::new(),
        is_confirming: false,
        rules_checked,
        queue: Queue::default(),
        jobs: FuturesUnordered::new(),
        audits: HashMap::new(),
        auditing: HashSet::new(),
        stale_kinds: BTreeSet::new(),
        paced: BTreeSet::new(),
        dirty: BTreeSet::new(),
        flush_at: None,
        tallied: None,
        discover_at: now + DISCOVER_EVERY,
        housekeeping_at: now + HOUSEKEEPING,
        breaker: Breaker::default(),
    };
    actor.follow_what_rules();
    actor.publish_cluster();
    let ended = actor.run(&mut fleet, &mut claim, &mut deliveries, stop).await;
    // No write begins from here on, and no other call.
    actor.rules_moved();
    actor.examiner.halt.cancel();
    actor.wind_down().await;
    actor.keep_last().await;
    actor.forget_all();
    Last { ended, statuses: actor.statuses() }
}

impl Actor {
    async fn run(
        &mut self,
        fleet: &mut watch::Receiver<Arc<FleetView>>,
        claim: &mut watch::Receiver<Claim>,
        deliveries: &mut mpsc::Receiver<Delivery<Sighting>>,
        stop: &CancellationToken,
    ) -> Ended {
        loop {
            self.start_jobs();
            let wake = self.next_wake();
            // Every branch is cancel-safe: channels and the set of jobs keep what was not taken, and the timer starts anew.
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ended::Released,
                changed = fleet.changed() => {
                    if changed.is_err() {
                        return Ended::Released;
                    }
                    let view = Arc::clone(&fleet.borrow_and_update());
                    if let Some(ended) = self.follow(&view) {
                        return ended;
                    }
                }
                changed = claim.changed() => {
                    if changed.is_err() {
                        return Ended::Released;
                    }
                    let now = claim.borrow_and_update().clone();
                    self.claim_changed(now);
                }
                Some(job) = self.jobs.next(), if !self.jobs.is_empty() => self.finish(job),
                delivery = deliveries.recv() => match delivery {
                    Some(delivery) => self.deliver(delivery),
                    None => return Ended::Reconnect,
                },
                () = sleep_until(wake) => {}
            }
            self.tick();
            if let Some(ended) = self.ended {
                return ended;
            }
        }
    }

    /// Takes in the judgements under way: a write whose answer nobody awaited would be missing in the log and in the report.
    async fn wind_down(&mut self) {
        let until = Instant::now() + WIND_DOWN;
        while self.queue.in_flight() > 0 || self.memory.is_writing() {
            let Ok(Some(job)) = timeout_at(until, self.jobs.next()).await else { break };
            self.finish(job);
        }
        self.flush();
    }

    fn next_wake(&self) -> Instant {
        let judging = if self.may_judge() { self.queue.next() } else { None };
        let audits = self.audits.iter().filter(|(gvk, _)| !self.auditing.contains(*gvk)).map(|(_, at)| *at).min();
        let times = [
            judging.filter(|_| self.queue.in_flight() < JUDGING),
            audits.filter(|_| !self.breaker.holds()),
            self.flush_at,
            Some(self.discover_at).filter(|_| self.discovery.is_some() && !self.breaker.holds()),
            self.breaker.next(),
            self.untold_until(),
            self.credentials.next(),
            self.loads.next(LOADING).filter(|_| !self.breaker.holds()),
            self.memory.next(),
            self.suspensions.next(),
            self.next_turn().filter(|_| !self.breaker.holds()),
        ];
        times.into_iter().flatten().chain([self.housekeeping_at]).min().unwrap_or(self.housekeeping_at)
    }

    /// Records, claims and autoscalers are known: before, an object might have a second owner or somebody who scales it. What stays
    /// unknown keeps writes back, not judgements.
    pub(super) fn may_judge(&self) -> bool {
        self.book.complete
            && !self.loads.hold_judgements()
            && !self.breaker.holds()
            && (self.scalers.are_complete() || Instant::now() >= self.scalers_due)
    }

    fn start_jobs(&mut self) {
        let now = Instant::now();
        self.probe(now);
        self.ask_for_life(now);
        self.start_keeping(now);
        if self.breaker.holds() {
            return;
        }
        while let Some(release) = self.loads.start(now, LOADING) {
            self.start_load(release);
        }
        self.call_turns(now);
        while self.may_judge() && self.queue.in_flight() < JUDGING {
            let Some(due) = self.queue.pop(now) else { break };
            self.start_judgement(due);
        }
        self.start_recalled(now);
        self.start_keeping(now);
        self.start_discovery(now);
        let due: Vec<Gvk> =
            self.audits.iter().filter(|(gvk, at)| **at <= now && !self.auditing.contains(*gvk)).map(|(gvk, _)| gvk.clone()).collect();
        for gvk in due {
            self.start_audit(gvk);
        }
    }

    fn start_load(&mut self, release: ReleaseName) {
        let Some(meta) = self.wanted_record(&release) else {
            self.loads.ended(&release);
            self.loads.unwant(&release);
            self.permits_due = true;
            return;
        };
        let (client, catalog) = (self.examiner.client.clone(), Arc::clone(&self.catalog));
        self.jobs.push(Box::pin(async move {
            let result = release::load(&client, &catalog, &meta).await;
            Job::Loaded { release, meta: Box::new(meta), catalog, result }
        }));
    }

    fn start_judgement(&mut self, due: Due) {
        let Some((under, state, context)) = self.prepare(due) else {
            self.queue.done(due.id);
            return;
        };
        let examiner = self.examiner.clone();
        self.jobs.push(Box::pin(async move {
            let judged = examiner.examine(&under.guarded, state, &context).await;
            Job::Examined { under, examined: Box::new(judged) }
        }));
    }

    fn finish(&mut self, job: Job) {
        match job {
            Job::Examined { under, examined } => self.examined(&under, *examined),
            Job::Loaded { release, meta, catalog, result } => {
                self.loads.ended(&release);
                self.loaded(&release, &meta, &catalog, result);
            }
            Job::Discovered { discovery, result } => self.discovered(discovery, result),
            Job::Audited { gvk, result } => self.audited(&gvk, result),
            Job::Probed { number, probe } => self.probed(number, probe),
            Job::Kept(written) => self.kept(&written),
            Job::Asked { question, answer } => self.asked(question, answer),
            Job::Reread(kubeconfig) => {
                if let Some(kubeconfig) = kubeconfig {
                    self.offered(&kubeconfig);
                }
            }
        }
    }

    fn tick(&mut self) {
        let now = Instant::now();
        self.tell_of_outage(now);
        self.retry_namespaces(now);
        if self.flush_at.is_some_and(|at| at <= now) {
            self.flush_at = None;
            self.flush();
        }
        if self.housekeeping_at <= now {
            self.housekeeping_at = now + HOUSEKEEPING;
            self.review_freshness(now);
            if self.watching.all_broken() {
                self.unreached(false);
            }
            self.expire_listings();
            self.expire_rules();
            self.review_blasts();
            // Autoscalers go out of sight with time.
            self.permits_due = true;
        }
        if std::mem::take(&mut self.permits_due) {
            self.review_permits(now);
        }
    }

    pub(super) fn all_dirty(&mut self) {
        self.dirty.extend(self.releases.keys().cloned());
        self.flush_soon();
        self.publish_cluster();
    }

    /// Reports are handed in at `at` or earlier.
    pub(super) fn flush_by(&mut self, at: Instant) {
        self.flush_at = Some(self.flush_at.map_or(at, |before| before.min(at)));
    }

    pub(super) fn flush_soon(&mut self) {
        self.flush_by(Instant::now() + GATHER);
    }
}
