//! The task that keeps the Lease.

use std::{fmt, sync::Arc, time::Duration};

use holdfast_fleet::{
    clock::Clock,
    term::{Since, Term},
};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client, api::PostParams};
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    HOLDS, LEASE, Options,
    record::{Act, Others, held, released},
};
use crate::management::{self, Failure};

/// How often a holder who may have rivals renews. Three renewals fit into [`HOLDS`].
const RENEW: Duration = Duration::from_secs(3);
/// How often a hub without rivals says that it is alive: it counts as gone after a minute.
const ANNOUNCE: Duration = Duration::from_secs(10);
/// How often others look, and how soon what failed is tried again.
const LOOK: Duration = Duration::from_secs(1);
/// How long one call may take.
const CALL: Duration = Duration::from_secs(3);
/// How long giving the Lease back may take when the hub ends.
const RELEASE: Duration = Duration::from_millis(500);

/// How the hub ends, for the Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Farewell {
    /// Nothing of this hub writes any more: others may begin at once.
    Release,
    /// Something may still be under way: others wait until the Lease is over.
    Leave,
}

/// Keeps the Lease.
pub struct Keeper {
    leases: Api<Lease>,
    holder: String,
    elect: bool,
    clock: Arc<dyn Clock>,
    term: watch::Sender<Option<Term>>,
    farewell: watch::Receiver<Option<Farewell>>,
}

/// What the rest of the hub sees of it.
#[derive(Debug)]
pub struct Leadership {
    /// The term this hub leads in; `None` while it stands by.
    term: watch::Receiver<Option<Term>>,
    farewell: watch::Sender<Option<Farewell>>,
}

impl Leadership {
    /// Waits until this hub leads.
    pub async fn begins(&mut self) -> Term {
        loop {
            if let Some(term) = self.term.borrow_and_update().clone() {
                return term;
            }
            // The keeper lives as long as the hub.
            if self.term.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits until a term is over for good.
    pub async fn ends(&mut self, term: &Term) {
        if self.term.wait_for(|_| term.is_over()).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Whether this hub leads, for whoever wants to follow it.
    pub fn subscribe(&self) -> watch::Receiver<Option<Term>> {
        self.term.clone()
    }

    /// Lets the keeper end: at the very last, when nothing else of the hub runs. `clean` says that every task ended by itself.
    pub fn finish(&self, clean: bool) {
        self.farewell.send_replace(Some(if clean { Farewell::Release } else { Farewell::Leave }));
    }
}

/// What the keeper knows between two looks at the Lease.
#[derive(Default)]
struct Memory {
    others: Others,
    /// The Lease as we stored it last. While nothing fails it need not be read again.
    stored: Option<Lease>,
    /// What was said last about why the Lease cannot be kept, and whether writes were off by then.
    said: Option<(Failure, bool)>,
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper").field("holder", &self.holder).field("elect", &self.elect).finish_non_exhaustive()
    }
}

impl Keeper {
    /// A keeper that does nothing until it is run. `client` is used for nothing else, so that the Lease waits behind no other call.
    pub fn new(client: Client, options: &Options, clock: Arc<dyn Clock>) -> (Self, Leadership) {
        let (term, receiver) = watch::channel((!options.elect).then(Term::unlimited));
        let (sender, farewell) = watch::channel(None);
        let keeper = Self {
            leases: Api::namespaced(client, &options.namespace),
            holder: format!("{}_{:016x}", options.id, rand::random::<u64>()),
            elect: options.elect,
            clock,
            term,
            farewell,
        };
        (keeper, Leadership { term: receiver, farewell: sender })
    }

    /// Keeps the Lease until [`Leadership::finish`]. `stop` alone does not end it: what still runs needs its term.
    pub async fn run(&self, stop: CancellationToken) {
        let mut memory = Memory::default();
        let mut farewell = self.farewell.clone();
        loop {
            let is_candidate = self.term.borrow().is_none();
            let wait = if is_candidate && stop.is_cancelled() { LOOK } else { self.look(&mut memory).await };
            if let Ok(said) = timeout(wait, farewell.wait_for(Option::is_some)).await.map(|said| said.map_or(None, |said| *said)) {
                if let Some(stored) = memory.stored.filter(|_| said == Some(Farewell::Release)) {
                    self.release(&stored).await;
                }
                return;
            }
        }
    }

    /// Looks at the Lease once and does what is to be done. Answers when to look again.
    async fn look(&self, memory: &mut Memory) -> Duration {
        let since = Term::since(self.clock.as_ref());
        match self.step(memory).await {
            Ok(true) => {
                if memory.said.take().is_some() {
                    tracing::info!(lease = LEASE, "the Lease is kept again");
                }
                self.leads(since);
                if self.elect { RENEW } else { ANNOUNCE }
            }
            Ok(false) => {
                memory.said = None;
                self.loses();
                LOOK
            }
            // Somebody else wrote the Lease in between; what that means shows when it is read.
            Err(Failure::Conflict | Failure::AlreadyExists) => LOOK,
            Err(failure) => {
                self.say(memory, failure);
                if self.elect { LOOK } else { ANNOUNCE }
            }
        }
    }

    /// Whether the Lease is ours now.
    async fn step(&self, memory: &mut Memory) -> Result<bool, Failure> {
        let lease = match memory.stored.take() {
            Some(stored) => Some(stored),
            None => match call(self.leases.get(LEASE)).await {
                Ok(lease) => Some(lease),
                Err(Failure::NotFound) => None,
                Err(failure) => return Err(failure),
            },
        };
        let act = memory.others.judge(lease.as_ref(), &self.holder, Instant::now());
        let leads = self.elect && self.term.borrow().is_some();
        // Whoever led and does not find itself in the Lease was followed by somebody else, even if that one is gone again.
        if self.elect && (act == Act::Wait || (leads && act != Act::Renew)) {
            return Ok(false);
        }
        let wanted = held(lease.as_ref(), &self.holder, self.clock.now());
        let stored = if lease.is_none() {
            call(self.leases.create(&PostParams::default(), &wanted)).await
        } else {
            call(self.leases.replace(LEASE, &PostParams::default(), &wanted)).await
        };
        memory.stored = Some(stored?);
        Ok(true)
    }

    /// The Lease is ours as of `since`.
    fn leads(&self, since: Since) {
        let current = self.term.borrow().clone();
        if let Some(term) = current {
            if !term.holds() {
                tracing::info!(lease = LEASE, holder = self.holder, "leading goes on");
            }
            term.extend(since, HOLDS);
        } else {
            let term = Term::bounded(Arc::clone(&self.clock));
            term.extend(since, HOLDS);
            tracing::info!(lease = LEASE, holder = self.holder, "leading");
            self.term.send_replace(Some(term));
        }
    }

    /// The Lease is somebody else's.
    fn loses(&self) {
        let Some(term) = self.term.borrow().clone() else { return };
        // Whoever is woken by the change finds it over.
        term.end();
        self.term.send_replace(None);
        tracing::warn!(lease = LEASE, holder = self.holder, "another hub leads; standing by");
    }

    fn say(&self, memory: &mut Memory, failure: Failure) {
        let lapsed = self.term.borrow().as_ref().is_some_and(|term| !term.holds());
        if memory.said.replace((failure, lapsed)) != Some((failure, lapsed)) {
            let consequence = if lapsed { "nothing is written until it is" } else { "retrying" };
            tracing::warn!(lease = LEASE, failure = failure.as_str(), "the Lease cannot be kept; {consequence}");
        }
    }

    async fn release(&self, stored: &Lease) {
        let free = released(stored, self.clock.now());
        if let Ok(Ok(_)) = timeout(RELEASE, call(self.leases.replace(LEASE, &PostParams::default(), &free))).await {
            tracing::info!(lease = LEASE, "the Lease is given back");
        } else {
            tracing::warn!(lease = LEASE, "the Lease could not be given back; others wait until it is over");
        }
    }
}

async fn call<T>(answer: impl Future<Output = Result<T, kube::Error>>) -> Result<T, Failure> {
    timeout(CALL, management::call(answer)).await.unwrap_or(Err(Failure::Timeout))
}
