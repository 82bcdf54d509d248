//! The resources of a boosted container after its boost.

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use plumb_resize::qos::QosClass;
use plumb_vpa_api::{UpdateMode, VerticalPodAutoscaler};

use super::annotation::{Boost, Damaged, Original, boosted_containers, read_boosts};
use super::{BoostContext, Cpu};
use crate::recommendation::PodRecommendation;

/// The end of the boosts of some containers of a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Unboost {
    /// The containers with their resources after the boost, in the order of the spec.
    pub containers: Vec<UnboostedContainer>,
    /// The containers whose original resources are unknown.
    pub unresolved: Vec<Unresolved>,
    /// The containers with an annotation that are not in the pod.
    pub unknown: Vec<String>,
}

/// The resources of a container after its boost.
#[derive(Clone, Debug, PartialEq)]
pub struct UnboostedContainer {
    /// Its position in `spec.containers`.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// Its present resources.
    pub from: Cpu,
    /// Its new resources.
    pub to: Cpu,
    /// Where that comes from.
    pub source: Source,
    /// The error in upstream's annotation, if there is one.
    pub damaged: Option<Damaged>,
}

/// A container whose original resources are unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unresolved {
    /// Its name.
    pub container: String,
    /// The error in upstream's annotation.
    pub damaged: Damaged,
}

/// Where the values after a boost come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The recommendation of the VPA.
    Recommendation,
    /// The resources at its creation, by upstream's annotation.
    Annotation,
    /// The resources without the boost, by our own annotation.
    OwnAnnotation,
    /// The pod template of its controller.
    Template,
}

/// Whether a container gets the recommendation of a VPA of this mode when its boost ends, and not its own values back. In
/// the mode `Initial` the template owns the resources of running pods, so that a change of the CPU by a rollout stays.
pub fn ends_at_recommendation(mode: &UpdateMode, boost: Option<&Boost>) -> bool {
    match mode {
        UpdateMode::Off => false,
        UpdateMode::Initial => !boost.is_some_and(|boost| boost.rolled_out),
        _ => true,
    }
}

impl Unboost {
    /// The resources after the boost of the containers for which `is_due` holds.
    ///
    /// Containers that the VPA scales get its recommendation of this moment where [`ends_at_recommendation`] holds, all others
    /// their own values back. `template` is the pod template of the pod's controller, for annotations that cannot be used.
    pub fn new(
        pod: &Pod,
        vpa: Option<&VerticalPodAutoscaler>,
        template: Option<&PodSpec>,
        context: &BoostContext,
        is_due: impl Fn(&str) -> bool,
    ) -> Self {
        let mut unboost = Self::default();
        let Some(spec) = &pod.spec else { return unboost };
        let own = OwnCpu { pod, template, boosts: read_boosts(pod) };
        let boosted = boosted_containers(pod);

        // The pod without any boost, from which a recommendation takes the ratios of limits to requests.
        let mut plain = spec.clone();
        for container in plain.containers.iter_mut().filter(|container| boosted.contains(&container.name)) {
            if let Some((cpu, _)) = own.of(&container.name).1 {
                cpu.write_to(container);
            }
        }
        let recommended =
            vpa.map(|vpa| (vpa.spec.update_mode(), PodRecommendation::new(vpa, &plain, &context.ranges)));

        for name in boosted.into_iter().filter(|name| is_due(name)) {
            let Some(index) = spec.containers.iter().position(|container| container.name == name) else {
                unboost.unknown.push(name);
                continue;
            };
            let recommendation = recommended
                .as_ref()
                .filter(|(mode, _)| ends_at_recommendation(mode, own.boosts.get(&name)))
                .and_then(|(_, recommended)| recommended.container(&name))
                .filter(|container| container.target.cpu.is_some());
            let (damaged, own) = own.of(&name);
            let own_limit = own.and_then(|(cpu, _)| cpu.limit);
            let to = match recommendation {
                Some(container) => {
                    let limit = container.limits.cpu.or(own_limit);
                    Some((Cpu { request: container.target.cpu, limit }, Source::Recommendation))
                }
                None => own,
            };
            let from = Cpu::of(&spec.containers[index]);
            let Some((to, source)) = to else {
                let damaged = damaged.unwrap_or(Damaged::Missing);
                unboost.unresolved.push(Unresolved { container: name, damaged });
                continue;
            };
            // A limit cannot be removed by a resize.
            let to = Cpu { limit: to.limit.or(from.limit), ..to };
            unboost.containers.push(UnboostedContainer { index, name, from, to, source, damaged });
        }
        unboost.containers.sort_by_key(|container| container.index);
        unboost
    }

    /// Writes what containers get back to into the spec of the pod.
    pub fn apply_to(&self, spec: &mut PodSpec) {
        for unboosted in &self.containers {
            if let Some(container) = spec.containers.get_mut(unboosted.index) {
                unboosted.to.write_to(container);
            }
        }
    }

    /// Whether the pod's spec has what its containers get back to.
    pub fn is_in_spec(&self) -> bool {
        self.containers.iter().all(|container| container.from == container.to)
    }

    /// Whether any container gets a higher request than it has.
    pub fn raises_requests(&self) -> bool {
        self.containers.iter().any(|container| container.to.request > container.from.request)
    }

    /// Whether containers get back to the same CPU by another plan.
    pub fn gives_the_same(&self, other: &Self) -> bool {
        let all = |unboost: &Self| -> Vec<(usize, Cpu)> {
            unboost.containers.iter().map(|container| (container.index, container.to)).collect()
        };
        all(self) == all(other)
    }

    /// Whether something is known for every container to get back to, and the QoS class stays.
    pub fn is_possible(&self, pod: &Pod) -> bool {
        self.unresolved.is_empty() && self.keeps_qos_class(pod)
    }

    /// Whether the pod has the same QoS class afterwards: the API server refuses a resize that changes it.
    pub fn keeps_qos_class(&self, pod: &Pod) -> bool {
        let Some(mut spec) = pod.spec.clone() else { return true };
        self.apply_to(&mut spec);
        QosClass::of_pod(pod).ok() == QosClass::of_spec(&spec).ok()
    }
}

/// The original resources of containers.
struct OwnCpu<'a> {
    pod: &'a Pod,
    template: Option<&'a PodSpec>,
    boosts: std::collections::BTreeMap<String, super::annotation::Boost>,
}

impl OwnCpu<'_> {
    /// The original resources of a container, and the error in its annotation.
    ///
    /// A container that was created without a CPU request cannot be without one again. Its resources without the
    /// boost are used instead.
    fn of(&self, name: &str) -> (Option<Damaged>, Option<(Cpu, Source)>) {
        let read = Original::read(self.pod, name).and_then(|original| original.cpu());
        let recorded = self.boosts.get(name).map(|boost| (boost.unboosted, Source::OwnAnnotation));
        let usable = |cpu: &Cpu| cpu.request.is_some();
        match read {
            Ok(cpu) if usable(&cpu) => (None, Some((cpu, Source::Annotation))),
            Ok(_) => (None, recorded),
            Err(damaged) => {
                let template = self.template.and_then(|template| {
                    let container = template.containers.iter().find(|container| container.name == name)?;
                    Some((Cpu::of(container), Source::Template)).filter(|(cpu, _)| usable(cpu))
                });
                (Some(damaged), recorded.or(template))
            }
        }
    }
}
