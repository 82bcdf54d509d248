//! The scheduler of a cluster on this machine: a user with the role that upstream gives it.

use std::sync::Arc;

use jiff::Timestamp;
use kube::Client;
use plumb_apiserver::authn::User;
use plumb_scheduler::{Config, Metrics, Settings, USER, run};
use tokio::task::JoinSet;

use crate::components::Context;

/// Starts the scheduler; it ends when the returned value is dropped.
pub(crate) fn start(context: &Context<'_>) -> JoinSet<()> {
    let server = context.server;
    let none: [&str; 0] = [];
    let metrics = Arc::new(Metrics::with_toolkit(context.metrics.clone()));
    let settings = Settings::new(context.rules.clone()).with_features(&context.binding.gates);
    let counted = metrics.clone();
    server.also_show(move |text| counted.render(text));
    let mut running = JoinSet::new();
    running.spawn(run(Config {
        client: Client::new(context.count(server.inside(User::new(USER, "", none))), "default"),
        settings,
        clock: Arc::new(Timestamp::now),
        metrics,
        supervisor: context.supervisor.clone(),
    }));
    running
}
