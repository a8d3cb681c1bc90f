//! The program, run by a user of its own.

use std::{path::PathBuf, process::Stdio};

use holdfast_testkit::{Audit, ControlPlane, Mark};
use serde_json::Value;
use tokio::process::Command;

use crate::support::World;

/// Somebody at a command line who may do everything on one cluster.
pub struct User {
    plane: &'static ControlPlane,
    name: String,
    kubeconfig: PathBuf,
    mark: Mark,
}

/// What the program said.
#[derive(Debug)]
pub struct Outcome {
    /// Exit status.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Outcome {
    /// Standard output as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl User {
    /// A user of the workload cluster.
    pub async fn of_workload(world: &World) -> Self {
        Self::new(world.workload, &format!("cli-{}", world.namespace), &["system:masters"]).await
    }

    /// A user of the management cluster.
    pub async fn of_management(world: &World) -> Self {
        Self::new(world.mgmt, &format!("cli-{}", world.namespace), &["system:masters"]).await
    }

    /// A user of these groups.
    pub async fn new(plane: &'static ControlPlane, name: &str, groups: &[&str]) -> Self {
        let kubeconfig = plane.dir().join(format!("{name}.kubeconfig"));
        std::fs::write(&kubeconfig, plane.kubeconfig(name, groups).unwrap()).unwrap();
        Self { plane, name: name.to_owned(), kubeconfig, mark: plane.audit_mark().await.unwrap() }
    }

    /// Runs the program without a terminal.
    pub async fn run(&self, args: &[&str]) -> Outcome {
        let output = Command::new(env!("CARGO_BIN_EXE_holdfast"))
            .args(args)
            .env("KUBECONFIG", &self.kubeconfig)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .unwrap();
        Outcome {
            code: output.status.code().unwrap(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// What the user asked of the server so far.
    pub async fn calls(&self) -> Audit {
        self.plane.audit_since(self.mark).await.unwrap().by_user(&self.name)
    }

    /// Nothing was written so far.
    pub async fn wrote_nothing(&self) {
        let calls = self.calls().await;
        assert!(!calls.is_empty(), "nothing was asked at all");
        assert!(calls.writes().is_empty(), "{}", calls.writes());
    }
}
