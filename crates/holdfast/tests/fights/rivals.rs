//! Controllers that insist: each fight ends after its number of writes, is named, and stays ended over a restart.

use std::time::Duration;

use holdfast_testkit::{Mark, Target, Writer};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{
    fixture::{Marker, Release, Style, configmap, deployment, lines, metric, wait_live, writes_to},
    support::{World, finding},
    wait_report,
};

/// How often a rival looks whether it was undone.
const BEAT: Duration = Duration::from_millis(30);

/// Somebody who insists on something in one object.
#[derive(Clone, Copy)]
struct Rival {
    name: &'static str,
    place: fn(&str, &str) -> Target,
    kind: &'static str,
    /// What it writes the n-th time, as a merge patch; `None` deletes the object.
    patch: fn(u64) -> Option<Value>,
    /// Whether the object is as declared.
    is_undone: fn(&Value) -> bool,
    /// Corrections until the hub gives in.
    corrections: usize,
}

fn count(object: &Value) -> bool {
    object["data"].as_object().unwrap().values().all(|value| value == "0")
}

fn replicas(object: &Value) -> bool {
    object["spec"]["replicas"] == 2
}

const RIVALS: [Rival; 6] = [
    Rival {
        name: "pair",
        place: Target::deployment,
        kind: "Deployment",
        patch: |_| Some(json!({"spec": {"replicas": 7}})),
        is_undone: replicas,
        corrections: 3,
    },
    // An autoscaler that is at one of its bounds or the other: each value makes a pair with the declared one.
    Rival {
        name: "bounds",
        place: Target::deployment,
        kind: "Deployment",
        patch: |round| Some(json!({"spec": {"replicas": 3 + 3 * (round % 2)}})),
        is_undone: replicas,
        corrections: 5,
    },
    Rival {
        name: "counter",
        place: Target::configmap,
        kind: "ConfigMap",
        patch: |round| Some(json!({"data": {"key-0": format!("at {round}")}})),
        is_undone: count,
        corrections: 10,
    },
    Rival {
        name: "hopper",
        place: Target::configmap,
        kind: "ConfigMap",
        patch: |round| Some(json!({"data": {format!("key-{}", round % 30): format!("at {round}")}})),
        is_undone: count,
        corrections: 20,
    },
    Rival { name: "deleter", place: Target::configmap, kind: "ConfigMap", patch: |_| None, is_undone: count, corrections: 3 },
    Rival {
        name: "flipper",
        place: Target::deployment,
        kind: "Deployment",
        patch: |_| {
            let env = json!([{"name": "B", "value": "$(A)"}, {"name": "A", "value": "a"}]);
            let container = json!({"name": "web", "image": "registry.example/web:1.0", "env": env});
            Some(json!({"spec": {"template": {"spec": {"containers": [container]}}}}))
        },
        is_undone: |object| object["spec"]["template"]["spec"]["containers"][0]["env"][0]["name"] == "A",
        corrections: 3,
    },
];

impl Rival {
    fn object(&self, namespace: &str, name: &str) -> Value {
        if self.kind == "ConfigMap" {
            let mut object = configmap(namespace, name, "key-0", "0");
            object["data"] = (0..30).map(|key| (format!("key-{key}"), json!("0"))).collect();
            return object;
        }
        let mut object = deployment(namespace, name, 2);
        object["spec"]["template"]["spec"]["containers"][0]["env"] = json!([{"name": "A", "value": "a"}, {"name": "B", "value": "$(A)"}]);
        object
    }

    /// Writes again whenever it was undone.
    async fn insist(self, writer: Writer, target: Target) {
        let mut round = 0;
        loop {
            if writer.find(&target).await.unwrap().is_some_and(|object| (self.is_undone)(&object)) {
                match (self.patch)(round) {
                    Some(patch) => _ = writer.merge_patch(&target, &patch).await.unwrap(),
                    None => _ = writer.delete(&target).await.unwrap(),
                }
                round += 1;
            }
            tokio::time::sleep(BEAT).await;
        }
    }
}

fn name(rival: &Rival, style: Style) -> String {
    format!("{}-{}", rival.name, style.word())
}

#[tokio::test]
async fn every_fight_ends_is_named_and_stays_ended() {
    let namespace = "lab-rivals";
    let mut world = World::new(namespace).await;
    let marker = Marker::install(&world).await;
    for style in Style::BOTH {
        let mut objects: Vec<Value> = RIVALS.iter().map(|rival| rival.object(namespace, &name(rival, style))).collect();
        objects.push(configmap(namespace, &format!("sibling-{}", style.word()), "color", "blue"));
        Release::new(&world, style.word(), style).install(&objects).await;
    }
    world.policy("Correct", json!({})).await;
    world.start_hub(&[]);
    for style in Style::BOTH {
        world.wait_in_sync(style.word()).await;
    }
    let mark = world.workload.audit_mark().await.unwrap();
    let mut insisting = JoinSet::new();
    for (rival, style) in RIVALS.iter().flat_map(|rival| Style::BOTH.map(|style| (*rival, style))) {
        let target = (rival.place)(namespace, &name(&rival, style));
        insisting.spawn(rival.insist(world.writer(&format!("{}-operator", rival.name)), target));
    }
    all_contested(&world).await;
    // While they go on, everything else is healed.
    let kubectl = world.writer("kubectl-edit");
    for style in Style::BOTH {
        let sibling = Target::configmap(namespace, &format!("sibling-{}", style.word()));
        kubectl.merge_patch(&sibling, &json!({"data": {"color": "red"}})).await.unwrap();
        wait_live(&world, &kubectl, &sibling, "/data/color", &json!("blue")).await;
    }
    marker.pass(&world).await;
    check_writes(&world, mark, "in the end").await;
    let contested = metric(&world, "holdfast_contested_paths").await.unwrap();
    assert_eq!(contested, 2 * RIVALS.len() as u64);
    insisting.shutdown().await;

    // A new hub knows of every fight.
    world.stop_hub();
    world.start_hub(&[]);
    all_contested(&world).await;
    marker.pass(&world).await;
    check_writes(&world, mark, "after a restart").await;
}

/// Every fight took its number of corrections since `mark`.
async fn check_writes(world: &World, mark: Mark, when: &str) {
    for (rival, style) in RIVALS.iter().flat_map(|rival| Style::BOTH.map(|style| (rival, style))) {
        let name = name(rival, style);
        let writes = writes_to(world.workload, mark, &(rival.place)(&world.namespace, &name)).await;
        let passed = writes.filter(|call| call.code.is_some_and(|code| code < 300));
        assert_eq!(passed.len(), rival.corrections, "{name} {when}: {:?}", lines(&writes));
    }
}

/// Waits until both reports name every rival.
async fn all_contested(world: &World) {
    for style in Style::BOTH {
        let are_named = |status: &Value| {
            RIVALS.iter().all(|rival| {
                finding(status, rival.kind, &name(rival, style)).is_some_and(|found| {
                    let message = found["message"].as_str().unwrap_or_default();
                    // Who deletes or turns something round leaves no name.
                    let is_named = matches!(rival.name, "deleter" | "flipper") || message.contains(&format!("{}-operator", rival.name));
                    found["verdict"] == "Contested" && is_named
                })
            })
        };
        wait_report(world, style.word(), "every rival is named", are_named).await;
    }
}
