//! The admission webhook as a component of `plumb run`. It is not elected: every process serves it.

use std::sync::Arc;

use futures_util::future::{FutureExt as _, join};
use parking_lot::Mutex;
use plumb_autoscaler::admission::metrics::AdmissionMetrics;
use plumb_autoscaler::admission::{Admission, Environment, Options};
use plumb_autoscaler::api::VerticalPodAutoscaler;
use plumb_client::Api;
use plumb_controller::{Clock, Informer};
use plumb_features::FeatureGates;
use plumb_webhook::Endpoint;
use tokio::sync::watch;

use super::{RunContext, RunningComponent, identity};
use crate::cli::{AdmissionFlags, VpaScope};

/// Where the webhook listens, once it does.
type Listening = Arc<Mutex<Option<watch::Receiver<Option<std::net::SocketAddr>>>>>;

/// Warns, outside a pod, of a webhook that is registered by a Service: no Service has this process behind it by itself.
fn warn_of_service(options: &Options) {
    let endpoint = options.server.registration.as_ref().map(|registration| &registration.endpoint);
    let Some(Endpoint::Service { namespace, name, .. }) = endpoint else { return };
    tracing::warn!(
        "the webhook is registered by Service {namespace}/{name}, which the API server has to reach this process by, though \
         it runs outside a pod. If the API server does not, new pods get no recommendation. --register-by-url with \
         --webhook-address=HOST registers the address of this machine instead"
    );
}

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
    if std::env::var_os("KUBERNETES_SERVICE_HOST").is_none() {
        warn_of_service(&options);
    }
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
        *listening.lock() = Some(admission.listening());
        join(admission.run(), informing).map(drop).boxed()
    };
    RunningComponent {
        metrics: Box::new(move |text| shown.render(text)),
        readiness: Box::new(move || {
            let is_listening = listens.lock().as_ref().is_some_and(|address| address.borrow().is_some());
            (!is_listening).then(|| "the webhook does not listen yet".to_owned())
        }),
        ..RunningComponent::new("admission", Box::new(work))
    }
}
