//! `CronJobs`.

use crate::registry::Strategy;

/// The strategy of `CronJobs`.
#[derive(Debug)]
pub(in crate::registry) struct CronJobStrategy;

impl Strategy for CronJobStrategy {
    fn counts_generation(&self) -> bool {
        true
    }

    fn pod_template(&self) -> Option<&'static str> {
        Some("/spec/jobTemplate/spec/template")
    }
}
