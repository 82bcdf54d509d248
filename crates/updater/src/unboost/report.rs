//! Events and metrics about boosts.

use k8s_openapi::api::core::v1::Pod;
use kube::{Resource as _, ResourceExt as _};
use plumb_controller_runtime::ObjectRef;
use plumb_controller_runtime::events::NewEvent;
use plumb_resize::Quantity;
use plumb_vpa::boost::annotation::read_boosts;
use plumb_vpa::boost::{BoostPlan, Cpu, Unboost};
use plumb_vpa_api::VerticalPodAutoscaler;

use super::observed::Resized;
use super::{Inner, UnboostError};

impl Inner {
    /// Emits an event that the pod was created with a boost, once.
    pub(super) fn report_boost(&self, pod: &Pod, vpa: Option<&VerticalPodAutoscaler>) {
        if !self.observed.report(pod) {
            return;
        }
        // Boosts of containers that restart are reported when they are given.
        let at_creation = read_boosts(pod).into_iter().filter(|(_, boost)| boost.restarted.is_none());
        for (container, boost) in at_creation {
            let duration = vpa.map(|vpa| vpa.spec.startup_boost_duration(&container).as_secs());
            let message = format!(
                "CPU start-up boost of container {container}: {} to {}, until the pod has been ready for {} s",
                shown(boost.unboosted),
                shown(boost.boosted),
                duration.unwrap_or_default()
            );
            self.emit(pod, vpa, &NewEvent::normal("StartupBoosted", message));
        }
    }

    /// Emits events that a container that restarts was boosted.
    pub(super) fn report_restart(&self, pod: &Pod, vpa: &VerticalPodAutoscaler, plan: &BoostPlan) {
        for boosted in &plan.boosted {
            let message = format!(
                "CPU start-up boost of container {}, which restarts: {} to {}",
                boosted.name,
                shown(boosted.cpu.unboosted),
                shown(boosted.cpu.boosted)
            );
            self.emit(pod, Some(vpa), &NewEvent::normal("StartupBoosted", message));
        }
        for refused in &plan.refused {
            let message = format!(
                "Container {}, which restarts, gets no CPU start-up boost: {}",
                refused.container, refused.reason
            );
            self.emit(pod, Some(vpa), &NewEvent::warning("StartupBoostRefused", message));
        }
    }

    /// Emits events that boosts have ended, once the node has applied that.
    pub(super) fn report_unboost(
        &self,
        pod: &Pod,
        vpa: Option<&VerticalPodAutoscaler>,
        unboost: &Unboost,
        resized: Option<&Resized>,
    ) {
        let boosts = read_boosts(pod);
        for container in &unboost.containers {
            let sent =
                resized.and_then(|resized| resized.from.iter().find(|(name, _)| *name == container.name));
            let before = sent.map(|(_, from)| *from);
            let before = before.or_else(|| boosts.get(&container.name).map(|boost| boost.boosted));
            let before = before.map_or(String::new(), |before| format!("{} to ", shown(before)));
            let damaged = container.damaged.as_ref();
            let from = damaged.map(|damaged| {
                format!(" (by {:?}: the annotation of the boost: {damaged})", container.source)
            });
            let message = format!(
                "CPU start-up boost of container {} ended: {before}{}{}",
                container.name,
                shown(container.to),
                from.unwrap_or_default()
            );
            self.emit(pod, vpa, &NewEvent::normal("StartupBoostEnded", message));
        }
    }

    /// Emits an event that a boost could not be ended.
    pub(super) fn report_failure(
        &self,
        pod: &Pod,
        vpa: Option<&VerticalPodAutoscaler>,
        error: &UnboostError,
    ) {
        self.updater_metrics.unboost_failed(error.reason());
        if let Some(vpa) = vpa {
            // Upstream's name for it.
            self.updater_metrics.update_failed(&ObjectRef::of(vpa), "UnboostError");
        }
        let message = format!("The CPU start-up boost cannot be ended yet: {error}");
        self.emit(pod, vpa, &NewEvent::warning("UnboostFailed", message));
    }

    fn emit(&self, pod: &Pod, vpa: Option<&VerticalPodAutoscaler>, event: &NewEvent) {
        let now = self.clock.now();
        if let Some(vpa) = vpa {
            let message = format!("Pod {}: {}", pod.name_any(), event.message);
            self.recorder.record(vpa.object_ref(&()), NewEvent { message, ..event.clone() }, now);
        }
        self.recorder.record(pod.object_ref(&()), event.clone(), now);
    }
}

fn shown(cpu: Cpu) -> String {
    let text = |amount: Option<Quantity>| amount.map_or("none".to_owned(), |amount| amount.to_string());
    match cpu.limit {
        Some(_) => format!("request {}, limit {}", text(cpu.request), text(cpu.limit)),
        None => format!("request {}", text(cpu.request)),
    }
}
