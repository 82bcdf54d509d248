//! The agent at work on virtual pods: what comes of wishes, failures and deaths.

mod cpus;
mod crashes;
mod journal_writes;
mod lives;
mod panics;
mod recovery;
mod resizes;
