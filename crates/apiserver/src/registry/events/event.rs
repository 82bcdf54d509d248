//! Events.

use crate::registry::Strategy;

/// The strategy of Events.
#[derive(Debug)]
pub(in crate::registry) struct EventStrategy;

impl Strategy for EventStrategy {}
