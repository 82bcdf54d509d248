//! The options of the recommender: upstream's flags with their names and defaults, and those that only this one has.

use std::time::Duration;

use plumb_vpa::namespaces::Namespaces;
use plumb_vpa_api::VerticalPodAutoscalerSpec;

use crate::input::environment::EnvironmentOptions;
use crate::model::cluster::ClusterSettings;

/// The name of the recommender of VPAs that name none.
pub const DEFAULT_NAME: &str = "default";

/// The options of a recommender.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The name that VPAs choose it by (`--recommender-name`).
    pub name: String,
    /// How often usage is read and recommendations are made (`--recommender-interval`).
    pub interval: Duration,
    /// Which namespaces it is responsible for (`--vpa-object-namespace`, `--ignored-vpa-object-namespaces`).
    pub namespaces: Namespaces,
    /// How the model works. Its `memory_saver` is `--memory-saver`.
    pub cluster: ClusterSettings,
    /// Where history is stored (`--storage`).
    pub storage: Storage,
    /// For how long checkpoints are written in each run (`--checkpoints-timeout`).
    pub checkpoints_timeout: Duration,
    /// How many VPAs get their checkpoints written in each run, however long it takes (`--min-checkpoints`).
    pub min_checkpoints: usize,
    /// How often checkpoints of VPAs that are gone are deleted (`--checkpoints-gc-interval`).
    pub checkpoints_gc_interval: Duration,
    /// How many requests are under way at once (`--update-worker-count`).
    pub update_workers: usize,
    /// The gate `PerVPAConfig`: whether OOM and memory settings of a VPA count.
    pub per_vpa_config: bool,
    /// The other inputs in the cluster that count. Upstream has no such options.
    pub environment: EnvironmentOptions,
}

/// Where history is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Storage {
    /// In `VerticalPodAutoscalerCheckpoint` objects.
    #[default]
    Checkpoint,
    /// In Prometheus, which is read at start. No checkpoints are read or written.
    Prometheus,
}

/// After how long at the latest a checkpoint that is another is written.
pub(super) const CHECKPOINTS_LATEST: Duration = Duration::from_mins(10);
/// A checkpoint waits for no more than this part of its history to come on top of it.
pub(super) const CHECKPOINTS_PART: u32 = 16;

/// How often aggregates that have expired are collected. Upstream has no flag for it.
pub(super) const AGGREGATES_GC_INTERVAL: Duration = Duration::from_hours(1);

impl Default for Options {
    fn default() -> Self {
        Self {
            name: DEFAULT_NAME.to_owned(),
            interval: Duration::from_mins(1),
            namespaces: Namespaces::All,
            cluster: ClusterSettings::default(),
            storage: Storage::Checkpoint,
            checkpoints_timeout: Duration::from_mins(1),
            min_checkpoints: 10,
            checkpoints_gc_interval: Duration::from_mins(10),
            update_workers: 10,
            per_vpa_config: plumb_vpa::features::PER_VPA_CONFIG.default,
            environment: EnvironmentOptions::default(),
        }
    }
}

impl Options {
    /// How often a recommender runs that no VPA chooses: often enough to collect checkpoints.
    pub(super) fn idle_interval(&self) -> Duration {
        self.checkpoints_gc_interval.max(self.interval)
    }

    /// Whether a VPA chooses this recommender: by its name, or the one called `default` by naming none.
    pub fn is_chosen_by(&self, spec: &VerticalPodAutoscalerSpec) -> bool {
        match spec.recommenders.as_slice() {
            [] => self.name == DEFAULT_NAME,
            chosen => chosen.iter().any(|recommender| recommender.name == self.name),
        }
    }
}
