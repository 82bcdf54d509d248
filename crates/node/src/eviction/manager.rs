//! The eviction manager of a node: observes, and performs what [`decide`] decides.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use plumb_runtime::Runtime;
use tokio::sync::{oneshot, watch};

use super::decide::{Action, Eviction, Round, decide, most_urgent};
use super::history::{Assessment, History, Pressures};
use super::measure::{self, Stats, candidates, measure};
use super::observation::{Observation, Observations};
use super::rank::Disks;
use super::reclaim::reclaim;
use super::signal::{PressureCondition, Signal, StarvedResource};
use super::threshold::Threshold;
use super::{EvictionConfig, admission};
use crate::allocator::PodInfo;
use crate::events::Kind;
use crate::image_gc;
use crate::node::Node;
use crate::shutdown::{Cause, EVICTED, Termination};
use crate::worker::{Message, error_chain};

/// The name of the task, in health checks and metrics.
const TASK: &str = "eviction-manager";
/// How long a round waits for a pod beyond its grace period: for its containers to be stopped and its end to be reported.
const MARGIN: Duration = Duration::from_secs(30);

/// The eviction manager of a node.
pub(crate) struct EvictionManager {
    config: EvictionConfig,
    /// The memory limit of all pods together, if it is less than the memory of the machine and a threshold is about it.
    pods_limit: Option<i64>,
    history: Mutex<History>,
    pressures: watch::Sender<Pressures>,
    /// A directory of the file system of images, once it is known whether there is one.
    image_fs: OnceLock<Option<PathBuf>>,
}

/// Why a round failed.
#[derive(Debug, thiserror::Error)]
enum RoundError {
    #[error("observing the memory, disk and process ids of the machine")]
    Machine(#[source] std::io::Error),
    #[error("asking the container runtime for the usage of pods")]
    Runtime(#[from] plumb_runtime::Error),
}

impl EvictionManager {
    /// The manager of a node whose pods have this memory limit together.
    pub(crate) fn new(mut config: EvictionConfig, pods_limit: Option<i64>) -> Self {
        // As in the kubelet, the hard threshold for memory holds for that of pods, too.
        let memory =
            |threshold: &&Threshold| threshold.signal == Signal::MemoryAvailable && threshold.is_hard();
        let memory = config.thresholds.iter().find(memory).filter(|_| pods_limit.is_some()).cloned();
        // Without that threshold no decision depends on the limit, and pods are not measured for it in each round.
        let pods_limit = pods_limit.filter(|_| memory.is_some());
        let of_pods = memory.map(|memory| Threshold { signal: Signal::AllocatableMemoryAvailable, ..memory });
        config.thresholds.extend(of_pods);
        Self {
            config,
            pods_limit,
            history: Mutex::default(),
            pressures: watch::Sender::new(Pressures::default()),
            image_fs: OnceLock::new(),
        }
    }

    /// The pressures of the node.
    pub(crate) fn pressures(&self) -> watch::Receiver<Pressures> {
        self.pressures.subscribe()
    }

    /// Why a new pod is not admitted; `None` if it is.
    pub(crate) fn rejection(&self, pod: &Pod, info: &PodInfo) -> Option<String> {
        admission::rejection(&self.pressures.borrow(), pod, info.shape.qos, info.critical)
    }

    /// Observes the machine once, so that a node does not report that it is well before the first round.
    pub(crate) async fn begin(&self, runtime: &dyn Runtime, now: Timestamp) {
        match self.observe(runtime, None).await {
            Ok(observations) => {
                self.assess(&observations, now);
            }
            Err(error) => warn(&error),
        }
    }

    /// Runs rounds until the future is dropped.
    pub(crate) async fn run(node: &Arc<Node>) {
        let Some(interval) = node.eviction.as_ref().map(|manager| manager.config.interval) else { return };
        let working = || {
            let node = node.clone();
            async move {
                loop {
                    if let Some(manager) = &node.eviction
                        && let Err(error) = Box::pin(manager.round(&node)).await
                    {
                        warn(&error);
                    }
                    // Also after an eviction: what it frees shows in the next observation.
                    tokio::time::sleep(interval).await;
                }
            }
        };
        node.supervisor.keep(TASK, working).await;
    }

    async fn round(&self, node: &Node) -> Result<(), RoundError> {
        let started = Instant::now();
        let mut candidates = candidates(node);
        let limits_storage = candidates.iter().any(super::Candidate::limits_storage);
        let mut stats = None;
        if self.pods_limit.is_some() {
            stats = Some(measure::stats(&*node.runtime).await?);
        }
        let mut observations = self.observe(&*node.runtime, stats.as_ref()).await?;
        let Assessment { met, .. } = self.assess(&observations, (node.clock)());
        if met.is_empty() && !limits_storage {
            return Ok(());
        }
        let stats = match stats {
            Some(stats) => stats,
            None => measure::stats(&*node.runtime).await?,
        };
        let urgent = most_urgent(&met).map(|threshold| threshold.signal);
        let is_low_on_disk = urgent.is_some_and(|signal| signal.resource().is_disk());
        for candidate in &mut candidates {
            let disk = is_low_on_disk || candidate.limits_storage();
            measure(node, candidate, &stats, disk).await;
        }
        let disks = self.disks();
        let mut reclaimed = false;
        loop {
            let actions = decide(Round {
                met: &met,
                observations: &observations,
                candidates: &candidates,
                disks,
                max_pod_grace_period: self.config.max_pod_grace_period,
                reclaimed,
            });
            let is_for_node = |action: &Action| match action {
                Action::Reclaim(_) => true,
                Action::Evict(eviction) => eviction.is_disruption,
            };
            if let Some(signal) = urgent.filter(|_| !reclaimed && actions.iter().any(is_for_node)) {
                attempt(node, signal.resource());
            }
            if matches!(actions[..], [Action::Reclaim(_)]) {
                reclaim(node).await;
                reclaimed = true;
                observations = self.observe(&*node.runtime, Some(&stats)).await?;
                if observations.met(&self.config.thresholds, true).is_empty() {
                    tracing::info!("reduced the disk usage of the node without evicting pods");
                    return Ok(());
                }
                continue;
            }
            let evictions = actions.into_iter().filter_map(|action| match action {
                Action::Evict(eviction) => Some(eviction),
                Action::Reclaim(_) => None,
            });
            let evictions: Vec<Eviction> = evictions.collect();
            if evictions.iter().any(|eviction| eviction.is_disruption) {
                for threshold in &met {
                    node.metrics.eviction_stats_age(threshold.signal.name(), started.elapsed());
                }
            } else if evictions.is_empty() && urgent.is_some() {
                // Not a warning: it would come with each round for as long as the pressure lasts.
                tracing::info!("unable to evict any pods from the node");
            }
            join_all(evictions.into_iter().map(|eviction| evict(node, eviction))).await;
            return Ok(());
        }
    }

    /// Updates the pressures of the node.
    fn assess(&self, observations: &Observations, now: Timestamp) -> Assessment {
        let config = &self.config;
        let period = config.pressure_transition_period;
        let assessment = self.history.lock().observe(&config.thresholds, observations, period, now);
        self.pressures.send_if_modified(|pressures| {
            let is_changed = *pressures != assessment.pressures;
            if is_changed {
                for condition in assessment.pressures.difference(pressures) {
                    warn_of_pressure(*condition);
                }
                pressures.clone_from(&assessment.pressures);
            }
            is_changed
        });
        assessment
    }

    async fn observe(
        &self,
        runtime: &dyn Runtime,
        stats: Option<&Stats>,
    ) -> Result<Observations, RoundError> {
        let image_fs = self.image_fs(runtime).await;
        let root = self.config.root.clone();
        let node_fs = self.config.node_fs.clone();
        let reading = move || Observations::read(&root, &node_fs, image_fs.as_deref());
        let read = tokio::task::spawn_blocking(reading).await;
        let read = read.unwrap_or_else(|error| Err(std::io::Error::other(error)));
        let mut observations = read.map_err(RoundError::Machine)?;
        if let (Some(limit), Some(stats)) = (self.pods_limit, stats) {
            let used = stats.values().map(|stats| stats.memory.working_set).fold(0, u64::saturating_add);
            let available = limit.saturating_sub(i64::try_from(used).unwrap_or(i64::MAX)).max(0);
            let observation = Observation { available, capacity: limit };
            observations.0.insert(Signal::AllocatableMemoryAvailable, observation);
        }
        Ok(observations)
    }

    /// A directory of the file system of images. A runtime without images on a disk has none, and one that does not respond is
    /// asked again.
    async fn image_fs(&self, runtime: &dyn Runtime) -> Option<PathBuf> {
        if let Some(known) = self.image_fs.get() {
            return known.clone();
        }
        let found = image_gc::disk_of(runtime, self.config.image_fs.as_deref()).await.ok()?;
        let found = found.filter(|path| path.is_dir());
        self.image_fs.get_or_init(|| found).clone()
    }

    fn disks(&self) -> Disks {
        let image_fs = self.image_fs.get().and_then(Option::as_ref);
        let device = |path: &Path| std::fs::metadata(path).ok().map(|found| found.dev());
        let images = image_fs.and_then(|path| device(path));
        let dedicated_image_fs = images.is_some_and(|images| device(&self.config.node_fs) != Some(images));
        Disks { dedicated_image_fs }
    }
}

/// Records that the node reclaims a resource.
fn attempt(node: &Node, resource: StarvedResource) {
    let name = resource.name();
    tracing::info!(resource = name, "the node is low on a resource, attempting to reclaim it");
    let message = format!("Attempting to reclaim {name}");
    node.events.node(&node.name, Kind::Warning, "EvictionThresholdMet", &message);
}

/// Evicts a pod, and waits until it has ended, or should have.
async fn evict(node: &Node, eviction: Eviction) {
    let Eviction { uid, message, grace_period, signal, is_disruption } = eviction;
    let Some((pod, _)) = node.workers.latest(&uid) else { return };
    tracing::warn!(uid, message, "evicting a pod");
    node.events.pod(&pod, Kind::Warning, EVICTED, message.clone());
    let cause = Cause::Eviction { message: message.into(), is_disruption };
    let (ended, has_ended) = oneshot::channel();
    let termination = Termination { cause, grace: grace_period, ended };
    if !node.workers.send(&uid, Message::Terminate(Box::new(termination))) {
        return;
    }
    node.metrics.evicted(signal);
    if tokio::time::timeout(grace_period.saturating_add(MARGIN), has_ended).await.is_err() {
        tracing::warn!(uid, "an evicted pod does not end");
    }
}

/// Warns where the node gets a taint: a pod that stays Pending is all that a user sees of it otherwise.
fn warn_of_pressure(condition: PressureCondition) {
    let condition = condition.name();
    tracing::warn!(condition, "the node is under pressure; no pod is scheduled to it until that ends");
}

fn warn(error: &RoundError) {
    tracing::warn!(error = error_chain(error), "cannot check the node for pressure, will retry");
}
