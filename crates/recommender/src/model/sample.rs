//! Measurements of usage, and why one may not count.

use plumb_resize::resource::Resource;

use super::amount;
use super::time::Time;

/// The usage of a container at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When it was measured.
    pub at: Time,
    /// The measured value.
    pub resource: Resource,
    /// How much: millicores, or bytes.
    pub usage: i64,
}

impl Sample {
    /// A sample of CPU in cores, or of memory in bytes, as Prometheus and files have it: truncated to whole
    /// millicores or bytes. A negative value or NaN is no sample.
    pub fn from_base_units(at: Time, resource: Resource, usage: f64) -> Result<Self, Discarded> {
        if usage.is_nan() {
            return Err(Discarded::NotANumber);
        }
        if usage < 0.0 {
            return Err(Discarded::Negative);
        }
        Ok(Self { at, resource, usage: amount::from_base_units(resource, usage) })
    }
}

/// Why a sample, or an OOM kill, was not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
pub enum Discarded {
    /// The value is not a number.
    #[error("the value is not a number")]
    NotANumber,
    /// The value is below zero.
    #[error("the value is negative")]
    Negative,
    /// The container has a later sample already.
    #[error("a later sample was counted before")]
    OutOfOrder,
    /// The container has a CPU sample of the same time already.
    #[error("a sample of the same time was counted before")]
    Duplicate,
    /// The time is further ahead of the clock than clocks of nodes may differ.
    #[error("the time is in the future")]
    Future,
    /// An OOM kill that is a whole memory interval older than the last sample, or than now.
    #[error("the OOM kill is too old")]
    TooOld,
    /// No such pod is known.
    #[error("the pod is not known")]
    UnknownPod,
    /// The pod has no such container, or it is an init container.
    #[error("the container is not known")]
    UnknownContainer,
    /// The sample carries no time.
    #[error("the time is not set")]
    NoTime,
}

impl Discarded {
    /// Every reason.
    pub const ALL: [Self; 9] = [
        Self::NotANumber,
        Self::Negative,
        Self::OutOfOrder,
        Self::Duplicate,
        Self::Future,
        Self::TooOld,
        Self::UnknownPod,
        Self::UnknownContainer,
        Self::NoTime,
    ];

    /// The value of a metric's label.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotANumber => "not_a_number",
            Self::Negative => "negative",
            Self::OutOfOrder => "out_of_order",
            Self::Duplicate => "duplicate",
            Self::Future => "future",
            Self::TooOld => "too_old",
            Self::UnknownPod => "unknown_pod",
            Self::UnknownContainer => "unknown_container",
            Self::NoTime => "no_time",
        }
    }
}
