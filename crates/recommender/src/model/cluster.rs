//! Everything the recommender knows of a cluster: VPAs, pods, usage.
//!
//! A [`Cluster`] is fed with VPAs and pods from watches, with samples and with OOM kills, and returns the VPAs whose
//! recommendation has changed. It is synchronous and does no I/O; times are given to it.
//!
//! ```text
//! VPA ──selector──▶ label set ◀── pod        a group of pods that every selector treats alike
//!                      │            └── container: memory window, last samples
//!                      └── aggregate, one per container name: histograms
//! ```
//!
//! What happens to one pod or VPA costs as much as it touches: selectors and label sets find each other through
//! indexes by namespace and label, a sample marks the VPAs of its label set as changed, and
//! [`recommend`](Cluster::recommend) recalculates those alone. See `labels` for why pods are grouped as they are.
//!
//! # What upstream's model does otherwise
//!
//! The numbers are upstream's; these of its defects, which change numbers only after the fact, are mended:
//!
//! - A selector that cannot be resolved for a while leaves a VPA as it was. Upstream drops the history that came
//!   from its checkpoint, and then overwrites the checkpoint.
//! - A VPA that is deleted and created again has its history, and one that is created late gets its checkpoint.
//! - A checkpoint of a version that is not known is left alone rather than overwritten.
//! - A pod whose labels change takes the memory peak of its current window along. Upstream leaves it in the old
//!   aggregate, and takes it away from the new one, which never had it.
//! - Where several VPAs select a pod, the oldest decides on its memory window and OOM bump-up, and settings that
//!   are removed from a policy are gone. Upstream uses those that it saw last, for ever.
//! - A clock that jumps costs no history: a gap between two ticks makes nothing older, and what was counted for a
//!   time that has not come yet is dated back. Upstream forgets everything in the first case, and takes no further
//!   samples in the second.

mod checkpoints;
mod clock;
mod garbage;
mod index;
mod labels;
mod namespace;
mod pods;
mod recommendations;
mod samples;
mod selector;
mod slab;
mod vpas;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use super::aggregate::Aggregate;
use super::config::{AggregationConfig, AggregationSettings};
use super::container::ContainerState;
use super::estimate::EstimationSettings;
use super::histogram::HistogramOptionsError;
use super::policy::MemorySettings;
use super::time::Time;
use crate::model::quality::QualityMetrics;
use labels::{LabelSetKey, Labels};
use namespace::Namespace;
use slab::Slab;
use vpas::Vpa;

pub use checkpoints::{ContainerCheckpoint, Restored};
pub use clock::ClockStep;
pub use garbage::Collected;
pub use pods::PodUpdate;
pub use recommendations::VpaView;
pub use samples::DiscardedCounts;
pub use vpas::{SelectorUpdate, VpaUpdate};

/// The settings of a [`Cluster`].
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterSettings {
    /// How usage is aggregated.
    pub aggregation: AggregationSettings,
    /// How recommendations are made of it.
    pub estimation: EstimationSettings,
    /// How far ahead of the clock the time of a sample may be. Upstream has no such limit.
    pub future_tolerance: Duration,
    /// Counts nothing for pods that no VPA selects (`--memory-saver`).
    pub memory_saver: bool,
}

impl Default for ClusterSettings {
    fn default() -> Self {
        Self {
            aggregation: AggregationSettings::default(),
            estimation: EstimationSettings::default(),
            future_tolerance: Duration::from_mins(5),
            memory_saver: false,
        }
    }
}

/// The namespace and name of a VPA.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VpaKey {
    /// Its namespace, which is that of its pods.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl VpaKey {
    /// The key of a VPA.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

impl std::fmt::Display for VpaKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The state of a cluster; see the module.
#[derive(Clone, Debug)]
pub struct Cluster {
    config: AggregationConfig,
    settings: ClusterSettings,
    memory_settings: MemorySettings,
    /// The current time; unset before the first [`set_time`](Self::set_time).
    now: Time,
    /// The time of the newest sample of any container.
    newest_sample: Time,
    clock_steps: clock::ClockSteps,
    namespaces: HashMap<Arc<str>, Namespace>,
    vpas: Slab<Vpa>,
    pods: Slab<Pod>,
    label_sets: Slab<LabelSet>,
    aggregates: Slab<AggregateEntry>,
    /// The names of containers, each once.
    container_names: HashSet<Arc<str>>,
    /// VPAs whose recommendation may be another than before; each has its flag set.
    changed: Vec<u32>,
    /// The namespaces and names of pods that were deleted since the last
    /// [`remove_deleted_pods`](Self::remove_deleted_pods).
    deleted_pods: Vec<(Arc<str>, Box<str>)>,
    /// Histories of VPAs that are gone, or that selected other pods.
    parked: HashMap<Arc<VpaKey>, vpas::Parked>,
    discarded: DiscardedCounts,
    /// What compares samples with recommendations.
    quality: Option<Arc<QualityMetrics>>,
}

/// A pod.
#[derive(Clone, Debug)]
struct Pod {
    label_set: u32,
    /// Its index in the list of the label set.
    position: u32,
    /// Neither succeeded nor failed.
    active: bool,
    deleted: bool,
    /// The labels that it is not grouped by.
    dropped_labels: Labels,
    containers: Box<[(Arc<str>, ContainerState)]>,
}

/// Pods of one namespace with the same labels, and what their containers used.
#[derive(Clone, Debug)]
struct LabelSet {
    namespace: Arc<str>,
    key: Arc<LabelSetKey>,
    pods: Vec<u32>,
    /// The VPAs that select these pods, oldest first.
    vpas: Vec<u32>,
    /// One per container name.
    aggregates: Vec<u32>,
}

/// The usage of all containers with a name in a label set.
#[derive(Clone, Debug)]
struct AggregateEntry {
    container: Arc<str>,
    label_set: u32,
    created: Time,
    aggregate: Aggregate,
}

/// How much there is of everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClusterSize {
    /// VPAs.
    pub vpas: usize,
    /// Pods, those just deleted included.
    pub pods: usize,
    /// Groups of pods.
    pub label_sets: usize,
    /// Container aggregates.
    pub aggregates: usize,
    /// Histories of VPAs that are gone, or that selected other pods.
    pub parked_histories: usize,
}

impl Cluster {
    /// An empty cluster.
    pub fn new(settings: ClusterSettings) -> Result<Self, HistogramOptionsError> {
        let config = AggregationConfig::new(settings.aggregation.clone())?;
        Ok(Self {
            memory_settings: MemorySettings::new(&config.settings, None),
            config,
            settings,
            now: Time::UNSET,
            newest_sample: Time::UNSET,
            clock_steps: clock::ClockSteps::default(),
            namespaces: HashMap::new(),
            vpas: Slab::default(),
            pods: Slab::default(),
            label_sets: Slab::default(),
            aggregates: Slab::default(),
            container_names: HashSet::new(),
            changed: Vec::new(),
            deleted_pods: Vec::new(),
            parked: HashMap::new(),
            discarded: DiscardedCounts::default(),
            quality: None,
        })
    }

    /// Compares usage with recommendations from now on.
    pub fn observe_quality(&mut self, quality: Arc<QualityMetrics>) {
        self.quality = Some(quality);
    }

    /// How much there is of everything.
    pub fn size(&self) -> ClusterSize {
        ClusterSize {
            vpas: self.vpas.len(),
            pods: self.pods.len(),
            label_sets: self.label_sets.len(),
            aggregates: self.aggregates.len(),
            parked_histories: self.parked.len(),
        }
    }

    /// How many samples and OOM kills were not counted, by reason.
    pub fn discarded(&self) -> &DiscardedCounts {
        &self.discarded
    }

    /// The name of a container, shared by all containers of that name.
    fn container_name(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.container_names.get(name) {
            return known.clone();
        }
        let name: Arc<str> = name.into();
        self.container_names.insert(name.clone());
        name
    }

    fn vpa_id(&self, key: &VpaKey) -> Option<u32> {
        self.namespaces.get(key.namespace.as_str())?.vpas.get(key.name.as_str()).copied()
    }

    fn vpa_of(&self, key: &VpaKey) -> Option<&Vpa> {
        self.vpas.get(self.vpa_id(key)?)
    }

    /// Marks a VPA, whose recommendation and checkpoints may be others than before.
    fn mark_changed(&mut self, vpa: u32) {
        mark_changed(&mut self.vpas, &mut self.changed, vpa);
    }

    /// Marks the VPAs that select a label set.
    fn mark_label_set(&mut self, label_set: u32) {
        for &vpa in self.label_sets.get(label_set).iter().flat_map(|set| &set.vpas) {
            mark_changed(&mut self.vpas, &mut self.changed, vpa);
        }
    }

    /// The namespace with a name, which is added if there is none.
    fn namespace_mut(&mut self, name: &str) -> &mut Namespace {
        let known = self.namespaces.get_key_value(name).map(|(known, _)| known.clone());
        let name = known.unwrap_or_else(|| name.into());
        self.namespaces.entry(name).or_insert_with_key(|name| Namespace::new(name.clone()))
    }

    fn drop_namespace_if_empty(&mut self, name: &str) {
        if self.namespaces.get(name).is_some_and(Namespace::is_empty) {
            self.namespaces.remove(name);
        }
    }
}

fn mark_changed(vpas: &mut Slab<Vpa>, changed: &mut Vec<u32>, id: u32) {
    if let Some(vpa) = vpas.get_mut(id) {
        vpa.checkpoints_due = true;
        if !std::mem::replace(&mut vpa.changed, true) {
            changed.push(id);
        }
    }
}

impl LabelSet {
    /// The aggregate of the containers with a name.
    fn aggregate(&self, aggregates: &Slab<AggregateEntry>, container: &str) -> Option<u32> {
        let named = |&id: &u32| aggregates.get(id).is_some_and(|entry| &*entry.container == container);
        self.aggregates.iter().copied().find(named)
    }
}
