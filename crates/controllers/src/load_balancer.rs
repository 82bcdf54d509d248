//! The built-in load balancer: `status.loadBalancer` of Services of type `LoadBalancer` has the addresses of nodes.
//!
//! The proxy of each node accepts connections to these addresses at the ports of the Service, so that no pods are needed, as
//! k3s' servicelb needs them. A Service with a `loadBalancerClass` that is not [`CLASS`] belongs to another implementation and is left
//! alone.
//!
//! Two Services cannot have the same port of the same addresses: the one that has addresses already keeps them, then the older
//! one gets them, and the other one has an event that says which Service uses the port.

pub mod decide;

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::{Node, ObjectReference, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Patch, PatchParams};
use kube::{Client, Resource as _};
use plumb_client::Api;
use plumb_controller_runtime::api_error::settled_or_conflict;
use plumb_controller_runtime::{Clock, Index, InformerFactory, ObjectRef, Reconciler, Requeue, Store, Write};
use serde_json::json;

use crate::Clients;
use crate::endpoints::{SlicesByService, service_of, service_type};
use crate::workload::recorder::Recorder;

use decide::{NodeAddresses, State, decide, is_ours, port_keys};

/// The name of this controller's user.
pub const NAME: &str = "service-controller";
/// The `loadBalancerClass` of this implementation; Services without a class are its own too.
pub const CLASS: &str = "plumb.dev/nodes";
/// The value of the index of Services of type `LoadBalancer`.
const BALANCED: &str = "LoadBalancer";

/// Reconciles the status of Services until the future is dropped.
pub fn run(clients: Clients, informers: &InformerFactory, clock: Clock) -> BoxFuture<'static, ()> {
    let (services, nodes) = (informers.informer::<Service>(), informers.informer::<Node>());
    let slices = informers.informer::<EndpointSlice>();
    let balanced = services.add_index(|service: &Service| is_ours(service).then(|| BALANCED.to_owned()));
    let by_port = services.add_index(
        |service: &Service| {
            if is_ours(service) { port_keys(service) } else { BTreeSet::new() }
        },
    );
    let reconciler = LoadBalancers {
        client: clients.write.clone(),
        services: services.store().clone(),
        nodes: nodes.store().clone(),
        slices: SlicesByService::new(&slices),
        by_port: by_port.clone(),
        recorder: Recorder::start(clients.write.clone(), NAME, &clients.supervisor, &clients.metrics),
        clock: clock.clone(),
    };
    let known = services.store().clone();
    clients
        .controller(NAME, reconciler)
        .with_clock(clock)
        .watches(&services, move |change, queue| {
            let ours = |service: &&Arc<Service>| is_ours(service);
            if let Some(service) = change.latest()
                && (change.before.is_some_and(|before| is_ours(before)) || decide::concerns(service))
            {
                queue.add(ObjectRef::of(&**service));
            }
            // A port that becomes free, or whose owner changes, concerns the other Services that want it.
            let before = change.before.filter(ours).map(|service| decide::claim(service));
            let after = change.after.filter(ours).map(|service| decide::claim(service));
            if before != after {
                let ports = [before, after].into_iter().flatten().flat_map(|claim| claim.ports);
                for port in ports.collect::<BTreeSet<String>>() {
                    for service in by_port.get(&port) {
                        queue.add(ObjectRef::of(&*service));
                    }
                }
            }
        })
        .watches(&nodes, move |change, queue| {
            let addresses = |node: Option<&Arc<Node>>| node.and_then(|node| NodeAddresses::new(node));
            if addresses(change.before) != addresses(change.after) {
                for service in balanced.get(BALANCED) {
                    queue.add(ObjectRef::of(&*service));
                }
            }
        })
        .watches(&slices, move |change, queue| {
            let Some(service) = change.latest().and_then(|slice| service_of(slice)) else { return };
            let found = known.get(&service);
            if found.is_some_and(|service| is_ours(&service) && decide::is_local(&service)) {
                queue.add(service);
            }
        })
        .run()
}

/// Reconciles the status of Services.
struct LoadBalancers {
    client: Client,
    services: Arc<Store<Service>>,
    nodes: Arc<Store<Node>>,
    slices: SlicesByService,
    by_port: Index<Service>,
    recorder: Recorder,
    clock: Clock,
}

impl Reconciler for LoadBalancers {
    type Key = ObjectRef;
    type Error = kube::Error;

    async fn reconcile(&self, key: &ObjectRef) -> kube::Result<Requeue> {
        let Some(service) = self.services.get(key) else { return Ok(Requeue::AwaitChange) };
        let ours = is_ours(&service);
        let (nodes, rivals, slices) = if ours {
            let nodes = self.nodes.all().iter().filter_map(|node| NodeAddresses::new(node)).collect();
            let ports = port_keys(&service);
            let rivals = ports
                .iter()
                .flat_map(|port| self.by_port.get(port))
                .filter(|rival| ObjectRef::of(&**rival) != *key);
            let slices = if decide::is_local(&service) { self.slices.get(key) } else { Vec::new() };
            (nodes, rivals.collect(), slices)
        } else {
            (Vec::new(), Vec::new(), Vec::new())
        };
        let state = State { service, nodes, rivals, slices };
        let decided = decide(&state);
        if let Some(ingress) = &decided.ingress {
            let metadata = json!({ "resourceVersion": state.service.metadata.resource_version });
            let patch = json!({ "metadata": metadata, "status": { "loadBalancer": { "ingress": ingress } } });
            let api = Api::<Service>::namespaced(self.client.clone(), &key.namespace);
            let written = api.patch_status(&key.name, &PatchParams::default(), &Patch::Merge(&patch)).await;
            match written {
                Ok(written) => self.services.wait_for_write(&Write::updated(&written.metadata)).await,
                failed => {
                    settled_or_conflict(failed)?;
                    return Ok(Requeue::AwaitChange);
                }
            }
        }
        for note in decided.notes {
            self.recorder.record(state.service.object_ref(&()), note, self.clock.now());
        }
        Ok(Requeue::AwaitChange)
    }

    fn regarding(&self, service: &ObjectRef) -> Option<ObjectReference> {
        self.services.get(service).map(|found| found.object_ref(&()))
    }
}

/// Whether a Service is of type `LoadBalancer`.
fn wants_load_balancer(service: &Service) -> bool {
    service_type(service) == "LoadBalancer" && service.metadata.deletion_timestamp.is_none()
}

#[cfg(test)]
mod tests;
