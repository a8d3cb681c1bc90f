//! What a task is, and what happens when it fails.

use std::{borrow::Cow, future::Future, panic::AssertUnwindSafe};

use futures::FutureExt;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Supervisor, TaskState, roster::Listed};
use crate::backoff::{Backoff, BackoffPolicy};

/// What the failure of a task means. Ending without an error is no failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnError {
    /// It is logged, and the task is over.
    Log,
    /// It is logged, and the task starts again after a delay.
    Restart(BackoffPolicy),
    /// It is logged, and the supervisor the task was started in stops.
    StopParent,
}

/// What a task does when it is asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnCancel {
    /// It is dropped at its current await.
    Drop,
    /// It watches its token and finishes what must not be left half done.
    Finish,
}

/// A task's name and manners.
#[derive(Clone, Debug)]
pub struct Task {
    name: Cow<'static, str>,
    on_error: OnError,
    on_cancel: OnCancel,
}

impl Task {
    /// A task that is logged when it fails and dropped when cancelled.
    pub fn new(name: impl Into<Cow<'static, str>>) -> Self {
        Self { name: name.into(), on_error: OnError::Log, on_cancel: OnCancel::Drop }
    }

    /// Starts it again when it fails.
    #[must_use]
    pub fn restart(mut self, policy: BackoffPolicy) -> Self {
        self.on_error = OnError::Restart(policy);
        self
    }

    /// Stops the supervisor when it fails.
    #[must_use]
    pub fn essential(mut self) -> Self {
        self.on_error = OnError::StopParent;
        self
    }

    /// Lets it finish by itself when cancelled.
    #[must_use]
    pub fn finishes(mut self) -> Self {
        self.on_cancel = OnCancel::Finish;
        self
    }

    /// The task's name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Runs a task to its end, restarts included.
pub(super) async fn run<F, Fut, E>(supervisor: &Supervisor, task: &Task, listed: &Listed, mut run: F)
where
    F: FnMut(CancellationToken) -> Fut + Send,
    Fut: Future<Output = Result<(), E>> + Send,
    E: std::error::Error,
{
    let token = supervisor.token();
    let mut backoff = match task.on_error {
        OnError::Restart(policy) => Some(Backoff::new(policy)),
        OnError::Log | OnError::StopParent => None,
    };
    while !token.is_cancelled() {
        let started = Instant::now();
        // The call itself may panic too, so it happens inside the guarded future.
        let attempt = AssertUnwindSafe(async { run(token.clone()).await }).catch_unwind();
        let outcome = match task.on_cancel {
            OnCancel::Finish => attempt.await,
            OnCancel::Drop => match token.run_until_cancelled(attempt).await {
                Some(outcome) => outcome,
                None => return,
            },
        };
        match outcome {
            Ok(Ok(())) => return,
            Ok(Err(error)) => tracing::warn!(task = %listed.path(), error = %error, "task failed"),
            // The payload is dropped unread.
            Err(_) => tracing::error!(task = %listed.path(), "task panicked"),
        }
        let Some(backoff) = &mut backoff else {
            if task.on_error == OnError::StopParent {
                supervisor.fail(listed.path());
            }
            return;
        };
        backoff.was_calm_for(started.elapsed());
        listed.set_state(TaskState::Restarting);
        if token.run_until_cancelled(tokio::time::sleep(backoff.next_delay())).await.is_none() {
            return;
        }
        listed.restarted();
    }
}
