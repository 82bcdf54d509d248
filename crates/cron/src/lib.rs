//! Schedules of `CronJobs`, as `cron.ParseStandard` of robfig/cron v3 reads them for Kubernetes.
//!
//! The API server refuses a `CronJob` whose schedule [`Schedule::parse`] refuses, and the `CronJob` controller starts Jobs
//! at the times that [`Schedule::next`] gives, so what is accepted is also what runs.
//!
//! ```text
//!   [TZ=zone | CRON_TZ=zone]  minute hour day-of-month month day-of-week
//!                             @yearly @annually @monthly @weekly @daily @midnight @hourly
//!                             @every <Go duration>
//! ```
//!
//! A field is a list of numbers, names (`jan`, `mon`), ranges (`1-5`) and steps (`*/15`, `10-40/10`, `5/20`). `?` is `*`.
//! Kubernetes refuses a zone inside the schedule when the object is created; it stays valid in objects from before.

mod parse;
mod schedule;

pub use parse::{DurationError, ScheduleError};
pub use schedule::Schedule;
