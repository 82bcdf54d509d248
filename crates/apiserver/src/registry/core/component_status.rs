//! `ComponentStatuses`.

use crate::registry::Strategy;

/// The strategy of `ComponentStatuses`.
#[derive(Debug)]
pub(in crate::registry) struct ComponentStatusStrategy;

impl Strategy for ComponentStatusStrategy {}
