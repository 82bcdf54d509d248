//! Why Prometheus has no answer.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::settings::SettingsError;

/// Why Prometheus has no answer. No variant holds a credential.
#[derive(Debug, thiserror::Error)]
pub enum PrometheusError {
    /// The settings are wrong.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The file with the token cannot be read.
    #[error("reading the token file {}", file.display())]
    TokenFile {
        /// The file.
        file: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// No client can be made.
    #[error("making a client")]
    Client(#[source] kube::Error),
    /// The server cannot be reached, or the connection broke.
    #[error("reaching the server")]
    Connection(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The server did not answer in time.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The server does not know who asks, or does not let them.
    #[error("the server refuses access: {0}")]
    Access(http::StatusCode),
    /// The server answered with another code, and these words.
    #[error("the server answers {status}: {message}")]
    Status {
        /// The code.
        status: http::StatusCode,
        /// What it says.
        message: String,
    },
    /// The query failed.
    #[error("the query fails: {kind}: {message}")]
    Query {
        /// What kind of failure it is, such as `timeout`, `execution` or `bad_data`.
        kind: String,
        /// What it says.
        message: String,
    },
    /// The answer is not what Prometheus answers.
    #[error("the answer cannot be read")]
    Answer(#[source] serde_json::Error),
    /// The answer's reader has gone away.
    #[error("the answer is no longer wanted")]
    Abandoned,
}

impl PrometheusError {
    /// Whether the same query may succeed a little later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Connection(_) | Self::Timeout(_) => true,
            Self::Status { status, .. } => matches!(status.as_u16(), 408 | 429 | 500 | 502 | 503 | 504),
            Self::Query { kind, .. } => {
                matches!(kind.as_str(), "timeout" | "canceled" | "unavailable" | "internal")
            }
            Self::Settings(_)
            | Self::TokenFile { .. }
            | Self::Client(_)
            | Self::Access(_)
            | Self::Answer(_)
            | Self::Abandoned => false,
        }
    }

    /// Whether a query over less time may succeed.
    pub(super) fn is_too_large(&self) -> bool {
        match self {
            Self::Timeout(_) => true,
            Self::Status { status, .. } => matches!(status.as_u16(), 413 | 422 | 504),
            Self::Query { kind, message } => {
                matches!(kind.as_str(), "timeout" | "execution") || message.contains("maximum resolution")
            }
            _ => false,
        }
    }
}
