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
use holdfast_engine::{contest::Ledger, object::Gvk};
use holdfast_fleet::{
    call::{ApiClient, CallError, Endpoint},
    discovery::{Catalog, Discovery, DiscoveryError, Refreshed},
    watch::Delivery,
};
use holdfast_helm::RecordMeta;
use jiff::Timestamp;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until, timeout_at},
};
use tokio_util::sync::CancellationToken;

use super::{
    audit::{Audit, audit},
    book::Book,
    claims::Claims,
    guarded::Guarded,
    inquiry::{Examined, Examiner},
    queue::{Due, Queue},
    records::ReleaseName,
    release::{self, Declared, LoadError},
    scalers::Scalers,
    shared::Shared,
    sighting::Sighting,
    source::{Contact, Guardianship},
    state::{ClusterId, StateId},
    watching::Watching,
};
use crate::{
    fleet_view::{ClusterEntry, ClusterName, Credential, FleetView, Gate},
    policy::PolicySet,
};

/// Judgements that run at the same time on one cluster: each has at most two requests open.
const JUDGING: usize = 16;
/// Records read at the same time.
const LOADING: usize = 4;
/// Reports are computed this long after the first change, so that a burst is computed once.
const GATHER: Duration = Duration::from_millis(20);
/// Definitions change in bursts.
pub(super) const DISCOVER_AFTER: Duration = Duration::from_millis(100);
/// Discovery is refreshed at least this often: aggregated groups come and go without an event. Costs two conditional requests.
const DISCOVER_EVERY: Duration = Duration::from_mins(5);
/// How long judgements under way get when the hub stops or the cluster leaves.
const WIND_DOWN: Duration = Duration::from_secs(1);
/// How often expired listings and stale watches are looked for.
const HOUSEKEEPING: Duration = Duration::from_secs(5);
/// A watch that is broken for longer backs no verdict.
const STALE_AFTER: Duration = Duration::from_mins(1);
/// Every object is compared in full once in this time, a few with each audit: admission that left no trace in any metadata.
const FULL_EVERY: Duration = Duration::from_hours(24);
/// A start has just compared everything.
const FULL_AFTER: Duration = Duration::from_hours(1);
/// Autoscalers that cannot be listed for this long keep writes off, not judgements.
const SCALERS_WITHIN: Duration = Duration::from_secs(30);

type Running = Pin<Box<dyn Future<Output = Job> + Send>>;

/// A call that has ended.
pub(super) enum Job {
    Examined { due: Due, release: ReleaseName, examined: Box<Examined> },
    Loaded { release: ReleaseName, meta: Box<RecordMeta>, result: Result<Declared, LoadError> },
    Discovered { discovery: Box<Discovery>, result: Result<Refreshed, DiscoveryError> },
    Audited { gvk: Gvk, result: Result<Audit, CallError> },
    Probed { client: ApiClient, result: Result<(), &'static str> },
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

/// What the actor starts with.
pub struct Start {
    /// Handles.
    pub shared: Arc<Shared>,
    /// The cluster as the management cluster describes it.
    pub entry: Arc<ClusterEntry>,
    /// The policies.
    pub policies: Arc<PolicySet>,
    /// Id in the hash state.
    pub cluster: ClusterId,
    /// UID of its `kube-system` namespace.
    pub uid: Arc<str>,
    /// Calls.
    pub client: ApiClient,
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
    uid: Arc<str>,
    started: Instant,
    pub(super) examiner: Examiner,
    discovery: Option<Box<Discovery>>,
    pub(super) catalog: Arc<Catalog>,
    pub(super) watching: Watching,
    pub(super) book: Book,
    pub(super) scalers: Scalers,
    scalers_due: Instant,
    pub(super) releases: BTreeMap<ReleaseName, Guardianship>,
    pub(super) claims: Claims,
    pub(super) load_errors: BTreeMap<ReleaseName, (u64, String)>,
    pub(super) loading: BTreeSet<ReleaseName>,
    pub(super) to_load: BTreeSet<ReleaseName>,
    pub(super) objects: HashMap<StateId, Slot>,
    pub(super) skipped: HashSet<StateId>,
    /// Newest version seen of objects that are being judged: the echo of our own write is no news.
    pub(super) echoes: HashMap<StateId, u64>,
    /// Versions between the two writes of positional repairs: theirs are echoes too.
    pub(super) passed: HashMap<StateId, u64>,
    pub(super) ledgers: HashMap<StateId, Ledger>,
    pub(super) retries: HashMap<StateId, u32>,
    /// Objects whose next judgement must not rely on an earlier one.
    pub(super) afresh: HashSet<StateId>,
    /// Until when ignore rules that ended were noticed.
    pub(super) rules_checked: Timestamp,
    pub(super) queue: Queue,
    jobs: FuturesUnordered<Running>,
    pub(super) audits: HashMap<Gvk, Instant>,
    auditing: HashSet<Gvk>,
    pub(super) dirty: BTreeSet<ReleaseName>,
    pub(super) flush_at: Option<Instant>,
    pub(super) discover_at: Instant,
    housekeeping_at: Instant,
    pub(super) contact: Contact,
    failures: u32,
    resume_at: Option<Instant>,
}

/// Runs a connected cluster until it is released, must be connected anew, or is told to stop.
pub async fn run(start: Start, mut fleet: watch::Receiver<Arc<FleetView>>, stop: &CancellationToken) -> Ended {
    let Start { shared, entry, policies, cluster, uid, client, discovery, mut watching, mut deliveries } = start;
    let now = Instant::now();
    let catalog = discovery.catalog();
    let has_scalers = watching.start(&catalog);
    let examiner = Examiner { client, states: shared.states.clone(), clock: Arc::clone(&shared.clock) };
    let rules_checked = shared.clock.now();
    let mut actor = Actor {
        name: entry.name.clone(),
        contact: Contact { unreachable: None, stale: false, paused: entry.gate == Gate::Paused },
        shared,
        entry,
        policies,
        cluster,
        uid,
        started: now,
        examiner,
        discovery: Some(Box::new(discovery)),
        catalog,
        watching,
        book: Book::default(),
        scalers: if has_scalers { Scalers::default() } else { Scalers::none() },
        scalers_due: now + SCALERS_WITHIN,
        releases: BTreeMap::new(),
        claims: Claims::default(),
        load_errors: BTreeMap::new(),
        loading: BTreeSet::new(),
        to_load: BTreeSet::new(),
        objects: HashMap::new(),
        skipped: HashSet::new(),
        echoes: HashMap::new(),
        passed: HashMap::new(),
        ledgers: HashMap::new(),
        retries: HashMap::new(),
        afresh: HashSet::new(),
        rules_checked,
        queue: Queue::default(),
        jobs: FuturesUnordered::new(),
        audits: HashMap::new(),
        auditing: HashSet::new(),
        dirty: BTreeSet::new(),
        flush_at: None,
        discover_at: now + DISCOVER_EVERY,
        housekeeping_at: now + HOUSEKEEPING,
        failures: 0,
        resume_at: None,
    };
    actor.publish_cluster();
    let ended = actor.run(&mut fleet, &mut deliveries, stop).await;
    actor.forget_all();
    ended
}

impl Actor {
    async fn run(
        &mut self,
        fleet: &mut watch::Receiver<Arc<FleetView>>,
        deliveries: &mut mpsc::Receiver<Delivery<Sighting>>,
        stop: &CancellationToken,
    ) -> Ended {
        loop {
            self.start_jobs();
            let wake = self.next_wake();
            // Every branch is cancel-safe: channels and the set of jobs keep what was not taken, and the timer starts anew.
            tokio::select! {
                biased;
                () = stop.cancelled() => {
                    self.wind_down().await;
                    return Ended::Released;
                }
                changed = fleet.changed() => {
                    if changed.is_err() {
                        return Ended::Released;
                    }
                    let view = Arc::clone(&fleet.borrow_and_update());
                    if let Some(ended) = self.follow(&view) {
                        return ended;
                    }
                }
                Some(job) = self.jobs.next(), if !self.jobs.is_empty() => self.finish(job),
                delivery = deliveries.recv() => match delivery {
                    Some(delivery) => self.deliver(delivery),
                    None => return Ended::Reconnect,
                },
                () = sleep_until(wake) => {}
            }
            self.tick();
        }
    }

    /// Takes in the judgements under way: a write whose answer nobody awaited would be missing in the log and in the report.
    async fn wind_down(&mut self) {
        let until = Instant::now() + WIND_DOWN;
        while self.queue.in_flight() > 0 {
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
            audits,
            self.flush_at,
            Some(self.discover_at).filter(|_| self.discovery.is_some()),
            self.resume_at,
        ];
        times.into_iter().flatten().chain([self.housekeeping_at]).min().unwrap_or(self.housekeeping_at)
    }

    /// Records, claims and autoscalers are known: before, an object might have a second owner or somebody who scales it.
    pub(super) fn may_judge(&self) -> bool {
        self.book.complete
            && self.to_load.is_empty()
            && self.loading.is_empty()
            && self.resume_at.is_none()
            && (self.scalers.complete || Instant::now() >= self.scalers_due)
    }

    fn start_jobs(&mut self) {
        let now = Instant::now();
        if self.resume_at.is_some_and(|at| at <= now) {
            self.resume_at = None;
        }
        while self.loading.len() < LOADING && self.resume_at.is_none() {
            let Some(release) = self.to_load.pop_first() else { break };
            self.start_load(release);
        }
        while self.may_judge() && self.queue.in_flight() < JUDGING {
            let Some(due) = self.queue.pop(now) else { break };
            self.start_judgement(due);
        }
        if self.discover_at <= now
            && let Some(mut discovery) = self.discovery.take()
        {
            let client = self.examiner.client.clone();
            self.jobs.push(Box::pin(async move {
                let result = discovery.refresh(&client).await;
                Job::Discovered { discovery, result }
            }));
        }
        let due: Vec<Gvk> =
            self.audits.iter().filter(|(gvk, at)| **at <= now && !self.auditing.contains(*gvk)).map(|(gvk, _)| gvk.clone()).collect();
        for gvk in due {
            self.start_audit(gvk);
        }
    }

    fn start_load(&mut self, release: ReleaseName) {
        let Some(meta) = self.wanted_record(&release) else { return };
        self.loading.insert(release.clone());
        let (client, catalog) = (self.examiner.client.clone(), Arc::clone(&self.catalog));
        self.jobs.push(Box::pin(async move {
            let result = release::load(&client, &catalog, &meta).await;
            Job::Loaded { release, meta: Box::new(meta), result }
        }));
    }

    fn start_judgement(&mut self, due: Due) {
        let Some((release, guarded, state, context)) = self.prepare(due) else {
            self.queue.done(due.id);
            return;
        };
        let examiner = self.examiner.clone();
        self.jobs.push(Box::pin(async move {
            let judged = examiner.examine(&guarded, state, &context).await;
            Job::Examined { due, release, examined: Box::new(judged) }
        }));
    }

    fn start_audit(&mut self, gvk: Gvk) {
        let endpoint = self.watching.kinds().find(|(kind, _)| **kind == gvk).map(|(_, key)| key.endpoint().clone());
        let Some(endpoint) = endpoint else {
            self.audits.remove(&gvk);
            return;
        };
        self.auditing.insert(gvk.clone());
        let (client, decoder) = (self.examiner.client.clone(), self.watching.decoder().clone());
        self.jobs.push(Box::pin(async move {
            let result = audit(&client, &decoder, &gvk, &endpoint).await;
            Job::Audited { gvk, result }
        }));
    }

    fn finish(&mut self, job: Job) {
        match job {
            Job::Examined { due, release, examined } => self.examined(due, &release, *examined),
            Job::Loaded { release, meta, result } => {
                self.loading.remove(&release);
                self.loaded(&release, &meta, result);
            }
            Job::Discovered { discovery, result } => {
                self.discovery = Some(discovery);
                self.discover_at = Instant::now() + DISCOVER_EVERY;
                match result {
                    Ok(Refreshed::Changed(catalog)) => self.rediscovered(catalog),
                    Ok(Refreshed::Unchanged) => {}
                    Err(error) => {
                        tracing::debug!(cluster = %self.name, reason = error.category(), "discovery failed");
                        self.discover_at = Instant::now() + Duration::from_secs(15);
                    }
                }
            }
            Job::Audited { gvk, result } => self.audited(&gvk, result),
            Job::Probed { client, result } => match result {
                Ok(()) => {
                    self.watching.move_to(Arc::new(client.clone()));
                    self.examiner.client = client;
                    self.reached();
                }
                Err(reason) => self.unreached(reason),
            },
        }
    }

    fn audited(&mut self, gvk: &Gvk, result: Result<Audit, CallError>) {
        self.auditing.remove(gvk);
        self.schedule_audit(gvk);
        let now = Instant::now();
        match result {
            Ok(audit) => {
                self.reached();
                for (id, news) in audit.changed {
                    self.notice(id, news, now);
                }
                self.look_for_missing(gvk, &audit.listed, now);
                self.compare_some(gvk, &audit.listed, now);
            }
            Err(error) if error.is_connection() => self.unreached(error.category()),
            Err(error) => tracing::debug!(cluster = %self.name, %gvk, reason = error.category(), "audit failed"),
        }
    }

    /// The share of a kind's objects whose turn it is to be compared in full.
    fn compare_some(&mut self, gvk: &Gvk, listed: &HashSet<StateId>, now: Instant) {
        let uptime = now.duration_since(self.started);
        if uptime < FULL_AFTER {
            return;
        }
        let interval = self.audit_interval(gvk).as_secs().max(1);
        let turns = (FULL_EVERY.as_secs() / interval).max(1);
        let turn = (uptime.as_secs() / interval) % turns;
        for id in listed.iter().filter(|id| id.turn(turns) == turn) {
            self.queue.push(*id, now, now);
        }
    }

    /// A complete list does not hold these declared objects: each is read without a selector before anything is concluded.
    pub(super) fn look_for_missing(&mut self, gvk: &Gvk, listed: &HashSet<StateId>, now: Instant) {
        let unlisted: Vec<StateId> = self
            .objects
            .iter()
            .filter(|(id, slot)| !listed.contains(*id) && slot.claimants.first().is_some_and(|(_, guarded)| *guarded.key.gvk == *gvk))
            .map(|(id, _)| *id)
            .collect();
        for id in unlisted {
            self.queue.push(id, now, now);
        }
    }

    /// Follows the management cluster: policies, gate, credentials.
    fn follow(&mut self, view: &FleetView) -> Option<Ended> {
        if !view.complete {
            return None;
        }
        let Some(entry) = view.clusters.get(&self.name).filter(|_| view.guards(&self.name)) else { return Some(Ended::Released) };
        if matches!(entry.gate, Gate::Deleting | Gate::NotInitialised) || entry.owner.uid != self.entry.owner.uid {
            return Some(Ended::Released);
        }
        match &entry.credential {
            Credential::Ready(next) => {
                let old = match &self.entry.credential {
                    Credential::Ready(old) => Some(old),
                    _ => self.entry.previous.as_ref(),
                };
                let same = old.is_some_and(|old| old.fingerprint() == next.fingerprint());
                if !same && !self.examiner.client.connection().swap_token(next) {
                    match super::connect(&self.shared, next) {
                        Ok(client) => self.probe(client),
                        Err(reason) => self.unreached(reason),
                    }
                }
            }
            Credential::Rejected(_) => return Some(Ended::Released),
            // The running connection goes on until the server refuses it.
            Credential::Missing => {}
        }
        let policies_changed = !Arc::ptr_eq(&self.policies, &view.policies) || self.entry.labels != entry.labels;
        let gate_changed = self.entry.gate != entry.gate;
        self.entry = Arc::clone(entry);
        self.policies = Arc::clone(&view.policies);
        if policies_changed || gate_changed {
            self.contact.paused = self.entry.gate == Gate::Paused;
            self.policies_changed();
        }
        None
    }

    /// Make before break: the new credentials must lead to the same cluster before anything moves.
    fn probe(&mut self, client: ApiClient) {
        let uid = Arc::clone(&self.uid);
        self.jobs.push(Box::pin(async move {
            let result = match holdfast_fleet::discovery::cluster_uid(&client).await {
                Ok(found) if found == uid => Ok(()),
                Ok(_) => Err("OtherCluster"),
                Err(error) => Err(error.category()),
            };
            Job::Probed { client, result }
        }));
    }

    fn tick(&mut self) {
        let now = Instant::now();
        if self.flush_at.is_some_and(|at| at <= now) {
            self.flush_at = None;
            self.flush();
        }
        if self.housekeeping_at <= now {
            self.housekeeping_at = now + HOUSEKEEPING;
            let stale = self.watching.broken_since().is_some_and(|since| now.duration_since(since) > STALE_AFTER);
            if stale != self.contact.stale {
                self.contact.stale = stale;
                self.all_dirty();
            }
            self.expire_listings();
            self.expire_rules();
        }
    }

    pub(super) fn reached(&mut self) {
        self.failures = 0;
        self.resume_at = None;
        if self.contact.unreachable.take().is_some() {
            tracing::info!(cluster = %self.name, "the cluster answers again");
            self.all_dirty();
        }
    }

    pub(super) fn unreached(&mut self, reason: &'static str) {
        let now = Instant::now();
        if self.resume_at.is_some_and(|at| at > now) {
            return;
        }
        self.failures = (self.failures + 1).min(7);
        let jitter = Duration::from_millis(u64::from(rand::random::<u16>() % 500));
        self.resume_at = Some(now + Duration::from_millis(500) * 2_u32.pow(self.failures) + jitter);
        if self.contact.unreachable != Some(reason) {
            if self.contact.unreachable.is_none() {
                tracing::warn!(cluster = %self.name, reason, "the cluster cannot be reached");
            }
            self.contact.unreachable = Some(reason);
            self.all_dirty();
        }
    }

    pub(super) fn all_dirty(&mut self) {
        self.dirty.extend(self.releases.keys().cloned());
        self.flush_soon();
        self.publish_cluster();
    }

    pub(super) fn flush_soon(&mut self) {
        self.flush_at.get_or_insert_with(|| Instant::now() + GATHER);
    }

    /// Watches exactly the kinds that guarded releases declare.
    pub(super) fn watch_kinds(&mut self) {
        let mut wanted: BTreeMap<Gvk, Endpoint> = BTreeMap::new();
        for (_, guarded) in self.objects.values().flat_map(|slot| &slot.claimants) {
            let gvk = &*guarded.key.gvk;
            if !wanted.contains_key(gvk)
                && let Ok(endpoint) = Endpoint::new(&gvk.group, &gvk.version, &guarded.resource.plural)
            {
                wanted.insert(gvk.clone(), endpoint);
            }
        }
        self.watching.want(&wanted);
        self.audits.retain(|gvk, _| wanted.contains_key(gvk));
        for gvk in wanted.keys() {
            if !self.audits.contains_key(gvk) {
                self.schedule_audit(gvk);
            }
        }
    }

    fn schedule_audit(&mut self, gvk: &Gvk) {
        let interval = self.audit_interval(gvk);
        // A tenth earlier or later, so that clusters and kinds spread out.
        let jitter = 0.9 + f64::from(rand::random::<u16>()) / f64::from(u16::MAX) * 0.2;
        self.audits.insert(gvk.clone(), Instant::now() + interval.mul_f64(jitter));
    }
}
