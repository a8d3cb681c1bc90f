//! The actor's part about limits: how fast a release is corrected, and when so much of it drifts at once that nothing is written.

use std::time::Duration;

use holdfast_api::{policy::Mode, report::Reason};
use holdfast_engine::{blast::Trip, case::Permit, decide::Judgement};
use jiff::Timestamp;
use tokio::time::Instant;

use super::{
    actor::Actor,
    records::ReleaseName,
    source::{Guardianship, is_drift},
    state::StateId,
};
use crate::events::{EventReason, Happening, Regarding};

impl Guardianship {
    /// Why nothing of the release is written, where too much of it drifted at once.
    pub fn tripped(&self) -> Option<&Trip> {
        self.blast.trip()
    }

    /// Follows what the policy says about limits, and what is declared.
    fn follow_limits(&mut self, now: Duration) -> bool {
        self.pace.set_rate(self.guard.limit.per_minute, now);
        let Some(loaded) = &self.loaded else { return false };
        let is_another = self.blast.trip().is_some_and(|trip| trip.desired != loaded.hash);
        (is_another || self.is_approved()) && self.blast.reset()
    }

    fn is_approved(&self) -> bool {
        self.loaded.as_ref().is_some_and(|loaded| self.guard.approved.contains(&loaded.hash))
    }

    /// Notes drift of an object. Answers whether too much has drifted now.
    fn note_drift(&mut self, id: StateId, since: Timestamp, now: Timestamp) -> bool {
        self.blast.note(id, since, now);
        let would_write = self.guard.mode == Mode::Correct && !self.guard.suspend && !self.is_approved();
        let Some(loaded) = self.loaded.as_ref().filter(|_| would_write) else { return false };
        self.blast.trips(self.guard.limit.blast, loaded.objects.len(), &loaded.hash, now)
    }

    /// Whether so little differs by now that writing begins again.
    fn review_blast(&mut self, now: Timestamp) -> bool {
        let of = self.loaded.as_ref().map_or(0, |loaded| loaded.objects.len());
        let is_known = self.is_judged() && self.judgeable().is_some();
        is_known && self.blast.review(self.guard.limit.blast, self.differing(), of, now)
    }
}

impl Actor {
    fn since_start(&self, now: Instant) -> Duration {
        now.duration_since(self.started)
    }

    /// Whether an object is to be judged because its turn to be corrected has come.
    pub(super) fn was_called(&mut self, release: &ReleaseName, id: StateId) -> bool {
        self.releases.get_mut(release).is_some_and(|known| known.pace.answers(id))
    }

    /// What the limit makes of leave to write.
    pub(super) fn in_turn(&mut self, release: &ReleaseName, id: StateId, was_called: bool) -> Permit {
        let now = self.since_start(Instant::now());
        let admitted = self.releases.get_mut(release).is_none_or(|known| known.pace.admits(id, was_called, now));
        if admitted { Permit::Write } else { Permit::Report(Some(Reason::RateLimited)) }
    }

    /// An object is corrected when its turn comes.
    pub(super) fn wait_for_turn(&mut self, id: StateId, release: &ReleaseName) {
        if let Some(known) = self.releases.get_mut(release) {
            known.pace.waits(id);
            self.paced.insert(release.clone());
        }
    }

    /// When it is the turn of an object that waits.
    pub(super) fn next_turn(&self) -> Option<Instant> {
        let now = self.since_start(Instant::now());
        let waiting = self.paced.iter().filter_map(|release| self.releases.get(release)?.pace.next(now));
        waiting.min().map(|at| self.started + at)
    }

    /// Judges objects whose turn it is.
    pub(super) fn call_turns(&mut self, now: Instant) {
        if self.paced.is_empty() {
            return;
        }
        let at = self.since_start(now);
        let (releases, queue) = (&mut self.releases, &mut self.queue);
        self.paced.retain(|release| {
            let Some(known) = releases.get_mut(release) else { return false };
            for id in known.pace.call(at) {
                queue.push(id, now, now);
            }
            known.pace.has_waiting()
        });
    }

    /// Notes drift where it counts for the blast radius: once for each time an object leaves what is declared. What was found before this
    /// process began counts from when it was found.
    pub(super) fn note_for_blast(&mut self, id: StateId, release: &ReleaseName, judgement: &Judgement, was: Option<bool>) {
        // Helm at work is no drift.
        if !is_drift(judgement) || was == Some(true) || judgement.reason == Reason::ReleasePending {
            return;
        }
        let now = self.shared.clock.now();
        let Some(known) = self.releases.get_mut(release) else { return };
        let since = if was.is_none() { known.first_seen(id).unwrap_or(now) } else { now };
        if !known.note_drift(id, since, now) {
            return;
        }
        let note = known.tripped().map(|trip| {
            let of = known.loaded.as_ref().map_or(0, |loaded| loaded.objects.len());
            format!("{} of {of} objects drifted within a minute; nothing is written any more. {}", trip.drifted, how_it_ends(trip))
        });
        tracing::warn!(cluster = %self.name, %release, "too many objects drifted at once: nothing is written any more");
        self.shared.events.emit(Happening {
            regarding: Regarding::Report(self.report_key(release)),
            reason: EventReason::BlastRadiusExceeded,
            object: None,
            note: note.unwrap_or_default(),
        });
        // What is under way is not sent either.
        self.rules_moved();
        if self.secrets.is_some() {
            self.memory.hurry(Instant::now());
        }
    }

    /// What is declared, or what the policy says of limits, may have changed.
    pub(super) fn limits_moved(&mut self, release: &ReleaseName) {
        let now = self.since_start(Instant::now());
        if self.releases.get_mut(release).is_some_and(|known| known.follow_limits(now)) {
            self.writing_again(release);
        }
    }

    /// Writing begins again where little differs any more.
    pub(super) fn review_blasts(&mut self) {
        let now = self.shared.clock.now();
        let over: Vec<ReleaseName> = self
            .releases
            .iter_mut()
            .filter(|(_, known)| known.tripped().is_some())
            .filter_map(|(release, known)| known.review_blast(now).then(|| release.clone()))
            .collect();
        for release in over {
            self.writing_again(&release);
        }
    }

    fn writing_again(&mut self, release: &ReleaseName) {
        tracing::info!(cluster = %self.name, %release, "drift is corrected again");
        self.rules_moved();
        self.remember();
        self.dirty.insert(release.clone());
        self.flush_soon();
    }
}

/// One sentence on what makes writing begin again.
pub(super) fn how_it_ends(trip: &Trip) -> String {
    format!("It goes on when something else is declared, when the drift has halved, or when a policy approves {}", trip.desired)
}
