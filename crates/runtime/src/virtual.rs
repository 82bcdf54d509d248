//! Pods without processes: their usage, and how they end, follow a model.
//!
//! The model of a container is written in annotations of its pod, as words with spaces between:
//!
//! ```text
//!   virtual.plumb.dev/model: cpu=100m memory=64Mi                     for every container
//!   virtual.plumb.dev/model.NAME: memory=64Mi memory-peak=1Gi shape=leak period=10m    for the one of this name
//! ```
//!
//! | word | means | unless given |
//! |---|---|---|
//! | `cpu`, `cpu-peak` | cores in use, at the base and at the peak of the shape | 0, twice the base |
//! | `memory`, `memory-peak` | the same for memory | 0, twice the base |
//! | `shape`, `period` | `constant`, `sine`, `ramp`, `spike` or `leak`; see [`Shape`](crate::shape::Shape) | `constant`, `1m` |
//! | `keep` | memory that is not given up when less is allowed | all |
//! | `startup` | for how long commands in it fail after it was started | 0 |
//! | `duration`, `exit-code` | it ends by itself after this long, with this code | never, 0 |
//!
//! A container of the image `plumb/load` has the model of its arguments, so the same pod does the same on a real
//! node. Cpu is held to the quota. Memory that may not be given up and exceeds the limit ends the container,
//! as the kernel would; a limit that would do so is refused, as the built-in runtime does.
//!
//! Time is Tokio's: a test that pauses it decides what time it is. Nothing happens between events: a container
//! costs about a kilobyte, and no CPU time between calls.

mod model;
mod pods;
mod runtime;

use std::net::Ipv4Addr;
use std::sync::Arc;

use jiff::Timestamp;

pub use model::MODEL;
use pods::Pods;

/// How a virtual runtime is made.
#[derive(Clone, Debug)]
pub struct VirtualConfig {
    /// The time at its creation. From then on Tokio's clock counts.
    pub now: Timestamp,
    /// The network that pods get addresses from: the first address of it.
    pub pod_network: Ipv4Addr,
}

/// Pods without processes. Clones are the same runtime.
#[derive(Clone, Debug)]
pub struct Virtual {
    pods: Arc<Pods>,
}

impl Virtual {
    /// A runtime without pods.
    pub fn new(config: VirtualConfig) -> Self {
        Self { pods: Arc::new(Pods::new(config)) }
    }
}
