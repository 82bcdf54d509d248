//! Nodes with real containers: what the kernel holds while their agent works, dies and comes back.

mod cpus;
mod deaths;
mod leaks;
mod machine;
mod memory;
mod sums;
mod top;
