//! VPAs as they come, change and go.

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::core::Selector;

use super::super::aggregate::Aggregate;
use super::super::container::ContainerState;
use super::super::counted_kills::CountedKills;
use super::super::estimate::VpaSettings;
use super::super::policy::ContainerPolicy;
use super::super::time::Time;
use super::super::window_peak::WindowPeak;
use super::namespace::Registration;
use super::recommendations::VpaOutcome;
use super::selector::PodSelector;
use super::{Cluster, VpaKey};

/// A VPA as a watch reports it, with the selector of its target.
#[derive(Clone, Debug)]
pub struct VpaUpdate {
    /// Its namespace and name.
    pub key: VpaKey,
    /// When it was created: the oldest VPA decides for a pod that several select.
    pub created: Time,
    /// Which pods its target controls.
    pub selector: SelectorUpdate,
    /// The settings in its spec and its annotations.
    pub settings: VpaSettings,
    /// Whether the object that `targetRef` names exists.
    pub target_exists: bool,
}

/// The state of a VPA's pod selector.
#[derive(Clone, Debug)]
pub enum SelectorUpdate {
    /// The target was read.
    Known(Selector),
    /// The target cannot be read at the moment: the VPA continues with the selector that it has.
    Unknown,
}

/// A VPA.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent flags")]
pub(super) struct Vpa {
    pub(super) key: Arc<VpaKey>,
    pub(super) created: Time,
    pub(super) selector: Option<PodSelector>,
    registration: Registration,
    pub(super) settings: VpaSettings,
    /// Whether a container policy has memory settings of its own.
    pub(super) has_memory_settings: bool,
    pub(super) target_exists: bool,
    /// The groups of pods that it selects.
    pub(super) label_sets: BTreeSet<u32>,
    /// How many pods are in them.
    pub(super) pods: usize,
    pub(super) history: History,
    pub(super) outcome: VpaOutcome,
    /// Whether the outcome has to be worked out again.
    pub(super) changed: bool,
    /// Whether a checkpoint may be other than the one that was written.
    pub(super) checkpoints_due: bool,
    pub(super) checkpoint_written: Time,
}

/// The state of a VPA apart from the aggregates of its pods.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    /// From checkpoints, by container.
    pub(super) restored: Vec<(Arc<str>, Aggregate)>,
    /// The contents of the written checkpoints, by container.
    pub(super) written: Vec<(Arc<str>, u64)>,
    /// The containers whose checkpoints must not be overwritten, because they cannot be read yet.
    pub(super) unreadable: Vec<Arc<str>>,
    /// The OOM kills that checkpoints hold and that pods may still show, by container.
    pub(super) kills: Vec<(Arc<str>, CountedKills)>,
    /// The memory peaks of windows that are not over which checkpoints have, by container.
    pub(super) peaks: Vec<(Arc<str>, WindowPeak)>,
}

/// The history of a VPA that is gone, or that selects other pods now.
#[derive(Clone, Debug)]
pub(super) struct Parked {
    /// The selector that it belongs to.
    selector: String,
    pub(super) history: History,
}

impl Cluster {
    /// Adds a VPA, or updates it.
    pub fn apply_vpa(&mut self, update: VpaUpdate) {
        let known = self.vpa_id(&update.key);
        let created_again = |&id: &u32| self.vpas.get(id).is_some_and(|vpa| vpa.created != update.created);
        if known.as_ref().is_some_and(created_again) {
            self.delete_vpa(&update.key);
        }
        let id = self.vpa_id(&update.key).unwrap_or_else(|| self.add_vpa(&update.key, update.created));
        if let SelectorUpdate::Known(selector) = &update.selector {
            self.select(id, PodSelector::new(selector));
        }
        let Some(vpa) = self.vpas.get_mut(id) else { return };
        vpa.target_exists = update.target_exists;
        if vpa.settings != update.settings {
            vpa.has_memory_settings = update.settings.policy.containers.iter().any(sets_memory);
            vpa.settings = update.settings;
            self.mark_changed(id);
        }
    }

    /// Removes a VPA. Its history stays for a while, in case that it is created again.
    pub fn delete_vpa(&mut self, key: &VpaKey) {
        let Some(id) = self.vpa_id(key) else { return };
        self.deselect(id);
        self.vpas.remove(id);
        if let Some(namespace) = self.namespaces.get_mut(key.namespace.as_str()) {
            namespace.vpas.remove(key.name.as_str());
        }
        self.drop_namespace_if_empty(&key.namespace);
    }

    /// Removes a VPA with its history and with what its pods have used, unless another VPA selects them: another process
    /// is responsible for it now, and knows more.
    pub fn forget_vpa(&mut self, key: &VpaKey) {
        let label_sets = self.vpa_of(key).map(|vpa| vpa.label_sets.clone()).unwrap_or_default();
        self.delete_vpa(key);
        self.parked.remove(key);
        for id in label_sets {
            let Some(set) = self.label_sets.get_mut(id) else { continue };
            if !set.vpas.is_empty() {
                continue;
            }
            for aggregate in std::mem::take(&mut set.aggregates) {
                self.aggregates.remove(aggregate);
            }
            // Their memory windows are those of the aggregates.
            for &pod in &set.pods {
                let containers = self.pods.get_mut(pod).map(|pod| &mut pod.containers);
                containers.into_iter().flatten().for_each(|(_, state)| *state = ContainerState::default());
            }
            let namespace = set.namespace.clone();
            self.drop_label_set_if_unused(id);
            self.drop_namespace_if_empty(&namespace);
        }
    }

    /// Every VPA.
    pub fn vpa_keys(&self) -> impl Iterator<Item = &VpaKey> {
        self.vpas.iter().map(|(_, vpa)| &*vpa.key)
    }

    fn add_vpa(&mut self, key: &VpaKey, created: Time) -> u32 {
        let vpa = Vpa {
            key: Arc::new(key.clone()),
            created,
            selector: None,
            registration: Registration::default(),
            settings: VpaSettings::default(),
            has_memory_settings: false,
            target_exists: false,
            label_sets: BTreeSet::new(),
            pods: 0,
            history: History::default(),
            outcome: VpaOutcome::default(),
            changed: false,
            checkpoints_due: false,
            checkpoint_written: Time::UNSET,
        };
        let id = self.vpas.insert(vpa);
        self.namespace_mut(&key.namespace).vpas.insert(key.name.as_str().into(), id);
        self.mark_changed(id);
        id
    }

    /// Makes a VPA select other pods, if the selector is another.
    fn select(&mut self, id: u32, selector: PodSelector) {
        let Some(vpa) = self.vpas.get(id) else { return };
        if vpa.selector.as_ref().is_some_and(|current| current.text() == selector.text()) {
            return;
        }
        let key = vpa.key.clone();
        let parked = self.parked.remove(&key);
        self.deselect(id);
        let Some(vpa) = self.vpas.get_mut(id) else { return };
        match parked {
            Some(parked) if parked.selector == selector.text() => vpa.history = parked.history,
            Some(parked) => {
                // The checkpoints that are there are still ours, and must not be read as if they were not.
                vpa.history.written.clone_from(&parked.history.written);
                self.parked.entry(key.clone()).or_insert(parked);
            }
            None => {}
        }
        let Some(namespace) = self.namespaces.get_mut(key.namespace.as_str()) else { return };
        let (registration, read_first) = namespace.register(id, &selector);
        vpa.registration = registration;
        vpa.selector = Some(selector);
        if read_first != 0 {
            self.regroup(&key.namespace, read_first);
        }
        self.link_all(id);
        self.mark_changed(id);
    }

    /// Takes a VPA's selector away, and parks its history with it.
    fn deselect(&mut self, id: u32) {
        let Some(vpa) = self.vpas.get_mut(id) else { return };
        let Some(selector) = vpa.selector.take() else { return };
        let history = std::mem::take(&mut vpa.history);
        let label_sets = std::mem::take(&mut vpa.label_sets);
        let registration = std::mem::take(&mut vpa.registration);
        vpa.pods = 0;
        let key = vpa.key.clone();
        if let Some(namespace) = self.namespaces.get_mut(key.namespace.as_str()) {
            namespace.unregister(id, &registration);
        }
        for set in label_sets {
            if let Some(set) = self.label_sets.get_mut(set) {
                set.vpas.retain(|&vpa| vpa != id);
            }
        }
        if !history.is_empty() {
            self.parked.insert(key, Parked { selector: selector.text().to_owned(), history });
        }
    }

    fn link_all(&mut self, id: u32) {
        let Some(vpa) = self.vpas.get(id) else { return };
        let Some(selector) = &vpa.selector else { return };
        let candidates = self
            .namespaces
            .get(vpa.key.namespace.as_str())
            .map(|namespace| namespace.label_sets_for(selector))
            .unwrap_or_default();
        for set in candidates {
            self.link_if_selected(id, set);
        }
    }

    /// Links a VPA and a label set if the VPA selects it and is not linked to it yet.
    pub(super) fn link_if_selected(&mut self, id: u32, label_set: u32) {
        let (Some(vpa), Some(set)) = (self.vpas.get(id), self.label_sets.get_mut(label_set)) else { return };
        if vpa.label_sets.contains(&label_set)
            || !vpa.selector.as_ref().is_some_and(|selector| selector.matches(&set.key))
        {
            return;
        }
        let age = |id: u32| self.vpas.get(id).map(|vpa| (vpa.created, &vpa.key.name));
        let at = set.vpas.partition_point(|&other| age(other) < age(id));
        set.vpas.reserve_exact(1);
        set.vpas.insert(at, id);
        let pods = set.pods.len();
        if let Some(vpa) = self.vpas.get_mut(id) {
            vpa.label_sets.insert(label_set);
            vpa.pods += pods;
        }
        self.mark_changed(id);
        if self.settings.memory_saver {
            self.create_aggregates_of_pods(label_set);
        }
    }

    /// Adds the aggregates of a label set that counted nothing while no VPA selected it.
    fn create_aggregates_of_pods(&mut self, label_set: u32) {
        let Some(set) = self.label_sets.get(label_set) else { return };
        let pods = set.pods.iter().filter_map(|&pod| self.pods.get(pod));
        let mut names: Vec<_> =
            pods.flat_map(|pod| pod.containers.iter().map(|(name, _)| name.clone())).collect();
        names.sort_unstable();
        names.dedup();
        self.create_aggregates(label_set, &names);
    }
}

impl History {
    /// The OOM kills that the checkpoint of a container holds.
    pub(super) fn kills_of(&self, container: &str) -> Option<&CountedKills> {
        self.kills.iter().find(|(name, _)| **name == *container).map(|(_, kills)| kills)
    }

    /// Notes the OOM kills that the checkpoint of a container holds.
    pub(super) fn set_kills(&mut self, container: Arc<str>, kills: CountedKills) {
        self.kills.retain(|(name, _)| *name != container);
        if kills != CountedKills::default() {
            self.kills.push((container, kills));
        }
    }

    /// The memory peak of windows that are not over which the checkpoint of a container has.
    pub(super) fn peak_of(&self, container: &str) -> Option<WindowPeak> {
        self.peaks.iter().find(|(name, _)| **name == *container).map(|(_, peak)| *peak)
    }

    /// Notes the memory peak which the checkpoint of a container has.
    pub(super) fn set_peak(&mut self, container: Arc<str>, peak: Option<WindowPeak>) {
        self.peaks.retain(|(name, _)| *name != container);
        self.peaks.extend(peak.map(|peak| (container, peak)));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.restored.is_empty() && self.written.is_empty() && self.unreadable.is_empty()
    }
}

fn sets_memory(policy: &ContainerPolicy) -> bool {
    policy.oom_bump_up_ratio.is_some()
        || policy.oom_min_bump_up_bytes.is_some()
        || policy.memory_interval.is_some()
        || policy.memory_interval_count.is_some()
}
