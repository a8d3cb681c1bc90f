//! Carries out what the machine decides, for one watch.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::StreamExt;
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};

use super::{
    decode::Decode,
    machine::Machine,
    source::{Source, SourceError},
    step::{Input, Next, Step},
    target::WatchKey,
    update::Update,
};

/// How long a server may take to accept a watch. A server that fills its cache first takes seconds.
const OPEN_DEADLINE: Duration = Duration::from_secs(30);

/// How long a server may take for one page.
const PAGE_DEADLINE: Duration = Duration::from_mins(1);

/// Takes what a watch has to say.
pub trait Consumer<T>: Send {
    /// Takes one update. Waiting here is back pressure: nothing is read meanwhile. `false` ends the watch.
    fn deliver(&mut self, update: Update<T>) -> impl Future<Output = bool> + Send;

    /// Hears of each restart and of the listing used from then on.
    fn stepped(&mut self, machine: &Machine, step: &Step<T>);
}

/// How watches go on that wait after a failure. Those that are well go on as they are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    /// They stay where they are, however long they have waited.
    pub held: bool,
}

/// The connection a watch uses, and the ways to disturb it.
#[derive(Debug)]
pub struct Link<S> {
    sources: watch::Receiver<Arc<S>>,
    paces: watch::Receiver<Pace>,
}

impl<S> Link<S> {
    /// A watch over the source in `sources`. When that is replaced the watch goes on over the new one from where it stands; a value
    /// sent to `paces` ends a sleep, or holds whoever sleeps, and disturbs nothing else.
    pub fn new(sources: watch::Receiver<Arc<S>>, paces: watch::Receiver<Pace>) -> Self {
        Self { sources, paces }
    }

    /// The source for a request that starts now. What was signalled before is settled by it.
    fn source(&mut self) -> Arc<S> {
        self.paces.mark_unchanged();
        Arc::clone(&self.sources.borrow_and_update())
    }
}

/// What came in, owned.
enum Arrived {
    Opened,
    Line(Bytes),
    Ended,
    Silent,
    Page(Bytes),
    Failed(SourceError),
    Moved,
    Woke,
}

/// Runs one watch until the consumer wants no more. To be dropped to cancel: every await may be the last one.
pub async fn run<S, D, C>(key: &WatchKey, mut link: Link<S>, decode: &D, mut machine: Machine, mut consumer: C)
where
    S: Source,
    D: Decode,
    C: Consumer<D::Item>,
{
    let mut lines: Option<S::Lines> = None;
    let mut step = machine.start();
    loop {
        consumer.stepped(&machine, &step);
        for update in step.updates {
            if !consumer.deliver(update).await {
                return;
            }
        }
        let arrived = perform(key, &mut link, &mut lines, step.next).await;
        let input = match &arrived {
            Arrived::Opened => Input::Opened,
            Arrived::Line(text) => Input::Line(text),
            Arrived::Ended => Input::Ended,
            Arrived::Silent => Input::Silent,
            Arrived::Page(page) => Input::Page(page),
            Arrived::Failed(error) => Input::Failed(*error),
            Arrived::Moved => Input::Moved,
            Arrived::Woke => Input::Woke,
        };
        step = machine.step(Instant::now(), input, |object| decode.decode(key, object));
    }
}

async fn perform<S: Source>(key: &WatchKey, link: &mut Link<S>, lines: &mut Option<S::Lines>, next: Next) -> Arrived {
    match next {
        Next::Read { silence } => {
            let Some(open) = lines else { return Arrived::Ended };
            tokio::select! {
                biased;
                // Cancel-safe: only marks the value as seen.
                () = changed(&mut link.sources) => Arrived::Moved,
                // Cancel-safe: a line not taken stays in the stream.
                next = timeout(silence, open.next()) => match next {
                    Ok(Some(Ok(text))) => Arrived::Line(text),
                    Ok(Some(Err(error))) => Arrived::Failed(error),
                    Ok(None) => Arrived::Ended,
                    Err(_) => Arrived::Silent,
                },
            }
        }
        Next::Open(open) => {
            *lines = None;
            let source = link.source();
            match timeout(OPEN_DEADLINE, source.watch(key, &open)).await {
                Ok(Ok(opened)) => {
                    *lines = Some(opened);
                    Arrived::Opened
                }
                Ok(Err(error)) => Arrived::Failed(error),
                Err(_) => Arrived::Failed(SourceError::Timeout),
            }
        }
        Next::List(page) => {
            *lines = None;
            let source = link.source();
            match timeout(PAGE_DEADLINE, source.list(key, &page)).await {
                Ok(Ok(page)) => Arrived::Page(page),
                Ok(Err(error)) => Arrived::Failed(error),
                Err(_) => Arrived::Failed(SourceError::Timeout),
            }
        }
        Next::Sleep(delay) => {
            *lines = None;
            tokio::select! {
                biased;
                // A new connection may have cured what we sleep over. Cancel-safe: only marks the value as seen.
                () = changed(&mut link.sources) => Arrived::Moved,
                // Cancel-safe: the delay starts anew with the next step.
                () = rested(&mut link.paces, delay) => Arrived::Woke,
            }
        }
    }
}

/// Completes when the delay is over and nobody holds the watch, or when a pace is sent that does not.
async fn rested(paces: &mut watch::Receiver<Pace>, delay: Duration) {
    let until = Instant::now() + delay;
    loop {
        let held = paces.borrow().held;
        // Cancel-safe: only marks the value as seen.
        tokio::select! {
            biased;
            () = changed(paces) => if !paces.borrow().held {
                return;
            },
            () = tokio::time::sleep_until(until), if !held => return,
        }
    }
}

/// Completes when another value was sent; never once nobody is left who could send one.
async fn changed<T>(signal: &mut watch::Receiver<T>) {
    if signal.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}
