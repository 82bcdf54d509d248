//! The controllers of a cluster on this machine: each is a user of its own, with the role that upstream gives it.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use kube::Client;
use plumb_apiserver::authn::User;
use plumb_apiserver::pki::KUBERNETES_SERVICE;
use plumb_certificates::{Request, Usage};
use plumb_controllers::budgets::{Budgets, stale};
use plumb_controllers::garbage::census::Census;
use plumb_controllers::workload::{Clock, Workload};
use plumb_controllers::{Clients, GROUPS, WATCHER, user_of};
use plumb_controllers::{
    accounts, aggregation, certificates, garbage, kubernetes_service, namespaces, nodes, pod_gc, protection,
    quota, root_ca, signing, taints, tokens,
};
use plumb_supervise::Supervisor;
use tokio::task::JoinSet;

use crate::components::Context;
use crate::invitation::{Invitation, NodeSettings, WRITER, publish};

/// Starts the controllers; they end when what is answered is dropped.
pub(crate) fn start(context: &Context<'_>) -> JoinSet<()> {
    let (server, supervisor) = (context.server, context.supervisor);
    let (authority, pki) = (context.authority.clone(), context.pki.clone());
    let invitation =
        Invitation { server: format!("https://{}", context.advertised), authority: pki.authority_pem() };
    let service = kubernetes_service::Config::new(KUBERNETES_SERVICE, context.reached_by_pods);
    let client = |user: User| Client::new(server.inside(user), "default");
    let none: [&str; 0] = [];
    let watcher = || client(User::new(WATCHER, "", none));
    let clients = |name: &str| Clients {
        watch: watcher(),
        write: client(User::new(user_of(name), "", GROUPS)),
        supervisor: supervisor.clone(),
    };
    let clock: Clock = Arc::new(Timestamp::now);
    let mut running = Running { tasks: JoinSet::new(), supervisor };
    let own = clients(accounts::NAME);
    running.keep(accounts::NAME, move || accounts::run(own.clone()));
    let own = clients(root_ca::NAME);
    running.keep(root_ca::NAME, move || root_ca::run(own.clone(), authority.clone()));
    let own = clients(kubernetes_service::NAME);
    running.keep(kubernetes_service::NAME, move || kubernetes_service::run(own.clone(), service.clone()));
    let own = clients(aggregation::NAME);
    running.keep(aggregation::NAME, move || aggregation::run(own.clone()));
    let (own, time) = (clients(taints::NAME), clock.clone());
    running.keep("node-taint-controller", move || taints::run(own.clone(), time.clone()));
    let (own, books) =
        (clients(quota::NAME), quota::Config { rules: context.rules.clone(), clock: clock.clone() });
    running.keep(quota::NAME, move || quota::run(own.clone(), books.clone()));

    let workloads =
        plumb_controllers::workloads(clock.clone(), supervisor.clone(), |name| clients(name).write);
    let own = clients(protection::VOLUMES_NAME);
    running.keep(protection::VOLUMES_NAME, move || protection::keep_volumes(own.clone()));
    // These, and the workloads, supervise themselves: what they listen with is arranged once.
    let undisrupted = clients(Budgets::NAME);
    running.tasks.spawn(stale::take_back(workloads.shelves(), undisrupted, clock.clone()));
    let clocks = nodes::Clocks::of_this_machine();
    running.tasks.spawn(nodes::watch_over(workloads.shelves(), clients(nodes::NAME), clocks));
    running.tasks.spawn(pod_gc::collect(workloads.shelves(), clients(pod_gc::NAME), clock.clone()));
    running.tasks.spawn(workloads.run(watcher()));

    let census: Arc<Census> = Arc::default();
    let (kept, seen, own) = (census.clone(), watcher(), supervisor.clone());
    running.keep("garbage-census", move || kept.clone().keep(seen.clone(), own.clone()));
    let (seen, own, time) = (census.clone(), clients(garbage::NAME), clock.clone());
    running.keep(garbage::NAME, move || garbage::run(seen.clone(), own.clone(), time.clone()));
    let (own, time) = (clients(namespaces::NAME), clock.clone());
    running.keep(namespaces::NAME, move || namespaces::run(census.clone(), own.clone(), time.clone()));
    let (own, time) = (clients(garbage::NAME), clock.clone());
    running.keep(garbage::events::TASK, move || garbage::events::run(own.clone(), time.clone()));

    let (own, time) = (clients(tokens::NAME), clock.clone());
    running.keep(tokens::NAME, move || tokens::run(own.clone(), time.clone()));
    let (own, time) = (clients(signing::NAME), clock.clone());
    running.keep(signing::NAME, move || signing::run(own.clone(), time.clone()));
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
    let own = clients(certificates::NAME);
    running.keep(certificates::NAME, move || certificates::run(own.clone(), certifying.clone()));
    let writer = client(User::new(user_of(WRITER), "", GROUPS));
    let settings = NodeSettings { binding: context.binding.clone(), client_authorities };
    running.tasks.spawn(async move {
        if let Err(error) = publish(&writer, &invitation, &settings).await {
            tracing::error!(error = format!("{error:#}"), "machines that want to join are not told how");
        }
    });
    running.tasks
}

/// The tasks of the controllers.
struct Running<'a> {
    tasks: JoinSet<()>,
    supervisor: &'a Supervisor,
}

impl Running<'_> {
    fn keep<Fut>(&mut self, name: &str, make: impl FnMut() -> Fut + Send + 'static)
    where
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.tasks.spawn(self.supervisor.keep(name, make));
    }
}
