//! Restarts long-lived tasks that panic or end, counts why, and says which of them run.
//!
//! ```text
//!   run ──▶ panic, end ──▶ logged, counted ──▶ backoff ──▶ run again
//!    │                                            │
//!    └──────────── health: running                └── health: not ready; not live if it fails again and again
//! ```
//!
//! Every loop that is to run as long as the process does goes through one [`Supervisor`]: [`Supervisor::keep`] for a
//! task that never ends on purpose, [`Supervisor::finish`] for one that does. What has to outlive a restart (a queue, an
//! inbox, a listener) belongs into what the task is made of, not into its future.
//!
//! A panic over one object need not end the loop that works on all of them: [`Supervisor::guard`] catches it, counts it,
//! and leaves the retry to the caller. [`Backoff`] is how long a retry waits, here and in the loops themselves.
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
