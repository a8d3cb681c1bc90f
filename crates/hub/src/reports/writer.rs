//! The task that writes reports.

use std::{fmt, pin::pin, sync::Arc, time::Duration};

use futures::{
    FutureExt, StreamExt,
    future::BoxFuture,
    stream::{FuturesUnordered, pending},
};
use holdfast_api::SOURCE_LABEL;
use kube::{
    Api, Client, ResourceExt,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event},
    },
};
use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, interval, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    Reports,
    desk::Job,
    wire::{Live, ReportObject, Written, carry_out},
};
use crate::{
    fleet_view::{FleetView, ObjectName},
    management::Failure,
};

/// Writes under way at a time: enough that one slow answer holds up nobody, few enough to be no burden for the server.
const IN_FLIGHT: usize = 8;
/// How often reports without a cluster are looked for even when the fleet does not change.
const PRUNE: Duration = Duration::from_secs(30);
/// How long the last statuses may take when the hub ends.
const LAST_WORDS: Duration = Duration::from_secs(3);
/// Reports a page of a list has.
const PAGE: u32 = 100;

type Writing = BoxFuture<'static, (Job, Result<Written, Failure>)>;

/// Writes what [`Reports`] hands in.
pub struct ReportWriter {
    client: Client,
    reports: Reports,
    fleet: watch::Receiver<Arc<FleetView>>,
    namespace: Option<String>,
}

impl fmt::Debug for ReportWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReportWriter").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

impl ReportWriter {
    /// A writer that does nothing until it is run. `namespace` is the one the fleet view is restricted to.
    pub fn new(client: Client, reports: Reports, fleet: watch::Receiver<Arc<FleetView>>, namespace: Option<String>) -> Self {
        Self { client, reports, fleet, namespace }
    }

    /// Writes until `token` is cancelled, then what is still due, for at most three seconds.
    pub async fn run(&self, token: CancellationToken) {
        let mut writing: FuturesUnordered<Writing> = FuturesUnordered::new();
        let mut fleet = self.fleet.clone();
        let mut prune = interval(PRUNE);
        prune.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut events = pin!(watcher::watcher(self.api(), config()).default_backoff());
        let mut said = None;
        loop {
            self.start_due(&mut writing);
            let due = self.reports.shared.desk.lock().next_due().filter(|_| writing.len() < IN_FLIGHT);
            // Every branch is cancel-safe: a stream or channel keeps what was not taken, and the timers start anew.
            tokio::select! {
                biased;
                () = token.cancelled() => break,
                Some((job, outcome)) = writing.next(), if !writing.is_empty() => self.finish(&job, outcome),
                event = events.next() => match event {
                    Some(Ok(event)) => {
                        said = None;
                        self.observe(event);
                    }
                    Some(Err(error)) => {
                        let failure = Failure::of_watch(&error);
                        if said.replace(failure) != Some(failure) {
                            tracing::warn!(failure = failure.as_str(), "cannot watch DriftReports, retrying");
                        }
                    }
                    None => pending::<()>().next().map(drop).await,
                },
                Ok(()) = fleet.changed() => self.prune(&mut fleet),
                _ = prune.tick() => self.prune(&mut fleet),
                () = self.reports.shared.wake.notified() => {}
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
            }
        }
        if timeout(LAST_WORDS, self.flush(&mut writing)).await.is_err() {
            tracing::warn!("the last reports could not be written in time");
        }
    }

    async fn flush(&self, writing: &mut FuturesUnordered<Writing>) {
        loop {
            self.reports.shared.desk.lock().hurry(Instant::now());
            self.start_due(writing);
            match writing.next().await {
                // One that fails now is written by the next start.
                Some((job, Ok(written))) => self.finish(&job, Ok(written)),
                Some((_, Err(_))) => {}
                None => return,
            }
        }
    }

    fn start_due(&self, writing: &mut FuturesUnordered<Writing>) {
        let room = IN_FLIGHT.saturating_sub(writing.len());
        for job in self.reports.shared.desk.lock().take_due(Instant::now(), room) {
            let client = self.client.clone();
            writing.push(
                async move {
                    let outcome = carry_out(&client, &job.name, &job.key, &job.owner, &job.status, &job.write).await;
                    (job, outcome)
                }
                .boxed(),
            );
        }
    }

    fn finish(&self, job: &Job, outcome: Result<Written, Failure>) {
        if let Err(failure) = &outcome
            && *failure != Failure::Withheld
        {
            tracing::warn!(report = %job.name.name, namespace = %job.name.namespace, failure = failure.as_str(), "cannot write a report, retrying");
        }
        self.reports.shared.desk.lock().finished(job, outcome, Instant::now());
    }

    fn observe(&self, event: Event<ReportObject>) {
        let now = Instant::now();
        let mut desk = self.reports.shared.desk.lock();
        match event {
            Event::Init => desk.list_started(),
            Event::InitApply(object) => desk.listed(ObjectName::of(&object), Live::read(object)),
            Event::InitDone => {
                desk.list_ended(now);
                desk.prune(&self.fleet.borrow(), now);
                self.reports.shared.ready.send_replace(true);
            }
            Event::Apply(object) => desk.changed(&ObjectName::of(&object), Live::read(object), now),
            Event::Delete(object) => desk.deleted(&ObjectName::of(&object), &object.uid().unwrap_or_default(), now),
        }
    }

    fn prune(&self, fleet: &mut watch::Receiver<Arc<FleetView>>) {
        let view = Arc::clone(&fleet.borrow_and_update());
        self.reports.shared.desk.lock().prune(&view, Instant::now());
    }

    fn api(&self) -> Api<ReportObject> {
        match &self.namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &()),
            None => Api::all_with(self.client.clone(), &()),
        }
    }
}

/// Only reports with our label: what somebody else makes of the kind is not ours. One that loses the label looks deleted, and is found
/// again by its name when it is created anew.
fn config() -> watcher::Config {
    watcher::Config::default().labels(SOURCE_LABEL).page_size(PAGE)
}
