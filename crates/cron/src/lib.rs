//! Schedules of `CronJobs`, parsed like `cron.ParseStandard` of robfig/cron v3, which Kubernetes uses.
//!
//! The API server validates schedules by [`Schedule::parse`], and the `CronJob` controller starts Jobs at the times of
//! [`Schedule::next`], so both agree on every schedule. A library for another dialect of cron would accept and reject other
//! schedules than kube-apiserver, with other messages.
//!
//! ```text
//!   [TZ=zone | CRON_TZ=zone]  minute hour day-of-month month day-of-week
//!                             @yearly @annually @monthly @weekly @daily @midnight @hourly
//!                             @every <Go duration>
//! ```
//!
//! A field is a list of numbers, names (`jan`, `mon`), ranges (`1-5`) and steps (`*/15`, `10-40/10`, `5/20`). `?` is `*`.
//! Kubernetes rejects a time zone inside the schedule of a new object; it stays valid in existing objects.

mod parse;
mod schedule;

pub use parse::{DurationError, ScheduleError};
pub use schedule::Schedule;
