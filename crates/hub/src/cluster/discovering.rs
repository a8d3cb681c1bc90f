//! The actor's part about discovery: when the cluster is asked what it serves, and what follows from the answer.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use holdfast_api::report::{Finding, Reason};
use holdfast_fleet::{
    discovery::{Catalog, Discovery, DiscoveryError, Lookup, Refreshed},
    watch::Update,
};
use tokio::time::Instant;

use super::{
    actor::{Actor, Job},
    loads::doubling,
    records::ReleaseName,
    sighting::Sighting,
};

/// Definitions change in bursts.
pub(super) const DISCOVER_AFTER: Duration = Duration::from_millis(100);
/// Discovery is refreshed at least this often: aggregated groups come and go without an event. Costs two conditional requests.
pub(super) const DISCOVER_EVERY: Duration = Duration::from_mins(5);
/// First wait while there is doubt about what discovery said; doubles up to [`DISCOVER_EVERY`].
const DOUBTED: Duration = Duration::from_secs(1);
/// First wait after a failure.
const FAILED: Duration = Duration::from_secs(15);
/// Discovery follows a definition with a delay: it is asked so often after a change, whatever it says.
pub(super) const SETTLED: u32 = 3;

impl Actor {
    /// Asks the cluster what it serves, if it is time to.
    pub(super) fn start_discovery(&mut self, now: Instant) {
        if self.discover_at <= now
            && let Some(mut discovery) = self.discovery.take()
        {
            // What happens from now on may ask for an earlier one.
            self.discover_at = now + DISCOVER_EVERY;
            let client = self.examiner.client.clone();
            self.jobs.push(Box::pin(async move {
                let result = discovery.refresh(&client).await;
                Job::Discovered { discovery, result }
            }));
        }
    }

    pub(super) fn discovered(&mut self, discovery: Box<Discovery>, result: Result<Refreshed, DiscoveryError>) {
        self.discovery = Some(discovery);
        match result {
            Ok(Refreshed::Changed(catalog)) => self.rediscovered(catalog),
            Ok(Refreshed::Unchanged) => {}
            Err(error) => {
                tracing::debug!(cluster = %self.name, reason = error.category(), "discovery failed");
                self.discover_within(FAILED);
            }
        }
        self.discover_in_doubt();
    }

    pub(super) fn discover_within(&mut self, wait: Duration) {
        self.discover_at = self.discover_at.min(Instant::now() + wait);
    }

    /// Asks again soon where the last answer was not complete, or is not what the definitions say.
    fn discover_in_doubt(&mut self) {
        let mut loaded = self.releases.values().filter_map(|known| known.loaded.as_ref());
        let is_doubtful = loaded.any(|loaded| lacks_discovery(&loaded.problems)) || !self.definitions.agree_with(&self.catalog);
        if is_doubtful || self.discoveries < SETTLED {
            self.discover_within(doubling(DOUBTED, self.discoveries, DISCOVER_EVERY));
            self.discoveries = self.discoveries.saturating_add(1);
        } else {
            self.discoveries = SETTLED;
        }
    }

    /// A release declares kinds of which nobody can tell whether they are served.
    pub(super) fn discover_for(&mut self, problems: &[Finding]) {
        if lacks_discovery(problems) {
            self.discover_within(doubling(DOUBTED, self.discoveries, DISCOVER_EVERY));
        }
    }

    pub(super) fn definition_update(&mut self, update: &Update<Sighting>) {
        match update {
            Update::Reset => self.definitions.list_begins(),
            Update::Listed(Sighting::Named { name, is_leaving }) => self.define(name, *is_leaving),
            Update::Changed(Sighting::Named { name, is_leaving }) => {
                self.define(name, *is_leaving);
                self.definitions_changed();
            }
            Update::Deleted(Sighting::Named { name, .. }) => {
                self.definitions.remove(name);
                self.definitions_changed();
            }
            Update::ListComplete => {
                self.definitions.list_ends();
                if !self.definitions.agree_with(&self.catalog) {
                    self.definitions_changed();
                }
            }
            _ => {}
        }
    }

    fn define(&mut self, name: &str, is_leaving: bool) {
        if self.definitions.put(name, is_leaving) {
            self.judge_where(|guarded| name == format!("{}.{}", guarded.resource.plural, guarded.key.gvk.group));
        }
    }

    fn definitions_changed(&mut self) {
        self.discoveries = 0;
        if self.is_scaler_announced() {
            self.rules_moved();
        }
        self.discover_within(DISCOVER_AFTER);
    }

    /// Kinds came, went, or are served in another way.
    fn rediscovered(&mut self, catalog: Arc<Catalog>) {
        let before = std::mem::replace(&mut self.catalog, catalog);
        let catalog = Arc::clone(&self.catalog);
        let mut otherwise: BTreeSet<ReleaseName> = self.claims.outdate().into_iter().collect();
        for (release, guarded) in self.objects.values().flat_map(|slot| &slot.claimants) {
            if matches!(catalog.lookup(&guarded.key.gvk), Lookup::Served(resource) if resource != guarded.resource) {
                otherwise.insert(release.clone());
            }
        }
        for release in otherwise {
            self.claims.outdate_release(&release);
            self.want_record(&release);
        }
        self.judge_where(|guarded| catalog.lookup(&guarded.key.gvk) != before.lookup(&guarded.key.gvk));
        self.follow_what_rules();
        // A kind that is served again need not wait until its watch tries again.
        self.watching.retry_now();
    }
}

fn lacks_discovery(problems: &[Finding]) -> bool {
    problems.iter().any(|problem| problem.reason == Reason::DiscoveryIncomplete)
}
