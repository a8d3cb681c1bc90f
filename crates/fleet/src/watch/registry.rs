//! Reference-counted watches of one cluster.

use std::{
    collections::{HashMap, hash_map::Entry},
    convert::Infallible,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};

use super::{
    decode::Decode,
    driver::{self, Consumer, Link, Pace},
    machine::{Listing, Machine},
    source::Source,
    stats::WatchStats,
    step::Step,
    target::WatchKey,
    update::{Reason, Update},
};
use crate::{
    backoff::BackoffPolicy,
    supervisor::{Supervisor, Task},
};

/// An update and the watch it came from.
#[derive(Clone, Debug)]
pub struct Delivery<T> {
    /// The watch.
    pub key: Arc<WatchKey>,
    /// Which run of it: a watch that was stopped and started again has a new one, and what is left of the old is void.
    pub run: u64,
    /// What happened.
    pub update: Update<T>,
}

/// The watches of one cluster. Cheap to clone; clones are the same set.
pub struct Watches<S: Source, D: Decode> {
    shared: Arc<Shared<S, D>>,
}

struct Shared<S: Source, D: Decode> {
    sources: watch::Sender<Arc<S>>,
    paces: watch::Sender<Pace>,
    decode: D,
    deliveries: mpsc::Sender<Delivery<D::Item>>,
    supervisor: Supervisor,
    stats: Arc<WatchStats>,
    /// Set once the cluster refused a streaming list, so that each further watch does not ask again.
    paged_only: AtomicBool,
    runs: AtomicU64,
    table: Mutex<HashMap<Arc<WatchKey>, Running>>,
}

struct Running {
    leases: usize,
    run: u64,
    supervisor: Supervisor,
}

/// The right to have a watch running. The last one dropped stops it.
#[must_use = "dropping the lease stops the watch"]
pub struct Lease {
    key: Arc<WatchKey>,
    run: u64,
    release: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl<S: Source, D: Decode> Watches<S, D> {
    /// No watches yet. They will ask `source`, run under `supervisor` and deliver to `deliveries`.
    pub fn new(
        source: Arc<S>,
        decode: D,
        deliveries: mpsc::Sender<Delivery<D::Item>>,
        supervisor: Supervisor,
        stats: Arc<WatchStats>,
    ) -> Self {
        let shared = Shared {
            sources: watch::Sender::new(source),
            paces: watch::Sender::new(Pace::default()),
            decode,
            deliveries,
            supervisor,
            stats,
            paged_only: AtomicBool::new(false),
            runs: AtomicU64::new(1),
            table: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Takes a lease on a watch; the first one starts it.
    ///
    /// A second holder gets no list of its own: what it needs is what the consumer already knows. Must be called within a tokio runtime.
    pub fn acquire(&self, key: WatchKey) -> Lease {
        let mut table = self.shared.table.lock();
        let (key, run) = match table.entry(Arc::new(key)) {
            Entry::Occupied(mut running) => {
                running.get_mut().leases += 1;
                (Arc::clone(running.key()), running.get().run)
            }
            Entry::Vacant(vacant) => {
                let key = Arc::clone(vacant.key());
                let run = self.shared.runs.fetch_add(1, Ordering::Relaxed);
                let running = self.start(&key, run);
                vacant.insert(running);
                (key, run)
            }
        };
        drop(table);
        let shared = Arc::clone(&self.shared);
        let released = Arc::clone(&key);
        Lease { key, run, release: Some(Box::new(move || shared.release(&released, run))) }
    }

    /// Lets all watches go on over another connection to the same cluster.
    pub fn replace_source(&self, source: Arc<S>) {
        self.shared.sources.send_replace(source);
    }

    /// Lets watches that wait after a failure try again now, for example with a new token. Those that are well are not disturbed.
    pub fn retry_now(&self) {
        // The same again is news, too.
        self.shared.paces.send_modify(|_| {});
    }

    /// Holds watches that wait after a failure, or lets them go on at once: whoever knows that the cluster does not answer need not let
    /// each of them find out. Those that are well are not disturbed.
    pub fn hold(&self, held: bool) {
        self.shared.paces.send_if_modified(|pace| std::mem::replace(&mut pace.held, held) != held);
    }

    /// How many watches run.
    pub fn running(&self) -> usize {
        self.shared.table.lock().len()
    }

    fn start(&self, key: &Arc<WatchKey>, run: u64) -> Running {
        let supervisor = self.shared.supervisor.child(&key.to_string());
        let (shared, key) = (Arc::clone(&self.shared), Arc::clone(key));
        // A panic while decoding comes back as a new list.
        supervisor.spawn(Task::new("watch").restart(BackoffPolicy::WATCH), move |_| {
            let (shared, key) = (Arc::clone(&shared), Arc::clone(&key));
            async move {
                let listing = if shared.paged_only.load(Ordering::Relaxed) { Listing::Paged } else { Listing::Streaming };
                let machine = Machine::new(listing, rand::random());
                let consumer = Outlet::new(Arc::clone(&shared), Arc::clone(&key), run);
                let link = Link::new(shared.sources.subscribe(), shared.paces.subscribe());
                driver::run(&key, link, &shared.decode, machine, consumer).await;
                Ok::<_, Infallible>(())
            }
        });
        Running { leases: 1, run, supervisor }
    }
}

impl<S: Source, D: Decode> Clone for Watches<S, D> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<S: Source, D: Decode> fmt::Debug for Watches<S, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watches").field("running", &self.running()).finish_non_exhaustive()
    }
}

impl<S: Source, D: Decode> Shared<S, D> {
    fn release(&self, key: &Arc<WatchKey>, run: u64) {
        let mut table = self.table.lock();
        let Some(running) = table.get_mut(key).filter(|running| running.run == run) else { return };
        running.leases -= 1;
        if running.leases == 0 {
            running.supervisor.cancel();
            table.remove(key);
        }
    }
}

impl Lease {
    /// The watch.
    pub fn key(&self) -> &Arc<WatchKey> {
        &self.key
    }

    /// The run of the watch this lease belongs to, as in [`Delivery::run`].
    pub fn run(&self) -> u64 {
        self.run
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(release) = self.release.take() {
            release();
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("key", &self.key).field("run", &self.run).finish_non_exhaustive()
    }
}

/// Sends a watch's updates to the cluster's channel. Counts the watch as running while it lives.
struct Outlet<S: Source, D: Decode> {
    shared: Arc<Shared<S, D>>,
    key: Arc<WatchKey>,
    run: u64,
}

impl<S: Source, D: Decode> Outlet<S, D> {
    fn new(shared: Arc<Shared<S, D>>, key: Arc<WatchKey>, run: u64) -> Self {
        shared.stats.started();
        Self { shared, key, run }
    }
}

impl<S: Source, D: Decode> Drop for Outlet<S, D> {
    fn drop(&mut self) {
        self.shared.stats.stopped();
    }
}

impl<S: Source, D: Decode> Consumer<D::Item> for Outlet<S, D> {
    async fn deliver(&mut self, update: Update<D::Item>) -> bool {
        let delivery = Delivery { key: Arc::clone(&self.key), run: self.run, update };
        self.shared.deliveries.send(delivery).await.is_ok()
    }

    fn stepped(&mut self, machine: &Machine, step: &Step<D::Item>) {
        if let Some(reason) = step.restart {
            self.shared.stats.restarted(reason);
            tracing::debug!(watch = %self.key, reason = reason.label(), "watch restarts");
            if reason == Reason::StreamingUnsupported && machine.listing() == Listing::Paged {
                self.shared.paged_only.store(true, Ordering::Relaxed);
            }
        }
    }
}
