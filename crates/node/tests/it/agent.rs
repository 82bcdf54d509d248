//! The agent with virtual pods: resizes, failures and terminations.

mod cpus;
mod crashes;
mod growth;
mod image_pulls;
mod journal_writes;
mod lives;
mod panics;
mod recovery;
mod resizes;
