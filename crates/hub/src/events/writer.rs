//! The task that writes Events.

use std::{fmt, sync::Arc, time::Duration};

use holdfast_api::report::DriftReport;
use holdfast_fleet::clock::Clock;
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        core::v1::ObjectReference,
        events::v1::{Event, EventSeries},
    },
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{
    Api, Client, Resource,
    api::{Patch, PatchParams, PostParams},
};
use parking_lot::Mutex;
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::{
    sync::mpsc,
    time::{Instant, MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;

use super::{
    Happening, Regarding,
    gather::{Draft, Gather, SeriesKey},
};
use crate::{
    management::{self, Failure},
    metrics::Metrics,
    reports::Reports,
};

/// The controller that Events name.
const CONTROLLER: &str = "holdfast.dev/hub";
/// How often counts are looked at, and an Event that waits for its report is tried.
const TICK: Duration = Duration::from_secs(1);
/// Longest name of an instance in an Event.
const MAX_INSTANCE: usize = 128;

/// Writes Events.
pub struct EventWriter {
    client: Client,
    reports: Reports,
    instance: String,
    metrics: Arc<Metrics>,
    clock: Arc<dyn Clock>,
    happenings: tokio::sync::Mutex<mpsc::Receiver<Happening>>,
    gather: Mutex<Gather>,
}

impl fmt::Debug for EventWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventWriter").field("instance", &self.instance).finish_non_exhaustive()
    }
}

impl EventWriter {
    pub(super) fn new(
        client: Client,
        reports: Reports,
        instance: &str,
        metrics: Arc<Metrics>,
        clock: Arc<dyn Clock>,
        happenings: mpsc::Receiver<Happening>,
    ) -> Self {
        Self {
            client,
            reports,
            instance: instance.chars().filter(char::is_ascii).take(MAX_INSTANCE).collect(),
            metrics,
            clock,
            happenings: tokio::sync::Mutex::new(happenings),
            gather: Mutex::default(),
        }
    }

    /// Writes until `token` is cancelled or every handle is gone. One run at a time: a second one waits for the first.
    pub async fn run(&self, token: CancellationToken) {
        let mut happenings = self.happenings.lock().await;
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // Both are cancel-safe: an untaken happening stays in the queue.
            tokio::select! {
                biased;
                () = token.cancelled() => return,
                happening = happenings.recv() => match happening {
                    Some(happening) => self.note(happening, self.clock.now()),
                    None => return,
                },
                _ = tick.tick() => self.gather.lock().expire(Instant::now()),
            }
            // Whatever else waits belongs to the same batch.
            while let Ok(happening) = happenings.try_recv() {
                self.note(happening, self.clock.now());
            }
            if token.run_until_cancelled(self.write_all()).await.is_none() {
                return;
            }
        }
    }

    fn note(&self, happening: Happening, wall: Timestamp) {
        if !self.gather.lock().note(happening, wall, Instant::now()) {
            self.metrics.event_dropped();
        }
    }

    async fn write_all(&self) {
        loop {
            let next = self.gather.lock().next(|regarding| self.exists(regarding), Instant::now());
            let Some(draft) = next else { return };
            match self.write(&draft).await {
                Ok(name) => self.gather.lock().stored(&draft.key, name, draft.count, Instant::now()),
                Err(failure) => {
                    self.metrics.event_dropped();
                    tracing::debug!(reason = draft.key.reason.as_str(), failure = failure.as_str(), "an Event could not be written");
                    self.gather.lock().failed(&draft.key);
                }
            }
        }
    }

    /// Writes an Event, and says under which name.
    async fn write(&self, draft: &Draft) -> Result<String, Failure> {
        let regarding = self.reference(&draft.key.regarding);
        let namespace = regarding.namespace.clone().unwrap_or_default();
        let api: Api<Event> = Api::namespaced(self.client.clone(), &namespace);
        let series = EventSeries { count: i32::try_from(draft.count).unwrap_or(i32::MAX), last_observed_time: MicroTime(draft.last) };
        if let Some(name) = &draft.stored {
            let patch = Patch::Merge(json!({ "series": series }));
            match management::call(api.patch(name, &PatchParams::default(), &patch)).await {
                Ok(_) => return Ok(name.clone()),
                // Events go after an hour; the series goes on as a new one.
                Err(Failure::NotFound) => {}
                Err(failure) => return Err(failure),
            }
        }
        let name = self.name(&draft.key, regarding.name.as_deref().unwrap_or_default(), draft.first);
        let event = Event {
            metadata: ObjectMeta { name: Some(name.clone()), namespace: Some(namespace), ..ObjectMeta::default() },
            event_time: Some(MicroTime(draft.first)),
            reporting_controller: Some(CONTROLLER.to_owned()),
            reporting_instance: Some(self.instance.clone()),
            action: Some(draft.key.reason.action().to_owned()),
            reason: Some(draft.key.reason.as_str().to_owned()),
            regarding: Some(regarding),
            note: Some(draft.note.clone()),
            type_: Some(draft.key.reason.kind().to_owned()),
            // A series begins with the second time.
            series: (draft.count > 1).then_some(series),
            ..Event::default()
        };
        match management::call(api.create(&PostParams::default(), &event)).await {
            // Made by an attempt whose answer was lost.
            Ok(_) | Err(Failure::AlreadyExists) => Ok(name),
            Err(failure) => Err(failure),
        }
    }

    /// A report is written at the same time as the first Event about it, and only its UID ties the two together.
    fn exists(&self, regarding: &Regarding) -> bool {
        match regarding {
            Regarding::Report(key) => self.reports.uid(key).is_some(),
            Regarding::Owner { .. } => true,
        }
    }

    fn reference(&self, regarding: &Regarding) -> ObjectReference {
        match regarding {
            Regarding::Report(key) => {
                let name = key.object_name();
                ObjectReference {
                    api_version: Some(DriftReport::api_version(&()).into_owned()),
                    kind: Some(DriftReport::kind(&()).into_owned()),
                    namespace: Some(name.namespace.to_string()),
                    name: Some(name.name.to_string()),
                    uid: self.reports.uid(key),
                    ..ObjectReference::default()
                }
            }
            Regarding::Owner { namespace, owner } => ObjectReference {
                api_version: Some(owner.api_version.to_string()),
                kind: Some(owner.kind.to_string()),
                namespace: Some(namespace.to_string()),
                name: Some(owner.name.to_string()),
                uid: Some(owner.uid.to_string()),
                ..ObjectReference::default()
            },
        }
    }

    /// Unique to the series: two hubs and two starts of one never make the same name.
    fn name(&self, key: &SeriesKey, regarding: &str, first: Timestamp) -> String {
        let mut digest = Sha256::new();
        for part in [key.reason.as_str(), key.object.as_deref().unwrap_or_default(), &self.instance, &first.to_string()] {
            digest.update(part.len().to_be_bytes());
            digest.update(part);
        }
        let hash = digest.finalize().iter().take(8).fold(0_u64, |hash, byte| hash << 8 | u64::from(*byte));
        format!("{regarding}.{hash:016x}")
    }
}
