//! The status of an autoscaler: its conditions, and what its metrics are now.

use k8s_openapi::api::autoscaling::v2::{
    ContainerResourceMetricStatus, ExternalMetricStatus, HorizontalPodAutoscalerCondition,
    HorizontalPodAutoscalerStatus, MetricSpec, MetricStatus, MetricValueStatus, ObjectMetricStatus,
    PodsMetricStatus, ResourceMetricStatus,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use plumb_controller_runtime::clock::whole_seconds;
use plumb_resize::Quantity;
use plumb_resize::quantity::Format;

use super::calculator::Proposal;

/// Whether the target's scale can be read and written.
pub(super) const ABLE_TO_SCALE: &str = "AbleToScale";
/// Whether the metrics can be read.
pub(super) const SCALING_ACTIVE: &str = "ScalingActive";
/// Whether a bound holds the replicas back.
pub(super) const SCALING_LIMITED: &str = "ScalingLimited";
/// Whether the controller, and no user, has scaled the target to zero.
pub(super) const SCALED_TO_ZERO: &str = "ScaledToZero";

/// A change of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    pub(super) type_: &'static str,
    pub(super) is_true: bool,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Condition {
    pub(super) fn new(
        type_: &'static str,
        is_true: bool,
        reason: &'static str,
        message: impl Into<String>,
    ) -> Self {
        Self { type_, is_true, reason, message: message.into() }
    }
}

/// Sets a condition. The time of the last transition is that of its status.
pub(super) fn set(status: &mut HorizontalPodAutoscalerStatus, condition: Condition, now: Timestamp) {
    let Condition { type_, is_true, reason, message } = condition;
    let value = if is_true { "True" } else { "False" };
    let conditions = status.conditions.get_or_insert_default();
    let at = conditions.iter().position(|condition| condition.type_ == type_).unwrap_or_else(|| {
        conditions.push(HorizontalPodAutoscalerCondition {
            type_: type_.to_owned(),
            ..HorizontalPodAutoscalerCondition::default()
        });
        conditions.len() - 1
    });
    let existing = &mut conditions[at];
    if existing.status != value {
        existing.last_transition_time = Some(Time(whole_seconds(now)));
    }
    value.clone_into(&mut existing.status);
    existing.reason = Some(reason.to_owned());
    existing.message = Some(message);
}

/// Removes a condition.
pub(super) fn remove(status: &mut HorizontalPodAutoscalerStatus, type_: &str) {
    if let Some(conditions) = &mut status.conditions {
        conditions.retain(|condition| condition.type_ != type_);
    }
}

/// Whether a condition is true.
pub(super) fn is_true(status: &HorizontalPodAutoscalerStatus, type_: &str) -> bool {
    let mut conditions = status.conditions.iter().flatten();
    conditions.any(|condition| condition.type_ == type_ && condition.status == "True")
}

/// A status in the form in which the API server returns it: without zeros and empty lists that it leaves out.
pub(super) fn normalized(mut status: HorizontalPodAutoscalerStatus) -> HorizontalPodAutoscalerStatus {
    status.conditions = status.conditions.filter(|conditions| !conditions.is_empty());
    status.current_metrics = status.current_metrics.filter(|metrics| !metrics.is_empty());
    status.current_replicas = status.current_replicas.filter(|replicas| *replicas != 0);
    status
}

/// The status of a metric: which it is, and its current value.
pub(super) fn of_metric(spec: &MetricSpec, proposal: &Proposal) -> MetricStatus {
    let amount = |format| WireQuantity(Quantity::from_milli(proposal.milli).with_format(format).to_string());
    let decimal = || Some(amount(Format::DecimalSi));
    let value = || MetricValueStatus { value: decimal(), ..MetricValueStatus::default() };
    let average = || MetricValueStatus { average_value: decimal(), ..MetricValueStatus::default() };
    // As metrics-server writes amounts of memory.
    let usage = |resource: &str| MetricValueStatus {
        average_utilization: proposal.utilization,
        average_value: Some(amount(if resource == "memory" { Format::BinarySi } else { Format::DecimalSi })),
        value: None,
    };
    let none = || MetricStatus { type_: spec.type_.clone(), ..MetricStatus::default() };
    if let Some(object) = &spec.object {
        let current = if object.target.type_ == "Value" { value() } else { average() };
        let described_object = object.described_object.clone();
        let object = Some(ObjectMetricStatus { current, described_object, metric: object.metric.clone() });
        MetricStatus { object, ..none() }
    } else if let Some(pods) = &spec.pods {
        let pods = Some(PodsMetricStatus { current: average(), metric: pods.metric.clone() });
        MetricStatus { pods, ..none() }
    } else if let Some(resource) = &spec.resource {
        let current = usage(&resource.name);
        let resource = Some(ResourceMetricStatus { current, name: resource.name.clone() });
        MetricStatus { resource, ..none() }
    } else if let Some(of) = &spec.container_resource {
        let current = usage(&of.name);
        let container_resource = Some(ContainerResourceMetricStatus {
            container: of.container.clone(),
            current,
            name: of.name.clone(),
        });
        MetricStatus { container_resource, ..none() }
    } else if let Some(external) = &spec.external {
        let has_average = external.target.average_value.is_some();
        let current = if has_average { average() } else { value() };
        let external = Some(ExternalMetricStatus { current, metric: external.metric.clone() });
        MetricStatus { external, ..none() }
    } else {
        none()
    }
}
