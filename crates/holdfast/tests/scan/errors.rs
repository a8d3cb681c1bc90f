//! What goes wrong before anything can be compared is one line that says what to do.

use crate::fixture::{Fixture, run_with};

#[tokio::test]
async fn one_line_that_helps() {
    let fixture = Fixture::new("errors").await;
    let good = fixture.plane.admin_kubeconfig().unwrap();
    let dir = fixture.plane.dir();
    let write = |name: &str, text: &str| {
        let file = dir.join(name);
        std::fs::write(&file, text).unwrap();
        file
    };
    let usable = write("good.kubeconfig", &good);
    let elsewhere = write("elsewhere.kubeconfig", &good.replace(fixture.plane.url(), "https://127.0.0.1:1"));
    let broken = write("broken.kubeconfig", "users: [{name: x, user: {token: hunter2");
    let authority = good.lines().find(|line| line.contains("certificate-authority-data")).unwrap();
    let untrusted = write("untrusted.kubeconfig", &good.replace(authority, ""));
    let nobody = write(
        "nobody.kubeconfig",
        &format!("{}    token: hunter2\n", good.split("    client-certificate-data").next().unwrap()).replace(
            "hunter2\n",
            "hunter2\ncontexts:\n- name: default\n  context: {cluster: default, user: default}\ncurrent-context: default\n",
        ),
    );
    let missing = dir.join("missing.kubeconfig");
    for (kubeconfig, args, words) in [
        (&missing, &[] as &[&str], &["missing.kubeconfig", "--kubeconfig"] as &[&str]),
        (&broken, &[], &["not valid YAML"]),
        (&elsewhere, &[], &["https://127.0.0.1:1", "could not be opened", "--context"]),
        (&untrusted, &[], &["unknown authority"]),
        (&nobody, &[], &["does not accept the credentials"]),
        (&usable, &["--context", "prod"], &["no context prod", "default"]),
        (&usable, &["-n", "errors", "--release", "web"], &["no release web in namespace errors", "-A"]),
        (&usable, &["--manifest", "/nowhere.yaml"], &["/nowhere.yaml"]),
    ] {
        let outcome = run_with(kubeconfig, args, "").await;
        assert_eq!((outcome.code, outcome.out.as_str(), outcome.err.lines().count()), (2, "", 1), "{args:?}: {}", outcome.err);
        for word in words {
            assert!(outcome.err.starts_with("holdfast: ") && outcome.err.contains(word), "{word}: {}", outcome.err);
        }
        assert!(!outcome.err.contains("hunter2"), "{}", outcome.err);
    }
}

#[tokio::test]
async fn flags_that_exclude_each_other() {
    let nowhere = std::path::Path::new("/nowhere");
    for args in [&["-A", "-n", "x"] as &[&str], &["--manifest", "-", "--release", "x"], &["-o", "xml"]] {
        let outcome = run_with(nowhere, args, "").await;
        assert!(outcome.code == 2 && outcome.err.contains("error:"), "{}", outcome.err);
    }
    let help = run_with(nowhere, &["--help"], "").await;
    assert!(help.code == 0 && help.out.contains("Examples:") && help.out.contains("Exit status:"), "{}", help.out);
}
