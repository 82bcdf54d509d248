//! The actions that a decision consists of.

use k8s_openapi::jiff::Timestamp;
use kube::api::PropagationPolicy;
use serde_json::Value;

use super::kinds::{Object, Ref};

/// An action on the objects of a workload.
///
/// Actions are performed in order, up to the first that fails: a status that must be written even if the others fail comes
/// first. Consecutive creations are performed concurrently, in batches of 1, 2, 4, … up to the first batch that
/// fails; consecutive deletions are performed concurrently.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Create an object.
    Create(Object),
    /// Delete an object, if it still has this uid.
    Delete(Ref, Option<PropagationPolicy>),
    /// Update an object, unless it was written meanwhile.
    Replace(Object),
    /// Update the status of an object, unless it was written meanwhile.
    Status(Object),
    /// Patch an object (strategic merge), if it still has this uid.
    Patch(Ref, Value),
    /// Make the workload the controller of an object that has none, if the workload still exists.
    Adopt(Ref),
    /// Release an object: the workload is no longer its controller.
    Release(Ref),
    /// Emit an event about the workload.
    Event(Note),
    /// Reconcile again at this time, or earlier if something changes.
    RequeueAt(Timestamp),
}

/// An event about a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Whether it is a warning.
    pub warning: bool,
    /// The reason, one word in camel case.
    pub reason: &'static str,
    /// The message.
    pub message: String,
}

impl Note {
    /// A normal event.
    pub fn normal(reason: &'static str, message: impl Into<String>) -> Self {
        Self { warning: false, reason, message: message.into() }
    }

    /// A warning.
    pub fn warning(reason: &'static str, message: impl Into<String>) -> Self {
        Self { warning: true, reason, message: message.into() }
    }
}

/// An attempted write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// To create an object.
    Create,
    /// To delete an object.
    Delete,
    /// To update or patch an object.
    Change,
}

/// The result of a write.
#[derive(Clone, Debug)]
pub struct WriteOutcome<'a> {
    /// The attempted write.
    pub verb: Verb,
    /// The object. If it could not be created it has no uid, and no name if the server was to generate it.
    pub object: &'a Ref,
    /// Why it failed, if it did.
    pub error: Option<&'a str>,
}

/// Why the last reconcile of a workload failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The attempted write.
    pub verb: Verb,
    /// Why it failed.
    pub message: String,
}
