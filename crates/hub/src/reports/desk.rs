//! The state of all reports: what is wanted, what is stored, what is due. Synchronous, and told the time.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use holdfast_api::report::DriftReportStatus;
use holdfast_fleet::backoff::{Backoff, BackoffPolicy};
use tokio::time::Instant;

use super::{
    ReportKey,
    content::{Content, same, settled},
    wire::{Live, Write, Written},
};
use crate::{
    fleet_view::{ClusterName, FleetView, ObjectName, OwnerRef},
    management::Failure,
};

/// Shortest time between two writes of one report.
const GAP: Duration = Duration::from_secs(1);
/// How long a report that somebody else edited or deleted stays so, unless its status changes: somebody who does it over and over gets
/// two answers a minute.
const REPAIR: Duration = Duration::from_secs(30);

#[derive(Default)]
pub struct Desk {
    slots: BTreeMap<ObjectName, Slot>,
    live: BTreeMap<ObjectName, Live>,
    /// The slots' due times, earliest first.
    schedule: BTreeSet<(Instant, ObjectName)>,
    /// What a list under way has brought so far.
    reading: Option<BTreeMap<ObjectName, Live>>,
    /// Whether a list was completed. Before, nothing is written: what is not known to exist cannot be compared.
    ready: bool,
}

struct Slot {
    key: ReportKey,
    owner: OwnerRef,
    /// The status the report should have; `None` where it should not exist.
    want: Option<Arc<DriftReportStatus>>,
    /// Moves with `want` and `owner`, so that the end of a write knows whether it is outdated.
    edition: u64,
    writing: bool,
    due: Option<Instant>,
    last_write: Option<Instant>,
    failures: Option<Backoff>,
    /// What the server made of our last write: where it never stores exactly what it is sent, this counts as right too.
    answer: Option<(u64, Content)>,
    /// Somebody else changed the report since.
    disturbed: bool,
}

/// A write to carry out.
#[derive(Clone, Debug)]
pub struct Job {
    pub name: ObjectName,
    pub key: ReportKey,
    pub owner: OwnerRef,
    pub status: Arc<DriftReportStatus>,
    pub write: Write,
    edition: u64,
}

impl Slot {
    fn new(key: ReportKey, owner: OwnerRef, want: Option<Arc<DriftReportStatus>>) -> Self {
        Self { key, owner, want, edition: 0, writing: false, due: None, last_write: None, failures: None, answer: None, disturbed: false }
    }

    /// What is to be done about the report as it is stored; `None` where it is as it should be.
    fn plan(&self, live: Option<&Live>) -> Option<Write> {
        match (&self.want, live) {
            (Some(_), None) => Some(Write::Create),
            (Some(want), Some(live)) => {
                let answered = self.answer.as_ref().is_some_and(|(edition, content)| *edition == self.edition && *content == live.content);
                let frame = !live.content.has_frame(&self.key, &self.owner);
                let differs = frame || !live.content.has_status(want);
                (differs && !answered).then(|| Write::Update { uid: live.uid.clone(), version: live.version.clone(), frame })
            }
            (None, Some(live)) => Some(Write::Delete { uid: live.uid.clone() }),
            (None, None) => None,
        }
    }
}

impl Desk {
    /// Takes a status; says whether there may be something to write.
    pub fn publish(&mut self, key: ReportKey, owner: OwnerRef, status: Arc<DriftReportStatus>, now: Instant) -> bool {
        let name = key.object_name();
        let slot = self.slots.entry(name.clone()).or_insert_with(|| Slot::new(key, owner.clone(), None));
        let nothing_new = slot.owner == owner && slot.want.as_ref().is_some_and(|want| same(want, &status));
        if nothing_new && !slot.disturbed {
            return false;
        }
        if !nothing_new {
            slot.want = Some(status);
            slot.owner = owner;
            slot.edition += 1;
        }
        let earliest = slot.last_write.map_or(now, |last| now.max(last + GAP));
        // A report that keeps failing is not tried faster because it has news.
        let due = if slot.failures.is_some() { slot.due.unwrap_or(earliest) } else { earliest };
        self.schedule(&name, due);
        true
    }

    /// Lets a report be deleted.
    pub fn retire(&mut self, key: &ReportKey, now: Instant) {
        let name = key.object_name();
        if self.ready && !self.live.contains_key(&name) && self.slots.get(&name).is_none_or(|slot| !slot.writing) {
            self.forget(&name);
            return;
        }
        // Who owned a report does not matter for its deletion.
        let nobody = OwnerRef { api_version: Arc::from(""), kind: Arc::from(""), name: Arc::from(""), uid: Arc::from("") };
        let slot = self.slots.entry(name.clone()).or_insert_with(|| Slot::new(key.clone(), nobody, None));
        if slot.want.take().is_some() {
            slot.edition += 1;
        }
        self.schedule(&name, now);
    }

    /// Lets all reports be deleted whose key is meant.
    pub fn retire_where(&mut self, meant: impl Fn(&ReportKey) -> bool, now: Instant) {
        for key in self.keys().filter(|key| meant(key)).cloned().collect::<BTreeSet<_>>() {
            self.retire(&key, now);
        }
    }

    /// Lets the reports be deleted of clusters that are gone from the fleet or no longer guarded.
    pub fn prune(&mut self, view: &FleetView, now: Instant) {
        if view.complete && self.ready {
            self.retire_where(|key| !view.guards(&key.cluster), now);
        }
    }

    fn keys(&self) -> impl Iterator<Item = &ReportKey> {
        self.slots.values().map(|slot| &slot.key).chain(self.live.values().filter_map(|live| live.key.as_ref()))
    }

    /// Keys of a cluster's reports that exist or are wanted.
    pub fn known(&self, cluster: &ClusterName) -> Vec<ReportKey> {
        let going = |key: &ReportKey| self.slots.get(&key.object_name()).is_some_and(|slot| slot.want.is_none());
        let keys: BTreeSet<_> = self.keys().filter(|key| key.cluster == *cluster && !going(key)).collect();
        keys.into_iter().cloned().collect()
    }

    /// The stored status of a report.
    pub fn stored(&self, key: &ReportKey) -> Option<Arc<DriftReportStatus>> {
        self.live.get(&key.object_name())?.content.status.clone().map(Arc::new)
    }

    /// The same where the report has this owner.
    pub fn stored_of(&self, key: &ReportKey, owner: &OwnerRef) -> Option<Arc<DriftReportStatus>> {
        let content = &self.live.get(&key.object_name())?.content;
        content.owners.iter().any(|uid| **uid == *owner.uid).then(|| content.status.clone().map(Arc::new))?
    }

    /// The UID of a stored report.
    pub fn uid(&self, key: &ReportKey) -> Option<String> {
        self.live.get(&key.object_name()).map(|live| live.uid.clone())
    }

    /// Makes everything due now: the hub ends and wants its last words written.
    pub fn hurry(&mut self, now: Instant) {
        for name in self.schedule.iter().map(|(_, name)| name.clone()).collect::<Vec<_>>() {
            self.schedule(&name, now);
        }
    }

    /// When the next write is due.
    pub fn next_due(&self) -> Option<Instant> {
        if self.ready { self.schedule.first().map(|(due, _)| *due) } else { None }
    }

    /// At most `room` writes that are due.
    pub fn take_due(&mut self, now: Instant, room: usize) -> Vec<Job> {
        let mut jobs = Vec::new();
        while self.ready && jobs.len() < room {
            let Some((due, name)) = self.schedule.first().cloned() else { break };
            if due > now {
                break;
            }
            self.unschedule(&name);
            let live = self.live.get(&name);
            let Some(slot) = self.slots.get_mut(&name) else { continue };
            let Some(write) = slot.plan(live) else {
                slot.disturbed = false;
                if slot.want.is_none() {
                    self.forget(&name);
                }
                continue;
            };
            slot.writing = true;
            let stored = live
                .and_then(|live| live.content.status.as_ref())
                .or_else(|| slot.answer.as_ref().and_then(|(_, content)| content.status.as_ref()));
            let status = match (&slot.want, stored) {
                (Some(want), Some(stored)) => Arc::new(settled(stored, DriftReportStatus::clone(want))),
                (Some(want), None) => Arc::clone(want),
                (None, _) => Arc::default(),
            };
            jobs.push(Job { key: slot.key.clone(), owner: slot.owner.clone(), status, write, edition: slot.edition, name });
        }
        jobs
    }

    /// Takes the end of a write.
    pub fn finished(&mut self, job: &Job, outcome: Result<Written, Failure>, now: Instant) {
        let name = &job.name;
        let Some(slot) = self.slots.get_mut(name) else { return };
        slot.writing = false;
        slot.last_write = Some(now);
        let outdated = slot.edition != job.edition;
        let again = match outcome {
            Ok(Written::Stands(live)) => {
                slot.answer = Some((job.edition, live.content.clone()));
                slot.disturbed = false;
                slot.failures = None;
                self.live.insert(name.clone(), live);
                outdated.then_some(now + GAP)
            }
            Ok(Written::Gone) => {
                self.live.remove(name);
                slot.answer = None;
                slot.failures = None;
                slot.want.is_some().then_some(now + GAP)
            }
            Ok(Written::Overtaken(live)) => {
                match live {
                    Some(live) => self.live.insert(name.clone(), live),
                    None => self.live.remove(name),
                };
                Some(now + retry_delay(slot))
            }
            Err(_) => Some(now + retry_delay(slot)),
        };
        match again {
            Some(due) => self.schedule(name, due),
            None if slot.want.is_none() => self.forget(name),
            None => {}
        }
    }

    /// A list starts.
    pub fn list_started(&mut self) {
        self.reading = Some(BTreeMap::new());
    }

    /// A list brought a report.
    pub fn listed(&mut self, name: ObjectName, live: Live) {
        self.reading.get_or_insert_default().insert(name, live);
    }

    /// A list is complete.
    pub fn list_ended(&mut self, now: Instant) {
        let mut read = self.reading.take().unwrap_or_default();
        // What was written while the list was under way is newer than what it brought.
        for (name, live) in &mut read {
            if let Some(known) = self.live.get(name).filter(|known| !is_newer(live, known)) {
                *live = known.clone();
            }
        }
        self.live = read;
        let first = !std::mem::replace(&mut self.ready, true);
        if !first {
            for name in self.slots.keys().cloned().collect::<Vec<_>>() {
                self.review(&name, now);
            }
        }
    }

    /// A report changed.
    pub fn changed(&mut self, name: &ObjectName, live: Live, now: Instant) {
        if self.live.get(name).is_none_or(|known| is_newer(&live, known)) {
            self.live.insert(name.clone(), live);
            self.review(name, now);
        }
    }

    /// A report was deleted.
    pub fn deleted(&mut self, name: &ObjectName, uid: &str, now: Instant) {
        if self.live.get(name).is_some_and(|live| live.uid == uid) {
            self.live.remove(name);
            self.review(name, now);
        }
    }

    /// Looks whether somebody else changed a report that nobody is about to write anyway.
    fn review(&mut self, name: &ObjectName, now: Instant) {
        let Some(slot) = self.slots.get_mut(name) else { return };
        if slot.writing || slot.due.is_some() || slot.plan(self.live.get(name)).is_none() {
            return;
        }
        slot.disturbed = true;
        self.schedule(name, now + REPAIR);
    }

    fn schedule(&mut self, name: &ObjectName, due: Instant) {
        self.unschedule(name);
        let Some(slot) = self.slots.get_mut(name) else { return };
        // The end of a write under way schedules what came meanwhile.
        if !slot.writing {
            slot.due = Some(due);
            self.schedule.insert((due, name.clone()));
        }
    }

    fn unschedule(&mut self, name: &ObjectName) {
        if let Some(due) = self.slots.get_mut(name).and_then(|slot| slot.due.take()) {
            self.schedule.remove(&(due, name.clone()));
        }
    }

    fn forget(&mut self, name: &ObjectName) {
        self.unschedule(name);
        self.slots.remove(name);
    }
}

fn retry_delay(slot: &mut Slot) -> Duration {
    slot.failures.get_or_insert_with(|| Backoff::new(BackoffPolicy::WATCH)).next_delay().max(GAP)
}

/// Whether `live` is a later version than `known`. API servers count versions up; where one does not, every difference counts.
fn is_newer(live: &Live, known: &Live) -> bool {
    match (live.version.parse::<u64>(), known.version.parse::<u64>()) {
        (Ok(live), Ok(known)) => live > known,
        _ => live.version != known.version,
    }
}
