//! The endpoints of Services and the addresses of load balancers, as clients see them.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Endpoints, Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource};
use plumb_controller_runtime::metrics::Metrics;
use plumb_controller_runtime::{Clock, InformerFactory, Watchable, pods};
use plumb_controllers::endpoints::membership::Membership;
use plumb_controllers::{
    Clients, GROUPS, WATCHER, endpoint, endpointslice, endpointslicemirroring, load_balancer, user_of,
};
use plumb_supervise::Supervisor;
use plumb_testkit::{TestCluster, until, until_all, until_gone};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// A cluster with the controllers of endpoints, each with the rights of its own role.
struct Cluster {
    client: Client,
    _running: JoinSet<()>,
    _informing: JoinSet<()>,
}

impl Cluster {
    fn start() -> Self {
        let cluster = TestCluster::start();
        let (informers, supervisor) = (InformerFactory::default(), Supervisor::default());
        let clients = |name: &str| Clients {
            watch: cluster.client(WATCHER),
            write: cluster.client_as(&user_of(name), GROUPS),
            supervisor: supervisor.clone(),
            metrics: Metrics::default(),
        };
        let membership =
            Membership::new(&informers.informer::<Service>(), &informers.informer_with(pods::essence));
        let (clock, config) = (Clock::default(), endpointslice::Config::new(Clock::default()));
        let mut running = JoinSet::new();
        running.spawn(endpoint::run(clients(endpoint::NAME), &informers, &membership, config.clone()));
        running.spawn(endpointslice::run(clients(endpointslice::NAME), &informers, &membership, config));
        let mirroring = clients(endpointslicemirroring::NAME);
        running.spawn(endpointslicemirroring::run(mirroring, &informers, clock.clone()));
        running.spawn(load_balancer::run(clients(load_balancer::NAME), &informers, clock));
        let informing = informers.start(&cluster.client(WATCHER), &supervisor);
        Self { client: cluster.admin(), _running: running, _informing: informing }
    }

    fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        Api::default_namespaced(self.client.clone())
    }

    async fn create<K>(&self, object: Value) -> K
    where
        K: Watchable
            + Serialize
            + DeserializeOwned
            + Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        self.api().create(&PostParams::default(), &plumb_testkit::object::<K>(object)).await.unwrap()
    }

    async fn service(&self, name: &str, spec: Value) -> Service {
        self.create(json!({ "metadata": { "name": name }, "spec": spec })).await
    }

    async fn change(&self, name: &str, spec: Value) {
        let patch = Patch::Merge(json!({ "spec": spec }));
        self.api::<Service>().patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// A node that is ready.
    async fn node(&self, name: &str, address: &str) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        nodes
            .create(&PostParams::default(), &plumb_testkit::object(json!({ "metadata": { "name": name } })))
            .await
            .unwrap();
        let status = json!({
            "conditions": [{ "type": "Ready", "status": "True" }],
            "addresses": [{ "type": "InternalIP", "address": address }],
        });
        let status = Patch::Merge(json!({ "status": status }));
        nodes.patch_status(name, &PatchParams::default(), &status).await.unwrap();
    }

    /// A pod that is ready on a node.
    async fn pod(&self, name: &str, node: &str, address: &str) {
        let container =
            json!({ "name": "c", "image": "i", "ports": [{ "name": "http", "containerPort": 8080 }] });
        let spec = json!({ "nodeName": node, "containers": [container] });
        self.create::<Pod>(json!({ "metadata": { "name": name, "labels": { "app": "web" } }, "spec": spec }))
            .await;
        self.ready(name, address, true).await;
    }

    async fn ready(&self, name: &str, address: &str, ready: bool) {
        let condition = json!({ "type": "Ready", "status": if ready { "True" } else { "False" } });
        let status = json!({ "phase": "Running", "podIP": address, "podIPs": [{ "ip": address }], "conditions": [condition] });
        let patch = Patch::Merge(json!({ "status": status }));
        self.api::<Pod>().patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Waits until the ready endpoints of a Service are at these addresses, in its slices.
    async fn until_slices(&self, service: &str, wanted: &[&str]) {
        until_all(&self.api::<EndpointSlice>(), |slices| {
            ready(slices, service) == wanted.iter().map(|ip| (*ip).to_owned()).collect()
        })
        .await;
    }

    /// The same in its Endpoints.
    async fn until_endpoints(&self, service: &str, wanted: &[&str]) {
        until(&self.api::<Endpoints>(), service, |endpoints: &Endpoints| {
            let subsets = endpoints.subsets.iter().flatten();
            let found: BTreeSet<&str> = subsets
                .flat_map(|subset| subset.addresses.iter().flatten())
                .map(|address| &*address.ip)
                .collect();
            found == wanted.iter().copied().collect()
        })
        .await;
    }

    async fn until_addresses(&self, service: &str, wanted: &[&str]) {
        until(&self.api::<Service>(), service, |service: &Service| addresses(service) == wanted).await;
    }
}

fn ready(slices: &BTreeMap<String, EndpointSlice>, service: &str) -> BTreeSet<String> {
    let of_service = slices
        .values()
        .filter(|slice| slice.metadata.labels.as_ref().unwrap()["kubernetes.io/service-name"] == service);
    let endpoints = of_service.flat_map(|slice| slice.endpoints.iter().flatten());
    let ready = endpoints.filter(|endpoint| endpoint.conditions.as_ref().unwrap().ready == Some(true));
    ready.flat_map(|endpoint| endpoint.addresses.clone()).collect()
}

fn addresses(service: &Service) -> Vec<&str> {
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    balancer.iter().flat_map(|one| one.ingress.iter().flatten()).filter_map(|one| one.ip.as_deref()).collect()
}

fn web() -> Value {
    json!({ "selector": { "app": "web" }, "ports": [{ "name": "web", "port": 80, "targetPort": "http" }] })
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_follow_pods_and_services() {
    let cluster = Cluster::start();
    cluster.node("n1", "192.0.2.1").await;
    cluster.service("web", web()).await;
    cluster.until_endpoints("web", &[]).await;
    until_all(&cluster.api::<EndpointSlice>(), |slices| slices.len() == 1).await;
    cluster.pod("a", "n1", "10.64.0.1").await;
    cluster.pod("b", "n1", "10.64.0.2").await;
    cluster.until_slices("web", &["10.64.0.1", "10.64.0.2"]).await;
    cluster.until_endpoints("web", &["10.64.0.1", "10.64.0.2"]).await;
    let slices = until_all(&cluster.api::<EndpointSlice>(), |slices| slices.len() == 1).await;
    let slice = slices.values().next().unwrap();
    assert_eq!(slice.ports.as_ref().unwrap()[0].port, Some(8080), "the port that the containers call http");

    cluster.ready("a", "10.64.0.1", false).await;
    cluster.until_slices("web", &["10.64.0.2"]).await;
    cluster.until_endpoints("web", &["10.64.0.2"]).await;
    cluster.api::<Pod>().delete("b", &DeleteParams::default().grace_period(0)).await.unwrap();
    cluster.until_slices("web", &[]).await;

    // What someone else deletes or changes is made again.
    let name = slice.metadata.name.as_deref().unwrap();
    cluster.api::<EndpointSlice>().delete(name, &DeleteParams::default()).await.unwrap();
    until_all(&cluster.api::<EndpointSlice>(), |slices| slices.len() == 1 && !slices.contains_key(name))
        .await;
    cluster.api::<Endpoints>().delete("web", &DeleteParams::default()).await.unwrap();
    until(&cluster.api::<Endpoints>(), "web", |endpoints: &Endpoints| endpoints.subsets.is_some()).await;

    // The Endpoints go with their Service.
    cluster.ready("a", "10.64.0.1", true).await;
    cluster.until_endpoints("web", &["10.64.0.1"]).await;
    cluster.api::<Service>().delete("web", &DeleteParams::default()).await.unwrap();
    until_gone(&cluster.api::<Endpoints>(), "web").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_of_many_pods_has_slices_of_a_hundred() {
    let cluster = Cluster::start();
    cluster.node("n1", "192.0.2.1").await;
    for number in 0..120 {
        cluster.pod(&format!("pod-{number}"), "n1", &format!("10.64.1.{number}")).await;
    }
    cluster.service("web", web()).await;
    let slices = until_all(&cluster.api::<EndpointSlice>(), |slices| ready(slices, "web").len() == 120).await;
    let mut sizes: Vec<usize> =
        slices.values().map(|slice| slice.endpoints.as_ref().unwrap().len()).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [20, 100]);
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_that_users_write_are_mirrored() {
    let cluster = Cluster::start();
    cluster.service("db", json!({ "ports": [{ "port": 5432 }] })).await;
    let subsets = json!([{ "addresses": [{ "ip": "198.51.100.1" }], "ports": [{ "port": 5432 }] }]);
    cluster.create::<Endpoints>(json!({ "metadata": { "name": "db" }, "subsets": subsets })).await;
    cluster.until_slices("db", &["198.51.100.1"]).await;
    let subsets = json!([{ "addresses": [{ "ip": "198.51.100.2" }], "ports": [{ "port": 5432 }] }]);
    let (endpoints, params) = (cluster.api::<Endpoints>(), PatchParams::default());
    endpoints.patch("db", &params, &Patch::Merge(json!({ "subsets": subsets }))).await.unwrap();
    cluster.until_slices("db", &["198.51.100.2"]).await;
    let label = json!({ "metadata": { "labels": { "endpointslice.kubernetes.io/skip-mirror": "true" } } });
    endpoints.patch("db", &params, &Patch::Merge(label)).await.unwrap();
    until_all(&cluster.api::<EndpointSlice>(), BTreeMap::is_empty).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn load_balancers_have_the_addresses_of_nodes() {
    let cluster = Cluster::start();
    cluster.node("n1", "192.0.2.1").await;
    let balanced = |more: Value| {
        let mut spec = web();
        spec["type"] = json!("LoadBalancer");
        for (key, value) in more.as_object().unwrap() {
            spec[key] = value.clone();
        }
        spec
    };
    cluster.service("web", balanced(json!({}))).await;
    cluster.until_addresses("web", &["192.0.2.1"]).await;
    cluster.node("n2", "192.0.2.2").await;
    cluster.until_addresses("web", &["192.0.2.1", "192.0.2.2"]).await;

    // One port is for one Service.
    cluster.service("more", balanced(json!({}))).await;
    let event = plumb_testkit::event(&cluster.client, "more", "SyncLoadBalancerFailed", 1).await;
    assert_eq!(
        event.message.unwrap(),
        "Error syncing load balancer: port TCP/80 is used by the Service default/web"
    );
    cluster.change("web", json!({ "type": "ClusterIP" })).await;
    cluster.until_addresses("web", &[]).await;
    cluster.until_addresses("more", &["192.0.2.1", "192.0.2.2"]).await;

    // With local traffic, the nodes of ready endpoints.
    cluster.change("more", json!({ "externalTrafficPolicy": "Local" })).await;
    cluster.until_addresses("more", &[]).await;
    cluster.pod("a", "n2", "10.64.0.1").await;
    cluster.until_addresses("more", &["192.0.2.2"]).await;

    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let excluded = json!({ "metadata": { "labels": { "node.kubernetes.io/exclude-from-external-load-balancers": "" } } });
    nodes.patch("n2", &PatchParams::default(), &Patch::Merge(excluded)).await.unwrap();
    cluster.until_addresses("more", &[]).await;
}
