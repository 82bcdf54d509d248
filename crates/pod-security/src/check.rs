//! What a check is.

use crate::level::{Level, Version};
use crate::pod::Pod;

/// A check of the Pod Security Standards.
#[derive(Debug)]
pub(crate) struct Check {
    /// Its name upstream.
    pub(crate) id: &'static str,
    /// The least strict level that has the check.
    pub(crate) level: Level,
    /// Its revisions, the oldest first.
    pub(crate) revisions: &'static [Revision],
}

impl Check {
    /// The revision for a version, if the check is as old.
    pub(crate) fn revision(&self, version: Version) -> Option<&'static Revision> {
        self.revisions.iter().rev().find(|revision| Version::Minor(revision.since) <= version)
    }
}

/// A revision of a check.
#[derive(Debug)]
pub(crate) struct Revision {
    /// The first minor version with this revision.
    pub(crate) since: u64,
    /// Evaluates a pod.
    pub(crate) evaluate: fn(Pod<'_>) -> Option<Forbidden>,
    /// The check of the level `baseline` that this one includes.
    pub(crate) overrides: Option<&'static str>,
}

impl Revision {
    /// A revision that overrides no other check.
    pub(crate) const fn new(since: u64, evaluate: fn(Pod<'_>) -> Option<Forbidden>) -> Self {
        Self { since, evaluate, overrides: None }
    }

    /// A revision that includes a check of the level `baseline`.
    pub(crate) const fn overriding(
        since: u64,
        evaluate: fn(Pod<'_>) -> Option<Forbidden>,
        id: &'static str,
    ) -> Self {
        Self { since, evaluate, overrides: Some(id) }
    }
}

/// Why a check does not allow a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Forbidden {
    /// What is not allowed.
    pub(crate) reason: &'static str,
    /// Which fields of the pod ask for it.
    pub(crate) detail: String,
}
