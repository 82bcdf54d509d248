//! Growth of limits by the node, before the kernel makes a container suffer for a limit that its node could raise.
//!
//! A pod opts in with an annotation that says how far ([`GrowthBounds`]). The node decides when and by how much a memory
//! limit grows ([`MemoryGrowth::decide`]), and requests a resize of its own pod; the API server admits from a node only what
//! [`check`] allows. The spec stays the only place that says what is desired.
//!
//! ```text
//!   usage   ── below [`Thresholds::upper`] ──▶ Ignore
//!           ── the limit is far in time ─────▶ SampleAgain
//!           ── the limit is near, or reached ▶ Grow, or AtMaximum, NodeIsFull
//! ```

mod bounds;
mod check;
mod memory;

pub use bounds::{GrowthBounds, InvalidBounds, MEMORY_PRESSURE_GROWTH};
pub use check::{GrowthViolation, check};
pub use memory::{GrowthDecision, HOLD, MemoryGrowth, Thresholds, grown};
