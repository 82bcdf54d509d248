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

/// Why a command did not run, or a container was not attached to; `doing` says which.
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

/// What of a status a client of this version is sent; nothing if that is empty.
pub(super) fn encoded(version: Version, status: &Value) -> Vec<u8> {
    match version {
        // It knows of failures only.
        Version::V1 | Version::V2 | Version::V3 => {
            status["message"].as_str().unwrap_or_default().as_bytes().to_vec()
        }
        Version::V4 | Version::V5 => serde_json::to_vec(status).unwrap_or_default(),
    }
}
