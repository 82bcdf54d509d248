//! Restarts long-lived tasks that panic or end, counts the restarts by cause, and reports the health of each task.
//!
//! ```text
//!   run ──▶ panic, end ──▶ logged, counted ──▶ backoff ──▶ run again
//!    │                                            │
//!    └──────────── health: running                └── health: not ready; not live if it keeps failing
//! ```
//!
//! A [`Supervisor`] runs every loop that is as long-lived as the process: [`Supervisor::keep`] runs tasks that never end,
//! [`Supervisor::finish`] tasks that do. State that has to outlive a restart (a queue, an inbox, a listener) belongs to the
//! closure that creates the future, not to the future.
//!
//! A panic in the work on one object need not end the loop that works on all objects: [`Supervisor::guard`] catches and
//! counts it, and the caller retries. [`Backoff`] computes the delays of retries, here and in the loops themselves.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! use plumb_supervise::Supervisor;
//!
//! let supervisor = Supervisor::default();
//! let mut runs = 0;
//! let done = supervisor.finish("example", || {
//!     runs += 1;
//!     let run = runs;
//!     async move { assert!(run > 1, "the first run panics"); run }
//! });
//! assert_eq!(done.await, 2);
//! # }
//! ```

mod backoff;
mod panic;
mod policy;
mod supervisor;

pub use backoff::{Backoff, Exponential, Random, system_random};
pub use panic::{Panic, catch};
pub use policy::Policy;
pub use supervisor::{Health, Supervisor, Task, process};
