//! What somebody added to the objects of a release, where that is only reported: listed for as long as it is there.

use holdfast_api::report::{Action, Finding, PathFinding, Reason, Verdict};
use holdfast_engine::{decide::Judgement, object::ObjectKey};
use jiff::Timestamp;

use super::{Guardianship, Listed, object_ref};
use crate::{cluster::state::StateId, reports::bounds};

impl Guardianship {
    /// Takes in what somebody added to an object. Answers what of it is news.
    pub(super) fn take_additions(
        &mut self,
        id: StateId,
        key: &ObjectKey,
        uid: &str,
        judgement: &Judgement,
        now: Timestamp,
    ) -> Vec<PathFinding> {
        let Some(listed) = &judgement.additions.listed else {
            // As before, or not to be seen for now.
            if judgement.verdict == Verdict::Missing {
                self.added.remove(&id);
            }
            return Vec::new();
        };
        let old = self.added.remove(&id);
        if listed.is_empty() {
            return Vec::new();
        }
        let is_news = |path: &&PathFinding| old.as_ref().is_none_or(|old| old.paths.iter().all(|known| known.path != path.path));
        let news: Vec<PathFinding> = listed.iter().filter(is_news).cloned().collect();
        let message = match listed.len() {
            1 => "somebody added one field".to_owned(),
            count => format!("somebody added {count} fields"),
        };
        let mut finding = Finding {
            object: object_ref(key, uid),
            verdict: Verdict::InSync,
            action: Action::Reported,
            reason: Reason::ForeignField,
            message,
            paths: listed.iter().take(bounds::PATHS).cloned().collect(),
            paths_truncated: listed.len().saturating_sub(bounds::PATHS) as u64,
            first_seen: old.as_ref().and_then(|old| old.first_seen).or(Some(now)),
            last_seen: Some(now),
            count: old.as_ref().map_or(0, |old| old.count) + 1,
        };
        bounds::fit_finding(&mut finding);
        if let Some(old) = old.filter(|old| (&old.paths, old.paths_truncated) == (&finding.paths, finding.paths_truncated)) {
            (finding.last_seen, finding.count) = (old.last_seen, old.count);
        }
        self.added.insert(id, finding);
        news
    }

    /// What an earlier process found added to an object stands.
    pub fn stand_added(&mut self, id: StateId, finding: Finding) {
        self.added.insert(id, finding);
    }

    /// What somebody added to an object.
    pub fn added(&self, id: StateId) -> Option<&Finding> {
        self.added.get(&id)
    }

    /// Every finding as it is shown: what was added to an object is listed with what else is the case with it.
    pub(super) fn shown(&self) -> Vec<Finding> {
        let with_added = |(id, listed): (&StateId, &Listed)| {
            let mut finding = listed.finding.clone();
            if let Some(added) = self.added.get(id) {
                let room = bounds::PATHS.saturating_sub(finding.paths.len());
                let cut = added.paths.len().saturating_sub(room) as u64;
                finding.paths.extend(added.paths.iter().take(room).cloned());
                finding.paths_truncated += added.paths_truncated + cut;
                finding.first_seen = finding.first_seen.into_iter().chain(added.first_seen).min();
                finding.last_seen = finding.last_seen.max(added.last_seen);
                finding.count += added.count;
                bounds::fit_finding(&mut finding);
            }
            finding
        };
        let alone = self.added.iter().filter(|(id, _)| !self.findings.contains_key(id)).map(|(_, finding)| finding.clone());
        self.findings.iter().map(with_added).chain(alone).collect()
    }
}
