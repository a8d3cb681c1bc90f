//! Secrets are compared by what they hold and shown by nothing; what is not secret is never masked (D09, D11).

use base64::{Engine as _, prelude::BASE64_STANDARD};
use holdfast_testkit::Target;
use serde_json::{Value, json};

use crate::{
    case::{Case, Edit, RELEASES, Row},
    support::{finding, live, path_of},
};

const SECRETS: &str = r#"
apiVersion: v1
kind: Secret
metadata: {name: "{{ .Release.Name }}-texts"}
stringData: {p: declared-canary-1, q: declared-canary-2}
---
apiVersion: v1
kind: Secret
metadata: {name: "{{ .Release.Name }}-bytes"}
data:
  p: |
    ZGVjbGFy
    ZWQtY2Fu
    YXJ5LTM=
  q: cQ==
---
apiVersion: v1
kind: Secret
metadata: {name: "{{ .Release.Name }}-both"}
data: {p: b2xk, q: cQ==}
stringData: {p: declared-canary-4}
---
apiVersion: v1
kind: Secret
metadata: {name: "{{ .Release.Name }}-basic"}
type: kubernetes.io/basic-auth
stringData: {username: admin, password: declared-canary-5}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: "{{ .Release.Name }}-texts"}
data:
  config.yaml: |
    sla: 12h
    mask: "***"
binaryData: {logo: AAECAw==}
"#;

#[tokio::test]
async fn d09_d11_secrets_are_found_put_back_and_never_shown() {
    let mut case = Case::start("d09", SECRETS).await;
    case.stays_quiet().await;
    let secret = |key: &str, value: &str| Edit::Merge(json!({"data": {key: BASE64_STANDARD.encode(value)}}));
    case.corrects(&[
        Row::new("a text", Target::secret, "Secret", "texts", secret("p", "somebody-canary-1"))
            .by("x")
            .drifts(&["/data/p"])
            .restores(&["/data", "/type"])
            .by_position(),
        Row::new("base64 with line breaks", Target::secret, "Secret", "bytes", secret("p", "somebody-canary-3"))
            .by("x")
            .drifts(&["/data/p"])
            .restores(&["/data"]),
        Row::new("a text over a value", Target::secret, "Secret", "both", secret("p", "somebody-canary-4"))
            .by("x")
            .drifts(&["/data/p"])
            .restores(&["/data"])
            .by_position(),
        Row::new(
            "a key taken away",
            Target::secret,
            "Secret",
            "basic",
            Edit::Merge(json!({"data": {"password": "", "username": BASE64_STANDARD.encode("somebody-canary-5")}})),
        )
        .by("x")
        .drifts(&["/data/password", "/data/username"])
        .restores(&["/data", "/type"])
        .by_position(),
        Row::new(
            "what is not secret",
            Target::configmap,
            "ConfigMap",
            "texts",
            Edit::Merge(json!({"data": {"config.yaml": "sla: 999h\n"}, "binaryData": {"logo": "////"}})),
        )
        .by("x")
        .drifts(&["/data/config.yaml", "/binaryData/logo"])
        .restores(&["/data", "/binaryData"]),
    ])
    .await;

    let reader = case.world.writer("kubectl");
    for (_, release) in RELEASES {
        let config = Target::configmap(case.namespace(), &format!("{release}-texts"));
        assert_eq!(live(&reader, &config, "/data/config.yaml").await, "sla: 12h\nmask: \"***\"\n");
        let report = case.world.report(Some(release)).await.unwrap();
        let shown = path_of(finding(&report["status"], "ConfigMap", &format!("{release}-texts")).unwrap(), "/data/config.yaml").unwrap();
        assert_eq!(
            (&shown["live"], &shown["desired"]),
            (&json!("sla: 999h\n"), &json!("sla: 12h\nmask: \"***\"\n")),
            "a ConfigMap is never masked"
        );
        for secret in ["texts", "bytes", "both", "basic"] {
            let found = finding(&report["status"], "Secret", &format!("{release}-{secret}")).unwrap();
            for path in found["paths"].as_array().unwrap() {
                assert!(path.get("live").is_none_or(Value::is_null) && path.get("desired").is_none_or(Value::is_null), "{path:#}");
            }
        }
    }
    let events = case.world.mgmt.kubectl(&["get", "events.events.k8s.io", "-n", case.namespace(), "-o", "json"]).await.unwrap();
    let reports =
        case.world.mgmt.kubectl(&["get", "driftreports", "-n", case.namespace(), "-o", "json", "--show-managed-fields"]).await.unwrap();
    assert!(events.contains("DriftCorrected"), "{events}");
    for (place, text) in [("log", case.world.log()), ("events", events), ("reports", reports), ("metrics", case.world.metrics().await)] {
        for number in 1..=5 {
            for canary in [format!("declared-canary-{number}"), format!("somebody-canary-{number}")] {
                // The base64 of a text is found whole or not at all.
                assert!(!text.contains(&canary) && !text.contains(&BASE64_STANDARD.encode(&canary)), "{canary} is in the {place}");
            }
        }
    }
}
