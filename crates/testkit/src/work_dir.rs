//! The folder of one control plane: data, keys and logs.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Once,
        atomic::{AtomicU32, Ordering},
    },
};

use anyhow::{Context, Result};
use parking_lot::Mutex;

use crate::programs;

/// Set to anything to keep logs although nothing failed.
const KEEP_VARIABLE: &str = "HOLDFAST_TESTKIT_KEEP";
/// The file that tells supervisors to keep the logs.
const KEEP_FILE: &str = "keep";

/// The folders in use, for the panic hook.
static LIVE: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
static PANIC_HOOK: Once = Once::new();
static SERIAL: AtomicU32 = AtomicU32::new(0);

/// A folder below `target/testkit` that goes when dropped, or keeps its logs when a test panicked meanwhile.
pub(crate) struct WorkDir {
    path: PathBuf,
}

impl WorkDir {
    /// Makes a folder that nobody else uses.
    pub(crate) fn create(name: &str) -> Result<Self> {
        PANIC_HOOK.call_once(keep_logs_on_panic);
        let root = programs::workspace()?.join("target/testkit");
        fs::create_dir_all(&root).with_context(|| format!("creating {}", root.display()))?;
        let path = loop {
            let path = root.join(format!("{name}-{}-{}", std::process::id(), SERIAL.fetch_add(1, Ordering::Relaxed)));
            match fs::create_dir(&path) {
                Ok(()) => break path,
                // Logs kept by an earlier process with the same number.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error).with_context(|| format!("creating {}", path.display())),
            }
        };
        LIVE.lock().push(path.clone());
        let dir = Self { path };
        if std::env::var_os(KEEP_VARIABLE).is_some() {
            dir.keep_logs();
        }
        Ok(dir)
    }

    /// The folder.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a folder inside.
    pub(crate) fn subdir(&self, name: &str) -> Result<PathBuf> {
        let path = self.path.join(name);
        fs::create_dir_all(&path).with_context(|| format!("creating {}", path.display()))?;
        Ok(path)
    }

    /// Keeps the logs whatever follows, and says where.
    pub(crate) fn keep_logs(&self) {
        keep(&self.path);
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        LIVE.lock().retain(|live| *live != self.path);
        // Leftovers harm nobody, and a destructor has no one to tell.
        if self.path.join(KEEP_FILE).exists() {
            for entry in fs::read_dir(&self.path).into_iter().flatten().flatten() {
                fs::remove_dir_all(entry.path().join("data")).ok();
            }
        } else {
            fs::remove_dir_all(&self.path).ok();
        }
    }
}

fn keep(path: &Path) {
    if fs::OpenOptions::new().write(true).create_new(true).open(path.join(KEEP_FILE)).is_ok() {
        eprintln!("control plane logs are kept in {}", path.display());
    }
}

fn keep_logs_on_panic() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        before(panic);
        for path in LIVE.lock().iter() {
            keep(path);
        }
    }));
}
