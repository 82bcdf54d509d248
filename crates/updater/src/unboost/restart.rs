//! Boosts containers that restart, if their VPA or the flag enables it.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use plumb_vpa::boost::restart::{ANNOTATION, is_on, plan, restarting};
use plumb_vpa::boost::{BoostContext, Cpu};
use plumb_vpa_api::VerticalPodAutoscaler;

use super::{Inner, UnboostError};

impl Inner {
    /// Boosts the containers of a pod that restart. The annotations come first: should the resize not follow, they are
    /// removed when the boost would have ended.
    pub(super) async fn boost_restarted(
        &self,
        pod: &Pod,
        vpa: &VerticalPodAutoscaler,
    ) -> Result<(), UnboostError> {
        let annotation = vpa.annotations().get(ANNOTATION).map(String::as_str);
        if !self.settings.startup_boost || !is_on(annotation, self.settings.on_restart) {
            return Ok(());
        }
        let restarts = restarting(pod);
        if restarts.is_empty() {
            return Ok(());
        }
        let context = BoostContext { max_allowed: self.settings.max_allowed, ..self.context(pod) };
        let plan = plan(pod, &restarts, &vpa.spec, &context, self.clock.now());
        // A container without a boost is annotated, too: it is not looked at again before its next restart.
        let Some(annotated) = self.annotate_restarts(pod, &restarts, &plan).await? else { return Ok(()) };
        self.report_restart(pod, vpa, &plan);
        let boosted: Vec<(&str, Cpu)> =
            plan.boosted.iter().map(|boosted| (boosted.name.as_str(), boosted.cpu.boosted)).collect();
        if !boosted.is_empty() && self.set_cpu(&annotated, &boosted).await? {
            self.updater_metrics.boosted_restart();
        }
        Ok(())
    }
}
