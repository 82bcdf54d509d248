//! What happens in a case, and what must come of it.

use crate::case::{Amounts, Dialect};
use crate::roll::{Roll, Rolled};
use crate::scale::{Scale, Scaled};

/// Something that happens, and what must come of it.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// The pod that it is about: the case's own (`""`), or another that joined it.
    pub of: &'static str,
    /// What happens.
    pub act: Act,
    /// What must come of it.
    pub expect: Expect,
}

impl Step {
    /// A resize of the case's pod, by a patch of its `resize` subresource.
    pub const fn resize(to: &'static [(&'static str, Amounts)], expect: Expect) -> Self {
        Self { of: "", act: Act::Resize(Door::Resize, to), expect }
    }

    /// A resize through another door.
    pub const fn through(door: Door, to: &'static [(&'static str, Amounts)], expect: Expect) -> Self {
        Self { of: "", act: Act::Resize(door, to), expect }
    }

    /// Another pod comes, of one container `main`.
    pub const fn join(of: &'static str, amounts: Amounts, expect: Expect) -> Self {
        Self { of, act: Act::Join { amounts, bound: false }, expect }
    }

    /// Another pod goes.
    pub const fn leave(of: &'static str) -> Self {
        Self { of, act: Act::Leave, expect: Expect::both(Expectation::Nothing) }
    }

    /// Something else is asked of the API.
    pub const fn ask(who: Who, call: Call, path: &'static str, expect: Expect) -> Self {
        Self { of: "", act: Act::Ask(Request { who, call, path }), expect }
    }

    /// Something about the workload that a VPA scales.
    pub const fn scale(act: Scale, expect: Expect) -> Self {
        Self { of: "", act: Act::Scale(act), expect }
    }

    /// Nothing happens, but the pods of the workload or its VPA come to be as said.
    pub const fn scaled(scaled: Scaled) -> Self {
        Self::wait("", Expectation::Scaled(scaled))
    }

    /// Something about a workload whose template changes.
    pub const fn roll(act: Roll, expect: Expect) -> Self {
        Self { of: "", act: Act::Roll(act), expect }
    }

    /// Nothing happens, but the rollout of the workload comes to be as said.
    pub const fn rolled(rolled: Rolled) -> Self {
        Self::wait("", Expectation::Rolled(rolled))
    }

    /// Nothing happens, but something comes of what did.
    pub const fn wait(of: &'static str, expectation: Expectation) -> Self {
        Self { of, act: Act::Nothing, expect: Expect::both(expectation) }
    }

    /// The same about another pod of the case.
    #[must_use]
    pub const fn of(self, of: &'static str) -> Self {
        Self { of, ..self }
    }
}

/// What happens.
#[derive(Clone, Copy, Debug)]
pub enum Act {
    /// The pod is resized: by container, to what.
    Resize(Door, &'static [(&'static str, Amounts)]),
    /// The pod is made.
    Join {
        /// What its container `main` starts with.
        amounts: Amounts,
        /// It names its node itself, so that no scheduler has a say.
        bound: bool,
    },
    /// The pod is deleted, and nothing else happens before it is gone.
    Leave,
    /// Something else is asked.
    Ask(Request),
    /// Something about a workload that a VPA scales.
    Scale(Scale),
    /// Something about a workload whose template changes.
    Roll(Roll),
    /// Nothing.
    Nothing,
}

/// Where a resize is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// A patch of the pod's `resize` subresource.
    Resize,
    /// An update of it.
    ResizePut,
    /// A patch of the pod itself.
    Pod,
    /// A patch of the pod itself if the dialect takes resizes there, else of the subresource.
    Usual,
    /// The same, as an update.
    UsualPut,
}

/// Something that is asked of the API. In path and body, `{ns}`, `{pod}`, `{image}` and `{command}` stand for the
/// namespace, the pod that the step is about, and what containers of the run are made of.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// By whom.
    pub who: Who,
    /// How.
    pub call: Call,
    /// Of what.
    pub path: &'static str,
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// Whoever runs the cases.
    Us,
    /// The node that the pod is on.
    ItsNode,
    /// Another node.
    AnotherNode,
    /// A user who may do nothing.
    User,
    /// Another, whom the case gives rights to; in bodies, `{resizer}`.
    Resizer,
}

/// How something is asked. Bodies are JSON.
#[derive(Clone, Copy, Debug)]
pub enum Call {
    /// POST.
    Create(&'static str),
    /// PATCH, strategically merged.
    Patch(&'static str),
    /// DELETE.
    Delete,
    /// PUT of what is there, changed: without what these pointers lead to, and with this merged into it.
    Update {
        /// JSON pointers.
        without: &'static [&'static str],
        /// A merge patch.
        with: &'static str,
    },
}

/// What must come of a step, by dialect.
#[derive(Clone, Copy, Debug)]
pub struct Expect {
    /// As Kubernetes 1.36 does.
    pub v1_36: Expectation,
    /// As the enhancement proposal says.
    pub kep: Expectation,
}

impl Expect {
    /// The same in both.
    pub const fn both(expectation: Expectation) -> Self {
        Self { v1_36: expectation, kep: expectation }
    }

    /// The one that binds.
    pub(crate) fn under(&self, dialect: Dialect) -> &Expectation {
        match dialect {
            Dialect::V1_36 => &self.v1_36,
            Dialect::Kep => &self.kep,
        }
    }
}

/// A place in an object as a JSON pointer, and the JSON that is there; an empty one is nothing.
pub type Field = (&'static str, &'static str);

/// What must come of a step.
#[derive(Clone, Copy, Debug)]
pub enum Expectation {
    /// Every container of the pod runs with what its spec says, and each has been restarted this often since it was
    /// created.
    Applied {
        /// By container; those not named: never.
        restarts: &'static [(&'static str, i32)],
    },
    /// The node has promised it and carries it out: what is allocated is what is desired, what is in force is what
    /// was. Where nothing holds the runtime up nobody could see that; there it is waited for until it is applied.
    Underway,
    /// The request is accepted, and nobody waits for what comes of it.
    Overtaken,
    /// The request is refused, and the pod stays as it is.
    Refused(Refusal),
    /// The request is accepted, and the node says that it won't take it, now or ever; what is allocated and in force
    /// stays.
    Pending {
        /// The reason of `PodResizePending`.
        reason: &'static str,
    },
    /// The pod fits no node.
    Unschedulable,
    /// The node does not take the pod in.
    TurnedAway {
        /// The reason in its status.
        reason: &'static str,
    },
    /// The pod has an event of this reason.
    Event {
        /// The reason.
        reason: &'static str,
    },
    /// The pod comes to say this.
    Says(&'static [Field]),
    /// The request is answered with an object that says this.
    Answered(&'static [Field]),
    /// The Deployment that is named after the case has as many pods of its template as it is to have, and all are available.
    RolledOut,
    /// The same, and all of its pods are others than before, which request this much CPU and run with it.
    Replaced {
        /// The CPU request; of no interest if there are no pods.
        cpu: &'static str,
    },
    /// The pods of a workload come to be as said, or its VPA does.
    Scaled(Scaled),
    /// The rollout of a workload comes to be as said.
    Rolled(Rolled),
    /// Nothing in particular.
    Nothing,
    /// The step is not taken in this dialect.
    Untried,
}

/// How a request is refused.
#[derive(Clone, Copy, Debug)]
pub struct Refusal {
    /// The HTTP status.
    pub code: u16,
    /// The machine-readable reason.
    pub reason: &'static str,
    /// What the message says, among other things.
    pub message: &'static str,
    /// A cause that must be among the details.
    pub cause: Option<&'static str>,
}

impl Refusal {
    /// What the shape of the request forbids.
    pub const fn invalid(message: &'static str) -> Self {
        Self { code: 422, reason: "Invalid", message, cause: None }
    }

    /// What somebody forbids.
    pub const fn forbidden(message: &'static str) -> Self {
        Self { code: 403, reason: "Forbidden", message, cause: None }
    }

    /// The same with a cause.
    #[must_use]
    pub const fn because(self, cause: &'static str) -> Self {
        Self { cause: Some(cause), ..self }
    }
}
