//! Figures as Prometheus reads them: text, counters by label, and histograms that are counted without a lock.

mod float_histogram;
mod histogram;
mod text;
mod vec;

pub use float_histogram::FloatHistogram;
pub use histogram::{Histogram, Unit, nanoseconds, seconds};
pub use text::{CONTENT_TYPE, Text};
pub use vec::{CounterVec, LabelValue};
