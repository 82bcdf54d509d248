//! The rollout as parts of `plumb run`: the controllers, which are elected, and the webhook, which every process serves.

use std::sync::Arc;

use futures_util::future::{FutureExt as _, join};
use parking_lot::Mutex;
use plumb_controller::Clock;
use plumb_features::FeatureGates;
use plumb_resize::rules::{Dialect, Rules};
use plumb_rollout::features::IN_PLACE_WORKLOAD_VERTICAL_SCALING;
use plumb_rollout::webhook::{self, HoldWebhook};
use plumb_rollout::{Config, Rollout};
use tokio::sync::watch;

use super::{Ground, Part};
use crate::cli::{Elected, RolloutFlags};
use crate::rollout::unregister;

/// The controllers and, if the feature gate is on, the webhook.
pub(super) fn parts(elected: &Elected<RolloutFlags>, gates: &FeatureGates, ground: &Ground) -> Vec<Part> {
    let enabled = gates.enabled(&IN_PLACE_WORKLOAD_VERTICAL_SCALING);
    let mut parts = vec![controllers(elected.lease.clone(), gates, enabled, ground)];
    if enabled {
        parts.push(webhook(&elected.flags, gates, ground));
    }
    parts
}

fn controllers(lease: String, gates: &FeatureGates, enabled: bool, ground: &Ground) -> Part {
    // A cluster that runs elsewhere is a Kubernetes as shipped.
    let rules = Rules::new(Dialect::V1_36, gates);
    let config = Config {
        supervisor: ground.supervisor.clone(),
        metrics: ground.metrics.clone(),
        ..Config::new(ground.client.clone(), rules, enabled)
    };
    let shown = config.rollout_metrics.clone();
    let client = ground.client.clone();
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
    Part {
        lease: Some(lease),
        metrics: Box::new(move |text| shown.render(text)),
        ..Part::new("rollout", Box::new(work))
    }
}

/// Where the webhook listens, once it does.
type Listening = Arc<Mutex<Option<watch::Receiver<Option<std::net::SocketAddr>>>>>;

fn webhook(flags: &RolloutFlags, gates: &FeatureGates, ground: &Ground) -> Part {
    let config = webhook::Config {
        client: ground.client.clone(),
        server: flags.server(),
        rules: Rules::new(Dialect::V1_36, gates),
        clock: Clock::default(),
        supervisor: ground.supervisor.clone(),
        metrics: ground.metrics.clone(),
    };
    let listening = Listening::default();
    let listens = listening.clone();
    let work = move || {
        let webhook = HoldWebhook::new(config.clone());
        *listening.lock() = Some(webhook.listening());
        webhook.run()
    };
    Part {
        readiness: Box::new(move || {
            let is_listening = listens.lock().as_ref().is_some_and(|address| address.borrow().is_some());
            (!is_listening).then(|| "the webhook does not listen yet".to_owned())
        }),
        ..Part::new("rollout-webhook", Box::new(work))
    }
}
