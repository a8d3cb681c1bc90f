//! Leave to write: which releases may be written now, and what to judge again when that changes.

use holdfast_api::{
    policy::{Mode, OnFailedRelease},
    report::{Reason, Verdict},
};
use holdfast_engine::case::Permit;
use tokio::time::Instant;

use super::{
    actor::Actor, book::Phase, discovering::SETTLED, guarded::Guarded, identities::Claim, records::ReleaseName, scalers::ScalerKind,
    source::Guardianship, state::StateId,
};
use crate::fleet_view::Gate;

/// What may be written of a release, as last looked at.
#[derive(Debug, Default)]
pub struct Permits {
    now: Option<Pair>,
    /// The last ones that were no passing trouble.
    settled: Option<Pair>,
}

/// For objects that can be scaled, and for others.
type Pair = (Permit, Permit);

/// What a change of permits means for the objects of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Again {
    /// Nothing.
    Nothing,
    /// Those are judged again that passing trouble kept from being written.
    Held,
    /// All are judged again that are not as declared.
    Differing,
}

/// Kept from writing for what passes: something is not known yet.
const PASSING: Permit = Permit::Report(Some(Reason::ServerError));

impl Permits {
    fn moves_to(&mut self, pair: Pair) -> Option<Again> {
        let before = self.now.replace(pair);
        if before == Some(pair) {
            return None;
        }
        let as_before = self.settled.is_some_and(|settled| settled.1 == pair.1);
        if pair.1 == PASSING || (pair.0 == PASSING && as_before) {
            return Some(Again::Nothing);
        }
        Some(match self.settled.replace(pair) {
            Some(settled) if settled == pair => Again::Held,
            // What was judged so far was judged while the trouble lasted.
            None if before.is_none() => Again::Nothing,
            _ => Again::Differing,
        })
    }
}

impl Guardianship {
    /// What policy and phase of the release permit, whatever else stands in the way.
    pub fn permit(&self) -> Permit {
        let may_write = match &self.phase {
            Phase::Desired(_) => self.guard.mode == Mode::Correct,
            Phase::Failed { .. } => self.guard.mode == Mode::Correct && self.guard.on_failed == OnFailedRelease::LastDeployed,
            _ => false,
        };
        match (may_write, self.tripped()) {
            (true, None) => Permit::Write,
            (true, Some(_)) => Permit::Report(Some(Reason::BlastRadius)),
            (false, _) => Permit::Report(None),
        }
    }
}

impl Actor {
    /// Whether drift of an object may be written now.
    pub(super) fn permit(&self, known: &Guardianship, guarded: &Guarded, now: Instant) -> Permit {
        let (scalable, other) = self.permits(known, self.scalers_missing(now));
        let permit = if self.scalers.may_rule(guarded) { scalable } else { other };
        // The manifest asks for less.
        if permit == Permit::Write && guarded.most != Mode::Correct { Permit::Report(Some(Reason::Suspended)) } else { permit }
    }

    /// Why nobody knows which replicas are an autoscaler's.
    fn scalers_missing(&self, now: Instant) -> Option<Reason> {
        let known = self.scalers.are_complete() && self.watching.sees_scalers(now) && !self.is_scaler_announced();
        (!known).then(|| if self.watching.may_not_see_scalers() { Reason::Forbidden } else { Reason::ServerError })
    }

    /// Whether autoscalers of a kind may exist that is not watched yet: it was defined a moment ago, and discovery follows with a delay.
    pub(super) fn is_scaler_announced(&self) -> bool {
        let is_defined = |kind: &ScalerKind| kind.definition().is_some_and(|name| self.definitions.has(&name));
        self.discoveries < SETTLED && ScalerKind::ALL.iter().any(|kind| !self.scalers.expects(*kind) && is_defined(kind))
    }

    /// Whether something is not known yet on which the permit of a release depends.
    pub(super) fn is_permit_open(&self) -> bool {
        self.releases.values().any(|known| self.permit_of_release(known) == PASSING)
    }

    fn permits(&self, known: &Guardianship, scalers_missing: Option<Reason>) -> Pair {
        let permit = self.permit_of_release(known);
        let scalable = match (permit, scalers_missing) {
            (Permit::Write, Some(reason)) => Permit::Report(Some(reason)),
            _ => permit,
        };
        (scalable, permit)
    }

    fn permit_of_release(&self, known: &Guardianship) -> Permit {
        if known.guard.mode != Mode::Correct {
            return Permit::Report(None);
        }
        if known.guard.suspend || self.entry.gate != Gate::Open {
            return Permit::Report(Some(Reason::Suspended));
        }
        // Another release may claim the object, other credentials may lead to another cluster, another hub may lead.
        if !self.loads.is_settled() || self.credentials.is_unresolved() || !self.shared.term.holds() {
            return PASSING;
        }
        match *self.seat.claim.borrow() {
            Claim::Held(_) => {}
            Claim::Yielded(_) => return Permit::Report(Some(Reason::Suspended)),
            Claim::Unsettled => return PASSING,
        }
        known.permit()
    }

    /// Judges what was only reported, or is written no more, by what is permitted now. What is as declared is so under any rule.
    pub(super) fn review_permits(&mut self, now: Instant) {
        let missing = self.scalers_missing(now);
        let pairs: Vec<(ReleaseName, Pair)> =
            self.releases.iter().map(|(release, known)| (release.clone(), self.permits(known, missing))).collect();
        let mut again: Vec<StateId> = Vec::new();
        let mut moved = false;
        for (release, pair) in pairs {
            let Some(known) = self.releases.get_mut(&release) else { continue };
            let Some(which) = known.permits.moves_to(pair) else { continue };
            moved = true;
            // What waits for a fresh list was not judged by any rule yet.
            let objects = known.loaded.iter().flat_map(|loaded| loaded.objects.iter().copied()).filter(|id| !self.awaiting.contains(id));
            let in_flight = |id: &StateId| self.queue.is_in_flight(*id);
            match which {
                Again::Nothing => {}
                Again::Held => again.extend(known.with_reason(Reason::ServerError).into_iter().chain(objects.filter(in_flight))),
                Again::Differing => again.extend(objects.filter(|id| known.verdict(*id) != Some(Verdict::InSync) || in_flight(id))),
            }
        }
        if moved {
            self.rules_moved();
            self.permits_due = false;
        }
        for id in again {
            self.judge_afresh(id, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_reported_is_judged_again_when_writing_becomes_allowed() {
        let suspended = Permit::Report(Some(Reason::Suspended));
        let steps = [
            ((PASSING, PASSING), Some(Again::Nothing), "a start"),
            ((Permit::Write, Permit::Write), Some(Again::Differing), "what was reported meanwhile"),
            ((Permit::Write, Permit::Write), None, "no change"),
            ((suspended, suspended), Some(Again::Differing), "the report says why"),
            ((PASSING, PASSING), Some(Again::Nothing), "an upgrade is being read"),
            ((suspended, suspended), Some(Again::Held), "as before it"),
            ((PASSING, PASSING), Some(Again::Nothing), "again"),
            ((Permit::Write, Permit::Write), Some(Again::Differing), "allowed after it, not before it"),
            ((PASSING, Permit::Write), Some(Again::Nothing), "autoscalers out of sight"),
            ((Permit::Write, Permit::Write), Some(Again::Held), "in sight again"),
            ((suspended, suspended), Some(Again::Differing), "suspended"),
            ((PASSING, Permit::Write), Some(Again::Differing), "what cannot be scaled needs no autoscalers"),
            ((Permit::Write, Permit::Write), Some(Again::Differing), "the rest does"),
        ];
        let mut permits = Permits::default();
        for (pair, again, why) in steps {
            assert_eq!(permits.moves_to(pair), again, "{why}");
        }
        assert_eq!(Permits::default().moves_to((Permit::Write, Permit::Write)), Some(Again::Nothing), "nothing was judged yet");
    }
}
