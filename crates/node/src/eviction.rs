//! Node-pressure eviction: the agent reclaims memory, disk and process ids before the machine runs out of them, as the eviction
//! manager of the kubelet does.
//!
//! ```text
//!   observe ▸ compare with thresholds ▸ conditions of the node ▸ decide ▸ remove what nothing uses, or evict one pod
//!                                       └▸ taints, admission
//! ```
//!
//! [`decide`] is pure; the manager observes, and performs the decided actions. Pods that exceed a limit of their local storage are
//! evicted in the same rounds, whether the node is under pressure or not.

mod admission;
mod candidate;
mod decide;
mod history;
mod local_storage;
mod manager;
mod measure;
mod message;
mod observation;
mod rank;
mod reclaim;
mod signal;
mod threshold;

use std::path::PathBuf;
use std::time::Duration;

pub use candidate::{Candidate, ContainerUsage, DiskUsage, PodUsage};
pub use decide::{Action, Eviction, IMMEDIATE, Round, decide, most_urgent};
pub use history::{Assessment, History, Pressures};
pub(crate) use manager::EvictionManager;
pub use observation::{Observation, Observations};
pub use rank::Disks;
pub use signal::{PressureCondition, Signal, StarvedResource};
pub use threshold::{
    Amount, MinimumReclaims, SoftGracePeriods, Threshold, ThresholdError, Thresholds, combine,
};

/// The configuration of node-pressure eviction.
#[derive(Clone, Debug)]
pub struct EvictionConfig {
    /// The thresholds.
    pub thresholds: Vec<Threshold>,
    /// The longest grace period of a pod that is evicted for a soft threshold (`--eviction-max-pod-grace-period`).
    pub max_pod_grace_period: Duration,
    /// How long a condition of the node stays after it was last caused (`--eviction-pressure-transition-period`).
    pub pressure_transition_period: Duration,
    /// The time between two rounds.
    pub interval: Duration,
    /// The root of the kernel's files.
    pub root: PathBuf,
    /// A directory of the file system of volumes and logs.
    pub node_fs: PathBuf,
    /// A directory of the file system of images and writable layers; `None` takes the one that the container runtime reports.
    pub image_fs: Option<PathBuf>,
}

impl EvictionConfig {
    /// The time between two rounds of the kubelet.
    pub const INTERVAL: Duration = Duration::from_secs(10);

    /// The defaults of the kubelet, with no thresholds.
    pub fn new(root: PathBuf, node_fs: PathBuf, image_fs: Option<PathBuf>) -> Self {
        Self {
            thresholds: Vec::new(),
            max_pod_grace_period: Duration::ZERO,
            pressure_transition_period: Duration::from_mins(5),
            interval: Self::INTERVAL,
            root,
            node_fs,
            image_fs,
        }
    }
}
