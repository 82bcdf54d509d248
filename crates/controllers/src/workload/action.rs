//! What a decision asks for.

use k8s_openapi::jiff::Timestamp;
use kube::api::PropagationPolicy;
use serde_json::Value;

use super::kinds::{Object, Ref};

/// Something to be done about the objects of a workload.
///
/// They are done in order, up to the first that fails: a status that is to be written whatever becomes of the rest comes
/// first. Creations that follow each other are done many at a time, in batches of 1, 2, 4, … of which the first that
/// fails is the last; deletions that follow each other are done many at a time.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Make an object.
    Create(Object),
    /// Delete an object, if it still is this one.
    Delete(Ref, Option<PropagationPolicy>),
    /// Write an object whole, if nobody else did meanwhile.
    Replace(Object),
    /// Write the status of an object, if nobody else wrote it meanwhile.
    Status(Object),
    /// Write a part of an object, if it still is this one: a strategic merge patch.
    Patch(Ref, Value),
    /// Make the workload the controller of an object that nobody controls, if the workload is still there.
    Adopt(Ref),
    /// Make the workload the controller of an object no more.
    Release(Ref),
    /// Say something about the workload.
    Event(Note),
    /// Decide again at this time, if nothing happens before.
    LookAgainAt(Timestamp),
}

/// What is said about a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Whether it is a warning.
    pub warning: bool,
    /// One word.
    pub reason: &'static str,
    /// A sentence.
    pub message: String,
}

impl Note {
    /// Something that is as it should be.
    pub fn normal(reason: &'static str, message: impl Into<String>) -> Self {
        Self { warning: false, reason, message: message.into() }
    }

    /// Something that is not as it should be.
    pub fn warning(reason: &'static str, message: impl Into<String>) -> Self {
        Self { warning: true, reason, message: message.into() }
    }
}

/// What was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// To make an object.
    Create,
    /// To delete an object.
    Delete,
    /// To change an object.
    Change,
}

/// What came of something that was tried.
#[derive(Clone, Debug)]
pub struct Outcome<'a> {
    /// What was tried.
    pub verb: Verb,
    /// On which object. One that could not be made has no uid, and no name if the server was to give it one.
    pub object: &'a Ref,
    /// Why it failed, if it did.
    pub error: Option<&'a str>,
}

/// What went wrong when a workload was last looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What was tried.
    pub verb: Verb,
    /// Why it failed.
    pub message: String,
}
