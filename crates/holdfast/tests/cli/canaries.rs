//! Values that are nobody's business come out of no command, whatever it prints and however much it logs.

use holdfast_testkit::Target;
use serde_json::{Value, json};

use crate::{
    program::User,
    support::{
        World,
        fixture::{Release, Style, configmap, deployment},
    },
};

/// The canary in plain and, wherever it may stand in base64, in part.
const CANARIES: [&str; 4] = ["CANARY", "Q0FOQVJZ", "NBTkFSW", "DQU5BUl"];

fn objects(namespace: &str, canary: &str) -> Vec<Value> {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "auth", "namespace": namespace},
        "stringData": {"password": canary, "certificate": canary}});
    let mut workload = deployment(namespace, "web", 2);
    workload["spec"]["template"]["spec"]["containers"][0]["env"] = json!([
        {"name": "LEVEL", "value": "info"},
        {"name": "DB_PASSWORD", "value": canary},
        {"name": "DB_PASS", "value": canary},
        {"name": "DATABASE", "value": format!("postgres://app:{canary}@db:5432/app")},
    ]);
    workload["spec"]["template"]["spec"]["containers"][0]["args"] = json!(["--api-token", canary]);
    workload["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = json!(format!("{{\"a\":\"{canary}\"}}"));
    let mut settings = configmap(namespace, "settings", "app.ini", &format!("level = info\npassword = {canary}\n"));
    settings["data"]["encryptionKey"] = json!(canary);
    settings["data"]["users"] = json!(format!("admin:$2y$05${canary}"));
    vec![secret, workload, settings]
}

#[tokio::test]
async fn no_command_shows_what_is_secret() {
    let namespace = "quiet";
    let world = World::new(namespace).await;
    world.policy("Warn", json!({})).await;
    let user = User::of_workload(&world).await;
    let platform = User::of_management(&world).await;
    for style in Style::BOTH {
        let release = Release::new(&world, style.word(), style);
        let named = |objects: Vec<Value>| -> Vec<Value> {
            objects
                .into_iter()
                .map(|mut object| {
                    object["metadata"]["name"] = json!(format!("{}-{}", object["metadata"]["name"].as_str().unwrap(), style.word()));
                    object
                })
                .collect()
        };
        release.install(&named(objects(namespace, "CANARY-declared"))).await;
        let mallory = world.writer("mallory");
        for (object, target) in named(objects(namespace, "CANARY-live")).iter().zip([Target::secret, Target::deployment, Target::configmap])
        {
            let name = object["metadata"]["name"].as_str().unwrap();
            let mut edit = object.clone();
            edit.as_object_mut().unwrap().remove("apiVersion");
            mallory.merge_patch(&target(namespace, name), &edit).await.unwrap();
        }
    }
    let mut seen = 0;
    let mut quiet = async |user: &User, args: &[&str]| {
        let outcome = user.run(args).await;
        let text = format!("{}{}", outcome.out, outcome.err);
        assert!(outcome.code <= 2 && text.contains("settings-"), "{args:?}: {outcome:?}");
        for canary in CANARIES {
            assert!(!text.contains(canary), "{args:?} shows {canary}: {text}");
        }
        seen += usize::from(text.contains("DB_PASSWORD"));
        outcome.code
    };
    for output in ["table", "json", "yaml"] {
        let common = ["-n", namespace, "-o", output, "--log", "trace"];
        assert_eq!(quiet(&user, &[&["scan"], &common[..]].concat()).await, 1);
        assert_eq!(quiet(&user, &[&["fix", "--dry-run"], &common[..]].concat()).await, 1);
        for object in ["secret/auth", "deployment/web", "cm/settings"] {
            for style in Style::BOTH {
                let object = format!("{object}-{}", style.word());
                let explain = ["explain", "quiet/c", &object, "-n", namespace, "-o", output, "--allow-server", "127.0.0.0/8"];
                let outcome = platform.run(&explain).await;
                let text = format!("{}{}", outcome.out, outcome.err);
                assert!(outcome.code == 0 && text.contains("mallory"), "{outcome:?}");
                assert!(!CANARIES.iter().any(|canary| text.contains(canary)), "{object} {output}: {text}");
            }
        }
    }
    assert_eq!(quiet(&user, &["fix", "--yes", "-n", namespace, "--log", "trace"]).await, 0);
    assert!(seen > 0, "the variable itself is named");
}
