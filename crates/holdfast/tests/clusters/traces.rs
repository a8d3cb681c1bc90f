//! What a hub has running and open.

use anyhow::ensure;

use crate::{fixture::metric, support::World};

/// Tasks, watches and open files of a hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traces {
    pub tasks: usize,
    pub watches: u64,
    pub files: usize,
}

impl Traces {
    /// As they are now.
    pub async fn of(world: &World) -> Self {
        // The question itself takes a socket and a task at most; both are the same each time.
        let page = world.http("/debug/tasks").await;
        Self {
            tasks: page.lines().filter(|line| line.starts_with("hub/")).count(),
            watches: metric(world, "holdfast_watches").await.unwrap(),
            files: std::fs::read_dir(format!("/proc/{}/fd", world.hub_pid())).unwrap().count(),
        }
    }

    /// The tasks of a cluster, by their paths.
    pub async fn tasks_of(world: &World, cluster: &str) -> Vec<String> {
        let page = world.http("/debug/tasks").await;
        page.lines().filter(|line| line.contains(&format!("/{cluster}/"))).map(str::to_owned).collect()
    }

    /// Waits until nothing more runs and is open than was before.
    pub async fn wait_back(&self, world: &World) {
        world
            .wait("nothing is left behind", async || {
                let now = Self::of(world).await;
                ensure!(now.tasks <= self.tasks && now.watches <= self.watches && now.files <= self.files, "{now:?}, before {self:?}");
                Ok(())
            })
            .await;
    }
}
