//! Metrics in the text format of Prometheus: counters with labels, and histograms without locks.

mod float_histogram;
mod histogram;
mod text;
mod vec;

pub use float_histogram::FloatHistogram;
pub use histogram::{Histogram, Unit, nanoseconds, seconds};
pub use text::{CONTENT_TYPE, Text};
pub use vec::{CounterVec, LabelValue};
