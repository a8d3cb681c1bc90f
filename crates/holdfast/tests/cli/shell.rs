//! The program in a shell: help, completion, the name of a kubectl plugin.

use std::{path::Path, process::Command};

fn run(program: &Path, args: &[&str]) -> (i32, String, String) {
    let output = Command::new(program).args(args).output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
}

fn holdfast(args: &[&str]) -> (i32, String, String) {
    run(Path::new(env!("CARGO_BIN_EXE_holdfast")), args)
}

#[test]
fn every_command_has_examples() {
    let (code, help, _) = holdfast(&["--help"]);
    assert_eq!(code, 0);
    for command in ["hub", "scan", "fix", "explain", "crds", "completion"] {
        assert!(help.lines().any(|line| line.trim_start().starts_with(command)), "{command}: {help}");
        let (code, help, _) = holdfast(&[command, "--help"]);
        assert_eq!(code, 0);
        assert!(command == "crds" || help.contains(&format!("Examples:\n  {}", help_of(command))), "{command}: {help}");
    }
}

/// How the first example of a command begins.
fn help_of(command: &str) -> String {
    if command == "completion" { "source <(holdfast completion bash)".to_owned() } else { format!("holdfast {command} ") }
}

#[test]
fn shells_can_complete_it() {
    for shell in ["bash", "zsh", "fish"] {
        let (code, script, _) = holdfast(&["completion", shell]);
        assert_eq!(code, 0);
        for word in ["explain", "fix", "dry-run", "all-namespaces"] {
            assert!(script.contains(word), "{shell} {word}");
        }
    }
    assert_eq!(holdfast(&["completion", "tcsh"]).0, 2);
}

#[test]
fn kubectl_finds_it_as_a_plugin() {
    let folder = std::env::temp_dir().join(format!("holdfast-plugin-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let plugin = folder.join("kubectl-holdfast");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_holdfast"), &plugin).unwrap();
    let (code, help, _) = run(&plugin, &["fix", "--help"]);
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(code, 0);
    assert!(help.contains("Usage: kubectl holdfast fix"), "{help}");
    assert!(holdfast(&["fix", "--help"]).1.contains("Usage: holdfast fix"));
}

#[test]
fn wrong_flags_are_refused_before_anything_is_asked() {
    for args in [
        &["fix", "--yes", "--dry-run"][..],
        &["fix", "--approve", "c", "--release", "web"],
        &["fix", "-A", "-n", "x"],
        &["explain"],
        &["explain", "a", "b", "c"],
    ] {
        let (code, out, err) = holdfast(args);
        assert_eq!((code, out.as_str()), (2, ""), "{args:?}");
        assert!(err.contains("Usage:"), "{args:?}: {err}");
    }
}
