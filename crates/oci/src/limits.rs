//! How much a pull may take.

use std::time::Duration;

/// What a pull may take from the machine, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PullLimits {
    /// The layers of an image.
    pub layers: usize,
    /// The bytes of all its layers together, compressed.
    pub bytes: u64,
    /// A manifest, an index or a configuration, in bytes.
    pub document_bytes: usize,
    /// How long connecting to a host may take.
    pub connect: Duration,
    /// How long a host may take until it responds.
    pub response: Duration,
    /// How long a response may make no progress.
    pub idle: Duration,
    /// How long the whole pull may take.
    pub whole: Duration,
    /// How many requests for a layer may fail one after another without any progress.
    pub failures: u32,
    /// How many layers of an image are downloaded at once.
    pub parallel_layers: usize,
}

impl Default for PullLimits {
    fn default() -> Self {
        Self {
            layers: 127,
            bytes: 16 << 30,
            document_bytes: 4 << 20,
            connect: Duration::from_secs(15),
            response: Duration::from_mins(1),
            idle: Duration::from_mins(1),
            whole: Duration::from_hours(1),
            failures: 6,
            parallel_layers: 3,
        }
    }
}
