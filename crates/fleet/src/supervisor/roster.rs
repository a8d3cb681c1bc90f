//! The list of running tasks of a tree.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{task::AbortHandle, time::Instant};

/// A running task, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskInfo {
    /// Names from the root down, separated by `/`.
    pub path: String,
    /// What it does now.
    pub state: TaskState,
    /// Time since it was started or last restarted.
    pub age: Duration,
    /// How often it failed and was started again.
    pub restarts: u64,
}

/// What a task does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskState {
    /// It runs.
    Running,
    /// It failed and waits to be started again.
    Restarting,
}

struct Entry {
    path: Arc<str>,
    lineage: Arc<[u64]>,
    state: TaskState,
    since: Instant,
    restarts: u64,
    abort: Option<AbortHandle>,
}

#[derive(Default)]
pub(super) struct Roster {
    next: AtomicU64,
    entries: Mutex<BTreeMap<u64, Entry>>,
}

impl Roster {
    /// A number that was not given out before.
    pub(super) fn next_id(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Remembers how to abort a task; one that ended already is left out.
    pub(super) fn set_abort(&self, id: u64, abort: AbortHandle) {
        if let Some(entry) = self.entries.lock().get_mut(&id) {
            entry.abort = Some(abort);
        }
    }

    /// Aborts the tasks below a supervisor and tells which.
    pub(super) fn abort_below(&self, supervisor: Option<u64>) -> Vec<String> {
        let mut aborted: Vec<_> = self
            .entries
            .lock()
            .values()
            .filter(|entry| entry.is_below(supervisor))
            .map(|entry| {
                if let Some(abort) = &entry.abort {
                    abort.abort();
                }
                entry.path.to_string()
            })
            .collect();
        aborted.sort();
        aborted
    }

    pub(super) fn dump_below(&self, supervisor: Option<u64>) -> Vec<TaskInfo> {
        let mut tasks: Vec<_> = self
            .entries
            .lock()
            .values()
            .filter(|entry| entry.is_below(supervisor))
            .map(|entry| TaskInfo {
                path: entry.path.to_string(),
                state: entry.state,
                age: entry.since.elapsed(),
                restarts: entry.restarts,
            })
            .collect();
        tasks.sort_by(|a, b| a.path.cmp(&b.path));
        tasks
    }
}

impl Entry {
    fn is_below(&self, supervisor: Option<u64>) -> bool {
        supervisor.is_some_and(|id| self.lineage.contains(&id))
    }
}

/// A task's place on the roster, given up when dropped.
pub(super) struct Listed {
    roster: Arc<Roster>,
    id: u64,
    path: Arc<str>,
}

impl Listed {
    pub(super) fn new(roster: &Arc<Roster>, lineage: &Arc<[u64]>, path: String) -> Self {
        let id = roster.next_id();
        let path: Arc<str> = path.into();
        let entry = Entry {
            path: Arc::clone(&path),
            lineage: Arc::clone(lineage),
            state: TaskState::Running,
            since: Instant::now(),
            restarts: 0,
            abort: None,
        };
        roster.entries.lock().insert(id, entry);
        Self { roster: Arc::clone(roster), id, path }
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn set_state(&self, state: TaskState) {
        if let Some(entry) = self.roster.entries.lock().get_mut(&self.id) {
            entry.state = state;
            entry.since = Instant::now();
        }
    }

    pub(super) fn restarted(&self) {
        self.set_state(TaskState::Running);
        if let Some(entry) = self.roster.entries.lock().get_mut(&self.id) {
            entry.restarts += 1;
        }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.roster.entries.lock().remove(&self.id);
    }
}
