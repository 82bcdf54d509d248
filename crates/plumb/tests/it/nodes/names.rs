//! Names of Services in pods, looked up by the machine's own C library.

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::machine::{Machine, create, pods};
use super::network::on_own_network;
use super::programs::{pod, printed, script};

async fn service(client: &Client, name: &str, spec: Value) {
    let object = json!({ "metadata": { "name": name }, "spec": spec });
    let api: Api<Service> = Api::default_namespaced(client.clone());
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}

#[test]
fn a_pod_resolves_services_by_their_short_names() {
    // The first cluster of a network has the address on the loopback interface.
    on_own_network(resolve);
}

async fn resolve() {
    let Some(machine) = Machine::here() else { return };
    let cluster = machine.start(&["--cluster-domain", "example.test"]);
    let api = pods(&cluster).await;
    let client = api.clone().into_client();
    service(&client, "web", json!({ "clusterIP": "10.96.0.77", "ports": [{ "port": 80 }] })).await;
    service(&client, "db", json!({ "clusterIP": "None", "ports": [{ "port": 80 }] })).await;
    let slice: EndpointSlice = serde_json::from_value(json!({
        "metadata": { "name": "db-a", "labels": { "kubernetes.io/service-name": "db" } },
        "addressType": "IPv4", "ports": [{ "port": 80 }],
        "endpoints": [
            { "addresses": ["192.0.2.10"], "hostname": "db-0" }, { "addresses": ["192.0.2.11"], "hostname": "db-1" },
        ],
    }))
    .unwrap();
    let slices: Api<EndpointSlice> = Api::default_namespaced(client.clone());
    slices.create(&PostParams::default(), &slice).await.unwrap();
    // Until the server has listed the objects it fails, and a client asks again.
    let addresses = "addresses() { until found=$(getent ahostsv4 $1); do sleep 0.1; done; \
                     echo \"$found\" | cut -d' ' -f1 | sort -u | tr '\\n' ' '; }";
    let names = ["web", "db", "db-1.db", "kube-dns.kube-system", "kubernetes.default.svc.example.test"];
    let commands: Vec<String> = names.iter().map(|name| format!("addresses {name}; echo {name}")).collect();
    let text = format!("{addresses}\n{}\ngetent ahostsv4 unknown || echo none", commands.join("\n"));
    for (name, more) in
        [("own", json!({})), ("host", json!({ "hostNetwork": true, "dnsPolicy": "ClusterFirstWithHostNet" }))]
    {
        let mut spec = json!({ "containers": [script("main", &text, &[])] });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        create(&api, &pod(name, spec)).await;
        let found = printed(&api, name, "main").await;
        assert_eq!(
            found.lines().collect::<Vec<_>>(),
            [
                "10.96.0.77 web",
                "192.0.2.10 192.0.2.11 db",
                "192.0.2.11 db-1.db",
                "10.96.0.10 kube-dns.kube-system",
                "10.96.0.1 kubernetes.default.svc.example.test",
                "none",
            ],
            "{name}"
        );
    }
    // The address of the server is its Service's, with a user or without one.
    let services: Api<Service> = Api::namespaced(client.clone(), "kube-system");
    services.delete("kube-dns", &DeleteParams::default()).await.unwrap();
    let other = json!({ "metadata": { "name": "other" }, "spec": { "clusterIP": "10.96.0.10", "ports": [{ "port": 80 }] } });
    let refused = services.create(&PostParams::default(), &serde_json::from_value(other).unwrap()).await;
    assert!(refused.unwrap_err().to_string().contains("provided IP is already allocated"));
    cluster.stop();
    machine.clear();
}
