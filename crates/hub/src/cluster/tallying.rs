//! The actor's part about what policies are told: how many releases each decides about, and which ignore rules change anything.

use std::collections::{BTreeMap, BTreeSet};

use super::{actor::Actor, records::ReleaseName, rules::subject, source::Guardianship, state::StateId};
use crate::policy::{
    Ignore,
    tally::{ClusterTally, RuleUse, Tally},
};

impl Actor {
    /// What the policies are told may have changed.
    pub(super) fn tally_soon(&mut self) {
        self.tallied = None;
        self.flush_soon();
    }

    /// Tells what holds for the policies now, if anything can have changed.
    pub(super) fn tally(&mut self) {
        let is_judged = self.is_all_judged();
        if self.tallied.replace(is_judged) == Some(is_judged) {
            return;
        }
        if is_judged {
            self.look_at_rules();
        }
        let mut policies: BTreeMap<_, Tally> = BTreeMap::new();
        let releases: BTreeSet<&ReleaseName> = self.book.releases().chain(self.releases.keys()).collect();
        for release in releases {
            let mut selecting = self.policies.selecting_release(&self.entry, &release.namespace, &release.name);
            let Some(winner) = selecting.next() else { continue };
            let tally = policies.entry(winner.clone()).or_default();
            tally.decides += 1;
            if let Some(known) = self.releases.get(release) {
                tally.add_rules(known.rule_uses.as_deref().unwrap_or_default());
            }
            for loser in selecting {
                *policies.entry(loser.clone()).or_default().overridden.entry(winner.clone()).or_default() += 1;
            }
        }
        self.shared.tallies.set(&self.name, ClusterTally { is_judged, policies });
    }

    /// Looks at the ignore rules of releases that were not looked at since they or the rules changed.
    fn look_at_rules(&mut self) {
        let due: Vec<ReleaseName> =
            self.releases.iter().filter(|(_, known)| known.rule_uses.is_none()).map(|(release, _)| release.clone()).collect();
        for release in due {
            let uses = self.releases.get(&release).map(|known| self.uses_of_rules(known));
            if let Some(known) = self.releases.get_mut(&release) {
                known.rule_uses = uses;
            }
        }
    }

    fn uses_of_rules(&self, known: &Guardianship) -> Vec<RuleUse> {
        let objects = known.loaded.as_ref().map(|loaded| loaded.objects.as_slice()).unwrap_or_default();
        let best = |rule: &Ignore| {
            let mut best = RuleUse::NoObject;
            for id in objects {
                best = best.max(self.use_of_rule(rule, *id));
                if best == RuleUse::Used {
                    break;
                }
            }
            best
        };
        known.guard.ignore.iter().map(best).collect()
    }

    /// What one rule means for one object. Where it is not known what an object owns, a rule about it may have its use.
    fn use_of_rule(&self, rule: &Ignore, id: StateId) -> RuleUse {
        let guarded = self.objects.get(&id).and_then(|slot| slot.claimants.first()).map(|(_, guarded)| guarded);
        if !guarded.is_some_and(|guarded| rule.is_about(&subject(guarded))) {
            return RuleUse::NoObject;
        }
        let owned = self.shared.states.get(id).and_then(|state| state.owned);
        if owned.is_none_or(|owned| rule.reaches(&owned)) { RuleUse::Used } else { RuleUse::NoPath }
    }
}
