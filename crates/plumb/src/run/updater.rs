//! The updater as a component of `plumb run`.

use futures_util::future::{FutureExt as _, join};
use plumb_controller_runtime::Clock;
use plumb_features::FeatureGates;
use plumb_resize::rules::{Dialect, Rules};
use plumb_updater::{Config, Options, Updater, UpdaterMetrics};
use plumb_vpa::target::{TargetConfig, Targets};

use super::{RunContext, RunningComponent};
use crate::cli::{Elected, UpdaterFlags, VpaScope};

/// The updater of these flags.
pub(super) fn component(
    elected: &Elected<UpdaterFlags>,
    vpas: &VpaScope,
    gates: &FeatureGates,
    context: &RunContext,
) -> RunningComponent {
    let updater_metrics = UpdaterMetrics::default();
    let shown = updater_metrics.clone();
    let options = Options { node_selectors: vpas.node_selectors, ..elected.flags.options(gates) };
    // A cluster that runs elsewhere is a Kubernetes as shipped.
    let rules = Rules::new(Dialect::V1_36, gates);
    let namespaces = vpas.namespaces.clone();
    let (client, metrics, supervisor) =
        (context.client.clone(), context.metrics.clone(), context.supervisor.clone());
    let shared = context.informers.clone();
    let work = move || {
        let (informers, informing) = shared.of_term(&namespaces, &client, &metrics, &supervisor);
        let updater = Updater::new(Config {
            client: client.clone(),
            informers,
            targets: Targets::new(client.clone(), TargetConfig::default()),
            options: options.clone(),
            rules: rules.clone(),
            clock: Clock::default(),
            supervisor: supervisor.clone(),
            metrics: metrics.clone(),
            updater_metrics: updater_metrics.clone(),
        });
        join(updater.run(), informing).map(drop).boxed()
    };
    RunningComponent {
        lease: Some(elected.lease.clone()),
        metrics: Box::new(move |text| shown.render(text)),
        ..RunningComponent::new("updater", Box::new(work))
    }
}
