//! `NodeMetrics`.

use crate::registry::Strategy;

/// The strategy of `NodeMetrics`.
#[derive(Debug)]
pub(in crate::registry) struct NodeMetricsStrategy;

impl Strategy for NodeMetricsStrategy {}
