//! Network policies, with real pods.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use plumb_testkit::TIMEOUT;
use serde_json::{Value, json};

use super::machine::{Machine, create, equal, is_settled, load, pod, pods, until};
use super::network::{Network, on_own_network};

/// How long a connection that must not be made is waited for.
const SHORT: Duration = Duration::from_millis(100);

async fn run(pods: &Api<Pod>, name: &str) -> Network {
    let mut pod = pod(name, json!([load("c", &[], equal("10m", "16Mi"))]));
    pod.metadata.labels = Some([("app".to_owned(), name.to_owned())].into());
    create(pods, &pod).await;
    Network::of(&until(pods, name, "running", is_settled).await)
}

async fn apply(policies: &Api<NetworkPolicy>, name: &str, spec: Value) {
    let policy = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": { "name": name }, "spec": spec,
    });
    policies.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(&policy)).await.unwrap();
}

fn connects(from: &Network, to: SocketAddr, wait: Duration) -> bool {
    from.within(|| TcpStream::connect_timeout(&to, wait)).is_ok()
}

/// Waits until a connection is made, or no more.
async fn becomes(from: &Network, to: SocketAddr, is_allowed: bool) {
    let changed = async {
        while connects(from, to, SHORT) != is_allowed {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, changed).await.unwrap();
}

#[test]
fn pods_have_the_connections_that_policies_allow_from_their_first_packet_on() {
    on_own_network(async || {
        let Some(machine) = Machine::here() else { return };
        let cluster = machine.start(&[]);
        let client = cluster.client().await;
        let here = pods(&cluster).await;
        let policies: Api<NetworkPolicy> = Api::namespaced(client.clone(), "default");
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let other: Namespace =
            serde_json::from_value(json!({ "metadata": { "name": "other", "labels": { "team": "x" } } }))
                .unwrap();
        namespaces.create(&PostParams::default(), &other).await.unwrap();
        let there: Api<Pod> = Api::namespaced(client, "other");

        // Deny all, before there is a pod.
        apply(&policies, "deny", json!({ "podSelector": {}, "policyTypes": ["Ingress", "Egress"] })).await;
        let (web, near, far) = (run(&here, "web").await, run(&here, "near").await, run(&there, "far").await);
        let _server = web.listen(80);
        let to = SocketAddr::from((web.address, 80));
        for from in [&near, &far] {
            assert!(!connects(from, to, SHORT));
        }
        // The node reaches its pods, and a pod itself.
        TcpStream::connect_timeout(&to, TIMEOUT).unwrap();
        assert!(connects(&web, to, TIMEOUT));
        // What the machine serves is a destination as any other.
        let _own = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 7000)).unwrap();
        let own = SocketAddr::from((near.gateway(), 7000));
        assert!(!connects(&near, own, SHORT) && connects(&far, own, TIMEOUT));

        // By label: both sides have to allow it.
        let web_is = json!({ "matchLabels": { "app": "web" } });
        let from = json!([{ "podSelector": { "matchLabels": { "app": "near" } } }]);
        apply(
            &policies,
            "in",
            json!({ "podSelector": web_is, "ingress": [{ "from": from, "ports": [{ "port": 80 }] }] }),
        )
        .await;
        let egress = json!([{ "to": [{ "podSelector": web_is }] }]);
        apply(&policies, "out", json!({ "podSelector": {}, "policyTypes": ["Egress"], "egress": egress }))
            .await;
        becomes(&near, to, true).await;
        assert!(!connects(&far, to, SHORT));
        // By the labels of the namespace.
        let from = json!([{ "namespaceSelector": { "matchLabels": { "team": "x" } } }]);
        apply(&policies, "in", json!({ "podSelector": web_is, "ingress": [{ "from": from }] })).await;
        becomes(&far, to, true).await;
        becomes(&near, to, false).await;

        // The rules outlive the agent; the next one makes them anew of what it lists.
        cluster.stop();
        assert!(connects(&far, to, TIMEOUT) && !connects(&near, to, SHORT));
        let cluster = machine.start(&[]);
        let policies: Api<NetworkPolicy> = Api::namespaced(cluster.client().await, "default");
        policies.delete("in", &DeleteParams::default()).await.unwrap();
        becomes(&far, to, false).await;
        for name in ["deny", "out"] {
            policies.delete(name, &DeleteParams::default()).await.unwrap();
        }
        becomes(&near, to, true).await;
        cluster.stop();
        machine.clear();
    });
}
