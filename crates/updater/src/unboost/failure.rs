//! Unboosts that failed, and the record of them: the pod is not evicted for a recommendation that it did not get (AEP-7862),
//! and the same infeasible recommendation is not attempted again (AEP-8818).

use k8s_openapi::api::core::v1::Pod;
use plumb_controller_runtime::ObjectRef;
use plumb_controller_runtime::pods::node_of;
use plumb_resize::Quantity;
use plumb_resize::list::declared;
use plumb_resize::resource::Declared;
use plumb_vpa::boost::{Cpu, Unboost};
use plumb_vpa::recommendation::PodRecommendation;
use plumb_vpa_api::VerticalPodAutoscaler;

use super::Inner;
use crate::attempt::{FailedUnboost, Infeasible, Record, Requests};
use crate::state::Recommendation;

impl Inner {
    /// Whether the record of a pod has that it does not get the CPU of an unboost.
    pub(super) fn is_known_to_fail(&self, pod: &Pod, unboost: &Unboost) -> bool {
        let Some(failed) = Record::of(&pod.metadata).unboost else { return false };
        let containers = unboost.containers.iter();
        let recommended: Requests =
            containers.map(|container| (container.name.clone(), cpu_request(container.to))).collect();
        failed.applies_to(&recommended, self.allocatable_of(pod))
    }

    /// The record of a pod whose containers did not get this CPU, and get back to that of `own`.
    pub(super) fn failed<'a>(
        &self,
        pod: &Pod,
        vpa: Option<&VerticalPodAutoscaler>,
        own: &Unboost,
        refused: impl Iterator<Item = (&'a str, Cpu)>,
        is_infeasible: bool,
    ) -> Record {
        let allocatable = self.allocatable_of(pod);
        let cpu = refused.filter_map(|(name, cpu)| Some((name.to_owned(), cpu_request(cpu).cpu?)));
        let unboost = FailedUnboost { cpu: cpu.collect(), allocatable };
        let mut record = Record::of(&pod.metadata);
        if is_infeasible {
            // What the updater would attempt once the pod has its own CPU again, with the CPU that is infeasible.
            let mut requests = vpa.map(|vpa| self.targets_with(pod, vpa, own)).unwrap_or_default();
            for (container, cpu) in &unboost.cpu {
                requests.entry(container.clone()).or_default().cpu = Some(*cpu);
            }
            record.infeasible = Some(Infeasible { requests, allocatable });
        }
        record.unboost = Some(unboost);
        record
    }

    /// The requests that a VPA recommends for a pod whose containers have got back to their own CPU.
    fn targets_with(&self, pod: &Pod, vpa: &VerticalPodAutoscaler, own: &Unboost) -> Requests {
        let Some(mut spec) = pod.spec.clone() else { return Requests::new() };
        own.apply_to(&mut spec);
        let recommended = PodRecommendation::new(vpa, &spec, &self.context(pod).ranges);
        Recommendation::from(&recommended).targets()
    }

    /// Records a failure. Returns the pod with the record; `None` if it has changed since, and comes again.
    ///
    /// If the record cannot be written the boost ends all the same: while its annotations cannot be removed either, the pod
    /// is boosted to the updater, and is not evicted.
    pub(super) async fn record_failure(&self, pod: &Pod, record: Record) -> Option<Pod> {
        if Record::of(&pod.metadata) == record {
            return Some(pod.clone());
        }
        match self.record(pod, &record).await {
            Ok(recorded) => recorded,
            Err(error) => {
                tracing::warn!(pod = %ObjectRef::of(pod), %error, "cannot record that an unboost failed");
                Some(pod.clone())
            }
        }
    }

    /// The allocatable resources of the node of a pod, if they are known.
    fn allocatable_of(&self, pod: &Pod) -> Declared {
        let node = node_of(pod).and_then(|node| self.nodes.get(&ObjectRef::cluster(node)));
        let status = node.as_ref().and_then(|node| node.status.as_ref());
        status.and_then(|status| declared(status.allocatable.as_ref()).ok()).unwrap_or_default()
    }
}

/// The CPU request as a declared amount.
fn cpu_request(cpu: Cpu) -> Declared {
    Declared { cpu: cpu.request.map(Quantity::saturating_milli), memory: None }
}
