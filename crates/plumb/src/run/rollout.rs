//! The rollout as components of `plumb run`: the controllers, which are elected, and the webhook, which every process serves.

use futures_util::future::{FutureExt as _, join};
use plumb_cluster::rollout::unregister;
use plumb_controller_runtime::Clock;
use plumb_features::FeatureGates;
use plumb_resize::rules::{Dialect, Rules};
use plumb_rollout::features::IN_PLACE_WORKLOAD_VERTICAL_SCALING;
use plumb_rollout::webhook::{self, HoldWebhook};
use plumb_rollout::{Config, Rollout};

use super::webhook::{Listening, warn_of_service};
use super::{RunContext, RunningComponent};
use crate::cli::{Elected, RolloutFlags};

/// The controllers and, if the feature gate is on, the webhook.
pub(super) fn components(
    elected: &Elected<RolloutFlags>,
    gates: &FeatureGates,
    context: &RunContext,
) -> Vec<RunningComponent> {
    let enabled = gates.enabled(&IN_PLACE_WORKLOAD_VERTICAL_SCALING);
    let mut components = vec![controllers(elected.lease.clone(), gates, enabled, context)];
    if enabled {
        components.push(webhook(&elected.flags, gates, context));
    }
    components
}

fn controllers(lease: String, gates: &FeatureGates, enabled: bool, context: &RunContext) -> RunningComponent {
    // A cluster that runs elsewhere is a Kubernetes as shipped.
    let rules = Rules::new(Dialect::V1_36, gates);
    let config = Config {
        supervisor: context.supervisor.clone(),
        metrics: context.metrics.clone(),
        ..Config::new(context.client.clone(), rules, enabled)
    };
    let shown = config.rollout_metrics.clone();
    let client = context.client.clone();
    let work = move || {
        let rollout = Rollout::new(config.clone()).run();
        let client = client.clone();
        let unregistering = async move {
            if !enabled {
                unregister(&client).await;
            }
        };
        join(rollout, unregistering).map(drop).boxed()
    };
    RunningComponent {
        lease: Some(lease),
        metrics: Box::new(move |text| shown.render(text)),
        ..RunningComponent::new("rollout", Box::new(work))
    }
}

fn webhook(flags: &RolloutFlags, gates: &FeatureGates, context: &RunContext) -> RunningComponent {
    let config = webhook::Config {
        client: context.client.clone(),
        server: flags.server(),
        rules: Rules::new(Dialect::V1_36, gates),
        clock: Clock::default(),
        supervisor: context.supervisor.clone(),
        metrics: context.metrics.clone(),
    };
    warn_of_service(&config.server, "edits of resources replace pods");
    let listening = Listening::default();
    let listens = listening.clone();
    let work = move || {
        let webhook = HoldWebhook::new(config.clone());
        listening.set(webhook.listening());
        webhook.run()
    };
    RunningComponent {
        readiness: Box::new(move || listens.unready()),
        ..RunningComponent::new("rollout-webhook", Box::new(work))
    }
}
