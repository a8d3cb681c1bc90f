//! Whatever ends a process, its control planes end with it.

#![allow(clippy::unwrap_used, reason = "clippy allows it in test functions, not in their helpers")]

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::ensure;
use holdfast_testkit::{ControlPlane, FaultProxy, Options, Target, Writer, eventually};
use serde_json::json;
use tokio::time::timeout;

/// How a process that holds a control plane shall end.
const ENDING: &str = "HOLDFAST_TEST_ENDING";
/// Precedes the folder on the line that says that the control plane is up.
const HOLDING: &str = "holding ";

#[tokio::test]
#[ignore = "run by nothing_is_left_of_a_dead_process in a process of its own"]
async fn holds_a_control_plane() {
    let plane = ControlPlane::start(Options::named("held")).await.unwrap();
    println!("{HOLDING}{}", plane.dir().display());
    match std::env::var(ENDING).unwrap().as_str() {
        "panic" => panic!("as asked"),
        // A `static` is never dropped.
        "leak" => std::mem::forget(plane),
        _ => std::future::pending().await,
    }
}

#[tokio::test]
async fn nothing_is_left_of_a_dead_process() {
    let holders = ["panic", "leak", "kill"].map(|ending| (ending, hold(ending)));
    for (ending, mut holder) in holders {
        let dir = dir_of(&mut holder);
        if ending == "kill" {
            holder.kill().unwrap();
        }
        let status = holder.wait().unwrap();
        assert_eq!(status.success(), ending == "leak", "{ending}");

        let unused = async || {
            ensure!(!is_in_use(&dir), "programs are left");
            Ok(())
        };
        eventually(ending, Duration::from_secs(10), unused).await.unwrap();
        assert_eq!(dir.join("held/kube-apiserver.log").exists(), ending == "panic", "{ending}: logs are for failures");
        assert!(!dir.join("etcd/data").exists(), "{ending}: data is for nobody");
        fs::remove_dir_all(&dir).ok();
    }
}

/// Starts this test binary again, to end as asked.
fn hold(ending: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "holds_a_control_plane", "--ignored", "--nocapture"])
        .env(ENDING, ending)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// The folder of the control plane, once it is up.
fn dir_of(holder: &mut Child) -> PathBuf {
    let lines = BufReader::new(holder.stdout.as_mut().unwrap()).lines();
    let dir = lines.map(Result::unwrap).find_map(|line| line.split_once(HOLDING).map(|(_, dir)| PathBuf::from(dir)));
    dir.unwrap().parent().unwrap().to_path_buf()
}

/// Whether a program was started with this folder, supervisors included.
fn is_in_use(dir: &Path) -> bool {
    let dir = dir.to_str().unwrap();
    fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|process| fs::read(process.path().join("cmdline")).ok())
        .any(|command_line| String::from_utf8_lossy(&command_line).contains(dir))
}

#[tokio::test]
async fn controllers_work_and_a_frozen_server_is_silent() {
    let plane = ControlPlane::start(Options::named("controllers").with_controller_manager()).await.unwrap();
    let dir = plane.dir().parent().unwrap().to_path_buf();
    let ann = plane.writer("ann").unwrap();
    let target = Target::deployment("default", "web");
    let labels = json!({"app": "web"});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "img:1"}]}},
        },
    });
    ann.create(&target, &deployment).await.unwrap();
    let rolled_out = async || {
        let status = ann.get(&target).await?["status"].take();
        ensure!(status["replicas"] == 1, "{status}");
        Ok(())
    };
    eventually("a rollout", Duration::from_secs(20), rolled_out).await.unwrap();
    assert!(plane.kubectl(&["get", "replicasets", "--output", "name"]).await.unwrap().starts_with("replicaset.apps/web-"));

    plane.freeze().unwrap();
    assert!(timeout(Duration::from_millis(300), ann.get(&target)).await.is_err());
    plane.thaw().unwrap();
    ann.get(&target).await.unwrap();

    drop(plane);
    assert!(!is_in_use(&dir) && !dir.exists());
}

#[tokio::test]
async fn a_restarted_server_has_the_same_address_and_objects() {
    let plane = ControlPlane::start(Options::named("restarted")).await.unwrap();
    let ann = plane.writer("ann").unwrap();
    let target = Target::configmap("default", "kept");
    ann.create(&target, &json!({"metadata": {"name": "kept"}})).await.unwrap();
    let before = ann.get(&target).await.unwrap();
    let proxy = FaultProxy::start(&plane).unwrap();
    let through = Writer::new(proxy.through(&plane.access("bob", &["system:masters"]).unwrap()).unwrap().client().unwrap(), "bob");
    through.get(&target).await.unwrap();

    plane.stop_api_server();
    assert!(ann.get(&target).await.is_err() && through.get(&target).await.is_err() && plane.freeze().is_err());
    plane.start_api_server().await.unwrap();
    assert_eq!(ann.get(&target).await.unwrap(), before);
    assert_eq!(through.get(&target).await.unwrap(), before, "the proxy connects anew");
}
