//! The Service `kubernetes` in the namespace `default`, with its Endpoints and EndpointSlice, by which pods reach the
//! API server. kube-apiserver maintains them itself.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{
    EndpointAddress, EndpointPort, EndpointSubset, Endpoints, ObjectReference, Service, ServicePort,
    ServiceSpec,
};
use k8s_openapi::api::discovery::v1::{
    Endpoint, EndpointConditions, EndpointPort as SlicePort, EndpointSlice,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::{ObjectMeta, PostParams};
use kube::{Client, Resource};
use plumb_client::{Api, Codec};
use plumb_controller_runtime::api_error::settled_or_conflict;
use plumb_controller_runtime::{Informer, ObjectRef, Reconciler, Requeue, Store, WatchConfig, Watchable};

use crate::Clients;

/// The name of this controller's user.
pub const NAME: &str = "kubernetes-service";

const NAMESPACE: &str = "default";
const SERVICE: &str = "kubernetes";
const PORT_NAME: &str = "https";
/// The port of the Service.
pub const PORT: u16 = 443;

/// Where the API server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The cluster IP of the Service.
    pub cluster_ip: Ipv4Addr,
    /// The port that the API server listens on.
    pub port: u16,
    /// The addresses that pods reach it at. The API takes no loopback address here: such a one is left out.
    pub addresses: Vec<Ipv4Addr>,
}

impl Config {
    /// An API server that advertises an address.
    pub fn new(cluster_ip: Ipv4Addr, advertised: SocketAddr) -> Self {
        let addresses = match advertised {
            SocketAddr::V4(v4) if !v4.ip().is_loopback() => vec![*v4.ip()],
            _ => Vec::new(),
        };
        Self { cluster_ip, port: advertised.port(), addresses }
    }
}

/// A write.
#[derive(Clone, Debug, PartialEq)]
pub enum Action<K> {
    /// The object is missing.
    Create(K),
    /// The object differs.
    Update(K),
}

fn metadata(labels: &[(&str, &str)]) -> ObjectMeta {
    let labels: BTreeMap<_, _> = labels.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
    ObjectMeta { name: Some(SERVICE.to_owned()), labels: Some(labels), ..ObjectMeta::default() }
}

/// The write of the Service, if one is needed: it is created if it is missing, and its port is restored. As in
/// kube-apiserver, users may change everything else.
pub fn decide_service(config: &Config, found: Option<&Service>) -> Option<Action<Service>> {
    let port = ServicePort {
        name: Some(PORT_NAME.to_owned()),
        port: i32::from(PORT),
        protocol: Some("TCP".to_owned()),
        target_port: Some(IntOrString::Int(i32::from(config.port))),
        ..ServicePort::default()
    };
    let Some(found) = found else {
        return Some(Action::Create(Service {
            metadata: metadata(&[("component", "apiserver"), ("provider", "kubernetes")]),
            spec: Some(ServiceSpec {
                cluster_ip: Some(config.cluster_ip.to_string()),
                ip_family_policy: Some("SingleStack".to_owned()),
                ip_families: Some(vec!["IPv4".to_owned()]),
                ports: Some(vec![port]),
                session_affinity: Some("None".to_owned()),
                type_: Some("ClusterIP".to_owned()),
                ..ServiceSpec::default()
            }),
            status: None,
        }));
    };
    if found.spec.as_ref().and_then(|spec| spec.ports.as_deref()) == Some(std::slice::from_ref(&port)) {
        return None;
    }
    let mut wanted = found.clone();
    wanted.spec.get_or_insert_default().ports = Some(vec![port]);
    Some(Action::Update(wanted))
}

/// The write of the Endpoints, if one is needed.
pub fn decide_endpoints(config: &Config, found: Option<&Endpoints>) -> Option<Action<Endpoints>> {
    let subset = EndpointSubset {
        addresses: Some(
            config
                .addresses
                .iter()
                .map(|ip| EndpointAddress { ip: ip.to_string(), ..EndpointAddress::default() })
                .collect(),
        ),
        ports: Some(vec![EndpointPort {
            name: Some(PORT_NAME.to_owned()),
            port: i32::from(config.port),
            protocol: Some("TCP".to_owned()),
            ..EndpointPort::default()
        }]),
        not_ready_addresses: None,
    };
    // A subset without addresses is not valid.
    let subsets = (!config.addresses.is_empty()).then(|| vec![subset]);
    let Some(found) = found else {
        // The EndpointSlice is kept here, too: no other controller is to mirror it from the Endpoints.
        let metadata = metadata(&[("endpointslice.kubernetes.io/skip-mirror", "true")]);
        return Some(Action::Create(Endpoints { metadata, subsets }));
    };
    if found.subsets.as_deref().unwrap_or_default() == subsets.as_deref().unwrap_or_default() {
        return None;
    }
    Some(Action::Update(Endpoints { subsets, ..found.clone() }))
}

/// The write of the EndpointSlice, if one is needed.
pub fn decide_slice(config: &Config, found: Option<&EndpointSlice>) -> Option<Action<EndpointSlice>> {
    let ready = EndpointConditions { ready: Some(true), ..EndpointConditions::default() };
    let endpoints: Vec<Endpoint> = config
        .addresses
        .iter()
        .map(|ip| Endpoint {
            addresses: vec![ip.to_string()],
            conditions: Some(ready.clone()),
            ..Endpoint::default()
        })
        .collect();
    let ports = Some(vec![SlicePort {
        name: Some(PORT_NAME.to_owned()),
        port: Some(i32::from(config.port)),
        protocol: Some("TCP".to_owned()),
        app_protocol: None,
    }]);
    let Some(found) = found else {
        let metadata = metadata(&[("kubernetes.io/service-name", SERVICE)]);
        return Some(Action::Create(EndpointSlice {
            address_type: "IPv4".to_owned(),
            endpoints: Some(endpoints),
            metadata,
            ports,
        }));
    };
    if found.endpoints.as_deref().unwrap_or_default() == endpoints && found.ports == ports {
        return None;
    }
    Some(Action::Update(EndpointSlice { endpoints: Some(endpoints), ports, ..found.clone() }))
}

/// Reconciles the three objects until the future is dropped.
pub fn run(clients: Clients, config: Config) -> BoxFuture<'static, ()> {
    let services = informer::<Service>();
    let endpoints = informer();
    let slices = informer();
    let reconciler = KubernetesService {
        client: clients.write.clone(),
        services: services.store().clone(),
        endpoints: endpoints.store().clone(),
        slices: slices.store().clone(),
        config,
    };
    let controller = clients
        .controller(NAME, reconciler)
        .watches(&services, |_, queue| queue.add(ManagedObject::Service))
        .watches(&endpoints, |_, queue| queue.add(ManagedObject::Endpoints))
        .watches(&slices, |_, queue| queue.add(ManagedObject::EndpointSlice));
    // An object that is missing at the start causes no event.
    for object in [ManagedObject::Service, ManagedObject::Endpoints, ManagedObject::EndpointSlice] {
        controller.queue().add(object);
    }
    let Clients { watch, supervisor, .. } = clients;
    let informing = (
        services.supervised(Api::namespaced(watch.clone(), NAMESPACE), &supervisor),
        endpoints.supervised(Api::namespaced(watch.clone(), NAMESPACE), &supervisor),
        slices.supervised(Api::namespaced(watch, NAMESPACE), &supervisor),
    );
    Box::pin(async move { _ = tokio::join!(informing.0, informing.1, informing.2, controller.run()) })
}

/// An informer of the objects of this name.
fn informer<K: Watchable>() -> Informer<K> {
    Informer::new(WatchConfig::default().fields(format!("metadata.name={SERVICE}")))
}

/// One of the three objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum ManagedObject {
    Service,
    Endpoints,
    EndpointSlice,
}

/// Reconciles the three objects.
struct KubernetesService {
    client: Client,
    services: Arc<Store<Service>>,
    endpoints: Arc<Store<Endpoints>>,
    slices: Arc<Store<EndpointSlice>>,
    config: Config,
}

impl Reconciler for KubernetesService {
    type Key = ManagedObject;
    type Error = kube::Error;

    async fn reconcile(&self, object: &ManagedObject) -> kube::Result<Requeue> {
        let client = &self.client;
        let config = &self.config;
        match object {
            ManagedObject::Service => {
                write(client, decide_service(config, found(&self.services).as_deref())).await?;
            }
            ManagedObject::Endpoints => {
                write(client, decide_endpoints(config, found(&self.endpoints).as_deref())).await?;
            }
            ManagedObject::EndpointSlice => {
                write(client, decide_slice(config, found(&self.slices).as_deref())).await?;
            }
        }
        Ok(Requeue::AwaitChange)
    }

    fn regarding(&self, object: &ManagedObject) -> Option<ObjectReference> {
        match object {
            ManagedObject::Service => found(&self.services).map(|found| found.object_ref(&())),
            ManagedObject::Endpoints => found(&self.endpoints).map(|found| found.object_ref(&())),
            ManagedObject::EndpointSlice => found(&self.slices).map(|found| found.object_ref(&())),
        }
    }
}

fn found<K: Watchable>(store: &Store<K>) -> Option<Arc<K>> {
    store.get(&ObjectRef::namespaced(NAMESPACE, SERVICE))
}

async fn write<K>(client: &Client, action: Option<Action<K>>) -> kube::Result<()>
where
    K: Codec + Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    let api = Api::<K>::namespaced(client.clone(), NAMESPACE);
    let done = match action {
        None => return Ok(()),
        Some(Action::Create(object)) => api.create(&PostParams::default(), &object).await,
        Some(Action::Update(object)) => api.replace(SERVICE, &PostParams::default(), &object).await,
    };
    settled_or_conflict(done)
}
