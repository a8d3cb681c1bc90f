use std::{
    convert::Infallible,
    sync::atomic::{AtomicU32, Ordering},
};

use super::*;
use crate::backoff::BackoffPolicy;

#[derive(Debug, thiserror::Error)]
#[error("it broke")]
struct Broke;

const WAIT: Duration = Duration::from_secs(5);

async fn forever(_: CancellationToken) -> Result<(), Infallible> {
    std::future::pending().await
}

/// Lets started tasks run.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

fn paths(supervisor: &Supervisor) -> Vec<String> {
    supervisor.dump().into_iter().map(|task| task.path).collect()
}

#[tokio::test(start_paused = true)]
async fn stopping_a_child_leaves_siblings_and_stopping_the_root_ends_all() {
    let root = Supervisor::root("hub");
    let (a, ab) = (root.child("a"), root.child("ab"));
    let watch = a.child("watches");
    root.spawn(Task::new("queue"), forever);
    a.spawn(Task::new("connect"), forever);
    watch.spawn(Task::new("apps"), forever);
    ab.spawn(Task::new("connect"), forever);
    assert_eq!(paths(&root), ["hub/a/connect", "hub/a/watches/apps", "hub/ab/connect", "hub/queue"]);
    assert_eq!(paths(&a), ["hub/a/connect", "hub/a/watches/apps"], "a name that is a prefix is another place");

    assert_eq!(a.stop(WAIT).await, Stopped::Clean);
    assert_eq!(paths(&root), ["hub/ab/connect", "hub/queue"]);
    watch.spawn(Task::new("late"), forever);
    assert_eq!(paths(&watch), [""; 0], "nothing starts after a stop");

    assert_eq!(root.stop(WAIT).await, Stopped::Clean);
    assert!(paths(&root).is_empty());
    assert_eq!(root.failure(), None);
}

#[tokio::test(start_paused = true)]
async fn a_root_waits_for_grandchildren_that_finish() {
    let root = Supervisor::root("hub");
    let done = Arc::new(AtomicU32::new(0));
    let task_done = Arc::clone(&done);
    root.child("a").child("b").spawn(Task::new("write").finishes(), move |token| {
        let done = Arc::clone(&task_done);
        async move {
            token.cancelled().await;
            tokio::time::sleep(Duration::from_secs(2)).await;
            done.fetch_add(1, Ordering::SeqCst);
            Ok::<_, Infallible>(())
        }
    });
    settle().await;
    assert_eq!(root.stop(WAIT).await, Stopped::Clean);
    assert_eq!(done.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_ignores_the_stop_is_aborted_by_name() {
    let root = Supervisor::root("hub");
    root.spawn(Task::new("stubborn").finishes(), forever);
    root.spawn(Task::new("good"), forever);
    settle().await;
    let started = tokio::time::Instant::now();
    assert_eq!(root.stop(WAIT).await, Stopped::Aborted(vec!["hub/stubborn".to_owned()]));
    assert!(started.elapsed() >= WAIT && started.elapsed() < WAIT + ABORT_GRACE);
    assert!(root.dump().is_empty());
}

#[tokio::test(start_paused = true)]
async fn failures_and_panics_restart_with_growing_delays() {
    let root = Supervisor::root("hub");
    let policy = BackoffPolicy::new(Duration::from_secs(8), Duration::from_secs(16), Duration::from_mins(1)).unwrap();
    let runs = Arc::new(AtomicU32::new(0));
    let task_runs = Arc::clone(&runs);
    root.spawn(Task::new("flaky").restart(policy), move |_| {
        let run = task_runs.fetch_add(1, Ordering::SeqCst);
        assert!(run != 1, "a panic while the future is being made");
        async move {
            assert!(run != 2, "a panic while it runs");
            if run < 4 { Err(Broke) } else { std::future::pending().await }
        }
    });
    tokio::time::sleep(Duration::from_millis(900)).await;
    assert_eq!(runs.load(Ordering::SeqCst), 1, "the floor of the delay is an eighth of the first");
    assert_eq!(root.dump()[0].state, TaskState::Restarting);
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(runs.load(Ordering::SeqCst), 5);
    let task = &root.dump()[0];
    assert_eq!((task.state, task.restarts), (TaskState::Running, 4));
    assert_eq!(root.stop(WAIT).await, Stopped::Clean);
}

#[tokio::test(start_paused = true)]
async fn an_essential_task_stops_its_supervisor_and_not_the_one_above() {
    let root = Supervisor::root("hub");
    let cluster = root.child("c");
    root.spawn(Task::new("other"), forever);
    cluster.spawn(Task::new("sibling"), forever);
    cluster.spawn(Task::new("server").essential(), |_| async { Err(Broke) });
    cluster.cancelled().await;
    assert_eq!(cluster.failure().as_deref(), Some("hub/c/server"));
    assert_eq!(cluster.stop(WAIT).await, Stopped::Clean);
    assert_eq!(paths(&root), ["hub/other"]);
    assert_eq!(root.failure(), None);
    root.stop(WAIT).await;
}

#[tokio::test(start_paused = true)]
async fn a_failing_task_that_is_only_logged_stops_nothing() {
    let root = Supervisor::root("hub");
    root.spawn(Task::new("once"), |_| async { Err(Broke) });
    root.spawn(Task::new("fine"), |_| async { Ok::<_, Infallible>(()) });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(root.dump().is_empty());
    assert!(!root.token().is_cancelled());
}
