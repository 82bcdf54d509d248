//! The termination message of a container.

use std::io;
use std::path::Path;

use plumb_runtime::types::ContainerStatus;
use plumb_runtime::untrusted::read_end;

use crate::cri_config::{TERMINATION_MESSAGE_PATH, TERMINATION_MESSAGE_POLICY};
use crate::log_line::LogLine;

/// The longest message from the file, and from the log as a fallback.
const OF_FILE: u64 = 4096;
const OF_LOG: usize = 2048;
const LINES: usize = 80;
/// How much of the log is read for them.
const LOOKED_AT: u64 = 256 << 10;

/// The termination message of a container that has exited, after the runtime's own message. The path and the policy are
/// in the container's annotations, so that the pod is not needed. Blocks on the disk.
pub fn termination_message(status: &ContainerStatus) -> String {
    let annotations = &status.container.annotations;
    let path = annotations.get(TERMINATION_MESSAGE_PATH).map(String::as_str).unwrap_or_default();
    let fallback = annotations.get(TERMINATION_MESSAGE_POLICY).is_some_and(|policy| {
        policy == "FallbackToLogsOnError" && status.exit_code.is_some_and(|code| code != 0)
    });
    let file = status.mounts.iter().find(|mount| !path.is_empty() && mount.container_path == path);
    let own = match file.map(|mount| read_end(&mount.host_path, OF_FILE)) {
        None => String::new(),
        Some(Ok(bytes)) => text(&bytes),
        Some(Err(error)) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Some(Err(error)) => format!("Error on reading termination log {path}: {error}"),
    };
    let said = match &status.log_path {
        Some(log) if own.is_empty() && fallback && status.started_at.is_some() => end_of_log(log)
            .unwrap_or_else(|error| format!("Error on reading termination message from logs: {error}")),
        _ => own,
    };
    match (status.message.as_str(), said.as_str()) {
        ("", _) => said,
        (message, "") => message.to_owned(),
        (message, said) => format!("{message}: {said}"),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn end_of_log(path: &Path) -> io::Result<String> {
    let bytes = read_end(path, LOOKED_AT)?;
    // The first one may be but the end of one, which is none.
    let lines: Vec<LogLine<'_>> = bytes.split(|byte| *byte == b'\n').filter_map(LogLine::read).collect();
    let mut said = Vec::new();
    for line in &lines[lines.len().saturating_sub(LINES)..] {
        line.append_to(&mut said);
    }
    Ok(text(&said[said.len().saturating_sub(OF_LOG)..]))
}
