//! The rollout of a cluster on this machine: CloneSets, and in-place rollouts of workloads.

pub(crate) mod command;

use std::time::Duration;

use kube::Client;
use plumb_apiserver::authn::User;
use plumb_controller::{Backoff, Clock, Exponential};
use plumb_controllers::{GROUPS, user_of};
use plumb_rollout::features::IN_PLACE_WORKLOAD_VERTICAL_SCALING;
use plumb_rollout::install::install;
use plumb_rollout::webhook::{self, HoldWebhook};
use plumb_rollout::{Config, Rollout};
use tokio::task::JoinSet;

use crate::components::Context;
use crate::definitions::{self, define};

/// The namespace of the webhook's Secret.
const NAMESPACE: &str = "kube-system";

/// Starts the controllers and, if the feature gate is on, the webhook; they end when the returned value is dropped.
pub(crate) fn start(context: &Context<'_>) -> JoinSet<()> {
    let client = |name: &str| {
        let user = User::new(user_of(name), "", GROUPS);
        Client::new(context.count(context.server.inside(user)), "default")
    };
    let own = client(plumb_roles::ROLLOUT.account);
    let enabled = context.binding.gates.enabled(&IN_PLACE_WORKLOAD_VERTICAL_SCALING);
    let config = Config {
        supervisor: context.supervisor.clone(),
        metrics: context.metrics.clone(),
        ..Config::new(own.clone(), context.rules.clone(), enabled)
    };
    let metrics = config.rollout_metrics.clone();
    context.server.also_show(move |text| metrics.render(text));
    let webhook = enabled.then(|| {
        HoldWebhook::new(webhook::Config {
            client: own.clone(),
            server: plumb_webhook::Options::on_loopback(NAMESPACE, webhook::SECRET, webhook::registration),
            rules: context.rules.clone(),
            clock: Clock::default(),
            supervisor: context.supervisor.clone(),
            metrics: context.metrics.clone(),
        })
    });
    let installer = client(definitions::USER);
    let mut running = JoinSet::new();
    running.spawn(async move {
        define("CloneSets and RolloutPolicies", || install(&installer)).await;
        let rollout = Rollout::new(config).run();
        match webhook {
            Some(webhook) => _ = tokio::join!(rollout, webhook.run()),
            None => _ = tokio::join!(rollout, unregister(&own)),
        }
    });
    running
}

/// Removes the configuration of a webhook that was served while the feature gate was on, however often that has to be tried.
pub(crate) async fn unregister(client: &Client) {
    let mut backoff = Backoff::new(Exponential::new(Duration::from_millis(200), Duration::from_secs(30)));
    while let Err(error) = webhook::unregister(client).await {
        tracing::warn!(%error, "cannot remove the webhook of rollouts, will retry");
        backoff.wait().await;
    }
}
