//! Manifests as no chart should print them, but some do: what can be read is kept, what cannot is named, and neither hinders
//! anything else of the release, or another release.

use holdfast_testkit::{Target, release};
use serde_json::{Value, json};

use crate::{
    fixture::{Release, Style, configmap, wait_live},
    search::{canary, find},
    support::{World, condition, finding, reason},
};

/// A ConfigMap, written sloppily: read all the same.
fn sloppy() -> [(&'static str, String); 9] {
    let plain = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: NAME}\ndata: {color: blue}\n";
    [
        ("crlf", plain.replace('\n', "\r\n")),
        ("mark", format!("\u{feff}{plain}")),
        ("separators", format!("---\n---\n# nothing\n---   \n{plain}---\n---")),
        ("glued", format!("---apiVersion: v1{}", plain.strip_prefix("apiVersion: v1").unwrap())),
        ("merge", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: NAME}\ndata: {<<: {color: red}, color: blue}\n".to_owned()),
        ("twice", plain.replace("data: {color: blue}", "data: {color: red}\ndata: {color: blue}")),
        ("json", r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "NAME"}, "data": {"color": "blue"}}"#.to_owned()),
        (
            "indent",
            "apiVersion:   v1\nkind: ConfigMap\nmetadata:\n        name:   NAME\ndata:\n color:\n    blue   # why not\n\n\n".to_owned(),
        ),
        ("ended", format!("{plain}...\nnothing: [of this is read\n")),
    ]
    .map(|(name, text)| (name, text.replace("NAME", name)))
}

/// Documents that are no object anybody can deploy, and the reason for each.
fn unreadable() -> Vec<(&'static str, String, &'static str)> {
    let secret = canary("manifest");
    vec![
        ("tab", format!("kind: ConfigMap\n\tname: {secret}\n"), "ManifestInvalid"),
        ("open", format!("kind: [{secret}\n"), "ManifestInvalid"),
        ("scalar", format!("{secret}\n"), "ManifestInvalid"),
        ("list", format!("- {secret}\n"), "ManifestInvalid"),
        ("no-kind", format!("apiVersion: v1\nmetadata: {{name: {secret}}}\n"), "ManifestInvalid"),
        ("no-version", format!("kind: ConfigMap\nmetadata: {{name: {secret}}}\n"), "ManifestInvalid"),
        ("no-name", format!("apiVersion: v1\nkind: ConfigMap\ndata: {{a: {secret}}}\n"), "ManifestInvalid"),
        ("number", format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: 5}}\ndata: {{a: {secret}}}\n"), "ManifestInvalid"),
        ("metadata", format!("apiVersion: v1\nkind: ConfigMap\nmetadata: [{secret}]\n"), "ManifestInvalid"),
        ("bomb", format!("a: &a {}\nb: [{}]\n", secret.repeat(4000), "*a, ".repeat(900)), "ManifestInvalid"),
        ("odd-version", format!("apiVersion: a/b/c\nkind: ConfigMap\nmetadata: {{name: {secret}}}\n"), "ManifestInvalid"),
        ("control", format!("kind: \u{7}{secret}\n"), "ManifestInvalid"),
    ]
}

/// Objects that read well and that this cluster has no place for: kind, name and reason.
fn homeless(namespace: &str) -> [(&'static str, Value, &'static str); 3] {
    let object = |api_version: &str, kind: &str| json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "it", "namespace": namespace}});
    [
        ("unknown-group", object("nowhere.example/v1", "Thing"), "KindNotServed"),
        ("unknown-version", object("apps/v0", "Deployment"), "KindNotServed"),
        ("wrong-case", object("v1", "configmap"), "KindNotServed"),
    ]
}

async fn put(world: &World, name: &str, manifest: &str) {
    let record = release::secret(name, &world.namespace, 1, "deployed", manifest, &json!({})).unwrap();
    world.workload.put_release(&record).await.unwrap();
}

/// Whether a release says why it cannot be judged: as a whole, or about the one object that cannot be.
fn says(status: &Value, why: &str) -> bool {
    let of_object = |finding: &Value| finding["verdict"] == "Unknown" && finding["reason"] == why;
    condition(status, "InSync") == "Unknown"
        && (reason(status, "InSync") == why || status["findings"].as_array().into_iter().flatten().any(of_object))
}

#[tokio::test]
async fn what_can_be_read_is_kept_and_what_cannot_is_named() {
    let namespace = "sloppy";
    let mut world = World::new(namespace).await;
    for (name, manifest) in sloppy() {
        Release::new(&world, name, Style::ClientSide).write(&configmap(namespace, name, "color", "blue")).await;
        put(&world, name, &manifest).await;
    }
    for (name, text, _) in unreadable() {
        // The good one stands behind the bad one, and before it.
        let good = |which: &str| configmap(namespace, &format!("{name}-{which}"), "color", "blue");
        let release = Release::new(&world, &format!("bad-{name}"), Style::ClientSide);
        for which in ["before", "behind"] {
            release.write(&good(which)).await;
        }
        put(&world, &format!("bad-{name}"), &format!("---\n{}\n---\n{text}---\n{}\n", good("before"), good("behind"))).await;
    }
    for (name, object, _) in homeless(namespace) {
        put(&world, name, &format!("---\n{object}\n")).await;
    }
    world.policy("Correct", json!({})).await;
    world.start_hub(&[]);
    for (name, _) in sloppy() {
        world.wait_in_sync(name).await;
    }
    for (name, _, why) in unreadable() {
        world
            .wait_report(Some(&format!("bad-{name}")), why, |status| says(status, why) && status["summary"]["objects"].as_u64() >= Some(2))
            .await;
    }
    for (name, object, why) in homeless(namespace) {
        let kind = object["kind"].as_str().unwrap();
        world
            .wait_report(Some(name), why, |status| {
                says(status, why) && finding(status, kind, "it").is_some_and(|finding| finding["action"] == "Reported")
            })
            .await;
    }

    // Everything that can be judged is still looked after.
    let kubectl = world.writer("kubectl-edit");
    let names = sloppy().map(|(name, _)| name.to_owned()).into_iter().chain(["tab-before".to_owned(), "bomb-behind".to_owned()]);
    for name in names {
        let target = Target::configmap(namespace, &name);
        kubectl.merge_patch(&target, &json!({"data": {"color": "red"}})).await.unwrap();
        wait_live(&world, &kubectl, &target, "/data/color", &json!("blue")).await;
    }
    let reports = world.mgmt.kubectl(&["get", "driftreports", "-n", namespace, "-o", "json"]).await.unwrap();
    assert_eq!(find(reports.as_bytes()), None, "a report quotes a manifest that cannot be read");
    assert_eq!(find(world.log().as_bytes()), None, "the log quotes a manifest that cannot be read");
}
