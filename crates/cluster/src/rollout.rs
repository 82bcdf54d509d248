//! The rollout of a cluster on this machine: CloneSets, and in-place rollouts of workloads.

use std::time::Duration;

use kube::Client;
use plumb_apiserver::authn::User;
use plumb_controller_runtime::{Backoff, Clock, Exponential};
use plumb_controllers::{GROUPS, user_of};
use plumb_rollout::features::IN_PLACE_WORKLOAD_VERTICAL_SCALING;
use plumb_rollout::install::install;
use plumb_rollout::webhook::{self, HoldWebhook};
use plumb_rollout::workloads::held;
use plumb_rollout::{Config, Rollout, release_all};
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

/// How long a release may take. Then it is tried again.
const RELEASE_TIMEOUT: Duration = Duration::from_mins(1);

/// Releases the workloads that the rollout of an earlier `plumb up` holds, where this one runs none: they would stay paused for
/// good. Their own controllers recreate the pods that were not resized.
pub(crate) fn release_absent(context: &Context<'_>) -> JoinSet<()> {
    let user = User::new(user_of(plumb_roles::ROLLOUT.account), "", GROUPS);
    let client = Client::new(context.count(context.server.inside(user)), "default");
    let config = Config {
        supervisor: context.supervisor.clone(),
        metrics: context.metrics.clone(),
        ..Config::new(client, context.rules.clone(), false)
    };
    let mut running = JoinSet::new();
    let release = move || release_held(config.clone());
    running.spawn(context.supervisor.finish_one_of("absent-rollout", release));
    running
}

async fn release_held(config: Config) {
    let mut backoff = Backoff::new(Exponential::new(Duration::from_millis(200), Duration::from_secs(30)));
    loop {
        match held(&config.write).await {
            Ok(held) if held.is_empty() => return,
            Ok(held) => {
                let workloads = held.join(", ");
                if tokio::time::timeout(RELEASE_TIMEOUT, release_all(config.clone())).await.is_ok() {
                    tracing::info!(
                        workloads,
                        "released what a rollout held: the component rollout does not run"
                    );
                    return;
                }
                tracing::warn!(workloads, "cannot release what a rollout holds, will retry");
            }
            Err(error) => tracing::warn!(%error, "cannot list what a rollout holds, will retry"),
        }
        backoff.wait().await;
    }
}

/// Removes the configuration of a webhook that was served while the feature gate was on, however often that has to be tried.
pub async fn unregister(client: &Client) {
    let mut backoff = Backoff::new(Exponential::new(Duration::from_millis(200), Duration::from_secs(30)));
    while let Err(error) = webhook::unregister(client).await {
        tracing::warn!(%error, "cannot remove the webhook of rollouts, will retry");
        backoff.wait().await;
    }
}
