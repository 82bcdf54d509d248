//! Removal of old state.

use super::super::policy::MemorySettings;
use super::super::time::nanos;
use super::vpas::Parked;
use super::{AggregateEntry, Cluster, LabelSet};

/// How much a collection removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Aggregates that expired, or that no container will add to.
    pub aggregates: usize,
    /// Histories of VPAs that are gone.
    pub parked_histories: usize,
}

impl Cluster {
    /// Removes state that is too old to matter; upstream does so once an hour. An aggregate is removed if
    ///
    /// - its last sample is older than the window of memory peaks, 8 days unless a policy says otherwise,
    /// - or it has no sample and is that old,
    /// - or it has no sample, and none of its pods will give one: each has ended, and none belongs to a VPA
    ///   whose target still exists.
    pub fn collect_garbage(&mut self) -> Collected {
        let expired: Vec<_> =
            self.aggregates.iter().filter(|(_, entry)| self.is_garbage(entry)).map(|(id, _)| id).collect();
        for &id in &expired {
            let Some(entry) = self.aggregates.remove(id) else { continue };
            self.mark_label_set(entry.label_set);
            if let Some(set) = self.label_sets.get_mut(entry.label_set) {
                let namespace = set.namespace.clone();
                set.aggregates.retain(|&aggregate| aggregate != id);
                self.drop_label_set_if_unused(entry.label_set);
                self.drop_namespace_if_empty(&namespace);
            }
        }
        let parked = self.parked.len();
        let (window, steps, now) = (self.memory_settings.window_length(), &self.clock_steps, self.now);
        self.parked.retain(|_, parked| steps.age(parked.last_sample(), now) < nanos(window));
        self.container_names.retain(|name| std::sync::Arc::strong_count(name) > 1);
        // A memory window that has ended since without another sample is in the checkpoint from now on.
        for vpa in self.vpas.iter_mut() {
            vpa.checkpoints_due = true;
        }
        Collected { aggregates: expired.len(), parked_histories: parked - self.parked.len() }
    }

    fn is_garbage(&self, entry: &AggregateEntry) -> bool {
        let Some(set) = self.label_sets.get(entry.label_set) else { return true };
        let is_empty = entry.aggregate.samples() == 0;
        if is_empty && !self.may_get_samples(set, entry) {
            return true;
        }
        let since = if is_empty { entry.created } else { entry.aggregate.last_sample() };
        let oldest = set.vpas.first().and_then(|&vpa| self.vpas.get(vpa));
        let policy = oldest.and_then(|vpa| vpa.settings.policy.for_container(&entry.container));
        let window = MemorySettings::new(&self.config.settings, policy).window_length();
        self.clock_steps.age(since, self.now) >= nanos(window)
    }

    fn may_get_samples(&self, set: &LabelSet, entry: &AggregateEntry) -> bool {
        let has_target = set.vpas.iter().filter_map(|&vpa| self.vpas.get(vpa)).any(|vpa| vpa.target_exists);
        set.pods.iter().filter_map(|&pod| self.pods.get(pod)).any(|pod| {
            (pod.active || has_target) && pod.containers.iter().any(|(name, _)| *name == entry.container)
        })
    }
}

impl Parked {
    fn last_sample(&self) -> super::Time {
        self.history.restored.iter().map(|(_, aggregate)| aggregate.last_sample()).max().unwrap_or_default()
    }
}
