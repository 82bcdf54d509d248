//! The conditions of a pod that the node sets, with the kubelet's reasons and messages.

use k8s_openapi::api::core::v1::{Pod, PodCondition, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use plumb_resize::aggregate::Role;

use super::{StatusInput, is_initialized};
use crate::lifecycle::{ObservedPod, Phase, is_restarting_all};
use crate::shutdown::{self, Cause};

/// The condition of a pod whose containers have `restartPolicyRules` with the action `RestartAllContainers` (KEP-5532).
const ALL_CONTAINERS_RESTARTING: &str = "AllContainersRestarting";

/// Whether a condition is true, and if not, why.
struct Verdict {
    holds: bool,
    reason: &'static str,
    message: String,
}

impl Verdict {
    fn yes() -> Self {
        Self { holds: true, reason: "", message: String::new() }
    }

    fn no(reason: &'static str, message: impl Into<String>) -> Self {
        Self { holds: false, reason, message: message.into() }
    }
}

/// Sets the conditions; conditions of other clients stay.
pub(super) fn publish(input: &StatusInput<'_>, old: &PodStatus, status: &mut PodStatus) {
    let containers = containers_ready(input);
    let ready = ready(input, &containers, status);
    let sandbox = input.observed.sandbox.as_ref().is_some_and(|sandbox| sandbox.ready);
    let networked = if sandbox { Verdict::yes() } else { Verdict { holds: false, ..Verdict::yes() } };
    let failed_by = |cause: &&Cause| input.failure.is_some_and(|(reason, _)| reason == cause.reason());
    let disruption = input.disrupted.filter(failed_by).and_then(|cause| {
        let message = cause.disruption_message()?.to_owned();
        Some(("DisruptionTarget", Verdict { reason: shutdown::DISRUPTION, message, ..Verdict::yes() }))
    });
    let all = [
        ("PodReadyToStartContainers", networked),
        ("Initialized", initialized(input)),
        ("Ready", ready),
        ("ContainersReady", containers),
        ("PodScheduled", Verdict::yes()),
    ];
    let restarting = all_containers_restarting(input).map(|verdict| (ALL_CONTAINERS_RESTARTING, verdict));
    let all = all.into_iter().chain(restarting).chain(disruption);
    let conditions = status.conditions.get_or_insert_default();
    for (type_, verdict) in all {
        let before = old.conditions.iter().flatten().find(|condition| condition.type_ == type_);
        let new = condition(type_, verdict, before, input);
        match conditions.iter_mut().find(|condition| condition.type_ == type_) {
            Some(slot) => *slot = new,
            None => conditions.push(new),
        }
    }
}

fn condition(
    type_: &str,
    verdict: Verdict,
    before: Option<&PodCondition>,
    input: &StatusInput<'_>,
) -> PodCondition {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let state = if verdict.holds { "True" } else { "False" };
    let since =
        before.filter(|before| before.status == state).and_then(|before| before.last_transition_time.clone());
    PodCondition {
        type_: type_.to_owned(),
        status: state.to_owned(),
        reason: text(verdict.reason),
        message: text(&verdict.message),
        last_transition_time: Some(since.unwrap_or(Time(input.now))),
        observed_generation: Some(input.generation()),
        ..PodCondition::default()
    }
}

fn initialized(input: &StatusInput<'_>) -> Verdict {
    if input.phase == Phase::Succeeded {
        return Verdict { reason: "PodCompleted", ..Verdict::yes() };
    }
    if is_initialized(input) {
        return Verdict::yes();
    }
    let inits = || input.shape.containers.iter().enumerate().filter(|(_, part)| part.role != Role::Main);
    let incomplete: Vec<&str> = inits()
        .filter(|(position, part)| {
            let observed = input.observed.containers.get(*position).and_then(Option::as_ref);
            match part.role {
                Role::Sidecar => !input.is_ready(*position),
                _ => observed.and_then(crate::lifecycle::ObservedContainer::exit_code) != Some(0),
            }
        })
        .map(|(_, part)| part.name.as_str())
        .collect();
    Verdict::no(
        "ContainersNotInitialized",
        format!("containers with incomplete status: [{}]", incomplete.join(" ")),
    )
}

/// Whether all containers are being restarted, if one of them can require it.
fn all_containers_restarting(input: &StatusInput<'_>) -> Option<Verdict> {
    let is_restarting = restarts_all(input.pod, input.observed)?;
    Some(match input.phase {
        Phase::Succeeded => Verdict::no("PodCompleted", ""),
        Phase::Failed => Verdict::no("PodFailed", ""),
        Phase::Pending | Phase::Running if is_restarting => Verdict {
            reason: "RestartAllContainersStarted",
            message: "container exited with restart policy rule".to_owned(),
            ..Verdict::yes()
        },
        Phase::Pending | Phase::Running => Verdict::no("", ""),
    })
}

/// Whether all containers of a pod are being restarted: never while it terminates. None if no container can require it.
fn restarts_all(pod: &Pod, observed: &ObservedPod) -> Option<bool> {
    let is_restarting = is_restarting_all(pod.spec.as_ref()?, observed)?;
    Some(is_restarting && pod.metadata.deletion_timestamp.is_none())
}

/// Whether the status of a pod does not say yet that all its containers are being restarted.
pub(crate) fn begins_to_restart_all(pod: &Pod, observed: &ObservedPod) -> bool {
    let is_restarting = restarts_all(pod, observed) == Some(true);
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let is_true = |one: &PodCondition| one.type_ == ALL_CONTAINERS_RESTARTING && one.status == "True";
    is_restarting && !conditions.into_iter().any(is_true)
}

fn containers_ready(input: &StatusInput<'_>) -> Verdict {
    match input.phase {
        Phase::Succeeded => return Verdict::no("PodCompleted", ""),
        Phase::Failed => return Verdict::no("PodFailed", ""),
        _ => {}
    }
    let (mut unready, mut unknown) = (Vec::new(), Vec::new());
    for (position, part) in input.shape.containers.iter().enumerate() {
        if part.role == Role::Init || input.is_ready(position) {
            continue;
        }
        let observed = input.observed.containers.get(position).is_some_and(Option::is_some);
        if observed || part.role == Role::Main { &mut unready } else { &mut unknown }
            .push(part.name.as_str());
    }
    if unready.is_empty() && unknown.is_empty() {
        return Verdict::yes();
    }
    let mut parts = Vec::new();
    if !unknown.is_empty() {
        parts.push(format!("containers with unknown status: [{}]", unknown.join(" ")));
    }
    if !unready.is_empty() {
        parts.push(format!("containers with unready status: [{}]", unready.join(" ")));
    }
    Verdict::no("ContainersNotReady", parts.join(", "))
}

/// A pod is ready when its containers are, and the conditions of its readiness gates are true.
fn ready(input: &StatusInput<'_>, containers: &Verdict, status: &PodStatus) -> Verdict {
    if !containers.holds {
        return Verdict::no(containers.reason, containers.message.clone());
    }
    let gates = input.pod.spec.iter().flat_map(|spec| spec.readiness_gates.iter().flatten());
    let messages: Vec<String> = gates
        .filter_map(|gate| {
            let type_ = &gate.condition_type;
            let found = status.conditions.iter().flatten().find(|condition| condition.type_ == *type_);
            match found {
                None => {
                    Some(format!("corresponding condition of pod readiness gate \"{type_}\" does not exist."))
                }
                Some(condition) if condition.status != "True" => Some(format!(
                    "the status of pod readiness gate \"{type_}\" is not \"True\", but {}",
                    condition.status
                )),
                Some(_) => None,
            }
        })
        .collect();
    if messages.is_empty() {
        Verdict::yes()
    } else {
        Verdict::no("ReadinessGatesNotReady", messages.join(", "))
    }
}
