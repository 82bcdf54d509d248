//! The version of the API server.

use serde_json::{Value, json};

/// The version that `/version` and discovery report.
pub const VERSION: &str = "v1.36.4+plumb";

/// The response of `/version`.
pub(crate) fn document() -> Value {
    json!({
        "major": "1", "minor": "36", "emulationMajor": "1", "emulationMinor": "36",
        "minCompatibilityMajor": "1", "minCompatibilityMinor": "35", "gitVersion": VERSION,
        "gitCommit": "", "gitTreeState": "clean", "buildDate": "", "goVersion": "", "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}
