//! The kinds of `batch`.

mod cron_job;
mod job;

pub(super) use cron_job::CronJobStrategy;
pub(super) use job::JobStrategy;
