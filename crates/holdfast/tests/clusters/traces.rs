//! What a hub has running and open.

use std::collections::HashSet;

use anyhow::ensure;

use crate::{fixture::metric, support::World};

/// Tasks, watches and open files of a hub. Its connections to the management cluster are left out: they are pooled, and do not depend on
/// clusters.
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
            tasks: page.lines().filter(|line| line.contains("\thub/")).count(),
            watches: metric(world, "holdfast_watches").await.unwrap(),
            files: open_files(world),
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

fn open_files(world: &World) -> usize {
    let pid = world.hub_pid();
    let management: u16 = world.mgmt.url().rsplit(':').next().unwrap().parse().unwrap();
    let table = std::fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap();
    let pooled: HashSet<String> = table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|columns| columns.get(2).is_some_and(|remote| remote.ends_with(&format!(":{management:04X}"))))
        .filter_map(|columns| Some(format!("socket:[{}]", columns.get(9)?)))
        .collect();
    let links = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
    links.filter(|link| !pooled.contains(&*link.to_string_lossy())).count()
}
