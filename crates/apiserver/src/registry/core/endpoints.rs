//! Endpoints.

use crate::registry::Strategy;

/// The strategy of Endpoints.
#[derive(Debug)]
pub(in crate::registry) struct EndpointsStrategy;

impl Strategy for EndpointsStrategy {}
