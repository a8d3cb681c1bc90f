//! `explain` says what decided, and writes nothing.

use holdfast_testkit::{Helm, management::HUB_USER};
use serde_json::{Value, json};

use crate::{
    program::{Outcome, User},
    support::{
        World,
        drifts::target,
        fixture::{Release, Style, configmap},
    },
};

const IMAGE: &str = "/spec/template/spec/containers/[name=web]/image";

/// A release of chart `mini10` with drift of every sort, under a policy that only reports and ignores one field.
async fn scene(name: &str) -> World {
    let world = World::new(name).await;
    world.install(Helm::V4, "web", "mini10", &[]).await;
    let ignore = json!([
        {"target": {"kind": "Secret"}, "paths": ["/metadata/labels/none"], "reason": "no object has it"},
        {"target": {"kind": "ConfigMap"}, "paths": ["/data/color"], "reason": "the theme team"},
    ]);
    world.policy("Warn", json!({"ignore": ignore, "priority": 5})).await;
    let weaker = json!({"apiVersion": "holdfast.dev/v1alpha1", "kind": "DriftPolicy", "metadata": {"name": "weaker", "namespace": name},
        "spec": {"clusterSelector": {}, "releases": [{"namespace": name}], "mode": "Correct"}});
    world.mgmt.apply_yaml("platform", &weaker.to_string()).await.unwrap();
    let mallory = world.writer("mallory");
    for (kind, object, patch) in [
        ("ConfigMap", "web-settings", json!({"data": {"color": "red"}})),
        ("Secret", "web-auth", json!({"data": {"password": "aGFja2Vk"}})),
    ] {
        mallory.merge_patch(&target(kind, name, object), &patch).await.unwrap();
    }
    let image = json!([{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "evil:1"}]);
    mallory.json_patch(&target("Deployment", name, "web-web"), &image).await.unwrap();
    world
}

/// The only account of an object.
fn account(outcome: &Outcome) -> Value {
    assert_eq!((outcome.code, outcome.err.as_str()), (0, ""), "{outcome:?}");
    let accounts = outcome.json();
    assert_eq!(accounts.as_array().map(Vec::len), Some(1), "{accounts:#}");
    accounts[0].clone()
}

#[tokio::test]
async fn the_decision_is_explained_from_the_management_cluster() {
    let name = "explained";
    let mut world = scene(name).await;
    let user = User::of_management(&world).await;
    let explain = async |object: &str, further: &[&str]| {
        user.run(&[&["explain", "explained/c", object, "-n", name, "--allow-server", "127.0.0.0/8"], further].concat()).await
    };
    let mark = world.workload.audit_mark().await.unwrap();

    let deployment = account(&explain("deploy/web-web", &["-o", "json"]).await);
    assert_eq!((&deployment["cluster"], &deployment["verdict"]), (&json!("explained/c"), &json!("Drifted")), "{deployment:#}");
    let differs = &deployment["differs"];
    assert_eq!(differs.as_array().map(Vec::len), Some(1), "{differs:#}");
    assert_eq!(
        (&differs[0]["path"], &differs[0]["live"], &differs[0]["actor"]["manager"]),
        (&json!(IMAGE), &json!("evil:1"), &json!("mallory"))
    );
    assert_eq!(deployment["source"]["release"], "explained/web");
    assert_eq!((&deployment["source"]["manager"], &deployment["source"]["operation"]), (&json!("helm"), &json!("Apply")));
    assert_eq!(deployment["policy"]["policy"], json!({"kind": "DriftPolicy", "namespace": name, "name": "p"}));
    assert_eq!(deployment["policy"]["mode"], "Warn");
    let why = deployment["policy"]["why"].as_str().unwrap();
    assert!(why.contains("priority 5") && why.contains("explained/weaker"), "{why}");
    let write = &deployment["wouldWrite"];
    assert_eq!((&write["manager"], &write["paths"]), (&json!("helm"), &json!([IMAGE])), "{deployment:#}");
    assert!(deployment["next"].as_str().unwrap().contains("mode: Correct"), "{}", deployment["next"]);
    assert!(deployment["fields"]["claimed"].as_u64().unwrap() > deployment["fields"]["asDeclared"].as_u64().unwrap());

    let settings = account(&explain("configmap/web-settings", &["-o", "json"]).await);
    assert_eq!((&settings["verdict"], &settings["differs"]), (&json!("InSync"), &json!([])), "{settings:#}");
    let accepted = &settings["accepted"][0];
    assert_eq!((&accepted["reason"], &accepted["path"]), (&json!("Ignored"), &json!("/data/color")));
    assert_eq!(
        (&accepted["rule"], &accepted["live"], &accepted["actor"]["manager"]),
        (&json!("spec.ignore[1]"), &json!("red"), &json!("mallory"))
    );
    assert!(settings["wouldWrite"].is_null() && settings["next"].as_str().unwrap().starts_with("nothing to do"), "{settings:#}");

    for output in ["table", "json", "yaml"] {
        let secret = explain("secret/web-auth", &["-o", output]).await;
        assert_eq!(secret.code, 0, "{secret:?}");
        assert!(secret.out.contains("/data/password") && secret.out.contains("mallory"), "{}", secret.out);
        for value in ["s3cret", "czNjcmV0", "hacked", "aGFja2Vk"] {
            assert!(!secret.out.contains(value), "{output} shows {value}");
        }
    }

    world.start_hub(&[]);
    world.wait_report(Some("web"), "drift is reported", |status| status["summary"]["drifted"] == 2).await;
    let page = explain("deployment/web-web", &[]).await;
    let lines: Vec<&str> = page.out.lines().map(str::trim).collect();
    for wanted in [
        "Deployment explained/web-web  Drifted: one declared field differs",
        "policy    DriftPolicy explained/p, mode Warn: its priority 5 is higher than that of explained/weaker",
        IMAGE,
        "write: server-side apply of the manifest, which changes nothing else, as helm",
        "next      nothing is written: the policy only reports; with mode: Correct the hub would write this",
    ] {
        assert!(lines.contains(&wanted), "{wanted}\n{}", page.out);
    }
    assert!(page.out.contains("reports Drifted, Reported since"), "{}", page.out);
    let calls = world.workload.audit_since(mark).await.unwrap().by_user(HUB_USER).in_namespace(name);
    assert!(!calls.is_empty() && calls.writes().is_empty(), "{}", calls.writes());
    user.wrote_nothing().await;
}

#[tokio::test]
async fn the_cluster_itself_can_be_asked() {
    let name = "explainhere";
    let world = scene(name).await;
    let user = User::of_workload(&world).await;
    let explain = async |args: &[&str]| user.run(&[&["explain"], args].concat()).await;
    let deployment = account(&explain(&["deployments.apps/web-web", "-n", name, "-o", "json"]).await);
    assert_eq!((&deployment["cluster"], &deployment["policy"]["policy"]), (&Value::Null, &Value::Null), "{deployment:#}");
    assert!(deployment["next"].as_str().unwrap().contains("holdfast fix"), "{}", deployment["next"]);
    // No policy of the management cluster ignores anything here.
    let settings = account(&explain(&["cm/web-settings", "-n", name, "-o", "json"]).await);
    assert_eq!((&settings["verdict"], &settings["differs"][0]["path"]), (&json!("Drifted"), &json!("/data/color")), "{settings:#}");

    let twice = configmap(name, "twice", "color", "blue");
    Release::new(&world, "first", Style::ServerSide).install(std::slice::from_ref(&twice)).await;
    Release::new(&world, "second", Style::ServerSide).record(1, "deployed", &[twice]).await;
    let both = explain(&["cm/twice", "-n", name, "-o", "json"]).await.json();
    let said: Vec<(&str, &str)> = both
        .as_array()
        .unwrap()
        .iter()
        .map(|account| (account["source"]["release"].as_str().unwrap(), account["reason"].as_str().unwrap()))
        .collect();
    assert_eq!(said, [("explainhere/first", "SelfConflict"), ("explainhere/second", "SelfConflict")]);

    let other = World::empty(world.workload, world.mgmt, "explainhere2").await;
    Release::new(&other, "other", Style::ServerSide).install(&[configmap("explainhere2", "twice", "color", "blue")]).await;
    for (args, words) in [
        (&["cm/nothing", "-n", name][..], "no release declares configmaps/nothing in namespace explainhere"),
        (&["cm/twice"], "several objects are called so"),
        (&["web-web"], "not KIND/NAME"),
    ] {
        let refused = explain(args).await;
        assert_eq!((refused.code, refused.out.as_str()), (2, ""), "{refused:?}");
        assert!(refused.err.contains(words), "{words}: {}", refused.err);
    }
    user.wrote_nothing().await;
}

#[tokio::test]
async fn a_cluster_that_is_not_there_is_said_to_be() {
    let world = World::new("explainwhere").await;
    let user = User::of_management(&world).await;
    // The Secret of the cluster is for an address that only an explicit word allows.
    for (args, words) in [
        (&["explain", "explainwhere/none", "cm/a"][..], "no cluster none"),
        (&["explain", "explainwhere/c", "cm/a"], "the kubeconfig of cluster explainwhere/c is not used"),
    ] {
        let refused = user.run(args).await;
        assert_eq!((refused.code, refused.out.as_str()), (2, ""), "{refused:?}");
        assert!(refused.err.contains(words), "{words}: {}", refused.err);
    }
    user.wrote_nothing().await;
}
