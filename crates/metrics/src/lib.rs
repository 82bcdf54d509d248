//! Figures as Prometheus reads them: text, and histograms that are counted without a lock.

mod histogram;
mod text;

pub use histogram::{Histogram, Unit, seconds};
pub use text::{CONTENT_TYPE, Text};
