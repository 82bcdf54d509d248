//! The controllers of a cluster on this machine: each is a user of its own, with the role that upstream gives it.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use kube::Client;
use plumb_apiserver::ApiServer;
use plumb_apiserver::authn::User;
use plumb_apiserver::pki::Pki;
use plumb_certificates::{Request, Usage};
use plumb_controllers::budgets::{Budgets, stale};
use plumb_controllers::garbage::census::Census;
use plumb_controllers::workload::{Clock, Workload};
use plumb_controllers::{Clients, GROUPS, WATCHER, user_of};
use plumb_controllers::{
    accounts, aggregation, certificates, garbage, kubernetes_service, namespaces, nodes, pod_gc, protection,
    quota, root_ca, signing, taints, tokens,
};
use plumb_resize::rules::Rules;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::invitation::{Binding, Invitation, NodeSettings, WRITER, publish};

/// What the controllers work with.
pub(crate) struct Around {
    /// Whom pods are to trust.
    pub(crate) authority: watch::Receiver<String>,
    /// What machines that want to join are told.
    pub(crate) invitation: Invitation,
    /// Which rules bind on nodes.
    pub(crate) binding: Binding,
    /// Who signs.
    pub(crate) pki: Arc<Pki>,
    /// Where pods reach the API server.
    pub(crate) service: kubernetes_service::Config,
}

/// Starts the controllers; they end when what is answered is dropped.
pub(crate) fn start(server: &ApiServer, around: Around, rules: Rules) -> JoinSet<()> {
    let Around { authority, invitation, binding, pki, service } = around;
    let client = |user: User| Client::new(server.inside(user), "default");
    let none: [&str; 0] = [];
    let watcher = || client(User::new(WATCHER, "", none));
    let clients =
        |name: &str| Clients { watch: watcher(), write: client(User::new(user_of(name), "", GROUPS)) };
    let clock: Clock = Arc::new(Timestamp::now);
    let mut running = JoinSet::new();
    running.spawn(accounts::run(clients(accounts::NAME)));
    running.spawn(root_ca::run(clients(root_ca::NAME), authority));
    running.spawn(kubernetes_service::run(clients(kubernetes_service::NAME), service));
    running.spawn(aggregation::run(clients(aggregation::NAME)));
    running.spawn(taints::run(clients(taints::NAME), clock.clone()));
    let books = quota::Config { rules, clock: clock.clone() };
    running.spawn(quota::run(clients(quota::NAME), books));

    let workloads = plumb_controllers::workloads(clock.clone(), |name| clients(name).write);
    running.spawn(protection::keep_volumes(clients(protection::VOLUMES_NAME)));
    let undisrupted = clients(Budgets::NAME).write;
    running.spawn(stale::take_back(workloads.shelves(), undisrupted, clock.clone()));
    let clocks = nodes::Clocks::of_this_machine();
    running.spawn(nodes::watch_over(workloads.shelves(), clients(nodes::NAME), clocks));
    running.spawn(pod_gc::collect(workloads.shelves(), clients(pod_gc::NAME), clock.clone()));
    running.spawn(workloads.run(watcher()));

    let census: Arc<Census> = Arc::default();
    running.spawn(census.clone().keep(watcher()));
    running.spawn(garbage::run(census.clone(), clients(garbage::NAME).write, clock.clone()));
    running.spawn(namespaces::run(census, clients(namespaces::NAME), clock.clone()));
    running.spawn(garbage::events::run(clients(garbage::NAME), clock.clone()));

    running.spawn(tokens::run(clients(tokens::NAME), clock.clone()));
    running.spawn(signing::run(clients(signing::NAME), clock.clone()));
    let client_authorities = pki.client_authorities_pem();
    let api_server = pki.names().clone();
    let certifying = certificates::Config {
        api_server,
        sign: Arc::new(move |request: &Request, usages: &[Usage], lifetime: SignedDuration| {
            pki.sign(request, usages, lifetime).map_err(|error| error.to_string())
        }),
        approve_serving: client(User::new(user_of(certificates::SERVING_APPROVER), "", GROUPS)),
        clock: clock.clone(),
    };
    running.spawn(certificates::run(clients(certificates::NAME), certifying));
    let writer = client(User::new(user_of(WRITER), "", GROUPS));
    let settings = NodeSettings { binding, client_authorities };
    running.spawn(async move {
        if let Err(error) = publish(&writer, &invitation, &settings).await {
            tracing::error!(error = format!("{error:#}"), "machines that want to join are not told how");
        }
    });
    running
}
