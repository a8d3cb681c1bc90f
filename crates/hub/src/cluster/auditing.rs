//! The actor's part about kinds: which are watched, their periodic audits, and how far their watches back the verdicts.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    time::Duration,
};

use holdfast_engine::object::Gvk;
use holdfast_fleet::call::{CallError, Endpoint};
use tokio::time::Instant;

use super::{
    actor::{Actor, Job},
    audit::{Audit, audit},
    following::is_break,
    sight::News,
    state::StateId,
};

/// Every object is compared in full once in this time, a few with each audit: admission that left no trace in any metadata.
const FULL_EVERY: Duration = Duration::from_hours(24);
/// A start has just compared everything.
const FULL_AFTER: Duration = Duration::from_hours(1);

impl Actor {
    pub(super) fn start_audit(&mut self, gvk: Gvk) {
        let endpoint = self.watching.kinds().find(|(kind, _)| **kind == gvk).map(|(_, key)| key.endpoint().clone());
        let Some(endpoint) = endpoint else {
            self.audits.remove(&gvk);
            self.vouch_for(&gvk, None, Instant::now());
            return;
        };
        self.auditing.insert(gvk.clone());
        let (client, decoder) = (self.examiner.client.clone(), self.watching.decoder().clone());
        self.jobs.push(Box::pin(async move {
            let result = audit(&client, &decoder, &gvk, &endpoint).await;
            Job::Audited { gvk, result }
        }));
    }

    pub(super) fn audited(&mut self, gvk: &Gvk, result: Result<Audit, CallError>) {
        self.auditing.remove(gvk);
        self.schedule_audit(gvk);
        let now = Instant::now();
        match result {
            Ok(audit) => {
                self.reached();
                self.watching.audited(gvk, now);
                let changed: HashSet<StateId> =
                    audit.changed.iter().filter(|(_, news)| matches!(news, News::Changed | News::Holdings)).map(|(id, _)| *id).collect();
                self.vouch_for(gvk, Some(&|id| audit.listed.contains(&id) && !changed.contains(&id)), now);
                if self.watching.is_kind_broken(gvk) {
                    // What can be listed can be watched again: the watch need not sleep on.
                    self.watching.retry_now();
                }
                for (id, news) in audit.changed {
                    self.notice(id, news, now);
                }
                self.look_for_missing(gvk, &audit.listed, now);
                self.compare_some(gvk, &audit.listed, now);
            }
            Err(error) => {
                self.vouch_for(gvk, None, now);
                match error {
                    error if error.is_connection() => self.unreached(is_break(&error)),
                    // Reading may be allowed where listing is not: every object is asked for by name.
                    CallError::Forbidden => self.look_for_missing(gvk, &HashSet::new(), now),
                    error => tracing::debug!(cluster = %self.name, %gvk, reason = error.category(), "audit failed"),
                }
            }
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
            .filter(|(id, _)| !listed.contains(*id) && !self.awaiting.contains(*id))
            .filter(|(_, slot)| slot.claimants.first().is_some_and(|(_, guarded)| *guarded.key.gvk == *gvk))
            .map(|(id, _)| *id)
            .collect();
        for id in unlisted {
            self.queue.push(id, now, now);
        }
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
        let at = Instant::now() + self.audit_wait(gvk);
        self.audits.insert(gvk.clone(), at);
    }

    /// Intervals may have changed: an audit may come earlier, never later.
    pub(super) fn hasten_audits(&mut self) {
        let now = Instant::now();
        for gvk in self.audits.keys().cloned().collect::<Vec<_>>() {
            let next = now + self.audit_wait(&gvk);
            if let Some(at) = self.audits.get_mut(&gvk) {
                *at = next.min(*at);
            }
        }
    }

    fn audit_wait(&self, gvk: &Gvk) -> Duration {
        // A tenth earlier or later, so that clusters and kinds spread out.
        let jitter = 0.9 + f64::from(rand::random::<u16>()) / f64::from(u16::MAX) * 0.2;
        self.audit_interval(gvk).mul_f64(jitter)
    }

    /// Notices which kinds nothing backs any more, and which are backed again.
    pub(super) fn review_freshness(&mut self, now: Instant) {
        let intervals: BTreeMap<Gvk, Duration> = if self.watching.any_broken() {
            self.audits.keys().map(|gvk| (gvk.clone(), self.audit_interval(gvk))).collect()
        } else {
            BTreeMap::new()
        };
        let stale_kinds: BTreeSet<Gvk> = intervals
            .iter()
            .filter(|(gvk, interval)| self.watching.is_kind_stale(gvk, **interval, now))
            .map(|(gvk, _)| gvk.clone())
            .collect();
        let stale = self.watching.is_stale(now);
        if stale != self.contact.stale || stale_kinds != self.stale_kinds {
            self.contact.stale = stale;
            self.stale_kinds = stale_kinds;
            self.all_dirty();
        }
    }
}
