//! The files that a shim writes.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// That a container was started.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Started {
    pub(crate) pid: i32,
    /// When the process was started, in the kernel's ticks: a number may come back, the pair does not.
    pub(crate) pid_start: u64,
    pub(crate) at: Timestamp,
    /// User, group and further groups, as the container's files resolved them.
    pub(crate) user: Option<(u32, u32, Vec<u32>)>,
}

/// How a container ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Exit {
    pub(crate) code: i32,
    pub(crate) oom_killed: bool,
    pub(crate) at: Timestamp,
    /// A reason of the exit, where its code and `memory.events` are not enough.
    #[serde(default)]
    pub(crate) reason: Option<String>,
    #[serde(default)]
    pub(crate) message: String,
}

/// The report of a shim to the agent that started it, once.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum StartReport {
    /// The container runs.
    Started {
        /// As it was written down.
        started: Started,
        /// Warnings: requests that were not met exactly.
        warnings: Vec<String>,
    },
    /// It could not be started, for this reason.
    Failed(String),
}

pub(crate) fn load<T: DeserializeOwned>(path: &Path) -> io::Result<T> {
    serde_json::from_slice(&fs::read(path)?).map_err(io::Error::from)
}

/// Writes a file that is there as a whole or not at all. With `durable` also after a power failure.
pub(crate) fn store<T: Serialize>(path: &Path, value: &T, durable: bool) -> io::Result<()> {
    let aside = path.with_extension("tmp");
    let mut file = File::create(&aside)?;
    file.write_all(&serde_json::to_vec(value)?)?;
    if durable {
        file.sync_all()?;
    }
    fs::rename(&aside, path)?;
    if durable && let Some(folder) = path.parent() {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}
