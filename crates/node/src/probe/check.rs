//! What came of one check.

use super::Kind;

/// What came of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All is well.
    Success,
    /// All is well, but this should be known.
    Warning(String),
    /// It is not, for this reason.
    Failure(String),
    /// It could not be found out. Counts for nothing.
    Error(String),
}

impl Outcome {
    /// Whether it counts as well; `None` if it does not count.
    pub fn counts(&self) -> Option<bool> {
        match self {
            Self::Success | Self::Warning(_) => Some(true),
            Self::Failure(_) => Some(false),
            Self::Error(_) => None,
        }
    }

    /// The word for metrics.
    pub(super) fn result(&self) -> &'static str {
        match self {
            Self::Success | Self::Warning(_) => "successful",
            Self::Failure(_) => "failed",
            Self::Error(_) => "unknown",
        }
    }

    /// The event for it, if there is to be one: reason and message.
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
