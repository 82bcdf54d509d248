//! The conditions of a pod that the node sets, with the kubelet's reasons and messages.

use k8s_openapi::api::core::v1::{PodCondition, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use plumb_resize::aggregate::Role;

use super::{StatusInput, is_initialized};
use crate::lifecycle::Phase;
use crate::shutdown::{self, Cause};

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
    let failed_by = |cause: &Cause| input.failure.is_some_and(|(reason, _)| reason == cause.reason());
    let disruption = input.disrupted.filter(failed_by).map(|cause| {
        let message = cause.disruption_message().to_owned();
        ("DisruptionTarget", Verdict { reason: shutdown::DISRUPTION, message, ..Verdict::yes() })
    });
    let all = [
        ("PodReadyToStartContainers", networked),
        ("Initialized", initialized(input)),
        ("Ready", ready),
        ("ContainersReady", containers),
        ("PodScheduled", Verdict::yes()),
    ];
    let all = all.into_iter().chain(disruption);
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
