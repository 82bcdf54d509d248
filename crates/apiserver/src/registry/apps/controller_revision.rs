//! `ControllerRevisions`.

use crate::registry::Strategy;

/// The strategy of `ControllerRevisions`.
#[derive(Debug)]
pub(in crate::registry) struct ControllerRevisionStrategy;

impl Strategy for ControllerRevisionStrategy {}
