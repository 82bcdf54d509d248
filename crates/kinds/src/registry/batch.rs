//! The kinds of `batch`.

mod cron_job;
mod job;

pub(super) use cron_job::CronJobStrategy;
pub(super) use job::JobStrategy;

use plumb_apiserver::table::column::Column;

/// The label selector of a Job.
const SELECTOR: Column = Column::text("Selector", "the labels of the pods that work");
