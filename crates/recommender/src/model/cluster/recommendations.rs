//! The recommendations of VPAs whose usage or settings have changed.

use std::borrow::Cow;
use std::sync::Arc;

use plumb_resize::resource::Resource;

use super::super::aggregate::Aggregate;
use super::super::amount;
use super::super::estimate::{self, ContainerExplanation, ContainerRecommendation};
use super::super::time::nanos;
use super::vpas::Vpa;
use super::{Cluster, VpaKey};

/// The state of a VPA, for its status.
#[derive(Clone, Copy, Debug)]
pub struct VpaView<'a> {
    vpa: &'a Vpa,
}

/// The inputs of a VPA's status.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct VpaOutcome {
    containers: Vec<ContainerRecommendation>,
    low_confidence: Vec<Arc<str>>,
    /// The containers without a CPU sample, and whether there is a memory peak of them: of an OOM kill, or of a source that
    /// measures memory alone.
    without_cpu: Vec<(Arc<str>, bool)>,
    pods_matched: bool,
}

impl VpaOutcome {
    /// The uncapped target of a container, in cores or bytes.
    pub(super) fn uncapped_target(&self, container: &str, resource: Resource) -> Option<f64> {
        let at = self.containers.binary_search_by(|known| known.container.as_str().cmp(container)).ok()?;
        self.containers[at].uncapped_target[resource]
            .map(|quantity| amount::quantity_in_base_units(resource, quantity))
    }
}

impl Cluster {
    /// Works out the recommendations of the VPAs that have changed since the last call, and returns those whose
    /// status is another now, in the order of their keys. All others need no write.
    pub fn recommend(&mut self) -> Vec<Arc<VpaKey>> {
        let mut changed = Vec::new();
        for id in std::mem::take(&mut self.changed) {
            let Some(vpa) = self.vpas.get(id) else { continue };
            let outcome = self.outcome(vpa);
            let Some(vpa) = self.vpas.get_mut(id) else { continue };
            // A number is used again when its VPA is gone, and may then be listed twice.
            if !std::mem::replace(&mut vpa.changed, false) {
                continue;
            }
            if let Some(quality) = &self.quality {
                for (container, resource) in outcome
                    .containers
                    .iter()
                    .flat_map(|of| Resource::ALL.map(|resource| (&of.container, resource)))
                {
                    let target = |outcome: &VpaOutcome| outcome.uncapped_target(container, resource);
                    if let Some((before, now)) = target(&vpa.outcome).zip(target(&outcome)) {
                        let mode = vpa.settings.update_mode.as_ref();
                        quality.observe_change(mode, resource, before, now, vpa.pods);
                    }
                }
            }
            if vpa.outcome != outcome {
                vpa.outcome = outcome;
                changed.push(vpa.key.clone());
            }
        }
        changed.sort_unstable();
        changed
    }

    /// A VPA as it was when [`recommend`](Self::recommend) was called last.
    pub fn vpa(&self, key: &VpaKey) -> Option<VpaView<'_>> {
        self.vpa_of(key).map(|vpa| VpaView { vpa })
    }

    /// Explains the recommendation of a VPA from the present state.
    pub fn explain(&self, key: &VpaKey) -> Option<Vec<ContainerExplanation>> {
        let vpa = self.vpa_of(key)?;
        let containers = self.containers(vpa);
        let aggregates = containers.iter().map(|(name, aggregate)| (&***name, &**aggregate));
        Some(estimate::explain(&self.config, &self.settings.estimation, &vpa.settings, aggregates))
    }

    fn outcome(&self, vpa: &Vpa) -> VpaOutcome {
        let containers = self.containers(vpa);
        let estimation = &self.settings.estimation;
        let aggregates = containers.iter().map(|(name, aggregate)| (&***name, &**aggregate));
        let interval = nanos(estimation.confidence_interval.cpu);
        let low_confidence = |(name, aggregate): &&(&Arc<str>, Cow<'_, Aggregate>)| {
            vpa.settings.policy.scales(name)
                && aggregate.last_sample().nanos_since(aggregate.first_sample()) < interval
        };
        VpaOutcome {
            containers: estimate::recommend(&self.config, estimation, &vpa.settings, aggregates),
            without_cpu: containers
                .iter()
                .filter(|(_, of)| of.cpu().is_empty(&self.config.cpu))
                .map(|(name, of)| ((*name).clone(), !of.memory().is_empty(&self.config.memory)))
                .collect(),
            low_confidence: containers.iter().filter(low_confidence).map(|&(name, _)| name.clone()).collect(),
            pods_matched: vpa.pods > 0,
        }
    }

    /// The containers of a VPA, in the order of their names, with the state of each.
    fn containers<'a>(&'a self, vpa: &'a Vpa) -> Vec<(&'a Arc<str>, Cow<'a, Aggregate>)> {
        let mut parts: Vec<_> = self.parts(vpa).collect();
        parts.sort_by_key(|&(name, _)| name);
        let mut containers: Vec<(&Arc<str>, Cow<'_, Aggregate>)> = Vec::with_capacity(parts.len());
        for (name, part) in parts {
            match containers.last_mut() {
                Some((last, sum)) if *last == name => {
                    if let Cow::Borrowed(first) = sum {
                        let mut fresh = Aggregate::new(&self.config);
                        fresh.merge(&self.config, first);
                        *sum = Cow::Owned(fresh);
                    }
                    sum.to_mut().merge(&self.config, part);
                }
                // Most VPAs have one aggregate per container, which needs no copy.
                Some(_) | None => containers.push((name, Cow::Borrowed(part))),
            }
        }
        containers
    }

    /// Everything that counts for a VPA, by container: the aggregates of its pods, then its checkpoints.
    pub(super) fn parts<'a>(&'a self, vpa: &'a Vpa) -> impl Iterator<Item = (&'a Arc<str>, &'a Aggregate)> {
        let sets = vpa.label_sets.iter().filter_map(|&set| self.label_sets.get(set));
        sets.flat_map(|set| &set.aggregates)
            .filter_map(|&id| self.aggregates.get(id))
            .map(|entry| (&entry.container, &entry.aggregate))
            .chain(vpa.history.restored.iter().map(|(name, aggregate)| (name, aggregate)))
    }
}

impl<'a> VpaView<'a> {
    /// The recommendation, container by container in the order of their names. Empty if there is none yet.
    pub fn recommendation(&self) -> &'a [ContainerRecommendation] {
        &self.vpa.outcome.containers
    }

    /// The recommendation without the containers that have no sample, and without the CPU of those that only have a memory
    /// peak: those are recommended the minimum, which says nothing about them.
    pub fn measured_recommendation(&self) -> Vec<ContainerRecommendation> {
        let measured = |of: &ContainerRecommendation| {
            let mut of = of.clone();
            let without_cpu = self.vpa.outcome.without_cpu.iter().find(|(name, _)| **name == *of.container);
            if let Some(&(_, has_memory)) = without_cpu {
                if !has_memory || of.target[Resource::Memory].is_none() {
                    return None;
                }
                let ContainerRecommendation { target, lower_bound, upper_bound, uncapped_target, .. } =
                    &mut of;
                for amounts in [target, lower_bound, upper_bound, uncapped_target] {
                    amounts[Resource::Cpu] = None;
                }
            }
            Some(of)
        };
        self.recommendation().iter().filter_map(measured).collect()
    }

    /// The containers with less history than the confidence interval.
    pub fn low_confidence(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.vpa.outcome.low_confidence.iter().map(|name| &**name)
    }

    /// How many pods it selects.
    pub fn pods(&self) -> usize {
        self.vpa.pods
    }

    /// Whether its pod selector is known.
    pub fn has_selector(&self) -> bool {
        self.vpa.selector.is_some()
    }

    /// The containers whose checkpoints could not be read and are left alone.
    pub fn unreadable_checkpoints(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.vpa.history.unreadable.iter().map(|name| &**name)
    }
}
