//! The Service `kube-dns` in the namespace `kube-system`, by which people and tools find the cluster's DNS server. kubeadm creates
//! it once; here a controller maintains it.
//!
//! It has no selector and no endpoints: each node serves its cluster IP itself, and the service proxy leaves it alone.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::{ObjectReference, Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::{ObjectMeta, PostParams};
use kube::{Client, Resource as _};
use plumb_client::Api;
use plumb_controller_runtime::api_error::settled_or_conflict;
use plumb_controller_runtime::{Informer, ObjectRef, Reconciler, Requeue, Store, WatchConfig};

use crate::Clients;
use crate::kubernetes_service::Action;

/// The name of this controller's user.
pub const NAME: &str = "dns-service";
/// The namespace of the Service.
pub const NAMESPACE: &str = "kube-system";
/// The name of the Service.
pub const SERVICE: &str = "kube-dns";
/// The port of the Service, UDP and TCP.
pub const PORT: u16 = 53;

/// The write of the Service, if one is needed: it is created if it is missing, and its ports are restored. A cluster IP is
/// immutable: a Service with another one, from a start with another `--cluster-dns`, stays as it is until a user deletes it.
pub fn decide(cluster_ip: Ipv4Addr, found: Option<&Service>) -> Option<Action<Service>> {
    let port = |name: &str, protocol: &str| ServicePort {
        name: Some(name.to_owned()),
        port: i32::from(PORT),
        protocol: Some(protocol.to_owned()),
        target_port: Some(IntOrString::Int(i32::from(PORT))),
        ..ServicePort::default()
    };
    let ports = vec![port("dns", "UDP"), port("dns-tcp", "TCP")];
    let Some(found) = found else {
        // As kubeadm labels it.
        let labels = [
            ("k8s-app", "kube-dns"),
            ("kubernetes.io/cluster-service", "true"),
            ("kubernetes.io/name", "CoreDNS"),
        ];
        let labels: BTreeMap<_, _> =
            labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        return Some(Action::Create(Service {
            metadata: ObjectMeta {
                name: Some(SERVICE.to_owned()),
                labels: Some(labels),
                ..ObjectMeta::default()
            },
            spec: Some(ServiceSpec {
                cluster_ip: Some(cluster_ip.to_string()),
                ip_family_policy: Some("SingleStack".to_owned()),
                ip_families: Some(vec!["IPv4".to_owned()]),
                ports: Some(ports),
                session_affinity: Some("None".to_owned()),
                type_: Some("ClusterIP".to_owned()),
                ..ServiceSpec::default()
            }),
            status: None,
        }));
    };
    if found.spec.as_ref().and_then(|spec| spec.ports.as_ref()) == Some(&ports) {
        return None;
    }
    let mut wanted = found.clone();
    wanted.spec.get_or_insert_default().ports = Some(ports);
    Some(Action::Update(wanted))
}

/// Reconciles the Service until the future is dropped.
pub fn run(clients: Clients, cluster_ip: Ipv4Addr) -> BoxFuture<'static, ()> {
    let services =
        Informer::<Service>::new(WatchConfig::default().fields(format!("metadata.name={SERVICE}")));
    let reconciler =
        DnsService { client: clients.write.clone(), services: services.store().clone(), cluster_ip };
    let controller = clients.controller(NAME, reconciler).watches(&services, |_, queue| queue.add(Key));
    // A Service that is missing at the start causes no event.
    controller.queue().add(Key);
    let informing = services.supervised(Api::namespaced(clients.watch, NAMESPACE), &clients.supervisor);
    Box::pin(async move { _ = tokio::join!(informing, controller.run()) })
}

/// The Service, in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Key;

struct DnsService {
    client: Client,
    services: Arc<Store<Service>>,
    cluster_ip: Ipv4Addr,
}

impl DnsService {
    fn found(&self) -> Option<Arc<Service>> {
        self.services.get(&ObjectRef::namespaced(NAMESPACE, SERVICE))
    }
}

impl Reconciler for DnsService {
    type Key = Key;
    type Error = kube::Error;

    async fn reconcile(&self, _: &Key) -> kube::Result<Requeue> {
        let api = Api::<Service>::namespaced(self.client.clone(), NAMESPACE);
        let done = match decide(self.cluster_ip, self.found().as_deref()) {
            None => return Ok(Requeue::AwaitChange),
            Some(Action::Create(service)) => api.create(&PostParams::default(), &service).await,
            Some(Action::Update(service)) => api.replace(SERVICE, &PostParams::default(), &service).await,
        };
        settled_or_conflict(done)?;
        Ok(Requeue::AwaitChange)
    }

    fn regarding(&self, _: &Key) -> Option<ObjectReference> {
        self.found().map(|found| found.object_ref(&()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 10);

    #[test]
    fn the_service_is_created_as_kubeadm_does_and_its_ports_are_restored() {
        let Some(Action::Create(created)) = decide(ADDRESS, None) else { panic!("it is missing") };
        let spec = created.spec.clone().unwrap();
        assert_eq!((spec.cluster_ip.as_deref(), spec.selector), (Some("10.96.0.10"), None));
        let ports = spec.ports.unwrap();
        let ports: Vec<_> = ports
            .iter()
            .map(|port| (port.name.as_deref().unwrap(), port.protocol.as_deref().unwrap(), port.port))
            .collect();
        assert_eq!(ports, [("dns", "UDP", 53), ("dns-tcp", "TCP", 53)]);
        assert_eq!(decide(ADDRESS, Some(&created)), None);
        let mut changed = created.clone();
        changed.spec.as_mut().unwrap().ports.as_mut().unwrap().pop();
        changed.metadata.labels = None;
        let Some(Action::Update(restored)) = decide(ADDRESS, Some(&changed)) else {
            panic!("a port is missing")
        };
        assert_eq!(restored.spec, created.spec);
        assert_eq!(restored.metadata.labels, None, "users may change everything else");
    }
}
