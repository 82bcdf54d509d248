//! The controllers of a cluster on this machine: each is a user of its own, with the role that upstream gives it.

use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Service;
use kube::Client;
use plumb_apiserver::authn::User;
use plumb_apiserver::pki::KUBERNETES_SERVICE;
use plumb_certificates::{Request, Usage};
use plumb_controller_runtime::Clock;
use plumb_controllers::budgets::{Budgets, stale};
use plumb_controllers::endpoints::membership::Membership;
use plumb_controllers::garbage::graph_builder::{self, GraphBuilder};
use plumb_controllers::horizontal_pod_autoscaler::features::{HPA_CONFIGURABLE_TOLERANCE, HPA_SCALE_TO_ZERO};
use plumb_controllers::horizontal_pod_autoscaler::{self, AutoscalerMetrics, Settings};
use plumb_controllers::workload::Workload as _;
use plumb_controllers::{Clients, GROUPS, WATCHER, user_of};
use plumb_controllers::{
    accounts, aggregation, certificates, dns_service, endpoint, endpointslice, endpointslicemirroring,
    garbage, kubernetes_service, load_balancer, namespaces, node_ipam, nodes, pod_gc, protection, quota,
    root_ca, signing, taints, tokens, volumes,
};
use tokio::task::JoinSet;

use crate::components::Context;
use crate::invitation::{Invitation, NodeSettings, WRITER, publish};

/// Starts the controllers; they end when the returned value is dropped.
pub(crate) fn start(context: &Context<'_>) -> JoinSet<()> {
    let (server, supervisor) = (context.server, context.supervisor);
    let (authority, pki) = (context.authority.clone(), context.pki.clone());
    let invitation =
        Invitation { server: format!("https://{}", context.advertised), authority: pki.authority_pem() };
    let service = kubernetes_service::Config::new(KUBERNETES_SERVICE, context.reached_by_pods);
    let metrics = context.metrics;
    let client = |user: User| Client::new(context.count(server.inside(user)), "default");
    let none: [&str; 0] = [];
    let watcher = || client(User::new(WATCHER, "", none));
    let clients = |name: &str| Clients {
        watch: watcher(),
        write: client(User::new(user_of(name), "", GROUPS)),
        supervisor: supervisor.clone(),
        metrics: metrics.clone(),
    };
    let clock = Clock::default();
    let mut running = JoinSet::new();
    let writer = |name: &str| clients(name).write;
    let manager = plumb_controllers::workloads(clock.clone(), supervisor.clone(), metrics.clone(), writer);
    let (informers, factory) = (manager.informers(), manager.factory());
    running.spawn(accounts::run(clients(accounts::NAME), factory));
    running.spawn(root_ca::run(clients(root_ca::NAME), factory, authority));
    running.spawn(kubernetes_service::run(clients(kubernetes_service::NAME), service));
    if let Some(address) = context.dns.server {
        running.spawn(dns_service::run(clients(dns_service::NAME), address));
    }
    running.spawn(aggregation::run(clients(aggregation::NAME), factory));
    running.spawn(taints::run(clients(taints::NAME), factory, clock.clone()));
    let measuring = quota::Config { rules: context.rules.clone(), clock: clock.clone() };
    running.spawn(quota::run(clients(quota::NAME), factory, measuring));
    let autoscalers: Arc<AutoscalerMetrics> = Arc::default();
    let rendered = autoscalers.clone();
    server.also_show(move |text| rendered.render(text));
    let gates = &context.binding.gates;
    let autoscaling = horizontal_pod_autoscaler::Config {
        settings: Settings {
            sync_period: context.autoscaling_period,
            scale_to_zero: gates.enabled(&HPA_SCALE_TO_ZERO),
            configurable_tolerance: gates.enabled(&HPA_CONFIGURABLE_TOLERANCE),
            ..Settings::default()
        },
        clock: clock.clone(),
        metrics: autoscalers,
    };
    let as_autoscaler = clients(horizontal_pod_autoscaler::NAME);
    running.spawn(horizontal_pod_autoscaler::run(as_autoscaler, factory, autoscaling));
    running.spawn(protection::protect_volumes(clients(protection::VOLUMES_NAME), factory));
    running.spawn(volumes::binder::run(clients(volumes::binder::NAME), factory, clock.clone()));
    let attaching = clients(volumes::attach_detach::NAME);
    running.spawn(volumes::attach_detach::run(attaching, factory, clock.clone()));
    running.spawn(volumes::local_path::run(clients(volumes::local_path::NAME), factory, clock.clone()));
    let provisioner = clients(volumes::local_path::NAME).write;
    running.spawn(
        supervisor
            .finish_one_of("local-path-class", move || volumes::local_path::class::run(provisioner.clone())),
    );
    running.spawn(stale::run(informers, clients(Budgets::NAME), clock.clone()));
    running.spawn(nodes::run(informers, clients(nodes::NAME), clock.clone()));
    if let Some(network) = context.network {
        match node_ipam::run(informers, clients(node_ipam::USER), network.range.clone(), clock.clone()) {
            Ok(allocating) => _ = running.spawn(allocating),
            // It was checked with the flags.
            Err(error) => tracing::error!(%error, "nodes get no networks for their pods"),
        }
    }
    running.spawn(pod_gc::run(informers, clients(pod_gc::NAME), clock.clone()));

    let membership = Membership::new(&factory.informer::<Service>(), &informers.pods);
    let config = endpointslice::Config::new(clock.clone());
    running.spawn(endpoint::run(clients(endpoint::NAME), factory, &membership, config.clone()));
    running.spawn(endpointslice::run(clients(endpointslice::NAME), factory, &membership, config));
    let mirroring = clients(endpointslicemirroring::NAME);
    running.spawn(endpointslicemirroring::run(mirroring, factory, clock.clone()));
    running.spawn(load_balancer::run(clients(load_balancer::NAME), factory, clock.clone()));

    let graph_builder: Arc<GraphBuilder> = Arc::default();
    running.spawn(graph_builder::run(&graph_builder, clients(garbage::NAME)));
    running.spawn(garbage::run(&graph_builder, clients(garbage::NAME)));
    running.spawn(namespaces::run(&graph_builder, clients(namespaces::NAME), factory, clock.clone()));
    running.spawn(garbage::events::run(clients(garbage::NAME), clock.clone()));

    running.spawn(tokens::run(clients(tokens::NAME), clock.clone()));
    running.spawn(signing::run(clients(signing::NAME), clock.clone()));
    let client_authorities = pki.client_authorities_pem();
    let api_server = pki.names().clone();
    // An address that a socket can be bound to is one of this machine.
    let own = |address: &IpAddr| UdpSocket::bind((*address, 0)).is_ok();
    let machine = api_server.iter().filter_map(|name| name.parse().ok()).filter(own).collect();
    let certifying = certificates::Config {
        api_server,
        machine,
        sign: Arc::new(move |request: &Request, usages: &[Usage], lifetime: SignedDuration| {
            pki.sign(request, usages, lifetime).map_err(Into::into)
        }),
        approve_serving: client(User::new(user_of(certificates::SERVING_APPROVER), "", GROUPS)),
        clock,
    };
    running.spawn(certificates::run(clients(certificates::NAME), factory, certifying));
    // Last: the informers start with it, and everything that watches has to be known by then.
    running.spawn(manager.run(watcher()));
    let writer = client(User::new(user_of(WRITER), "", GROUPS));
    let settings = NodeSettings {
        binding: context.binding.clone(),
        dns: context.dns.clone(),
        pod_network: context.network.map(|network| network.network),
        client_authorities,
    };
    running.spawn(async move {
        if let Err(error) = publish(&writer, &invitation, &settings).await {
            tracing::error!(
                error = format!("{error:#}"),
                "cannot publish cluster-info, which nodes need to join"
            );
        }
    });
    running
}
