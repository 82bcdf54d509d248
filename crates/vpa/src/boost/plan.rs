//! How much the containers of a new pod get.

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use plumb_resize::Quantity;
use plumb_resize::accounting::in_quota;
use plumb_resize::limit_range::violations;
use plumb_resize::qos::QosClass;
use plumb_resize::resource::Resource;
use plumb_resize::rules::Rules;
use plumb_vpa_api::{ContainerControlledValues, ContainerResourcePolicy, VerticalPodAutoscalerSpec};

use super::annotation::{Boost, Original};
use super::{CPU, Cpu, Raise};
use crate::recommendation::{LimitRanges, proportional_limit};

/// The limits of a boost apart from the VPA and the pod.
#[derive(Clone, Debug, Default)]
pub struct BoostContext {
    /// The limit ranges of the namespace.
    pub ranges: LimitRanges,
    /// `--max-allowed-cpu-boost`.
    pub max_allowed: Option<Quantity>,
    /// The unused part of the namespace's quotas.
    pub headroom: Headroom,
}

/// How much CPU a pod may have altogether.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Headroom {
    /// The most that it may request.
    pub requests: Option<Quantity>,
    /// The most that it may be limited to.
    pub limits: Option<Quantity>,
}

/// The boosts of a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BoostPlan {
    /// The containers that are boosted, in the order of the spec.
    pub boosted: Vec<BoostedContainer>,
    /// The containers that are not boosted although their VPA has a boost.
    pub refused: Vec<Refused>,
}

/// A container that is boosted.
#[derive(Clone, Debug, PartialEq)]
pub struct BoostedContainer {
    /// Its position in `spec.containers`.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// Its original resources.
    pub original: Original,
    /// Its CPU with the boost and without.
    pub cpu: Boost,
}

/// A container that is not boosted although its VPA has a boost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Its name.
    pub container: String,
    /// Why.
    pub reason: NoBoost,
}

/// Why a container is not boosted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoBoost {
    /// There is no request to raise.
    #[error("it has neither a CPU recommendation nor a CPU request")]
    NoRequest,
    /// The way back would restart it.
    #[error("its resizePolicy restarts it when its CPU changes")]
    Restarts,
    /// `--max-allowed-cpu-boost` is not above the request.
    #[error("--max-allowed-cpu-boost is not above its CPU request")]
    MaxAllowed,
    /// Under `RequestsOnly` the request is at its limit already.
    #[error("its CPU request is at its limit, and controlledValues is RequestsOnly")]
    AtLimit,
    /// A limit range, a quota or the pod's own resources leave no CPU.
    #[error("limit ranges, quotas or the resources of the pod as a whole leave no CPU for it")]
    NoHeadroom,
    /// The way back would be refused.
    #[error("the QoS class of the pod would change, and the boost could not be undone")]
    QosClass,
    /// The cluster cannot resize pods.
    #[error("the API server does not serve pods/resize, and the boost could not be undone")]
    NoResize,
}

impl BoostPlan {
    /// The boosts of a pod. `own` is its spec as it was created, `unboosted` the spec with the recommendation: the
    /// same in mode `Off`.
    pub fn new(
        vpa: &VerticalPodAutoscalerSpec,
        own: &PodSpec,
        unboosted: &PodSpec,
        context: &BoostContext,
    ) -> Self {
        let mut plan = Self::default();
        for (index, (container, plain)) in own.containers.iter().zip(&unboosted.containers).enumerate() {
            let candidate = BoostCandidate {
                policy: vpa.container_policy(&container.name),
                own: container,
                unboosted: Cpu::of(plain),
            };
            let Some(raise) = Raise::of(vpa, &container.name) else { continue };
            match candidate.raised(raise, context) {
                Ok(None) => {}
                Ok(Some(request)) => plan.boosted.push(BoostedContainer {
                    index,
                    name: container.name.clone(),
                    original: Original::of(container),
                    cpu: Boost {
                        unboosted: candidate.unboosted,
                        boosted: candidate.with(request),
                        restarted: None,
                        rolled_out: false,
                    },
                }),
                Err(reason) => plan.refused.push(Refused { container: container.name.clone(), reason }),
            }
        }
        plan.fit(vpa, own, unboosted, context);
        plan.keep_qos_class(unboosted);
        plan
    }

    /// No boost for any container that should have one, for this reason.
    pub fn refuse_all(vpa: &VerticalPodAutoscalerSpec, own: &PodSpec, reason: NoBoost) -> Self {
        let boosted = own
            .containers
            .iter()
            .filter(|container| !matches!(Raise::of(vpa, &container.name), None | Some(Raise::Times(1))));
        let refused =
            boosted.map(|container| Refused { container: container.name.clone(), reason }).collect();
        Self { boosted: Vec::new(), refused }
    }

    /// The boost of a container.
    pub fn container(&self, name: &str) -> Option<&BoostedContainer> {
        self.boosted.iter().find(|container| container.name == name)
    }

    /// Writes the boosts into the unboosted spec.
    pub fn apply_to(&self, spec: &mut PodSpec) {
        for boosted in &self.boosted {
            if let Some(container) = spec.containers.get_mut(boosted.index) {
                boosted.cpu.boosted.write_to(container);
            }
        }
    }

    /// Cuts all boosts in proportion, until the pod as a whole is allowed.
    fn fit(
        &mut self,
        vpa: &VerticalPodAutoscalerSpec,
        own: &PodSpec,
        unboosted: &PodSpec,
        context: &BoostContext,
    ) {
        const WHOLE: i64 = 1 << 20;
        let requested = std::mem::take(&mut self.boosted);
        if requested.is_empty() {
            return;
        }
        let cut = |share: i64| -> Vec<BoostedContainer> {
            let part = |container: &BoostedContainer| {
                let milli = |cpu: Cpu| cpu.request.map_or(0, Quantity::saturating_milli);
                let (base, requested) = (milli(container.cpu.unboosted), milli(container.cpu.boosted));
                let more = i128::from(requested - base) * i128::from(share) / i128::from(WHOLE);
                let more = i64::try_from(more).unwrap_or_default();
                let own = &own.containers[container.index];
                let policy = vpa.container_policy(&own.name);
                let candidate = BoostCandidate { policy, own, unboosted: container.cpu.unboosted };
                let boosted = candidate.with(base.saturating_add(more));
                let cpu = Boost { boosted, ..container.cpu };
                (more > 0).then(|| BoostedContainer { cpu, ..container.clone() })
            };
            requested.iter().filter_map(part).collect()
        };
        let allowed = |boosted: &[BoostedContainer]| {
            let mut spec = unboosted.clone();
            Self { boosted: boosted.to_vec(), refused: Vec::new() }.apply_to(&mut spec);
            is_allowed(&spec, context)
        };
        self.boosted = if allowed(&requested) {
            requested.clone()
        } else {
            // The largest share that is allowed; none is, since without a boost it is not this plan's concern.
            let (mut fits, mut exceeds) = (0, WHOLE);
            while exceeds - fits > 1 {
                let middle = fits + (exceeds - fits) / 2;
                if allowed(&cut(middle)) { fits = middle } else { exceeds = middle }
            }
            cut(fits)
        };
        let dropped = requested.iter().filter(|requested| self.container(&requested.name).is_none());
        let refused = dropped
            .map(|requested| Refused { container: requested.name.clone(), reason: NoBoost::NoHeadroom })
            .collect::<Vec<_>>();
        self.refused.extend(refused);
    }

    fn keep_qos_class(&mut self, unboosted: &PodSpec) {
        let mut spec = unboosted.clone();
        self.apply_to(&mut spec);
        if QosClass::of_spec(&spec) != QosClass::of_spec(unboosted) {
            let boosted = std::mem::take(&mut self.boosted).into_iter();
            self.refused.extend(
                boosted.map(|boosted| Refused { container: boosted.name, reason: NoBoost::QosClass }),
            );
        }
    }
}

/// Whether limit ranges, quotas and the API server accept the resources of a pod.
pub fn is_allowed(spec: &PodSpec, context: &BoostContext) -> bool {
    let pod = Pod { spec: Some(spec.clone()), ..Default::default() };
    violations(spec, &context.ranges.as_limit_range()).is_ok_and(|found| found.is_empty())
        && plumb_resize::validate::pod(&pod, None).is_empty()
        && is_within(&pod, &context.headroom)
}

/// Whether the admission controller leaves a recommendation out of a pod: the pod is allowed as it is, and not as
/// recommended. Quotas do not count.
pub fn is_left_out(own: &PodSpec, recommended: &PodSpec, ranges: LimitRanges) -> bool {
    let context = BoostContext { ranges, ..BoostContext::default() };
    !is_allowed(recommended, &context) && is_allowed(own, &context)
}

/// Whether the usage of a pod in quotas is within the unused part: with its init containers, sidecars and overhead.
fn is_within(pod: &Pod, headroom: &Headroom) -> bool {
    if *headroom == Headroom::default() {
        return true;
    }
    // A pod without a status counts the same by all rules.
    let Ok(usage) = in_quota(pod, &Rules::v1_36()) else { return false };
    let fits = |used: Option<Quantity>, most: Option<Quantity>| most.is_none_or(|most| used <= Some(most));
    fits(usage.requests.get(CPU), headroom.requests) && fits(usage.limits.get(CPU), headroom.limits)
}

/// A container that should be boosted.
struct BoostCandidate<'a> {
    policy: Option<&'a ContainerResourcePolicy>,
    own: &'a Container,
    unboosted: Cpu,
}

impl BoostCandidate<'_> {
    /// The request with the boost, in millicores; `None` if it is not larger than without.
    fn raised(&self, raise: Raise, context: &BoostContext) -> Result<Option<i64>, NoBoost> {
        let base = self.unboosted.request.filter(|request| request.is_positive());
        if raise == Raise::Times(1) {
            return Ok(None);
        }
        let base = base.ok_or(NoBoost::NoRequest)?.saturating_milli();
        if self.restarts() {
            return Err(NoBoost::Restarts);
        }
        let mut request = raise.apply(base);
        let mut at_most = |most: i64, reason: NoBoost| {
            request = request.min(most);
            if request > base { Ok(()) } else { Err(reason) }
        };
        if let Some(most) = context.max_allowed.filter(|most| most.is_positive()) {
            at_most(most.saturating_milli(), NoBoost::MaxAllowed)?;
        }
        let limit = self.unboosted.limit.filter(|limit| limit.is_positive());
        if let Some(limit) = limit.filter(|_| !self.scales_limits()) {
            at_most(limit.saturating_milli() - 1, NoBoost::AtLimit)?;
        }
        if let Some(max) = context.ranges.container.max.cpu {
            at_most(self.largest_within(max.saturating_milli()), NoBoost::NoHeadroom)?;
        }
        Ok(Some(request))
    }

    /// Request and limit for a request in millicores.
    fn with(&self, request: i64) -> Cpu {
        let request = Quantity::from_milli(request);
        let own = Cpu::of(self.own);
        let scaled = proportional_limit(Resource::Cpu, own.limit, own.request, Some(request));
        let limit = scaled.ok().filter(|_| self.scales_limits()).or(self.unboosted.limit);
        Cpu { request: Some(request), limit }
    }

    /// The largest request in millicores, such that it and its limit are at most this.
    fn largest_within(&self, max: i64) -> i64 {
        let own = Cpu::of(self.own);
        let ratio = own.request.zip(own.limit).filter(|_| self.scales_limits());
        let ratio = ratio.map(|(request, limit)| (request.saturating_milli(), limit.saturating_milli()));
        match ratio.filter(|(request, limit)| *request > 0 && limit > request) {
            Some((request, limit)) => {
                let within = i128::from(request) * i128::from(max) / i128::from(limit);
                i64::try_from(within).unwrap_or(max)
            }
            None => max,
        }
    }

    fn scales_limits(&self) -> bool {
        let values = self.policy.map(ContainerResourcePolicy::controlled_values);
        values != Some(ContainerControlledValues::RequestsOnly)
    }

    fn restarts(&self) -> bool {
        let policies = self.own.resize_policy.iter().flatten();
        policies
            .filter(|policy| policy.resource_name == CPU)
            .any(|policy| policy.restart_policy == "RestartContainer")
    }
}
