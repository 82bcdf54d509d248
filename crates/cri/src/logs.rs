//! Log rotation: the runtime writes the logs, and the agent renames and compresses them, like the kubelet.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use jiff::Timestamp;
use plumb_runtime::types::{ContainerFilter, ContainerId, LogLimits};
use plumb_runtime::{Error, Result, move_aside};
use tokio::time::{MissedTickBehavior, interval};

use crate::names::parse_log;
use crate::{Cri, State};

/// The interval at which the sizes of logs are checked, as the kubelet's.
const MEASURE: Duration = Duration::from_secs(10);

/// The next step of a log's rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Nothing,
    /// The log was renamed, and the runtime still writes to the old file.
    Reopen,
    /// The log has reached its limit.
    Rotate,
}

/// Decides by the size of a log; `None` if the file does not exist.
fn decide(size: Option<u64>, limits: LogLimits) -> Step {
    match size {
        None => Step::Reopen,
        Some(size) if limits.max_size > 0 && size >= limits.max_size => Step::Rotate,
        Some(_) => Step::Nothing,
    }
}

/// Rotates logs until the task is aborted.
pub(crate) async fn rotate(state: Arc<State>) {
    let mut tick = interval(MEASURE);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        if let Err(error) = state.rotate_logs().await {
            tracing::debug!(%error, "cannot list containers to rotate their logs");
        }
    }
}

impl Cri {
    /// Rotates the logs that have reached their limits. A background task does the same every 10 seconds.
    pub async fn rotate_logs(&self) -> Result<()> {
        self.state.rotate_logs().await
    }
}

impl State {
    async fn rotate_logs(&self) -> Result<()> {
        for running in self.running(&ContainerFilter::default()).await? {
            let Some((limits, path)) = parse_log(&running.annotations) else { continue };
            let id = &running.container.id;
            if let Err(error) = self.rotate_log(id, limits, path).await {
                tracing::warn!(container = %id, %error, "cannot rotate the log");
            }
        }
        Ok(())
    }

    async fn rotate_log(&self, id: &ContainerId, limits: LogLimits, path: &Path) -> Result<()> {
        let failed = |error: io::Error| Error::io(format!("rotating {}", path.display()), &error);
        let size = match fs::metadata(path) {
            Ok(found) => Some(found.len()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(error)),
        };
        match decide(size, limits) {
            Step::Nothing => Ok(()),
            Step::Reopen => self.reopen_log(id).await,
            Step::Rotate => {
                let aside = move_aside(path, limits.max_files, Timestamp::now()).map_err(failed)?;
                let reopened = self.reopen_log(id).await;
                if reopened.is_err() && !path.exists() {
                    // The runtime continues to write to the old file, so it gets its name back.
                    fs::rename(&aside, path).map_err(failed)?;
                }
                reopened
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_rotated_at_its_limit() {
        let limits = LogLimits { max_size: 100, max_files: 2 };
        let table = [(Some(99), Step::Nothing), (Some(100), Step::Rotate), (None, Step::Reopen)];
        for (size, expected) in table {
            assert_eq!(decide(size, limits), expected, "{size:?}");
        }
        assert_eq!(decide(Some(u64::MAX), LogLimits { max_size: 0, max_files: 2 }), Step::Nothing);
    }
}
