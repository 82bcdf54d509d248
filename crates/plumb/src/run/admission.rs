//! The admission webhook as a component of `plumb run`. It is not elected: every process serves it.

use futures_util::future::{FutureExt as _, join};
use plumb_client::Api;
use plumb_controller_runtime::{Clock, Informer};
use plumb_features::FeatureGates;
use plumb_vpa_admission::metrics::AdmissionMetrics;
use plumb_vpa_admission::{Admission, Environment, Options};
use plumb_vpa_api::VerticalPodAutoscaler;

use super::webhook::{Listening, warn_of_service};
use super::{RunContext, RunningComponent, identity};
use crate::cli::{AdmissionFlags, VpaScope};

/// The webhook of these flags.
pub(super) fn component(
    flags: &AdmissionFlags,
    vpas: &VpaScope,
    gates: &FeatureGates,
    context: &RunContext,
) -> RunningComponent {
    let admission_metrics = AdmissionMetrics::default();
    let shown = admission_metrics.clone();
    let options = flags.options(&vpas.namespaces, gates, &identity());
    let options = Options { node_selectors: vpas.node_selectors, ..options };
    warn_of_service(&options.server, "new pods get no recommendation");
    let listening = Listening::default();
    let listens = listening.clone();
    let namespaces = vpas.namespaces.clone();
    let (client, metrics, supervisor) =
        (context.client.clone(), context.metrics.clone(), context.supervisor.clone());
    let shared = context.informers.clone();
    let work = move || {
        let own = || {
            let vpas: Informer<VerticalPodAutoscaler> = Informer::default().with_metrics(&metrics);
            let api: Api<VerticalPodAutoscaler> = match namespaces.only() {
                Some(only) => Api::namespaced(client.clone(), only),
                None => Api::all(client.clone()),
            };
            let informing = vpas.supervised(api, &supervisor);
            (vpas, informing)
        };
        let shared = shared.take(&client, &supervisor);
        // By itself it reads no pods.
        let (vpas, informing) = shared.map_or_else(own, |(informers, informing)| (informers.vpas, informing));
        let environment = Environment {
            client: client.clone(),
            vpas,
            supervisor: supervisor.clone(),
            metrics: metrics.clone(),
            admission_metrics: admission_metrics.clone(),
            clock: Clock::default(),
        };
        let admission = Admission::new(options.clone(), environment);
        listening.set(admission.listening());
        join(admission.run(), informing).map(drop).boxed()
    };
    RunningComponent {
        metrics: Box::new(move |text| shown.render(text)),
        readiness: Box::new(move || listens.unready()),
        ..RunningComponent::new("admission", Box::new(work))
    }
}
