//! Samples and OOM kills.

use plumb_resize::resource::Resource;

use super::super::aggregate::Aggregate;
use super::super::amount;
use super::super::config::AggregationConfig;
use super::super::container::ContainerState;
use super::super::policy::MemorySettings;
use super::super::sample::{Discarded, Sample};
use super::super::time::{Time, nanos};
use super::Cluster;

/// How many samples and OOM kills were not counted, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiscardedCounts([u64; Discarded::ALL.len()]);

impl DiscardedCounts {
    /// How many for one reason.
    pub fn of(&self, reason: Discarded) -> u64 {
        Self::index(reason).map_or(0, |at| self.0[at])
    }

    /// How many for each reason.
    pub fn iter(&self) -> impl Iterator<Item = (Discarded, u64)> {
        Discarded::ALL.into_iter().zip(self.0)
    }

    fn count(&mut self, reason: Discarded) {
        if let Some(at) = Self::index(reason) {
            self.0[at] = self.0[at].saturating_add(1);
        }
    }

    fn index(reason: Discarded) -> Option<usize> {
        Discarded::ALL.into_iter().position(|known| known == reason)
    }
}

impl Cluster {
    /// Counts a sample of a container, or returns why not.
    pub fn add_sample(
        &mut self,
        namespace: &str,
        pod: &str,
        container: &str,
        sample: Sample,
    ) -> Result<(), Discarded> {
        let counted =
            self.try_count(namespace, pod, container, sample.at, |state, config, settings, aggregate| {
                state.add_sample(config, settings, aggregate, sample)
            });
        if let Ok(Some(found)) = &counted {
            self.compare_with_recommendation(found, sample.resource, sample.usage, false);
            self.newest_sample = self.newest_sample.max(sample.at);
        }
        self.note_discarded(counted)
    }

    /// Counts a value that never became a sample, such as one that is not a number.
    pub fn count_discarded(&mut self, reason: Discarded) {
        self.discarded.count(reason);
    }

    /// Counts an OOM kill of a container, whose memory request was `requested` bytes then.
    pub fn record_oom(
        &mut self,
        namespace: &str,
        pod: &str,
        container: &str,
        at: Time,
        requested: i64,
    ) -> Result<(), Discarded> {
        let now = self.now;
        let mut needed = 0;
        let counted = self.try_count(namespace, pod, container, at, |state, config, settings, aggregate| {
            // A pod may show a kill from long before it was watched.
            if now.is_set() && at < now.plus_nanos(-nanos(settings.interval)) {
                return Err(Discarded::TooOld);
            }
            needed = state.needed_after_oom(settings, requested);
            state.record_oom(config, settings, aggregate, at, requested)
        });
        if let Ok(Some(found)) = &counted {
            self.compare_with_recommendation(found, Resource::Memory, needed, true);
        }
        self.note_discarded(counted)
    }

    fn note_discarded(&mut self, counted: Result<Option<Found>, Discarded>) -> Result<(), Discarded> {
        counted.map(drop).inspect_err(|reason| self.discarded.count(*reason))
    }

    /// Compares usage with the recommendation of the oldest VPA that selects the pod.
    fn compare_with_recommendation(&self, found: &Found, resource: Resource, usage: i64, is_oom: bool) {
        let Some(quality) = &self.quality else { return };
        let (Some(set), Some(pod)) = (self.label_sets.get(found.label_set), self.pods.get(found.pod)) else {
            return;
        };
        let Some(vpa) = set.vpas.first().and_then(|&oldest| self.vpas.get(oldest)) else { return };
        let name = &*pod.containers[found.container].0;
        if vpa.settings.policy.scales(name) {
            let recommended = vpa.outcome.uncapped_target(name, resource);
            let usage = amount::in_base_units(resource, usage);
            quality.observe_usage(vpa.settings.update_mode.as_ref(), resource, usage, recommended, is_oom);
        }
    }

    /// Counts something that a container did at a time, and answers with the container; none if nothing is counted for it.
    fn try_count(
        &mut self,
        namespace: &str,
        pod: &str,
        container: &str,
        at: Time,
        add: impl FnOnce(
            &mut ContainerState,
            &AggregationConfig,
            &MemorySettings,
            &mut Aggregate,
        ) -> Result<(), Discarded>,
    ) -> Result<Option<Found>, Discarded> {
        let found = self.find_container(namespace, pod, container, at)?;
        let Some(Found { pod, container, label_set, aggregate }) = found else { return Ok(None) };
        let settings = self.memory_settings_of(label_set, pod, container);
        let (Some(pod), Some(entry)) = (self.pods.get_mut(pod), self.aggregates.get_mut(aggregate)) else {
            return Err(Discarded::UnknownPod);
        };
        let (_, state) = &mut pod.containers[container];
        add(state, &self.config, &settings, &mut entry.aggregate)?;
        self.mark_label_set(label_set);
        Ok(found)
    }

    /// Finds a container and its aggregate. None for one that is known, but for which nothing is counted.
    fn find_container(
        &mut self,
        namespace: &str,
        pod: &str,
        container: &str,
        at: Time,
    ) -> Result<Option<Found>, Discarded> {
        let id = self.namespaces.get(namespace).and_then(|namespace| namespace.pods.get(pod)).copied();
        let id = id.ok_or(Discarded::UnknownPod)?;
        let pod = self.pods.get(id).ok_or(Discarded::UnknownPod)?;
        let at_index = pod.containers.iter().position(|(name, _)| &**name == container);
        let index = at_index.ok_or(Discarded::UnknownContainer)?;
        if self.now.is_set() && at > self.now.plus_nanos(nanos(self.settings.future_tolerance)) {
            return Err(Discarded::Future);
        }
        let label_set = pod.label_set;
        let Some(set) = self.label_sets.get(label_set) else { return Err(Discarded::UnknownPod) };
        if self.settings.memory_saver && set.vpas.is_empty() {
            return Ok(None);
        }
        let aggregate = if let Some(known) = set.aggregate(&self.aggregates, container) {
            Some(known)
        } else {
            // It expired while the container gave no samples.
            let name = pod.containers[index].0.clone();
            self.aggregate(label_set, &name)
        };
        Ok(aggregate.map(|aggregate| Found { pod: id, container: index, label_set, aggregate }))
    }

    /// The settings of the oldest VPA that selects a pod.
    fn memory_settings_of(&self, label_set: u32, pod: u32, container: usize) -> MemorySettings {
        let oldest = self.label_sets.get(label_set).and_then(|set| self.vpas.get(*set.vpas.first()?));
        match oldest {
            Some(vpa) if vpa.has_memory_settings => {
                let name = self.pods.get(pod).map_or("", |pod| &*pod.containers[container].0);
                MemorySettings::new(&self.config.settings, vpa.settings.policy.for_container(name))
            }
            Some(_) | None => self.memory_settings,
        }
    }
}

/// Where a container of a pod is, and its aggregate.
#[derive(Clone, Copy)]
struct Found {
    pod: u32,
    /// Its index among the pod's containers.
    container: usize,
    label_set: u32,
    aggregate: u32,
}
