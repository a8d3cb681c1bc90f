//! `cargo xtask gen`: the manifests that follow from the code. With `--check` nothing is written and a difference is an error.

mod base;
mod crds;
mod rbac;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

/// First line of every generated file.
const HEADER: &str = "# Written by `cargo xtask gen`. Change the code, not this file.\n";
/// Folders in which every file is generated.
const FOLDERS: [&str; 3] = ["crds", "rbac", "base"];

/// Namespace of the hub, and of its account on workload clusters.
const NAMESPACE: &str = "holdfast-system";
/// Account of the hub, on either side.
const ACCOUNT: &str = "holdfast";

/// Options of `gen`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Write nothing; fail when a file differs from what would be written.
    #[arg(long)]
    check: bool,
}

/// Path below `manifests/`, and content.
type Files = BTreeMap<String, String>;

/// Writes or checks all files.
pub fn run(arguments: &Arguments) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests");
    let files = files()?;
    let stale = stale(&root, &files)?;
    let wrong: Vec<&String> =
        files.iter().filter(|(path, text)| fs::read_to_string(root.join(path)).ok().as_ref() != Some(text)).map(|(path, _)| path).collect();
    if arguments.check {
        if wrong.is_empty() && stale.is_empty() {
            return Ok(());
        }
        for path in &wrong {
            eprintln!("manifests/{path} differs from what the code says");
        }
        for path in &stale {
            eprintln!("{} is not generated any longer", path.display());
        }
        bail!("generated files are out of date: run `cargo xtask gen`");
    }
    for path in wrong {
        let target = root.join(path);
        if let Some(folder) = target.parent() {
            fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        }
        let text = files.get(path).map(String::as_str).unwrap_or_default();
        fs::write(&target, text).with_context(|| format!("cannot write {}", target.display()))?;
        println!("wrote manifests/{path}");
    }
    for path in stale {
        fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        println!("removed {}", path.display());
    }
    Ok(())
}

fn files() -> Result<Files> {
    let mut files = Files::new();
    for (path, text) in crds::files()?.into_iter().chain(rbac::files()).chain(base::files()) {
        files.insert(path, format!("{HEADER}{text}"));
    }
    Ok(files)
}

/// Files in generated folders that nobody generates.
fn stale(root: &Path, files: &Files) -> Result<Vec<PathBuf>> {
    let mut stale = Vec::new();
    for folder in FOLDERS {
        let Ok(entries) = fs::read_dir(root.join(folder)) else { continue };
        for entry in entries {
            let entry = entry.with_context(|| format!("cannot list manifests/{folder}"))?;
            let name = format!("{folder}/{}", entry.file_name().to_string_lossy());
            if !files.contains_key(&name) {
                stale.push(entry.path());
            }
        }
    }
    Ok(stale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_in_the_repository_are_up_to_date() {
        run(&Arguments { check: true }).unwrap();
    }

    #[test]
    fn every_file_is_yaml_that_names_what_it_is() {
        for (path, text) in files().unwrap() {
            for document in text.split("\n---\n") {
                let value: serde_json::Value = serde_saphyr::from_str(document).unwrap_or_else(|error| panic!("{path}: {error}"));
                assert!(value["apiVersion"].is_string() && value["kind"].is_string(), "{path}:\n{document}");
            }
        }
    }
}
