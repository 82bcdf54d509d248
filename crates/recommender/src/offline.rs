//! Recommendations without a cluster: history in, recommendations out, through the engine of the recommender.
//!
//! ```text
//!   CSV ─────────▶ csv ▸ history ──┐
//!                                  ├──▶ recommender::Workload ──▶ text, JSON, CSV, HTML, SVG
//!   Prometheus ──▶ fleet ──────────┘
//! ```

pub mod csv;
pub mod fleet;
pub mod history;
pub mod plot;
