//! Metrics in the text format of Prometheus: counters with labels, and histograms without locks.
//!
//! The crate `prometheus-client` appends `_total` to the names of counters and writes `OpenMetrics`. Here each component writes the
//! names and the help texts of its upstream counterpart, and computes many samples only when they are read.

mod float_histogram;
mod histogram;
mod text;
mod vec;

pub use float_histogram::FloatHistogram;
pub use histogram::{Histogram, Unit, nanoseconds, seconds};
pub use text::{CONTENT_TYPE, Text};
pub use vec::{CounterVec, LabelValue};
