//! `status.resize`: the status of the latest resize of a pod.
//!
//! Allocation is all or nothing, so there is one value for CPU and memory. It is about the *latest* spec: while an
//! accepted resize is still being actuated and a newer one is deferred or infeasible, it has the latter. An error of the
//! actuation does not change it: it stays `InProgress`, and the condition has the error. It is absent only while desired,
//! allocated and actual are the same.

use std::fmt;

/// A value of `status.resize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PodResizeStatus {
    /// Requested; the node has not decided yet.
    Proposed,
    /// The node has allocated it and is actuating it.
    InProgress,
    /// It does not fit the node now.
    Deferred,
    /// It can never fit the node.
    Infeasible,
}

impl PodResizeStatus {
    /// The value of `status.resize`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Proposed => "Proposed",
            Self::InProgress => "InProgress",
            Self::Deferred => "Deferred",
            Self::Infeasible => "Infeasible",
        }
    }

    /// Parses a value. An unknown one means `Deferred`, so that a newer server can have more.
    ///
    /// ```
    /// use plumb_resize::status::PodResizeStatus;
    ///
    /// assert_eq!(PodResizeStatus::read("InProgress"), PodResizeStatus::InProgress);
    /// assert_eq!(PodResizeStatus::read("WaitingForTheMoon"), PodResizeStatus::Deferred);
    /// ```
    pub fn read(text: &str) -> Self {
        [Self::Proposed, Self::InProgress, Self::Infeasible]
            .into_iter()
            .find(|word| word.name() == text)
            .unwrap_or(Self::Deferred)
    }
}

impl fmt::Display for PodResizeStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The events that change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// A user changed the spec. The API server writes it.
    Requested,
    /// The node allocated the desired resources.
    Accepted,
    /// The node deferred the resize.
    Postponed,
    /// The node found the resize infeasible.
    Refused,
    /// The desired resources are the actual ones.
    Completed,
}

/// Every legal transition: from, why, to. Causes are listed where they can happen; the model checks that API server and
/// node make no other transition.
pub const TRANSITIONS: &[(Option<PodResizeStatus>, Cause, Option<PodResizeStatus>)] = {
    use Cause::{Accepted, Completed, Postponed, Refused, Requested};
    use PodResizeStatus::{Deferred, InProgress, Infeasible, Proposed};
    &[
        // A user may change the spec at any time, which starts over. So does going back to the actual resources: the node
        // may be about to accept the previous request, and only the node knows.
        (None, Requested, Some(Proposed)),
        (Some(Proposed), Requested, Some(Proposed)),
        (Some(InProgress), Requested, Some(Proposed)),
        (Some(Deferred), Requested, Some(Proposed)),
        (Some(Infeasible), Requested, Some(Proposed)),
        // The node decides on a proposed resize; and again on a pending one, when capacity is freed or the node
        // restarts.
        (Some(Proposed), Accepted, Some(InProgress)),
        (Some(Proposed), Postponed, Some(Deferred)),
        (Some(Proposed), Refused, Some(Infeasible)),
        (Some(Deferred), Accepted, Some(InProgress)),
        (Some(Deferred), Refused, Some(Infeasible)),
        (Some(Infeasible), Accepted, Some(InProgress)),
        (Some(Infeasible), Postponed, Some(Deferred)),
        // Two steps of the node may reach the API as one.
        (Some(Proposed), Completed, None),
        (Some(Deferred), Completed, None),
        (Some(Infeasible), Completed, None),
        (Some(InProgress), Completed, None),
        // Something other than the node changed the actual resources; the node corrects it.
        (None, Accepted, Some(InProgress)),
        // The desired resources are allocated, but an earlier allocation is still being actuated.
        (Some(InProgress), Accepted, Some(InProgress)),
    ]
};

/// Whether a transition is legal, for any cause. No change is always legal.
pub fn transition_is_legal(from: Option<PodResizeStatus>, to: Option<PodResizeStatus>) -> bool {
    from == to || TRANSITIONS.iter().any(|(a, _, b)| (*a, *b) == (from, to))
}
