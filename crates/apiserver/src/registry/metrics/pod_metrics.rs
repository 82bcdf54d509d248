//! `PodMetrics`.

use crate::registry::Strategy;

/// The strategy of `PodMetrics`.
#[derive(Debug)]
pub(in crate::registry) struct PodMetricsStrategy;

impl Strategy for PodMetricsStrategy {}
