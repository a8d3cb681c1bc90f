//! The charts below a folder.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};

/// How deep below the given folder charts are looked for.
const DEPTH: usize = 6;
/// Longest name of a release: charts append to it, and the server bounds the result.
const RELEASE_NAME: usize = 30;

/// A chart that can be installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chart {
    /// The folder's name or the archive's, as the table shows it.
    pub name: String,
    /// Folder or archive.
    pub path: PathBuf,
    /// Values to try where the chart does not install with its own: the files that chart-testing would use.
    pub values: Vec<PathBuf>,
}

impl Chart {
    /// The name its release gets.
    pub fn release(&self) -> String {
        let name: String = self.name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
        name.chars().take(RELEASE_NAME).collect::<String>().trim_matches('-').to_owned()
    }

    /// What is appended to `helm install` in one attempt after the other.
    pub fn attempts(&self) -> Vec<Vec<String>> {
        let with = |file: &PathBuf| vec!["--values".to_owned(), file.display().to_string()];
        std::iter::once(Vec::new()).chain(self.values.iter().map(with)).collect()
    }
}

/// All charts below these folders, by name; charts inside charts belong to those.
pub fn below(folders: &[PathBuf]) -> Result<Vec<Chart>> {
    let mut found = Vec::new();
    for folder in folders {
        ensure!(folder.is_dir(), "{} is no folder", folder.display());
        look(folder, DEPTH, &mut found)?;
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

fn look(folder: &Path, depth: usize, found: &mut Vec<Chart>) -> Result<()> {
    let description = folder.join("Chart.yaml");
    if description.is_file() {
        let text = fs::read_to_string(&description).with_context(|| format!("reading {}", description.display()))?;
        // A library has nothing to install.
        if !text.lines().any(|line| line.trim_end() == "type: library") {
            found.push(Chart { name: name(folder), path: absolute(folder)?, values: values(folder) });
        }
        return Ok(());
    }
    if depth == 0 {
        return Ok(());
    }
    for path in entries(folder)? {
        if path.is_dir() {
            look(&path, depth - 1, found)?;
        } else if path.extension().is_some_and(|extension| extension == "tgz") {
            found.push(Chart { name: name(&path.with_extension("")), path: absolute(&path)?, values: Vec::new() });
        }
    }
    Ok(())
}

fn values(chart: &Path) -> Vec<PathBuf> {
    let is_values = |path: &PathBuf| path.to_string_lossy().ends_with("values.yaml");
    let mut files: Vec<PathBuf> = entries(&chart.join("ci")).unwrap_or_default().into_iter().filter(is_values).collect();
    files.sort();
    files.into_iter().filter_map(|file| absolute(&file).ok()).collect()
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    Ok(entries.flatten().map(|entry| entry.path()).collect())
}

/// Helm takes a path with a slash for a path, and runs elsewhere.
fn absolute(path: &Path) -> Result<PathBuf> {
    path.canonicalize().with_context(|| format!("looking at {}", path.display()))
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_has_a_name_that_the_server_takes() {
        for (chart, release) in [
            ("ingress", "ingress"),
            ("Kube_Prometheus.Stack-72.1.0", "kube-prometheus-stack-72-1-0"),
            ("a-name-that-is-longer-than-any-ought-to-be", "a-name-that-is-longer-than-any"),
            ("a-name-that-is-longer-than-an-other", "a-name-that-is-longer-than-an"),
        ] {
            let chart = Chart { name: chart.to_owned(), path: PathBuf::new(), values: Vec::new() };
            assert_eq!(chart.release(), release);
        }
    }

    #[test]
    fn charts_inside_charts_are_theirs_and_libraries_are_none() {
        let root = std::env::temp_dir().join(format!("holdfast-charts-{}", std::process::id()));
        for (file, text) in [
            ("a/Chart.yaml", "name: a\n"),
            ("a/charts/b/Chart.yaml", "name: b\n"),
            ("a/ci/1-values.yaml", "x: 1\n"),
            ("a/ci/notes.md", ""),
            ("deep/er/c/Chart.yaml", "name: c\n"),
            ("lib/Chart.yaml", "name: lib\ntype: library\n"),
            ("d-1.2.3.tgz", ""),
        ] {
            let file = root.join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        let charts = below(std::slice::from_ref(&root)).unwrap();
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(charts.iter().map(|chart| chart.name.as_str()).collect::<Vec<_>>(), ["a", "c", "d-1.2.3"]);
        assert_eq!(charts.iter().map(|chart| chart.attempts().len()).collect::<Vec<_>>(), [2, 1, 1]);
    }
}
