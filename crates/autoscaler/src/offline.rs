//! Recommendations without a cluster: history in, recommendations out, through the engine of the recommender.
//!
//! ```text
//!   CSV ────────▶ csv::SampleReader ──┐
//!                                     ├──▶ recommender::Workload ──▶ report: text, HTML, CSV, SVG
//!   Prometheus ──▶ fleet::Fleet ──────┘
//! ```

pub mod csv;
pub mod history;
