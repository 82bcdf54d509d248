//! Services of whole clusters.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::PostParams;
use plumb_testkit::TIMEOUT;
use serde_json::json;

use super::{Network, caller, on_own_network};
use crate::it::nodes::machine::{Machine, create, equal, is_settled, load, pod, pods, until};

const NODE_PORT: u16 = 30_080;

/// How long one attempt to connect takes at most. Before the rules of a Service are there, its address is refused.
const ATTEMPT: Duration = Duration::from_secs(1);

/// Connects as soon as there are rules.
fn connect(to: SocketAddr) -> TcpStream {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match TcpStream::connect_timeout(&to, ATTEMPT) {
            Ok(stream) => return stream,
            Err(error) => assert!(Instant::now() < deadline, "{to}: {error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_service_reaches_its_pod_from_pods_and_the_machine_whether_or_not_the_agent_runs() {
    on_own_network(async || {
        let Some(machine) = Machine::here() else { return };
        let cluster = machine.start(&[]);
        let api = pods(&cluster).await;
        for name in ["web", "client"] {
            create(&api, &pod(name, json!([load("c", &[], equal("10m", "16Mi"))]))).await;
        }
        let web = Network::of(&until(&api, "web", "running", is_settled).await);
        let client = Network::of(&until(&api, "client", "running", is_settled).await);
        let services: Api<Service> = Api::namespaced(cluster.client().await, "default");
        let service = json!({
            "metadata": { "name": "web" },
            "spec": { "type": "NodePort", "ports": [{ "port": 80, "targetPort": 8080, "nodePort": NODE_PORT }] }
        });
        let service = serde_json::from_value(service).unwrap();
        let created = services.create(&PostParams::default(), &service).await.unwrap();
        let cluster_ip: Ipv4Addr = created.spec.unwrap().cluster_ip.unwrap().parse().unwrap();
        let slices: Api<EndpointSlice> = Api::namespaced(cluster.client().await, "default");
        let slice = json!({
            "metadata": { "name": "web-1", "labels": { "kubernetes.io/service-name": "web" } },
            "addressType": "IPv4",
            "ports": [{ "name": "", "port": 8080, "protocol": "TCP" }],
            "endpoints": [{ "addresses": [web.address.to_string()], "nodeName": "plumb" }]
        });
        slices.create(&PostParams::default(), &serde_json::from_value(slice).unwrap()).await.unwrap();

        let listener = web.listen(8080);
        let to = SocketAddr::from((cluster_ip, 80));
        let local = SocketAddr::from((Ipv4Addr::LOCALHOST, NODE_PORT));
        let all_reach = || {
            assert_eq!(caller(&listener, client.within(|| connect(to))), client.address);
            assert_eq!(caller(&listener, web.within(|| connect(to))), web.gateway());
            assert_eq!(caller(&listener, connect(to)), web.gateway());
            assert_eq!(caller(&listener, connect(local)), web.gateway());
        };
        all_reach();
        cluster.stop();
        all_reach();
        let cluster = machine.start(&[]);
        let api = pods(&cluster).await;
        until(&api, "web", "running", is_settled).await;
        all_reach();
        cluster.stop();
        machine.clear();
        TcpStream::connect_timeout(&local, ATTEMPT).unwrap_err();
    });
}
