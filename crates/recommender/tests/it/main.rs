//! The recommender through its public API; where it needs a cluster, on a real API server in this process.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot be set up has failed")]

mod checkpoint;
mod cluster;
mod conditions;
mod container;
mod convert;
mod csv;
mod decide;
mod estimate;
mod fuzz;
mod golden;
mod histogram;
mod live_usage;
mod metrics;
mod oom;
mod prometheus;
mod run;
mod time;

use std::time::Duration;

use plumb_recommender::model::histogram::{DecayingHistogramOptions, HistogramOptions};
use plumb_recommender::{AggregationConfig, AggregationSettings, Resources, Sample, Time};
use plumb_resize::resource::Resource;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// So many seconds after 2026-01-01T00:00:00Z.
fn at(seconds: i64) -> Time {
    Time::from_unix_seconds(1_767_225_600 + seconds)
}

fn config() -> AggregationConfig {
    AggregationConfig::new(AggregationSettings::default()).unwrap()
}

fn cpu(seconds: i64, millicores: i64) -> Sample {
    Sample { at: at(seconds), resource: Resource::Cpu, usage: millicores }
}

fn memory(seconds: i64, bytes: i64) -> Sample {
    Sample { at: at(seconds), resource: Resource::Memory, usage: bytes }
}

/// `cpu/memory` as a status writes them.
fn written(resources: &Resources) -> String {
    let text = |quantity: Option<plumb_resize::Quantity>| quantity.map_or("-".to_owned(), |q| q.to_string());
    format!("{}/{}", text(resources.cpu), text(resources.memory))
}

/// Ten buckets of size 1 and one beyond, with a half-life.
fn ten_buckets(half_life: Duration) -> DecayingHistogramOptions {
    DecayingHistogramOptions::new(HistogramOptions::linear(10.0, 1.0, 1e-15).unwrap(), half_life)
}
