//! Growth of limits by the node, before the kernel makes a container suffer for a limit that its node could raise.
//!
//! A pod opts in with an annotation that says how far ([`GrowthBounds`]). The node decides when and by how much a limit
//! grows ([`MemoryGrowth::decide`], [`ThrottlingGrowth::decide`]), and requests a resize of its own pod; the API server admits
//! from a node only what [`check`] allows. The spec stays the only place that says what is desired.
//!
//! ```text
//!   memory usage  ── below [`Thresholds::upper`] ────▶ Ignore
//!                 ── the limit is far in time ───────▶ SampleAgain
//!                 ── the limit is near, or reached ──▶ Grow, or AtMaximum, NodeIsFull
//!
//!   cpu.stat      ── throttled seldom, or just now ──▶ SampleAgain
//!                 ── throttled sample after sample ──▶ Grow, or AtMaximum, NodeIsBusy, NodeIsFull
//! ```

mod bounds;
mod check;
mod cpu;
mod memory;

pub use bounds::{
    GROWTH_ANNOTATIONS, GROWTH_BOUNDS_FROM_VPA, GrowthBounds, InvalidBounds, MEMORY_PRESSURE_GROWTH,
    THROTTLING_GROWTH, annotation,
};
pub use check::{ContainerViolation, GrowthViolation, check};
pub use cpu::{CpuReading, CpuSample, Throttled, ThrottlingDecision, ThrottlingGrowth, grown_cpu};
pub use memory::{GrowthDecision, HOLD, MemoryGrowth, Thresholds, grown};
