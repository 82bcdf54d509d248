//! One metric of an autoscaler: its reading, the replicas that it asks for, and why it cannot be used.

use k8s_openapi::api::autoscaling::v2::{MetricSpec, MetricTarget};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use plumb_resize::Quantity;

use super::calculator::{Calculator, Proposal, Samples};
use super::requests::RequestOf;
use crate::selector_text;

/// What a metrics API gave for a metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// The usage of pods.
    Pods(Samples),
    /// Values of something else, in thousandths, which are added up.
    Values(Vec<i64>),
}

/// The replicas that a metric asks for, and its description in reasons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MetricProposal {
    pub(super) proposal: Proposal,
    pub(super) metric: String,
}

/// Why a metric asks for nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MetricFailure {
    /// The reason of the event and of the condition `ScalingActive`.
    pub(super) reason: &'static str,
    /// The message of the event, and the end of that of the condition.
    pub(super) message: String,
    /// The error of the reconcile: the message, with the metric before it.
    pub(super) error: String,
    /// Whether the spec is at fault.
    pub(super) is_spec: bool,
}

/// Computes the replicas that a metric asks for.
pub(super) fn propose(
    namespace: &str,
    spec: &MetricSpec,
    reading: &Result<Reading, String>,
    calculator: &Calculator<'_>,
) -> Result<MetricProposal, MetricFailure> {
    let text =
        |selector: Option<&LabelSelector>| selector.map_or_else(|| "nil".to_owned(), selector_text::as_in_go);
    if let Some(resource) = &spec.resource {
        let of = RequestOf { resource: &resource.name, container: None };
        by_usage(of, &resource.target, reading, calculator, "").map_err(|message| MetricFailure {
            reason: "FailedGetResourceMetric",
            error: format!("failed to get {} resource metric value: {message}", resource.name),
            message,
            is_spec: false,
        })
    } else if let Some(container) = &spec.container_resource {
        let of = RequestOf { resource: &container.name, container: Some(&container.container) };
        by_usage(of, &container.target, reading, calculator, " container").map_err(|message| MetricFailure {
            reason: "FailedGetContainerResourceMetric",
            error: format!("failed to get {} container metric value: {message}", container.container),
            message,
            is_spec: false,
        })
    } else if let Some(pods) = &spec.pods {
        let name = &pods.metric.name;
        let target = pods.target.average_value.as_ref().map_or(0, milli);
        let proposal = match reading {
            Err(error) => Err(format!("unable to get metric {name}: {error}")),
            Ok(reading) => {
                calculator.by_average(&reading.samples(), None, target).map_err(|error| error.to_string())
            }
        };
        let proposal = proposal.map_err(|message| MetricFailure {
            reason: "FailedGetPodsMetric",
            error: format!("failed to get pods metric value: {message}"),
            message,
            is_spec: false,
        })?;
        Ok(MetricProposal { proposal, metric: format!("pods metric {name}") })
    } else if let Some(object) = &spec.object {
        let (name, of) = (&object.metric.name, &object.described_object);
        let failure = |message: String, is_average: bool| MetricFailure {
            reason: "FailedGetObjectMetric",
            error: if is_average {
                format!("failed to get object metric value: failed to get {name} object metric: {message}")
            } else {
                format!("failed to get object metric value: {message}")
            },
            message,
            is_spec: false,
        };
        let value = || {
            // SPEC: the words are upstream's, whose arguments are in another order than the words around them.
            let unread = |error| {
                format!("unable to get metric {name}: {} on {namespace} {}/{error}", of.kind, of.name)
            };
            reading.as_ref().map(Reading::sum).map_err(unread)
        };
        if object.target.type_ == "Value"
            && let Some(target) = object.target.value.as_ref().map(milli)
        {
            let proposal = value()
                .and_then(|value| calculator.by_value(value, target).map_err(|error| error.to_string()));
            let proposal = proposal.map_err(|message| failure(message, false))?;
            Ok(MetricProposal { proposal, metric: format!("{} metric {name}", of.kind) })
        } else if object.target.type_ == "AverageValue"
            && let Some(target) = object.target.average_value.as_ref().map(milli)
        {
            let value = value().map_err(|message| failure(message, true))?;
            // SPEC: upstream calls it external here.
            let metric = format!("external metric {name}({})", text(object.metric.selector.as_ref()));
            Ok(MetricProposal { proposal: calculator.by_value_per_pod(value, target), metric })
        } else {
            Err(failure(NO_OBJECT_TARGET.to_owned(), false))
        }
    } else if let Some(external) = &spec.external {
        let name = &external.metric.name;
        let selector = text(external.metric.selector.as_ref());
        let metric = format!("external metric {name}({selector})");
        let value = || {
            let unread =
                |error| format!("unable to get external metric {namespace}/{name}/{selector}: {error}");
            reading.as_ref().map(Reading::sum).map_err(unread)
        };
        let failure = |message: String, error: String| MetricFailure {
            reason: "FailedGetExternalMetric",
            error: format!("failed to get {name} external metric value: {error}"),
            message,
            is_spec: false,
        };
        if let Some(target) = external.target.average_value.as_ref().map(milli) {
            let value = value().map_err(|message| {
                let error = format!("failed to get {name} external metric: {message}");
                failure(message, error)
            })?;
            Ok(MetricProposal { proposal: calculator.by_value_per_pod(value, target), metric })
        } else if let Some(target) = external.target.value.as_ref().map(milli) {
            let proposal = value()
                .and_then(|value| calculator.by_value(value, target).map_err(|error| error.to_string()));
            let proposal = proposal.map_err(|message| {
                let error = format!("failed to get external metric {name}: {message}");
                failure(message, error)
            })?;
            Ok(MetricProposal { proposal, metric })
        } else {
            Err(failure(NO_EXTERNAL_TARGET.to_owned(), NO_EXTERNAL_TARGET.to_owned()))
        }
    } else {
        let message = format!("unknown metric source type {:?}", spec.type_);
        Err(MetricFailure {
            reason: "InvalidMetricSourceType",
            error: message.clone(),
            message,
            is_spec: true,
        })
    }
}

const NO_OBJECT_TARGET: &str =
    "invalid object metric source: neither a value target nor an average value target was set";
const NO_EXTERNAL_TARGET: &str =
    "invalid external metric source: neither a value target nor an average value target was set";
const NO_RESOURCE_TARGET: &str = "invalid resource metric source: neither an average utilization target nor an average \
                                  value (usage) target was set";

/// The usage of a resource, by pods or by one of their containers.
fn by_usage(
    of: RequestOf<'_>,
    target: &MetricTarget,
    reading: &Result<Reading, String>,
    calculator: &Calculator<'_>,
    source: &str,
) -> Result<MetricProposal, String> {
    let resource = of.resource;
    let unread = |error: &String| format!("unable to get metrics for resource {resource}: {error}");
    let samples = reading.as_ref().map(Reading::samples).map_err(unread);
    if let Some(target) = target.average_value.as_ref().map(milli) {
        let proposal = samples.and_then(|samples| {
            calculator.by_average(&samples, Some(resource), target).map_err(|error| error.to_string())
        });
        let proposal = proposal.map_err(|error| format!("failed to get {resource} usage: {error}"))?;
        return Ok(MetricProposal { proposal, metric: format!("{resource} resource") });
    }
    let Some(target) = target.average_utilization else { return Err(NO_RESOURCE_TARGET.to_owned()) };
    let proposal = samples.and_then(|samples| {
        calculator.by_utilization(&samples, of, target).map_err(|error| error.to_string())
    });
    let proposal = proposal.map_err(|error| format!("failed to get {resource} utilization: {error}"))?;
    let metric = format!("{resource}{source} resource utilization (percentage of request)");
    Ok(MetricProposal { proposal, metric })
}

impl Reading {
    fn samples(&self) -> Samples {
        match self {
            Self::Pods(samples) => samples.clone(),
            Self::Values(_) => Samples::default(),
        }
    }

    fn sum(&self) -> i64 {
        match self {
            Self::Pods(_) => 0,
            Self::Values(values) => values.iter().fold(0, |sum, value| sum.saturating_add(*value)),
        }
    }
}

/// A quantity in thousandths; zero if it is none.
pub(super) fn milli(quantity: &WireQuantity) -> i64 {
    quantity.0.parse::<Quantity>().map_or(0, Quantity::saturating_milli)
}
