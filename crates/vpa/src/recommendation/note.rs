//! What happened to a recommendation on its way to a pod, in the words of upstream's annotation `vpaUpdates`.

use std::fmt;

use plumb_resize::resource::Resource;

/// One thing that happened to a recommendation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Note {
    /// The request was changed to fit.
    Capped(Resource, Cap),
    /// The container has no limit, so none is set.
    NoLimit(Resource),
    /// There is no recommended request that a limit could be in proportion to.
    NoRequest(Resource),
    /// The limit in proportion would be too large a number.
    LimitOverflow(Resource),
}

/// What a request was made to fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cap {
    /// `minAllowed` of the container's policy.
    MinAllowed,
    /// `maxAllowed` of the container's policy.
    MaxAllowed,
    /// The container's own limit, under `RequestsOnly`.
    ContainerLimit,
    /// The Min of the container limit ranges.
    ContainerMin,
    /// The Max of the container limit ranges.
    ContainerMax,
    /// The `maxLimitRequestRatio` of the container limit ranges, under `RequestsOnly`. Not in upstream.
    ContainerRatio,
    /// The Min of the pod limit ranges. Upstream does not say so.
    PodMin,
    /// The Max of the pod limit ranges. Upstream does not say so.
    PodMax,
}

impl Cap {
    const fn text(self) -> &'static str {
        match self {
            Self::MinAllowed => "capped to minAllowed",
            Self::MaxAllowed => "capped to maxAllowed",
            Self::ContainerLimit => "capped to container limit",
            Self::ContainerMin => "capped to fit Min in container LimitRange",
            Self::ContainerMax => "capped to fit Max in container LimitRange",
            Self::ContainerRatio => "capped to fit MaxLimitRequestRatio in container LimitRange",
            Self::PodMin => "capped to fit Min in pod LimitRange",
            Self::PodMax => "capped to fit Max in pod LimitRange",
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Capped(resource, cap) => write!(f, "{resource} {}", cap.text()),
            Self::NoLimit(resource) => {
                write!(f, "{resource}: limit NOT set since originalLimit is nil or 0")
            }
            Self::NoRequest(resource) => {
                write!(f, "{resource}: limit NOT set since recommendedRequest is nil or 0")
            }
            Self::LimitOverflow(resource) => {
                write!(f, "{resource}: failed to keep limit to request ratio; capping limit to int64")
            }
        }
    }
}
