//! The node agent: runs the pods that are bound to it, and resizes them while they run.
//!
//! ```text
//!   watch ▸ book (admit, promise) ▸ journal ▸ decide ▸ runtime ▸ read back ▸ status
//! ```
//!
//! One [`book::Book`] decides for all pods of the node, one after the other; what it promises is in the
//! [`journal::Journal`] before anything is touched. What is done about a pod is decided by pure functions over
//! what was seen ([`lifecycle`] and `plumb_resize::plan`), so that an agent that died at any instruction goes
//! on from what it finds.

pub mod book;
pub mod journal;
pub mod lifecycle;
pub mod readback;
pub mod specify;
