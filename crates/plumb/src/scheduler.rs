//! The scheduler of a cluster on this machine: a user with the role that upstream gives it.

use std::sync::Arc;

use jiff::Timestamp;
use kube::Client;
use plumb_apiserver::ApiServer;
use plumb_apiserver::authn::User;
use plumb_resize::rules::{Gate, Gates, Rules};
use plumb_scheduler::{Config, Metrics, Settings, USER, run};
use plumb_supervise::Supervisor;
use tokio::task::JoinSet;

/// Starts the scheduler; it ends when what is answered is dropped.
pub(crate) fn start(server: &ApiServer, rules: &Rules, gates: Gates, supervisor: &Supervisor) -> JoinSet<()> {
    let none: [&str; 0] = [];
    let metrics: Arc<Metrics> = Arc::default();
    let mut settings = Settings::new(rules.clone());
    settings.preempt_for_resizes = gates.is_on(Gate::SchedulerPreemption);
    let counted = metrics.clone();
    server.also_show(move |text| counted.render(text));
    let mut running = JoinSet::new();
    running.spawn(run(Config {
        client: Client::new(server.inside(User::new(USER, "", none)), "default"),
        settings,
        clock: Arc::new(Timestamp::now),
        metrics,
        supervisor: supervisor.clone(),
    }));
    running
}
