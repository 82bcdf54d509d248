//! Boosts of containers that restart: by choice, since AEP-7862 boosts pods at their creation alone.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use plumb_vpa_api::VerticalPodAutoscalerSpec;

use super::annotation::{boosted_containers, boosted_restarts};
use super::{BoostContext, BoostPlan};

/// The annotation of a VPA that turns boosts at restarts on or off for its pods.
pub const ANNOTATION: &str = "plumb.dev/startup-boost-on-restart";

/// Whether containers are boosted when they restart: by the annotation of the VPA, else by the flag.
pub fn is_on(annotation: Option<&str>, flag: bool) -> bool {
    match annotation {
        Some("true") => true,
        Some("false") => false,
        _ => flag,
    }
}

/// A container that restarts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restart {
    /// Its name.
    pub container: String,
    /// How often it has restarted.
    pub count: i32,
}

/// The containers of a pod that restart, are not ready again, and were not boosted for this restart.
///
/// A container that runs restarts if it was started since the pod is not ready: one that fails its readiness probe long
/// after its start does not.
pub fn restarting(pod: &Pod) -> Vec<Restart> {
    let Some(status) = &pod.status else { return Vec::new() };
    let candidates = || {
        let statuses = status.container_statuses.iter().flatten();
        statuses.filter(|status| status.restart_count > 0 && !status.ready)
    };
    if candidates().next().is_none() {
        return Vec::new();
    }
    let conditions = status.conditions.iter().flatten();
    let mut ready = conditions.filter(|condition| condition.type_ == "Ready");
    let Some(unready) = ready.next().filter(|ready| ready.status != "True") else { return Vec::new() };
    let since = unready.last_transition_time.as_ref().map(|time| time.0);
    let (boosted, known) = (boosted_containers(pod), boosted_restarts(pod));
    let is_new = |status: &&ContainerStatus| {
        status.restart_count > known.get(&status.name).copied().unwrap_or(0)
            && !boosted.contains(&status.name)
            && started(status).is_none_or(|started| since.is_none_or(|since| started >= since))
    };
    let restart =
        |status: &ContainerStatus| Restart { container: status.name.clone(), count: status.restart_count };
    candidates().filter(is_new).map(restart).collect()
}

/// When a container that runs was started.
fn started(status: &ContainerStatus) -> Option<Timestamp> {
    let running = status.state.as_ref()?.running.as_ref()?;
    running.started_at.as_ref().map(|time| time.0)
}

/// The boosts of containers that restart.
pub fn plan(
    pod: &Pod,
    restarts: &[Restart],
    vpa: &VerticalPodAutoscalerSpec,
    context: &BoostContext,
    now: Timestamp,
) -> BoostPlan {
    let Some(spec) = &pod.spec else { return BoostPlan::default() };
    let restarts = |name: &str| restarts.iter().any(|restart| restart.container == name);
    let mut plan = BoostPlan::new(vpa, spec, spec, context);
    plan.boosted.retain(|boosted| restarts(&boosted.name));
    plan.refused.retain(|refused| restarts(&refused.container));
    for boosted in &mut plan.boosted {
        boosted.cpu.restarted = Some(now);
    }
    plan
}
