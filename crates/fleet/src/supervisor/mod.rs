//! Every background task runs under a supervisor.
//!
//! Supervisors form a tree: process, cluster, watch. Stopping one stops everything below it and waits for it, so nothing lives on
//! detached. Each task says what its failure means: note it, start it again, or stop the supervisor it belongs to. A panic is a failure like any
//! other and is reported by the task's name and the source line only: the text of a panic may quote data.

mod panics;
mod roster;
mod task;

#[cfg(test)]
mod tests;

use std::{fmt, future::Future, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio_util::{
    sync::CancellationToken,
    task::{TaskTracker, task_tracker::TaskTrackerToken},
};

use roster::{Listed, Roster};

pub use panics::install_panic_hook;
pub use roster::{TaskInfo, TaskState};
pub use task::{OnCancel, OnError, Task};

/// How long tasks that had to be aborted get to unwind.
const ABORT_GRACE: Duration = Duration::from_secs(1);

/// A place in the tree that tasks are started in. Cheap to clone; clones are the same place.
#[derive(Clone)]
pub struct Supervisor {
    scope: Arc<Scope>,
}

struct Scope {
    path: Arc<str>,
    /// The numbers of all supervisors from the root down to this one. Names may repeat, numbers do not.
    lineage: Arc<[u64]>,
    token: CancellationToken,
    tracker: TaskTracker,
    /// The trackers of all supervisors above: their stop waits for our tasks too.
    above: Vec<TaskTracker>,
    roster: Arc<Roster>,
    failure: Mutex<Option<Arc<str>>>,
}

/// How a stop ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// Every task ended by itself.
    Clean,
    /// These tasks did not end in time and were aborted.
    Aborted(Vec<String>),
}

impl Supervisor {
    /// The root of a tree.
    pub fn root(name: &str) -> Self {
        let roster = Arc::<Roster>::default();
        let scope = Scope {
            path: Arc::from(name),
            lineage: Arc::from([roster.next_id()]),
            token: CancellationToken::new(),
            tracker: TaskTracker::new(),
            above: Vec::new(),
            roster,
            failure: Mutex::default(),
        };
        Self { scope: Arc::new(scope) }
    }

    /// A supervisor below this one: stopped with it, and stoppable alone.
    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        let above = &self.scope;
        let scope = Scope {
            path: format!("{}/{name}", above.path).into(),
            lineage: above.lineage.iter().copied().chain([above.roster.next_id()]).collect(),
            token: above.token.child_token(),
            tracker: TaskTracker::new(),
            above: above.above.iter().chain([&above.tracker]).cloned().collect(),
            roster: Arc::clone(&above.roster),
            failure: Mutex::default(),
        };
        Self { scope: Arc::new(scope) }
    }

    /// Starts a task. `run` is called once, and again for each restart, with the token that asks it to end.
    ///
    /// After the supervisor was cancelled nothing is started. Must be called within a tokio runtime.
    pub fn spawn<F, Fut, E>(&self, task: Task, run: F)
    where
        F: FnMut(CancellationToken) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: std::error::Error + Send + 'static,
    {
        if self.scope.token.is_cancelled() {
            return;
        }
        let above: Vec<TaskTrackerToken> = self.scope.above.iter().map(TaskTracker::token).collect();
        let listed = Listed::new(&self.scope.roster, &self.scope.lineage, format!("{}/{}", self.scope.path, task.name()));
        let id = listed.id();
        let supervisor = self.clone();
        let handle = self.scope.tracker.spawn(async move {
            task::run(&supervisor, &task, &listed, run).await;
            drop(listed);
            drop(above);
        });
        self.scope.roster.set_abort(id, handle.abort_handle());
    }

    /// The token that asks everything here to end. For passing down, not for cancelling.
    pub fn token(&self) -> CancellationToken {
        self.scope.token.child_token()
    }

    /// Asks everything here and below to end, and does not wait.
    pub fn cancel(&self) {
        self.scope.token.cancel();
    }

    /// Completes once this supervisor was cancelled: from above, by [`Supervisor::cancel`], or by a task that must not fail.
    pub async fn cancelled(&self) {
        self.scope.token.cancelled().await;
    }

    /// The task whose failure stopped this supervisor, if one did.
    pub fn failure(&self) -> Option<Arc<str>> {
        self.scope.failure.lock().clone()
    }

    /// Ends everything here and below: asks, waits for at most `deadline`, aborts what is left.
    pub async fn stop(&self, deadline: Duration) -> Stopped {
        self.scope.token.cancel();
        self.scope.tracker.close();
        if tokio::time::timeout(deadline, self.scope.tracker.wait()).await.is_ok() {
            return Stopped::Clean;
        }
        let aborted = self.scope.roster.abort_below(self.id());
        // An aborted task ends at its next await. One that never awaits cannot be ended at all, and must not hold up the process.
        if tokio::time::timeout(ABORT_GRACE, self.scope.tracker.wait()).await.is_err() {
            tracing::error!(supervisor = %self.scope.path, "tasks do not end although aborted");
        }
        Stopped::Aborted(aborted)
    }

    /// The tasks that run here and below, by path.
    pub fn dump(&self) -> Vec<TaskInfo> {
        self.scope.roster.dump_below(self.id())
    }

    fn id(&self) -> Option<u64> {
        self.scope.lineage.last().copied()
    }

    /// Stops this supervisor because a task it cannot do without failed.
    fn fail(&self, task: &str) {
        self.scope.failure.lock().get_or_insert_with(|| Arc::from(task));
        self.scope.token.cancel();
    }
}

impl fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Supervisor").field("path", &self.scope.path).finish_non_exhaustive()
    }
}
