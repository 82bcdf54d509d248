//! How a command ended, as a `Status`.

use plumb_runtime::Error;
use serde_json::{Value, json};

use super::command::Version;

/// How a command ended.
pub(super) fn exited(code: i32) -> Value {
    if code == 0 {
        return json!({ "metadata": {}, "status": "Success" });
    }
    json!({
        "metadata": {},
        "status": "Failure",
        "message": format!("command terminated with non-zero exit code: exit status {code}"),
        "reason": "NonZeroExitCode",
        "details": { "causes": [{ "reason": "ExitCode", "message": code.to_string() }] },
    })
}

/// Why a command did not run, or a client was not attached to a container; `doing` is the operation.
pub(super) fn failed(doing: &str, error: &Error) -> Value {
    let why = format!("error {doing} container: {error}");
    json!({
        "metadata": {},
        "status": "Failure",
        "message": format!("Internal error occurred: {why}"),
        "reason": "InternalError",
        "details": { "causes": [{ "message": why }] },
        "code": 500,
    })
}

/// The encoding of a status for a client of this version; empty if there is none.
pub(super) fn encoded(version: Version, status: &Value) -> Vec<u8> {
    match version {
        // It knows of failures only.
        Version::V1 | Version::V2 | Version::V3 => {
            status["message"].as_str().unwrap_or_default().as_bytes().to_vec()
        }
        Version::V4 | Version::V5 => serde_json::to_vec(status).unwrap_or_default(),
    }
}
