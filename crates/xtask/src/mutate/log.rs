//! What the hub logs about its writes: which paths it says that it put back.

use std::{
    collections::HashMap,
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use parking_lot::Mutex;
use serde_json::Value;

/// The hub's log, read as it grows.
pub struct Log {
    file: PathBuf,
    read: Mutex<Lines>,
}

/// What was read so far.
#[derive(Default)]
struct Lines {
    offset: u64,
    /// A line of which the end was not written yet.
    rest: Vec<u8>,
    /// The paths of each write, by cluster and object.
    writes: HashMap<String, Vec<Written>>,
}

/// One write.
#[derive(Clone, Debug, Default)]
struct Written {
    paths: String,
    has_more: bool,
}

impl Log {
    /// The log at this file.
    pub fn new(file: PathBuf) -> Self {
        Self { file, read: Mutex::default() }
    }

    /// How many writes to an object were logged.
    pub fn writes(&self, object: &str) -> Result<usize> {
        self.with(|lines| lines.writes.get(object).map_or(0, Vec::len))
    }

    /// Whether a write to an object, of those after the first `known`, named this path, one above it or one below it.
    pub fn names(&self, object: &str, known: usize, path: &str) -> Result<bool> {
        self.with(|lines| {
            let mut new = lines.writes.get(object).into_iter().flatten().skip(known);
            new.any(|write| write.has_more || write.paths.split(' ').any(|named| covers(named, path) || covers(path, named)))
        })
    }

    fn with<T>(&self, look: impl FnOnce(&Lines) -> T) -> Result<T> {
        let mut lines = self.read.lock();
        lines.go_on(&self.file)?;
        Ok(look(&lines))
    }
}

impl Lines {
    fn go_on(&mut self, file: &Path) -> Result<()> {
        let mut file = File::open(file).context("opening the hub's log")?;
        file.seek(SeekFrom::Start(self.offset)).context("reading the hub's log")?;
        let read = file.read_to_end(&mut self.rest).context("reading the hub's log")?;
        self.offset += read as u64;
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            if let Ok(line) = serde_json::from_slice::<Value>(&line) {
                self.take(&line);
            }
        }
        Ok(())
    }

    fn take(&mut self, line: &Value) {
        let text = |name: &str| line.get(name).and_then(Value::as_str).unwrap_or_default();
        if text("audit") == "correction" && text("outcome") == "Corrected" {
            let write = Written { paths: text("paths").to_owned(), has_more: line.get("more_paths").is_some() };
            self.writes.entry(format!("{} {}", text("cluster"), text("object"))).or_default().push(write);
        }
    }
}

/// Whether `path` is `other` or lies below it.
pub fn covers(other: &str, path: &str) -> bool {
    path.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn writes_are_told_by_object_and_path() {
        let mut lines = Lines::default();
        let line = |outcome: &str, paths: &str| json!({"audit": "correction", "cluster": "f/c", "object": "Pod n/p", "outcome": outcome, "paths": paths});
        lines.take(&line("Corrected", "/spec/a /spec/b/c"));
        lines.take(&line("Refused", "/spec/d"));
        let log = Log { file: "/dev/null".into(), read: Mutex::new(lines) };
        let names = |known, path| log.names("f/c Pod n/p", known, path).unwrap();
        assert_eq!(log.writes("f/c Pod n/p").unwrap(), 1);
        assert!(names(0, "/spec/a") && names(0, "/spec/b") && names(0, "/spec/a/below"));
        assert!(!names(0, "/spec/d") && !names(0, "/spec/ab") && !names(1, "/spec/a"));
    }
}
