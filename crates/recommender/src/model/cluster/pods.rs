//! Pods as they come, change and go.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::aggregate::Aggregate;
use super::super::container::ContainerState;
use super::labels::{self, GENERATED, GeneratedKeys, LabelSetKey, Labels};
use super::namespace::Namespace;
use super::{AggregateEntry, Cluster, LabelSet, Pod};

/// A pod as a watch reports it.
#[derive(Clone, Copy, Debug)]
pub struct PodUpdate<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its labels.
    pub labels: &'a BTreeMap<String, String>,
    /// The names of the containers whose samples count. Init containers that end are not among them.
    pub containers: &'a [&'a str],
    /// Whether it has neither succeeded nor failed.
    pub active: bool,
}

impl Cluster {
    /// Adds a pod, or updates it.
    ///
    /// A pod that comes back under its name before [`remove_deleted_pods`](Self::remove_deleted_pods) goes on
    /// with its memory window: replacing a pod does not add a second peak for the same day.
    pub fn apply_pod(&mut self, update: PodUpdate<'_>) {
        let selected = self.namespaces.get(update.namespace).map_or(0, Namespace::selected_keys);
        let (key, dropped_labels) = labels::divide(update.labels, selected);
        let label_set = self.label_set(update.namespace, key);
        let names: Vec<_> = update.containers.iter().map(|name| self.container_name(name)).collect();
        let known =
            self.namespaces.get(update.namespace).and_then(|namespace| namespace.pods.get(update.name));
        match known.copied() {
            Some(id) => self.update_pod(id, label_set, dropped_labels, &names, update.active),
            None => self.add_pod(update, label_set, dropped_labels, &names),
        }
        self.create_aggregates(label_set, &names);
    }

    /// Whether a pod is known, one that was deleted in this run included.
    pub fn has_pod(&self, namespace: &str, name: &str) -> bool {
        self.namespaces.get(namespace).is_some_and(|namespace| namespace.pods.contains_key(name))
    }

    /// Whether a pod is known that has neither succeeded nor failed and that was not deleted.
    pub fn has_active_pod(&self, namespace: &str, name: &str) -> bool {
        let id = self.namespaces.get(namespace).and_then(|namespace| namespace.pods.get(name));
        id.and_then(|&id| self.pods.get(id)).is_some_and(|pod| pod.active && !pod.deleted)
    }

    /// Marks a pod as deleted. Its samples and OOM kills count until
    /// [`remove_deleted_pods`](Self::remove_deleted_pods).
    pub fn delete_pod(&mut self, namespace: &str, name: &str) {
        let Some(of) = self.namespaces.get(namespace) else { return };
        let Some(pod) = of.pods.get(name).and_then(|&id| self.pods.get_mut(id)) else { return };
        if !std::mem::replace(&mut pod.deleted, true) {
            self.deleted_pods.push((of.name.clone(), name.into()));
        }
    }

    /// Removes the pods that were deleted and have not come back. To be called when the samples of a tick are in,
    /// so that what killed a pod still counts.
    pub fn remove_deleted_pods(&mut self) {
        for (namespace, name) in std::mem::take(&mut self.deleted_pods) {
            let Some(of) = self.namespaces.get_mut(&*namespace) else { continue };
            let Some(&id) = of.pods.get(&name) else { continue };
            if !self.pods.get(id).is_some_and(|pod| pod.deleted) {
                continue;
            }
            of.pods.remove(&name);
            let Some(pod) = self.pods.remove(id) else { continue };
            self.leave_label_set(pod.label_set, pod.position);
            self.drop_label_set_if_unused(pod.label_set);
            self.drop_namespace_if_empty(&namespace);
        }
    }

    fn add_pod(&mut self, update: PodUpdate<'_>, label_set: u32, dropped_labels: Labels, names: &[Arc<str>]) {
        let pod = Pod {
            label_set,
            position: 0,
            active: update.active,
            deleted: false,
            dropped_labels,
            containers: names.iter().map(|name| (name.clone(), ContainerState::default())).collect(),
        };
        let id = self.pods.insert(pod);
        self.namespace_mut(update.namespace).pods.insert(update.name.into(), id);
        self.join_label_set(id, label_set);
    }

    fn update_pod(
        &mut self,
        id: u32,
        label_set: u32,
        dropped_labels: Labels,
        names: &[Arc<str>],
        active: bool,
    ) {
        let Some(pod) = self.pods.get_mut(id) else { return };
        pod.active = active;
        pod.deleted = false;
        pod.dropped_labels = dropped_labels;
        let same = pod.containers.len() == names.len()
            && names.iter().zip(&pod.containers).all(|(name, (have, _))| name == have);
        if !same {
            let state = |name: &Arc<str>| {
                let known = pod.containers.iter().find(|(have, _)| have == name);
                (name.clone(), known.map(|&(_, state)| state).unwrap_or_default())
            };
            pod.containers = names.iter().map(state).collect();
        }
        let before = pod.label_set;
        if before != label_set {
            self.move_pod(id, label_set);
        } else if !same {
            self.mark_label_set(label_set);
        }
    }

    /// Moves a pod to another label set, with the memory peaks of its current windows.
    fn move_pod(&mut self, id: u32, label_set: u32) {
        let Some(pod) = self.pods.get(id) else { return };
        let (before, position) = (pod.label_set, pod.position);
        let names: Vec<_> = pod.containers.iter().map(|(name, _)| name.clone()).collect();
        self.leave_label_set(before, position);
        self.join_label_set(id, label_set);
        self.create_aggregates(label_set, &names);
        self.move_peaks(id, before, label_set);
        self.drop_label_set_if_unused(before);
    }

    fn move_peaks(&mut self, id: u32, from: u32, to: u32) {
        let Some(pod) = self.pods.get(id) else { return };
        for (name, container) in &pod.containers {
            let Some((window_end, peak)) = container.open_window(self.now) else { continue };
            let in_set = |set: u32| self.label_sets.get(set)?.aggregate(&self.aggregates, name);
            // A group that is not counted (`memory_saver`) has no aggregate.
            let (source, target) = (in_set(from), in_set(to));
            if let Some(entry) = source.and_then(|source| self.aggregates.get_mut(source)) {
                entry.aggregate.subtract_memory_peak(&self.config, window_end, peak);
            }
            if let Some(entry) = target.and_then(|target| self.aggregates.get_mut(target)) {
                entry.aggregate.add_memory_peak(&self.config, window_end, peak);
            }
        }
    }

    /// Groups the pods of a namespace by generated labels that no selector read before.
    pub(super) fn regroup(&mut self, namespace: &str, keys: GeneratedKeys) {
        let Some(pods) =
            self.namespaces.get(namespace).map(|of| of.pods.values().copied().collect::<Vec<_>>())
        else {
            return;
        };
        let selected = self.namespaces.get(namespace).map_or(0, Namespace::selected_keys);
        let read: Vec<_> = (0..).zip(GENERATED).filter(|&(bit, _)| keys & 1 << bit != 0).collect();
        for id in pods {
            let Some(pod) = self.pods.get(id) else { continue };
            if read.iter().all(|(_, key)| pod.dropped_labels.get(key).is_none()) {
                continue;
            }
            let Some(set) = self.label_sets.get(pod.label_set) else { continue };
            let all = set.key.labels.joined(&pod.dropped_labels);
            let (key, dropped_labels) = labels::divide(&all, selected);
            let label_set = self.label_set(namespace, key);
            if let Some(pod) = self.pods.get_mut(id) {
                pod.dropped_labels = dropped_labels;
            }
            self.move_pod(id, label_set);
        }
    }

    /// The label set with a key, which is added and linked to the VPAs that select it if it is new.
    fn label_set(&mut self, namespace: &str, key: LabelSetKey) -> u32 {
        let index = self.namespace_mut(namespace);
        if let Some(&known) = index.label_sets.get(&key) {
            return known;
        }
        let key = Arc::new(key);
        let candidates = index.vpas_for(&key);
        let set = LabelSet {
            namespace: index.name.clone(),
            key: key.clone(),
            pods: Vec::new(),
            vpas: Vec::new(),
            aggregates: Vec::new(),
        };
        let id = self.label_sets.insert(set);
        self.namespace_mut(namespace).add_label_set(id, key);
        for vpa in candidates {
            self.link_if_selected(vpa, id);
        }
        id
    }

    /// Adds the aggregates of containers that have none.
    pub(super) fn create_aggregates(&mut self, label_set: u32, names: &[Arc<str>]) {
        let Some(set) = self.label_sets.get(label_set) else { return };
        if self.settings.memory_saver && set.vpas.is_empty() {
            return;
        }
        for name in names {
            self.aggregate(label_set, name);
        }
    }

    /// The aggregate of the containers with a name in a label set, which is added if there is none.
    pub(super) fn aggregate(&mut self, label_set: u32, container: &Arc<str>) -> Option<u32> {
        let set = self.label_sets.get_mut(label_set)?;
        if let Some(known) = set.aggregate(&self.aggregates, container) {
            return Some(known);
        }
        let entry = AggregateEntry {
            container: container.clone(),
            label_set,
            created: self.now,
            aggregate: Aggregate::new(&self.config),
        };
        let id = self.aggregates.insert(entry);
        set.aggregates.reserve_exact(1);
        set.aggregates.push(id);
        self.mark_label_set(label_set);
        Some(id)
    }

    fn join_label_set(&mut self, id: u32, label_set: u32) {
        let (Some(set), Some(pod)) = (self.label_sets.get_mut(label_set), self.pods.get_mut(id)) else {
            return;
        };
        pod.label_set = label_set;
        // There are fewer pods than numbers for them.
        pod.position = u32::try_from(set.pods.len()).unwrap_or(u32::MAX);
        set.pods.push(id);
        for &vpa in &set.vpas {
            if let Some(vpa) = self.vpas.get_mut(vpa) {
                vpa.pods += 1;
            }
        }
        self.mark_label_set(label_set);
    }

    fn leave_label_set(&mut self, label_set: u32, position: u32) {
        let Some(set) = self.label_sets.get_mut(label_set) else { return };
        if (position as usize) < set.pods.len() {
            set.pods.swap_remove(position as usize);
            if let Some(moved) = set.pods.get(position as usize).and_then(|&moved| self.pods.get_mut(moved)) {
                moved.position = position;
            }
        }
        for &vpa in &set.vpas {
            if let Some(vpa) = self.vpas.get_mut(vpa) {
                vpa.pods = vpa.pods.saturating_sub(1);
            }
        }
        self.mark_label_set(label_set);
    }

    /// Removes a label set that has neither pods nor aggregates.
    pub(super) fn drop_label_set_if_unused(&mut self, id: u32) {
        let unused = |set: &LabelSet| set.pods.is_empty() && set.aggregates.is_empty();
        if !self.label_sets.get(id).is_some_and(unused) {
            return;
        }
        let Some(set) = self.label_sets.remove(id) else { return };
        for vpa in set.vpas {
            if let Some(vpa) = self.vpas.get_mut(vpa) {
                vpa.label_sets.remove(&id);
            }
        }
        if let Some(namespace) = self.namespaces.get_mut(&*set.namespace) {
            namespace.remove_label_set(id, &set.key);
        }
    }
}
