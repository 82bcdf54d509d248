//! The result of one probe.

use super::Kind;

/// The result of one probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The probe succeeded.
    Success,
    /// The probe succeeded, with a warning.
    Warning(String),
    /// The probe failed, with this message.
    Failure(String),
    /// The probe could not be run. It counts neither as a success nor as a failure.
    Error(String),
}

impl Outcome {
    /// Whether it counts as a success; `None` if it does not count.
    pub fn counts(&self) -> Option<bool> {
        match self {
            Self::Success | Self::Warning(_) => Some(true),
            Self::Failure(_) => Some(false),
            Self::Error(_) => None,
        }
    }

    /// The label value in metrics.
    pub(super) fn result(&self) -> &'static str {
        match self {
            Self::Success | Self::Warning(_) => "successful",
            Self::Failure(_) => "failed",
            Self::Error(_) => "unknown",
        }
    }

    /// The reason and message of its event, if it has one.
    pub(super) fn event(&self, kind: Kind) -> Option<(&'static str, String)> {
        let kind = kind.name();
        match self {
            Self::Success => None,
            Self::Warning(why) => Some(("ProbeWarning", format!("{kind} probe warning: {why}"))),
            Self::Failure(why) => Some(("Unhealthy", format!("{kind} probe failed: {why}"))),
            Self::Error(why) => {
                Some(("Unhealthy", format!("{kind} probe errored and resulted in unknown state: {why}")))
            }
        }
    }
}
