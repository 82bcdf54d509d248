//! The steps of a case and their expected results.

use crate::case::{Amounts, Dialect};
use crate::roll::{Roll, Rolled};
use crate::scale::{Scale, Scaled};

/// An action, and its expected result.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// The pod of the step: the pod of the case (`""`), or another one that the case has created.
    pub of: &'static str,
    /// The action.
    pub act: Act,
    /// The expected result.
    pub expect: Expect,
}

impl Step {
    /// A resize of the case's pod, by a patch of its `resize` subresource.
    pub const fn resize(to: &'static [(&'static str, Amounts)], expect: Expect) -> Self {
        Self { of: "", act: Act::Resize(ResizeRequest::PatchResize, to), expect }
    }

    /// A resize by another request.
    pub const fn resize_by(
        request: ResizeRequest,
        to: &'static [(&'static str, Amounts)],
        expect: Expect,
    ) -> Self {
        Self { of: "", act: Act::Resize(request, to), expect }
    }

    /// Creates another pod, with one container `main`.
    pub const fn join(of: &'static str, amounts: Amounts, expect: Expect) -> Self {
        Self { of, act: Act::Join { amounts, bound: false }, expect }
    }

    /// Deletes another pod.
    pub const fn leave(of: &'static str) -> Self {
        Self { of, act: Act::Leave, expect: Expect::both(Expectation::Nothing) }
    }

    /// Sends another request to the API server.
    pub const fn request(who: Who, call: Call, path: &'static str, expect: Expect) -> Self {
        Self { of: "", act: Act::Request(Request { who, call, path }), expect }
    }

    /// Acts on the workload that a VPA scales.
    pub const fn scale(act: Scale, expect: Expect) -> Self {
        Self { of: "", act: Act::Scale(act), expect }
    }

    /// Takes no action, and expects this state of the workload's pods or of its VPA.
    pub const fn scaled(scaled: Scaled) -> Self {
        Self::wait("", Expectation::Scaled(scaled))
    }

    /// Acts on a workload whose template changes.
    pub const fn roll(act: Roll, expect: Expect) -> Self {
        Self { of: "", act: Act::Roll(act), expect }
    }

    /// Takes no action, and expects this state of the workload's rollout.
    pub const fn rolled(rolled: Rolled) -> Self {
        Self::wait("", Expectation::Rolled(rolled))
    }

    /// Takes no action, and waits for a result of the steps before.
    pub const fn wait(of: &'static str, expectation: Expectation) -> Self {
        Self { of, act: Act::Nothing, expect: Expect::both(expectation) }
    }

    /// The same step for another pod of the case.
    #[must_use]
    pub const fn of(self, of: &'static str) -> Self {
        Self { of, ..self }
    }
}

/// An action.
#[derive(Clone, Copy, Debug)]
pub enum Act {
    /// Resize the pod: containers, and their new resources.
    Resize(ResizeRequest, &'static [(&'static str, Amounts)]),
    /// Create the pod.
    Join {
        /// The resources of its container `main`.
        amounts: Amounts,
        /// Whether the pod sets `spec.nodeName`, so that no scheduler decides.
        bound: bool,
    },
    /// Delete the pod, and wait until it is gone.
    Leave,
    /// Send another request.
    Request(Request),
    /// Act on a workload that a VPA scales.
    Scale(Scale),
    /// Act on a workload whose template changes.
    Roll(Roll),
    /// No action.
    Nothing,
}

/// The request that resizes a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResizeRequest {
    /// PATCH of the pod's `resize` subresource.
    PatchResize,
    /// PUT of the pod's `resize` subresource.
    PutResize,
    /// PATCH of the pod.
    PatchPod,
    /// PATCH of the pod if the dialect has resizes there, else of the subresource.
    PatchDefault,
    /// PUT of the pod or of the subresource, likewise.
    PutDefault,
}

/// A request to the API server. In path and body, `{ns}`, `{pod}`, `{image}` and `{command}` stand for the namespace,
/// the pod of the step, and the image and command of the run's containers.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The user that sends it.
    pub who: Who,
    /// The verb, with the body.
    pub call: Call,
    /// The path.
    pub path: &'static str,
}

/// The user that sends a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// The user that runs the cases.
    Us,
    /// The node of the pod.
    ItsNode,
    /// Another node.
    AnotherNode,
    /// A user without permissions.
    User,
    /// A user to which the case gives permissions; in bodies, `{resizer}`.
    Resizer,
}

/// A verb with its body, in JSON.
#[derive(Clone, Copy, Debug)]
pub enum Call {
    /// POST.
    Create(&'static str),
    /// PATCH, as a strategic merge patch.
    Patch(&'static str),
    /// DELETE.
    Delete,
    /// PUT of the current object with changes: without the fields at these pointers, and with this patch merged into
    /// it.
    Update {
        /// JSON pointers.
        without: &'static [&'static str],
        /// A merge patch.
        with: &'static str,
    },
}

/// The expected result of a step, by dialect.
#[derive(Clone, Copy, Debug)]
pub struct Expect {
    /// In Kubernetes 1.36.
    pub v1_36: Expectation,
    /// In the enhancement proposal.
    pub kep: Expectation,
}

impl Expect {
    /// The same result in both dialects.
    pub const fn both(expectation: Expectation) -> Self {
        Self { v1_36: expectation, kep: expectation }
    }

    /// The expected result in a dialect.
    pub(crate) fn under(&self, dialect: Dialect) -> &Expectation {
        match dialect {
            Dialect::V1_36 => &self.v1_36,
            Dialect::Kep => &self.kep,
        }
    }
}

/// A JSON pointer into an object, and the JSON value there; the field is absent if the value is empty.
pub type Field = (&'static str, &'static str);

/// An expected result.
#[derive(Clone, Copy, Debug)]
pub enum Expectation {
    /// Every container of the pod runs with the resources in its spec, and has been restarted this often since it was
    /// created.
    Applied {
        /// Restarts by container; zero for containers that are not named.
        restarts: &'static [(&'static str, i32)],
    },
    /// The node has allocated the desired resources and actuates them; the actual resources are still the old ones.
    /// Only a slowed runtime shows this; with any other, the runner waits for [`Expectation::Applied`].
    InProgress,
    /// The API server accepts the request, and the runner does not wait for its result.
    Overtaken,
    /// The API server refuses the request, and the pod is unchanged.
    Refused(Refusal),
    /// The API server accepts the request, and the node reports it as deferred or infeasible; the allocated and the
    /// actual resources are unchanged.
    Pending {
        /// The reason of `PodResizePending`.
        reason: &'static str,
    },
    /// The scheduler finds no node for the pod.
    Unschedulable,
    /// The node rejects the pod.
    Rejected {
        /// The reason in the pod's status.
        reason: &'static str,
    },
    /// The pod has an event of this reason.
    Event {
        /// The reason.
        reason: &'static str,
    },
    /// The pod gets these fields.
    PodHas(&'static [Field]),
    /// The response has an object with these fields.
    Returned(&'static [Field]),
    /// The Deployment of the case's name has all replicas updated and available.
    RolledOut,
    /// The same, and it has replaced all of its pods by pods that request this much CPU and run with it.
    Replaced {
        /// The CPU request; of no interest if there are no pods.
        cpu: &'static str,
    },
    /// The pods of a workload, or its VPA, get into this state.
    Scaled(Scaled),
    /// The rollout of a workload gets into this state.
    Rolled(Rolled),
    /// No expectation.
    Nothing,
    /// The runner skips the step in this dialect.
    Untried,
}

/// A refusal by the API server.
#[derive(Clone, Copy, Debug)]
pub struct Refusal {
    /// The HTTP status.
    pub code: u16,
    /// The machine-readable reason.
    pub reason: &'static str,
    /// A part of the message.
    pub message: &'static str,
    /// A cause that must be among the details.
    pub cause: Option<&'static str>,
}

impl Refusal {
    /// Validation refuses the request.
    pub const fn invalid(message: &'static str) -> Self {
        Self { code: 422, reason: "Invalid", message, cause: None }
    }

    /// Admission or authorization refuses the request.
    pub const fn forbidden(message: &'static str) -> Self {
        Self { code: 403, reason: "Forbidden", message, cause: None }
    }

    /// The same with a cause.
    #[must_use]
    pub const fn because(self, cause: &'static str) -> Self {
        Self { cause: Some(cause), ..self }
    }
}
