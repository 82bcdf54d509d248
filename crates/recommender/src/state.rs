//! The state of a recommender: the VPAs that chose it, and the model of the cluster. Synchronous; watches feed it
//! through the loop, which gets from it the objects to write.

mod target;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use plumb_controller_runtime::object_ref::resource_version;
use plumb_controller_runtime::pods::{has_ended, node_of};
use plumb_vpa::node_groups::node_selector;
use plumb_vpa_api::{
    CrossVersionObjectReference, VerticalPodAutoscaler, VerticalPodAutoscalerCheckpoint,
    VerticalPodAutoscalerStatus,
};

use crate::decide::{Decision, Knowledge, Written, decide, unsupported};
use crate::input::environment::Bearing;
use crate::input::feed::{has_started, sidecars};
use crate::input::live_usage::{LiveUsageError, Measurements};
use crate::input::node_groups::{self, LabelsByNode, NodeGroups};
use crate::input::oom::OomKill;
use crate::input::prometheus::ContainerUsage;
use crate::metrics::{RecommenderMetrics, VpaObservation};
use crate::model::cluster::{
    ClockStep, Cluster, Collected, ContainerCheckpoint, PodUpdate, Restored, VpaKey, VpaView,
};
use crate::model::estimate::ContainerExplanation;
use crate::model::histogram::HistogramOptionsError;
use crate::options::{CHECKPOINTS_LATEST, CHECKPOINTS_PART, Options, Storage};
use crate::shards::Ownership;
use crate::{
    COUNTED_KILLS_ANNOTATION, CheckpointError, CheckpointStatus, CountedKills, Discarded, Time,
    WINDOW_PEAK_ANNOTATION, WindowPeak,
};
use target::TargetState;

/// The state of a recommender.
#[derive(Debug)]
pub struct State {
    options: Options,
    cluster: Cluster,
    vpas: BTreeMap<Arc<VpaKey>, Tracked>,
    /// VPAs whose status may have to be written.
    due: BTreeSet<Arc<VpaKey>>,
    /// Whether the status of a VPA waits for the last write of it to be observed.
    waiting: bool,
    /// Whether history is being read that is not in checkpoints.
    fetching_history: bool,
    ownership: Ownership,
    node_groups: NodeGroups,
    metrics: RecommenderMetrics,
}

/// A VPA that chose this recommender.
#[derive(Debug)]
struct Tracked {
    object: Arc<VerticalPodAutoscaler>,
    target: TargetState,
    /// Whether its checkpoints were read. Until then none is written, because that would overwrite unread history.
    checkpoints_read: bool,
    written: Option<Written>,
    /// The latest OOM kill of its pods that was counted.
    kills_counted_until: Option<Timestamp>,
    /// The environment of the VPA.
    bearing: Bearing,
    /// Since when this process is responsible for it, see [`Ownership::term`].
    term: i32,
}

/// A status to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusUpdate {
    /// Of which VPA.
    pub key: Arc<VpaKey>,
    /// The resource version that it is made for.
    pub resource_version: Option<String>,
    /// The status.
    pub status: VerticalPodAutoscalerStatus,
    put_back: bool,
}

impl State {
    /// An empty state.
    pub fn new(
        options: Options,
        ownership: Ownership,
        metrics: RecommenderMetrics,
    ) -> Result<Self, HistogramOptionsError> {
        let mut settings = options.cluster.clone();
        // The usage of pods of another process's VPAs is in that one's checkpoints, and would count twice after a
        // take-over.
        settings.memory_saver |= ownership.is_shared();
        let mut cluster = Cluster::new(settings)?;
        cluster.observe_quality(metrics.quality());
        let (vpas, due, node_groups) = Default::default();
        let fetching_history = options.storage == Storage::Prometheus;
        Ok(Self {
            options,
            cluster,
            vpas,
            due,
            waiting: false,
            fetching_history,
            ownership,
            node_groups,
            metrics,
        })
    }

    /// The model.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// How many VPAs there are.
    pub fn vpa_count(&self) -> usize {
        self.vpas.len()
    }

    /// The VPAs, as they were observed last.
    pub fn vpas(&self) -> impl Iterator<Item = &Arc<VerticalPodAutoscaler>> {
        self.vpas.values().map(|tracked| &tracked.object)
    }

    /// Why a VPA gets the recommendation that it gets; none if there is no such VPA.
    pub fn explain(&self, key: &VpaKey) -> Option<Vec<ContainerExplanation>> {
        self.cluster.explain(key)
    }

    /// Sets the current time, at the start of a run.
    pub fn set_time(&mut self, now: Timestamp) -> ClockStep {
        match Time::try_from(now) {
            Ok(now) => self.cluster.set_time(now),
            Err(error) => {
                tracing::warn!(%error, "the clock is wrong");
                ClockStep::Regular
            }
        }
    }

    /// Adds a VPA or updates it. One that chose another recommender, or that another process is responsible for, is not
    /// tracked.
    pub fn apply_vpa(&mut self, object: Arc<VerticalPodAutoscaler>) {
        let Some(key) = key_of(&object) else { return };
        if !self.options.namespaces.contains(&key.namespace) || !self.options.is_chosen_by(&object.spec) {
            return self.delete_vpa(&key);
        }
        if !self.ownership.owns(&key) {
            return self.forget_vpa(&key);
        }
        let is_other = |tracked: &Tracked| tracked.object.metadata.uid != object.metadata.uid;
        if self.vpas.get(&key).is_some_and(is_other) {
            self.delete_vpa(&key);
        }
        let term = self.ownership.term(&key);
        if self.vpas.get(&key).is_some_and(|tracked| tracked.term != term) {
            self.forget_vpa(&key);
        }
        let key = Arc::new(key);
        self.due.insert(key.clone());
        if let Some(tracked) = self.vpas.get_mut(&key) {
            let before = std::mem::replace(&mut tracked.object, object);
            let (before, after) = (&before.metadata, &tracked.object.metadata);
            tracked.target.spec_changed |=
                before.generation != after.generation || before.annotations != after.annotations;
        } else {
            let checkpoints_read = self.options.storage != Storage::Checkpoint;
            let tracked = Tracked {
                object,
                target: TargetState::default(),
                checkpoints_read,
                written: None,
                kills_counted_until: None,
                bearing: Bearing::default(),
                term,
            };
            self.vpas.insert(key, tracked);
        }
    }

    /// Removes a VPA. Its history stays in the model for a while.
    pub fn delete_vpa(&mut self, key: &VpaKey) {
        self.cluster.delete_vpa(key);
        self.vpas.remove(key);
        self.due.remove(key);
        self.metrics.remove_vpa(key);
    }

    /// Removes a VPA that another process is responsible for now, with its history.
    fn forget_vpa(&mut self, key: &VpaKey) {
        self.cluster.forget_vpa(key);
        self.delete_vpa(key);
    }

    /// The targets of all VPAs, to be resolved.
    pub fn target_refs(&self) -> Vec<(Arc<VpaKey>, CrossVersionObjectReference)> {
        let of =
            |(key, tracked): (&Arc<VpaKey>, &Tracked)| (key.clone(), tracked.object.spec.target_ref.clone());
        self.vpas.iter().map(of).collect()
    }

    /// Notes what else in the cluster bears on a VPA. It counts when its target is resolved next.
    pub fn set_bearing(&mut self, key: &VpaKey, bearing: Bearing) {
        let Some((key, _)) = self.vpas.get_key_value(key) else { return };
        let key = key.clone();
        let Some(tracked) = self.vpas.get_mut(&key).filter(|tracked| tracked.bearing != bearing) else {
            return;
        };
        tracked.bearing = bearing;
        tracked.target.spec_changed = true;
        self.due.insert(key);
    }

    /// Adds a pod or updates it.
    ///
    /// Pods that were never started have no usage and are left out, as are init containers, but for those that run as long
    /// as the pod does.
    pub fn apply_pod(&mut self, pod: &Pod) {
        let (Some(namespace), Some(name)) = (&pod.metadata.namespace, &pod.metadata.name) else { return };
        if !has_started(pod) || !self.options.namespaces.contains(namespace) {
            return;
        }
        let spec = pod.spec.as_ref();
        let containers = spec.into_iter().flat_map(|spec| &spec.containers).chain(sidecars(pod));
        let containers: Vec<&str> = containers.map(|container| container.name.as_str()).collect();
        let mut labels = Cow::Borrowed(pod.labels());
        let node = node_of(pod).unwrap_or_default();
        for (label, value) in self.node_groups.of_node(node) {
            labels.to_mut().insert(label, value);
        }
        self.cluster.apply_pod(PodUpdate {
            namespace,
            name,
            labels: &labels,
            containers: &containers,
            active: !has_ended(pod),
        });
    }

    /// Notes the labels of nodes. Whether VPAs may select other pods than before, and pods have to be applied again.
    pub(super) fn set_nodes(&mut self, nodes: LabelsByNode) -> bool {
        let selectors = self.vpas.values().filter_map(|tracked| node_selector(&tracked.object)?.ok());
        self.node_groups.set(selectors, nodes)
    }

    /// Marks a pod as deleted. Its usage counts until [`remove_deleted_pods`](Self::remove_deleted_pods).
    pub fn delete_pod(&mut self, namespace: &str, name: &str) {
        self.cluster.delete_pod(namespace, name);
    }

    /// Counts OOM kills, each once: not those that a checkpoint holds. Returns those of pods whose VPA has checkpoints that are
    /// not read yet.
    pub fn record_kills(&mut self, mut kills: Vec<OomKill>) -> Vec<OomKill> {
        kills.sort_by_key(|kill| kill.at);
        let (unread, kills): (Vec<_>, Vec<_>) = kills.into_iter().partition(|kill| {
            let vpa = self.cluster.oldest_vpa_of(&kill.namespace, &kill.pod);
            vpa.and_then(|key| self.vpas.get(key)).is_some_and(|tracked| !tracked.checkpoints_read)
        });
        for OomKill { namespace, pod, container, at, memory, source } in &kills {
            if let Some(source) = source {
                self.metrics.resources_read(*source);
            }
            let counted = if self.cluster.has_counted_kill(namespace, pod, container, *at) {
                self.cluster.count_discarded(Discarded::Duplicate);
                Err(Discarded::Duplicate)
            } else {
                self.cluster.record_oom(namespace, pod, container, *at, *memory)
            };
            if matches!(counted, Ok(()) | Err(Discarded::Duplicate)) {
                self.kill_counted(namespace, pod, *at);
            }
            if let Err(reason) = counted {
                tracing::debug!(namespace, pod, container, %reason, "an OOM kill is not counted");
            }
        }
        unread
    }

    /// Notes for the VPAs of a pod that an OOM kill of it is counted: the updater waits for that. The status is due even if
    /// the recommendation is the same.
    fn kill_counted(&mut self, namespace: &str, pod: &str, at: Time) {
        for key in self.cluster.vpas_of(namespace, pod) {
            let Some(tracked) = self.vpas.get_mut(key) else { continue };
            tracked.kills_counted_until = tracked.kills_counted_until.max(at.timestamp());
            self.due.insert(key.clone());
        }
    }

    /// Counts what containers used.
    pub fn count(&mut self, measurements: &dyn Measurements) -> Result<(), LiveUsageError> {
        let (namespaces, cluster) = (&self.options.namespaces, &mut self.cluster);
        measurements.visit(&mut |measurement| {
            if !namespaces.contains(measurement.namespace) {
                return;
            }
            match measurement.sample {
                // A sample that does not count is counted by its reason.
                Ok(sample) => drop(cluster.add_sample(
                    measurement.namespace,
                    measurement.pod,
                    measurement.container,
                    sample,
                )),
                Err(reason) => cluster.count_discarded(reason),
            }
        })
    }

    /// Forgets the pods that were deleted, once the usage of a run is counted.
    pub fn remove_deleted_pods(&mut self) {
        self.cluster.remove_deleted_pods();
    }

    /// Works out the recommendations that may be others than before.
    pub fn recommend(&mut self) {
        self.due.extend(self.cluster.recommend());
        self.metrics.set_cluster(&self.cluster);
    }

    /// Whether history is being read that is not in checkpoints. Until it is, present usage does not count.
    pub fn is_fetching_history(&self) -> bool {
        self.fetching_history
    }

    /// Adds a pod that is gone, for its history. It is to be [deleted](Self::delete_past_pod) when that is counted. False for
    /// one that is active after all, as a watch has reported since: it stays as it is.
    pub fn apply_past_pod(
        &mut self,
        namespace: &str,
        name: &str,
        labels: &BTreeMap<String, String>,
        containers: &[&str],
    ) -> bool {
        if self.cluster.has_active_pod(namespace, name) {
            return false;
        }
        if self.options.namespaces.contains(namespace) {
            self.cluster.apply_pod(PodUpdate { namespace, name, labels, containers, active: false });
        }
        true
    }

    /// Marks a pod as deleted that was added for its history, unless it is active after all.
    pub fn delete_past_pod(&mut self, namespace: &str, name: &str) {
        if !self.cluster.has_active_pod(namespace, name) {
            self.cluster.delete_pod(namespace, name);
        }
    }

    /// Counts past usage of a container.
    pub fn count_history(&mut self, usage: &ContainerUsage) {
        let ContainerUsage { namespace, pod, container, samples, discarded } = usage;
        if !self.options.namespaces.contains(namespace) {
            return;
        }
        for sample in samples {
            // A sample that does not count is counted by its reason.
            let _ = self.cluster.add_sample(namespace, pod, container, *sample);
        }
        for reason in discarded {
            self.cluster.count_discarded(*reason);
        }
    }

    /// Records that history from other sources than checkpoints was read.
    pub fn history_fetched(&mut self) {
        if std::mem::replace(&mut self.fetching_history, false) {
            self.due.extend(self.vpas.keys().cloned());
        }
    }

    /// The statuses to be written. Each is due again if its write fails.
    pub fn statuses(&mut self, now: Timestamp) -> Vec<StatusUpdate> {
        let mut updates = Vec::new();
        self.waiting = false;
        for key in std::mem::take(&mut self.due) {
            if let Some(tracked) = self.vpas.get_mut(&key) {
                // Once, so that a kill by a clock that is ahead does not make each status another one.
                tracked.kills_counted_until = tracked.kills_counted_until.map(|until| until.min(now));
            }
            let Some(tracked) = self.vpas.get(&key) else { continue };
            self.observe(&key, tracked, now);
            match self.decide(&key, tracked, now) {
                Decision::Unchanged => {}
                Decision::Wait => {
                    self.waiting = true;
                    self.due.insert(key);
                }
                Decision::Contested => {
                    tracing::warn!(vpa = %key, "another recommender replaces the status of a VPA");
                }
                Decision::Write { status, put_back } => {
                    let resource_version = tracked.object.metadata.resource_version.clone();
                    updates.push(StatusUpdate { key, resource_version, status, put_back });
                }
            }
        }
        updates
    }

    /// Whether a status is to be written as soon as the last write of it is observed, which takes a moment.
    pub fn is_waiting(&self) -> bool {
        self.waiting
    }

    /// Removes the series of all VPAs.
    pub fn remove_metrics(&self) {
        self.vpas.keys().for_each(|key| self.metrics.remove_vpa(key));
    }

    /// Shows a VPA in metrics.
    fn observe(&self, key: &Arc<VpaKey>, tracked: &Tracked, now: Timestamp) {
        let view = self.cluster.vpa(key);
        let recommendation = view.map(|view| view.measured_recommendation()).unwrap_or_default();
        let spec = &tracked.object.spec;
        let status = tracked.object.status.as_ref();
        if !recommendation.is_empty()
            && status.is_none_or(|status| status.recommendation.is_none())
            && tracked.written.is_none()
            && let Some(created) = &tracked.object.metadata.creation_timestamp
        {
            let took = now.duration_since(created.0);
            self.metrics.first_recommendation(took.try_into().unwrap_or_default());
        }
        let observation = VpaObservation {
            update_mode: spec.update_policy.as_ref().and_then(|policy| policy.update_mode.clone()),
            matches_pods: view.is_some_and(|view| view.pods() > 0),
            unsupported_config: tracked.target.unsupported().is_some() || unsupported(spec).is_some(),
            recommendation,
        };
        self.metrics.set_vpa(key, observation);
    }

    fn decide(&self, key: &VpaKey, tracked: &Tracked, now: Timestamp) -> Decision {
        let view = self.cluster.vpa(key);
        let low_confidence: Vec<&str> = view.iter().flat_map(VpaView::low_confidence).collect();
        let fetching_history = !tracked.checkpoints_read || self.fetching_history;
        let of_nodes = node_groups::unsupported(&tracked.object, self.options.environment.node_selectors);
        let unsupported = tracked.target.unsupported().into_iter();
        let unsupported: Vec<&str> =
            unsupported.chain(tracked.bearing.message.as_deref()).chain(of_nodes.as_deref()).collect();
        let unsupported = Some(unsupported.join("; ")).filter(|text| !text.is_empty());
        // Unlike upstream: the minimum, which a container without a sample gets, would be applied to a workload that was created
        // together with its VPA.
        let recommendation = view.filter(|_| !fetching_history).map(|view| view.measured_recommendation());
        let knowledge = Knowledge {
            object: &tracked.object,
            recommendation: recommendation.as_deref(),
            low_confidence: &low_confidence,
            // Whether pods match is not known while the selector is not.
            pods_matched: view.is_some_and(|view| view.pods() > 0) || tracked.target.is_unknown(),
            fetching_history,
            unsupported: unsupported.as_deref(),
            kills_counted_until: tracked.kills_counted_until,
        };
        decide(&knowledge, tracked.written.as_ref(), now)
    }

    /// Records that a status was written, from the response of the API server.
    pub fn status_written(&mut self, update: StatusUpdate, answer: &VerticalPodAutoscaler) {
        let Some(tracked) = self.vpas.get_mut(&update.key) else { return };
        let resource_version = resource_version(&answer.metadata);
        let StatusUpdate { status, put_back, .. } = update;
        tracked.written = Some(Written { status, resource_version, put_back });
    }

    /// Notes that a status could not be written.
    pub fn status_failed(&mut self, key: &Arc<VpaKey>) {
        if self.vpas.contains_key(key) {
            self.due.insert(key.clone());
        }
    }

    /// The VPAs whose checkpoints are to be read.
    pub fn checkpoints_to_read(&self) -> Vec<Arc<VpaKey>> {
        let unread = self.vpas.iter().filter(|(_, tracked)| !tracked.checkpoints_read);
        unread.map(|(key, _)| key.clone()).collect()
    }

    /// Restores a checkpoint, if it is one of a VPA whose checkpoints are to be read.
    pub fn restore(&mut self, checkpoint: &VerticalPodAutoscalerCheckpoint) {
        let Some(namespace) = &checkpoint.metadata.namespace else { return };
        let spec = &checkpoint.spec;
        let key = VpaKey::new(namespace, &spec.vpa_object_name);
        if self.vpas.get(&key).is_none_or(|tracked| tracked.checkpoints_read) {
            return;
        }
        let status = checkpoint.status.clone().unwrap_or_default();
        let restored = match CheckpointStatus::from_api(&status) {
            Ok(status) => self.cluster.restore_checkpoint(&key, &spec.container_name, &status),
            Err(error) => self.cluster.refuse_checkpoint(&key, &spec.container_name, error),
        };
        match restored {
            Ok(Restored::Restored) => {
                let annotations = checkpoint.metadata.annotations.as_ref();
                if let Some(text) = annotations.and_then(|of| of.get(COUNTED_KILLS_ANNOTATION)) {
                    let kills = CountedKills::from_annotation(text);
                    self.cluster.restore_kills(&key, &spec.container_name, kills);
                }
                let peak = annotations.and_then(|of| of.get(WINDOW_PEAK_ANNOTATION));
                let peak = peak.and_then(|text| WindowPeak::from_annotation(text));
                self.cluster.restore_window_peak(&key, &spec.container_name, peak);
            }
            Ok(Restored::Known | Restored::UnknownVpa) => {}
            Err(error @ (CheckpointError::Version(_) | CheckpointError::Future(_))) => {
                tracing::warn!(vpa = %key, container = spec.container_name, %error, "cannot restore a checkpoint, it stays as it is");
            }
            Err(error) => {
                tracing::warn!(vpa = %key, container = spec.container_name, %error, "a checkpoint is corrupt");
            }
        }
    }

    /// Notes that all checkpoints of a VPA were read.
    pub fn checkpoints_read(&mut self, key: &Arc<VpaKey>) {
        if let Some(tracked) = self.vpas.get_mut(key) {
            tracked.checkpoints_read = true;
            self.due.insert(key.clone());
        }
    }

    /// The VPAs whose checkpoints are to be written, the ones that have waited longest first.
    pub fn checkpoints_due(&self) -> Vec<Arc<VpaKey>> {
        if self.options.storage != Storage::Checkpoint {
            return Vec::new();
        }
        let is_read = |key: &Arc<VpaKey>| self.vpas.get(key).is_some_and(|tracked| tracked.checkpoints_read);
        let due = self.cluster.checkpoints_due().into_iter();
        due.filter(is_read).filter(|key| self.has_waited(key)).collect()
    }

    /// Whether the checkpoints of a VPA have waited long enough for more to come: with a sample a minute each would be written
    /// every minute, and the part of a long history that a crash loses does not matter. Those with a higher memory peak do
    /// not wait: the updater must not lower memory below it.
    fn has_waited(&self, key: &VpaKey) -> bool {
        let Some((written, history)) = self.cluster.checkpoint_age(key) else { return false };
        let wait = CHECKPOINTS_LATEST.min(history / CHECKPOINTS_PART);
        self.cluster.time().duration_since(written) >= wait || self.cluster.has_higher_peak(key)
    }

    /// The checkpoints of a VPA that are to be written.
    pub fn checkpoints(&mut self, key: &VpaKey) -> Vec<ContainerCheckpoint> {
        self.cluster.checkpoints(key)
    }

    /// Notes that a checkpoint was written.
    pub fn checkpoint_written(&mut self, key: &VpaKey, checkpoint: &ContainerCheckpoint) {
        self.cluster.checkpoint_written(key, &checkpoint.container, checkpoint.digest);
        self.cluster.annotations_written(key, checkpoint);
    }

    /// Notes that a checkpoint could not be written.
    pub fn checkpoint_failed(&mut self, key: &VpaKey) {
        self.cluster.checkpoint_failed(key);
    }

    /// Notes that the object of a checkpoint is gone: it is written again, even if it could not be read.
    pub fn checkpoint_deleted(&mut self, key: &VpaKey, container: &str) {
        self.cluster.checkpoint_deleted(key, container);
    }

    /// The checkpoints that are known to exist and to belong to a VPA that does.
    pub fn known_checkpoints(&self) -> impl Iterator<Item = (&VpaKey, &str)> {
        self.cluster.known_checkpoints()
    }

    /// Drops entries that are too old to matter.
    pub fn collect_garbage(&mut self) -> Collected {
        self.cluster.collect_garbage()
    }
}

fn key_of(object: &VerticalPodAutoscaler) -> Option<VpaKey> {
    Some(VpaKey::new(object.metadata.namespace.as_deref()?, object.metadata.name.as_deref()?))
}
