//! What is to be done about an autoscaler. Pure: what was read goes in, and the status, the events and the new size of the
//! target come out.
//!
//! ```text
//!   scale ──▶ zero, beyond the maximum, below the minimum: no metric is needed
//!     │
//!     └─▶ metrics ──▶ propose, each ──▶ the highest ──▶ normalize ──▶ rescale? ──▶ conclude: status, events
//! ```

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::autoscaling::v2::{
    HPAScalingRules, HorizontalPodAutoscaler, HorizontalPodAutoscalerSpec, HorizontalPodAutoscalerStatus,
    MetricSpec, MetricStatus,
};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use plumb_controller_runtime::clock::whole_seconds;
use plumb_controller_runtime::label_selector::parse_selector;
use plumb_resize::Quantity;

use super::calculator::{Calculator, Initialization, Tolerances};
use super::metric::{MetricFailure, MetricProposal, Reading, propose};
use super::normalize::{Bounds, History, normalize};
use super::status::{self, ABLE_TO_SCALE, Condition, SCALED_TO_ZERO, SCALING_ACTIVE, SCALING_LIMITED};
use crate::workload::Note;

/// How autoscalers are reconciled: the flags of kube-controller-manager, with its defaults, and its feature gates.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How often each autoscaler is reconciled.
    pub sync_period: Duration,
    /// For how long the highest recommendation counts before a target is scaled down.
    pub downscale_stabilization: Duration,
    /// By how much usage may differ from the target without a change.
    pub tolerance: f64,
    /// Which pods are starting.
    pub initialization: Initialization,
    /// The gate `HPAScaleToZero`.
    pub scale_to_zero: bool,
    /// The gate `HPAConfigurableTolerance`.
    pub configurable_tolerance: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            sync_period: Duration::from_secs(15),
            downscale_stabilization: Duration::from_mins(5),
            tolerance: 0.1,
            initialization: Initialization {
                cpu_period: SignedDuration::from_mins(5),
                readiness_delay: SignedDuration::from_secs(30),
            },
            scale_to_zero: false,
            configurable_tolerance: true,
        }
    }
}

/// The time of a decision, by the two clocks.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// For what the API has times of: statuses, samples, the start of pods.
    pub wall: Timestamp,
    /// For what the controller remembers.
    pub monotonic: Duration,
}

/// The scale of a target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scale {
    /// `spec.replicas`.
    pub replicas: i32,
    /// `status.replicas`.
    pub status_replicas: i32,
    /// `status.selector`.
    pub selector: String,
}

/// Why a scale could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoScale {
    /// The error.
    pub message: String,
    /// Whether the spec of the autoscaler is at fault.
    pub is_spec: bool,
}

/// What was read for the metrics.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    /// The pods that the target selects.
    pub pods: Vec<Pod>,
    /// All autoscalers that control any of them, as `namespace/name`.
    pub controlled_by: Vec<String>,
    /// What the metrics APIs gave for each metric of the spec.
    pub readings: Vec<Result<Reading, String>>,
}

/// An autoscaler with all that matters for it.
#[derive(Clone, Debug)]
pub struct State {
    /// The autoscaler.
    pub autoscaler: Arc<HorizontalPodAutoscaler>,
    /// The scale of its target.
    pub scale: Result<Scale, NoScale>,
    /// What was read for its metrics, if they are needed and the selector can be read.
    pub inputs: Inputs,
}

/// What is to be done.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// The new size of the target.
    pub rescale: Option<Rescale>,
    /// The status, as far as it is known before the target is scaled.
    pub status: HorizontalPodAutoscalerStatus,
    /// Events.
    pub events: Vec<Note>,
    /// What came of each metric.
    pub computations: Vec<Computation>,
    /// In which direction the target was scaled.
    pub scaled: Direction,
    /// Why the reconcile failed, in part or as a whole.
    pub failure: Option<Failure>,
}

/// A new size of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rescale {
    /// From how many replicas.
    pub from: i32,
    /// To how many.
    pub to: i32,
    /// Why.
    pub reason: String,
}

/// What came of a metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Computation {
    /// The type of its source.
    pub metric_type: String,
    /// The change that it asks for.
    pub action: Direction,
    /// Whether it failed.
    pub error: Option<Fault>,
}

/// In which direction a target is scaled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// To more replicas.
    Up,
    /// To fewer.
    Down,
    /// Not at all.
    #[default]
    None,
}

impl Direction {
    pub(super) fn new(from: i32, to: i32) -> Self {
        match to.cmp(&from) {
            std::cmp::Ordering::Greater => Self::Up,
            std::cmp::Ordering::Less => Self::Down,
            std::cmp::Ordering::Equal => Self::None,
        }
    }
}

/// What is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// The spec of the autoscaler.
    Spec,
    /// Anything else.
    Internal,
}

/// Why a reconcile failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The error.
    pub message: String,
    /// What is at fault.
    pub fault: Fault,
}

impl Failure {
    fn internal(message: String) -> Self {
        Self { message, fault: Fault::Internal }
    }
}

/// What the replicas of a target are decided by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// Nothing: a user has scaled it to zero.
    Nothing,
    /// Its bounds.
    Bound(i32, &'static str),
    /// Its metrics.
    Metrics,
}

fn decided_by(
    spec: &HorizontalPodAutoscalerSpec,
    status: &HorizontalPodAutoscalerStatus,
    replicas: i32,
    settings: &Settings,
) -> By {
    let min = min_replicas(spec);
    if replicas == 0 {
        let was_scaled_to_zero = settings.scale_to_zero && status::is_true(status, SCALED_TO_ZERO);
        let wakes = was_scaled_to_zero && (min != 0 || has_value_metric(spec));
        if wakes { By::Metrics } else { By::Nothing }
    } else if replicas > spec.max_replicas {
        By::Bound(spec.max_replicas, "Current number of replicas above Spec.MaxReplicas")
    } else if replicas < min {
        By::Bound(min, BELOW_MINIMUM)
    } else {
        By::Metrics
    }
}

/// Whether the metrics of an autoscaler have to be read for a decision.
pub fn needs_metrics(autoscaler: &HorizontalPodAutoscaler, scale: &Scale, settings: &Settings) -> bool {
    let status = autoscaler.status.clone().unwrap_or_default();
    decided_by(&autoscaler.spec, &status, scale.replicas, settings) == By::Metrics
}

const BELOW_MINIMUM: &str = "Current number of replicas below Spec.MinReplicas";

fn min_replicas(spec: &HorizontalPodAutoscalerSpec) -> i32 {
    spec.min_replicas.unwrap_or(1)
}

/// Whether a metric can have a value while there is no pod.
fn has_value_metric(spec: &HorizontalPodAutoscalerSpec) -> bool {
    spec.metrics.iter().flatten().any(|metric| matches!(&*metric.type_, "Object" | "External"))
}

/// Decides what is to be done about an autoscaler, and remembers what its metrics ask for.
pub fn decide(state: &State, history: &mut History, now: Now, settings: &Settings) -> Decision {
    let before = state.autoscaler.status.clone().unwrap_or_default();
    let spec = &state.autoscaler.spec;
    let mut decision = Decision { status: before, ..Decision::default() };
    let scale = match &state.scale {
        Ok(scale) => scale,
        Err(error) => {
            decision.no_scale(spec, &state.autoscaler, error, now);
            return decision;
        }
    };
    decision.set(
        Condition::new(
            ABLE_TO_SCALE,
            true,
            "SucceededGetScale",
            "the HPA controller was able to get the target's current scale",
        ),
        now,
    );
    let current = scale.replicas;
    history.begin(current, now.monotonic);
    match decided_by(spec, &decision.status, current, settings) {
        By::Nothing => {
            let message = "scaling is disabled since the replica count of the target is zero";
            decision.set(Condition::new(SCALING_ACTIVE, false, "ScalingDisabled", message), now);
            if !settings.scale_to_zero {
                status::remove(&mut decision.status, SCALED_TO_ZERO);
            }
            decision.replicas(current, current, None);
        }
        By::Bound(bound, reason) => {
            decision.replicas(current, bound, None);
            decision.rescale = Some(Rescale { from: current, to: bound, reason: reason.to_owned() });
        }
        By::Metrics => by_metrics(state, spec, scale, history, now, settings, &mut decision),
    }
    decision
}

fn by_metrics(
    state: &State,
    spec: &HorizontalPodAutoscalerSpec,
    scale: &Scale,
    history: &mut History,
    now: Now,
    settings: &Settings,
    decision: &mut Decision,
) {
    let current = scale.replicas;
    let (min, was_scaled_to_zero) = (min_replicas(spec), status::is_true(&decision.status, SCALED_TO_ZERO));
    let Highest { replicas: proposed, metric, statuses } = match highest(
        state, spec, scale, now, settings, decision,
    ) {
        Ok(highest) => highest,
        Err(Unusable { message, statuses }) => {
            let desired = decision.status.desired_replicas;
            decision.replicas(current, desired, statuses);
            decision.events.push(Note::warning("FailedComputeMetricsReplicas", &*message));
            let reference = reference(spec, &state.autoscaler);
            decision.failure = Some(Failure::internal(format!(
                "failed to compute desired number of replicas based on listed metrics for {reference}: {message}"
            )));
            return;
        }
    };
    let proposed = proposed.max(0);
    let metric = if proposed > 0 { metric } else { String::new() };
    let mut reason = match Direction::new(current, proposed) {
        Direction::Up => format!("{metric} above target"),
        Direction::Down => "All metrics below target".to_owned(),
        Direction::None => String::new(),
    };
    let bounds = Bounds {
        current,
        min,
        max: spec.max_replicas,
        behavior: spec.behavior.as_ref(),
        downscale_window: settings.downscale_stabilization,
    };
    let normalized = normalize(proposed, &bounds, history, now.monotonic);
    let (why, message) = normalized.stabilized;
    decision.set(Condition::new(ABLE_TO_SCALE, true, why, message), now);
    let (why, message) = normalized.limited;
    decision.set(Condition::new(SCALING_LIMITED, normalized.is_limited, why, message), now);
    let mut desired = normalized.replicas;
    // With a minimum that was raised meanwhile, what was scaled to zero comes back whatever its metrics say.
    if current == 0 && min != 0 && was_scaled_to_zero && desired < min {
        desired = min;
        if reason.is_empty() {
            BELOW_MINIMUM.clone_into(&mut reason);
        }
    }
    decision.replicas(current, desired, Some(statuses));
    decision.rescale = (desired != current).then_some(Rescale { from: current, to: desired, reason });
}

/// The highest proposal of the metrics.
struct Highest {
    replicas: i32,
    metric: String,
    statuses: Vec<MetricStatus>,
}

/// Why the metrics are not used.
struct Unusable {
    message: String,
    /// None if no metric was read.
    statuses: Option<Vec<MetricStatus>>,
}

fn highest(
    state: &State,
    spec: &HorizontalPodAutoscalerSpec,
    scale: &Scale,
    now: Now,
    settings: &Settings,
    decision: &mut Decision,
) -> Result<Highest, Unusable> {
    check_selector(state, scale, now, decision)?;
    let calculator = Calculator {
        pods: &state.inputs.pods,
        replicas: scale.replicas,
        status_replicas: scale.status_replicas,
        tolerances: tolerances(spec, settings),
        initialization: settings.initialization,
        now: now.wall,
    };
    let namespace = state.autoscaler.metadata.namespace.as_deref().unwrap_or_default();
    let metrics: &[MetricSpec] = spec.metrics.as_deref().unwrap_or_default();
    let unread = Err("no reading".to_owned());
    let mut highest = Highest { replicas: 0, metric: String::new(), statuses: Vec::new() };
    let mut first: Option<MetricFailure> = None;
    let mut failures = 0;
    for (i, metric) in metrics.iter().enumerate() {
        let reading = state.inputs.readings.get(i).unwrap_or(&unread);
        let proposed = propose(namespace, metric, reading, &calculator);
        let reported = decision.status.current_replicas.unwrap_or_default();
        decision.computations.push(Computation {
            metric_type: metric.type_.clone(),
            action: proposed
                .as_ref()
                .map_or(Direction::None, |one| Direction::new(reported, one.proposal.replicas)),
            error: proposed
                .as_ref()
                .err()
                .map(|failure| if failure.is_spec { Fault::Spec } else { Fault::Internal }),
        });
        match proposed {
            Ok(MetricProposal { proposal, metric: name }) => {
                highest.statuses.push(status::of_metric(metric, &proposal));
                if highest.replicas == 0 || proposal.replicas > highest.replicas {
                    (highest.replicas, highest.metric) = (proposal.replicas, name);
                }
            }
            Err(failure) => {
                highest.statuses.push(MetricStatus::default());
                decision.events.push(Note::warning(failure.reason, &*failure.message));
                failures += 1;
                first.get_or_insert(failure);
            }
        }
    }
    let all = metrics.len();
    let message = first.as_ref().map(|first| {
        let error = &first.error;
        format!("invalid metrics ({failures} invalid out of {all}), first error is: {error}")
    });
    // Metrics that cannot be read could ask for more: they do not keep the others from scaling up, but from scaling down.
    if let (Some(first), Some(message)) = (first, &message)
        && (failures == all || highest.replicas < scale.replicas)
    {
        let why = format!("the HPA was unable to compute the replica count: {}", first.message);
        decision.set(Condition::new(SCALING_ACTIVE, false, first.reason, why), now);
        return Err(Unusable { message: message.clone(), statuses: Some(highest.statuses) });
    }
    decision.failure = message.map(Failure::internal);
    let found = format!("the HPA was able to successfully calculate a replica count from {}", highest.metric);
    decision.set(Condition::new(SCALING_ACTIVE, true, "ValidMetricFound", found), now);
    Ok(highest)
}

/// Checks that the target selects pods, and that no other autoscaler controls any of them.
fn check_selector(state: &State, scale: &Scale, now: Now, decision: &mut Decision) -> Result<(), Unusable> {
    let (event, reason, why, message) = if scale.selector.is_empty() {
        let why = "the HPA target's scale is missing a selector";
        ("SelectorRequired", "InvalidSelector", Some(why), "selector is required".to_owned())
    } else if let Err(error) = parse_selector(&scale.selector) {
        let message =
            format!("couldn't convert selector into a corresponding internal selector object: {error}");
        ("InvalidSelector", "InvalidSelector", None, message)
    } else if state.inputs.controlled_by.len() > 1 {
        let all = state.inputs.controlled_by.join(" ");
        let message = format!("pods by selector {} are controlled by multiple HPAs: [{all}]", scale.selector);
        ("AmbiguousSelector", "AmbiguousSelector", None, message)
    } else {
        return Ok(());
    };
    decision.events.push(Note::warning(event, &*message));
    decision.set(Condition::new(SCALING_ACTIVE, false, reason, why.unwrap_or(&message)), now);
    Err(Unusable { message, statuses: None })
}

fn tolerances(spec: &HorizontalPodAutoscalerSpec, settings: &Settings) -> Tolerances {
    let own = |rules: Option<&HPAScalingRules>| {
        let tolerance = rules.filter(|_| settings.configurable_tolerance)?.tolerance.as_ref()?;
        Some(fraction(tolerance.0.parse().ok()?))
    };
    let behavior = spec.behavior.as_ref();
    Tolerances {
        down: own(behavior.and_then(|behavior| behavior.scale_down.as_ref())).unwrap_or(settings.tolerance),
        up: own(behavior.and_then(|behavior| behavior.scale_up.as_ref())).unwrap_or(settings.tolerance),
    }
}

/// A quantity as a float64, by the power of ten that it is written with.
#[expect(clippy::cast_precision_loss, reason = "upstream has a float64, too")]
fn fraction(quantity: Quantity) -> f64 {
    let milli = quantity.saturating_milli();
    if Quantity::from_milli(milli) == quantity {
        return milli as f64 * 1e-3;
    }
    // A finer one is written in millionths or billionths, which are thousandths of a multiple.
    let nano = quantity.checked_mul(1_000_000).map_or(i64::MAX, Quantity::saturating_milli);
    nano as f64 * 1e-9
}

/// What came of the attempt to scale the target: completes a decision.
pub fn conclude(
    decision: &mut Decision,
    state: &State,
    rescaled: Result<(), String>,
    history: &mut History,
    now: Now,
    settings: &Settings,
) {
    let Some(Rescale { from, to, reason }) = decision.rescale.clone() else { return };
    let spec = &state.autoscaler.spec;
    if let Err(error) = rescaled {
        let message = format!("New size: {to}; reason: {reason}; error: {error}");
        decision.events.push(Note::warning("FailedRescale", message));
        let why = format!("the HPA controller was unable to update the target scale: {error}");
        decision.set(Condition::new(ABLE_TO_SCALE, false, "FailedUpdateScale", why), now);
        let before = state.autoscaler.status.as_ref();
        decision.status.desired_replicas = before.map_or(0, |before| before.desired_replicas);
        let reference = reference(spec, &state.autoscaler);
        decision.failure = Some(Failure::internal(format!("failed to rescale {reference}: {error}")));
        return;
    }
    let why = format!("the HPA controller was able to update the target scale to {to}");
    decision.set(Condition::new(ABLE_TO_SCALE, true, "SucceededRescale", why), now);
    decision.events.push(Note::normal("SuccessfulRescale", format!("New size: {to}; reason: {reason}")));
    history.scaled(spec.behavior.as_ref(), from, to, now.monotonic);
    decision.scaled = Direction::new(from, to);
    if settings.scale_to_zero {
        let to_zero = from > 0 && to == 0 && min_replicas(spec) == 0 && has_value_metric(spec);
        decision.set(
            if to_zero {
                let message = "the HPA controller scaled the workload to zero";
                Condition::new(SCALED_TO_ZERO, true, "ScaledToZero", message)
            } else {
                let message = "the HPA controller did not scale the workload to zero";
                Condition::new(SCALED_TO_ZERO, false, "NotScaledToZero", message)
            },
            now,
        );
    } else {
        status::remove(&mut decision.status, SCALED_TO_ZERO);
    }
    decision.status.last_scale_time = Some(Time(whole_seconds(now.wall)));
}

fn reference(spec: &HorizontalPodAutoscalerSpec, autoscaler: &HorizontalPodAutoscaler) -> String {
    let namespace = autoscaler.metadata.namespace.as_deref().unwrap_or_default();
    format!("{}/{namespace}/{}", spec.scale_target_ref.kind, spec.scale_target_ref.name)
}

impl Decision {
    fn set(&mut self, condition: Condition, now: Now) {
        status::set(&mut self.status, condition, now.wall);
    }

    /// Sets the numbers of the status. It has no other fields but its conditions and the time of the last change: upstream
    /// drops `observedGeneration`, and the API server gives autoscalers no generation.
    fn replicas(&mut self, current: i32, desired: i32, metrics: Option<Vec<MetricStatus>>) {
        self.status = HorizontalPodAutoscalerStatus {
            current_replicas: Some(current),
            desired_replicas: desired,
            current_metrics: metrics,
            last_scale_time: self.status.last_scale_time.clone(),
            conditions: self.status.conditions.take(),
            observed_generation: None,
        };
    }

    /// The scale of the target could not be read.
    fn no_scale(
        &mut self,
        spec: &HorizontalPodAutoscalerSpec,
        autoscaler: &HorizontalPodAutoscaler,
        error: &NoScale,
        now: Now,
    ) {
        let NoScale { message, is_spec } = error;
        self.events.push(Note::warning("FailedGetScale", &**message));
        let why = format!("the HPA controller was unable to get the target's current scale: {message}");
        self.set(Condition::new(ABLE_TO_SCALE, false, "FailedGetScale", why), now);
        let reference = reference(spec, autoscaler);
        self.failure = Some(Failure {
            message: format!("failed to query scale subresource for {reference}: {message}"),
            fault: if *is_spec { Fault::Spec } else { Fault::Internal },
        });
    }
}
