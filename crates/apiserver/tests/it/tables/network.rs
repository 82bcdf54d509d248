//! Print columns of Services, Endpoints and Ingresses.

use serde_json::{Value, json};

use super::{case, shows};

#[tokio::test]
async fn a_service_prints_its_addresses_and_ports() {
    let path = "/api/v1/namespaces/default/services";
    let service = |name: &str, spec: Value| json!({ "metadata": { "name": name }, "spec": spec });
    let balanced = |name: &str, more: Value| {
        let mut service = service(
            name,
            json!({
                "type": "LoadBalancer", "clusterIP": "10.96.0.20", "clusterIPs": ["10.96.0.20"],
                "ports": [{ "port": 80, "protocol": "TCP", "nodePort": 30080 }],
                "selector": { "app": "a" },
            }),
        );
        service["spec"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        service
    };
    let cases = [
        case(
            path,
            service(
                "headless",
                json!({
                    "clusterIP": "None", "clusterIPs": ["None"], "ports": [{ "port": 53, "protocol": "UDP" }],
                }),
            ),
            json!(["headless", "ClusterIP", "None", "<none>", "53/UDP", "0s", "<none>"]),
        ),
        case(
            path,
            service(
                "outside",
                json!({
                    "clusterIP": "10.96.0.11", "clusterIPs": ["10.96.0.11"], "externalIPs": ["1.2.3.4", "1.2.3.5"],
                    "ports": [{ "name": "a", "port": 80 }, { "name": "b", "port": 443 }],
                    "selector": { "b": "2", "a": "1" },
                }),
            ),
            json!([
                "outside",
                "ClusterIP",
                "10.96.0.11",
                "1.2.3.4,1.2.3.5",
                "80/TCP,443/TCP",
                "0s",
                "a=1,b=2",
            ]),
        ),
        case(
            path,
            service(
                "nodes",
                json!({
                    "type": "NodePort", "clusterIP": "10.96.0.12", "clusterIPs": ["10.96.0.12"],
                    "ports": [{ "port": 80, "nodePort": 30081 }],
                }),
            ),
            json!(["nodes", "NodePort", "10.96.0.12", "<none>", "80:30081/TCP", "0s", "<none>"]),
        ),
        case(
            path,
            service("alias", json!({ "type": "ExternalName", "externalName": "example.com" })),
            json!(["alias", "ExternalName", "<none>", "example.com", "<none>", "0s", "<none>"]),
        ),
        case(
            path,
            balanced("pending", json!({})),
            json!(["pending", "LoadBalancer", "10.96.0.20", "<pending>", "80:30080/TCP", "0s", "app=a"]),
        ),
        case(
            path,
            balanced(
                "balanced",
                json!({
                    "clusterIP": "10.96.0.21", "clusterIPs": ["10.96.0.21"], "externalIPs": ["1.1.1.1"],
                    "ports": [{ "port": 80, "protocol": "TCP", "nodePort": 30082 }],
                }),
            ),
            json!([
                "balanced",
                "LoadBalancer",
                "10.96.0.21",
                "9.9.9.9,a-long-name.example.com,1.1.1.1",
                "80:30082/TCP",
                "0s",
                "app=a",
            ]),
        )
        .status(json!({ "loadBalancer": { "ingress": [
            { "hostname": "a-long-name.example.com" }, { "ip": "9.9.9.9" },
        ]}})),
    ];
    let columns = "Name | Type | Cluster-IP | External-IP | Port(s) | Age | (Selector)";
    shows(&[("/services", columns)], &cases).await;
}

#[tokio::test]
async fn endpoints_show_the_first_three() {
    let old = "/api/v1/namespaces/default/endpoints";
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    let ips = |ips: &[&str]| ips.iter().map(|ip| json!({ "ip": ip })).collect::<Vec<_>>();
    let cases = [
        case(old, json!({ "metadata": { "name": "none" } }), json!(["none", "<none>", "0s"])),
        case(
            old,
            json!({ "metadata": { "name": "few" }, "subsets": [
                { "addresses": ips(&["10.0.0.1", "fd00::1"]), "ports": [{ "port": 80 }] },
            ]}),
            json!(["few", "10.0.0.1:80,[fd00::1]:80", "0s"]),
        ),
        case(
            old,
            json!({ "metadata": { "name": "many" }, "subsets": [
                { "addresses": ips(&["10.0.0.1"]) },
                { "addresses": ips(&["10.0.0.1", "10.0.0.2"]), "ports": [
                    { "name": "a", "port": 80 }, { "name": "b", "port": 81 },
                ]},
            ]}),
            json!(["many", "10.0.0.1,10.0.0.1:80,10.0.0.2:80 + 2 more...", "0s"]),
        ),
        case(
            old,
            json!({ "metadata": { "name": "unready" }, "subsets": [
                { "notReadyAddresses": ips(&["10.0.0.1"]), "ports": [{ "port": 80 }] },
            ]}),
            json!(["unready", "", "0s"]),
        ),
        case(
            slices,
            json!({ "metadata": { "name": "none" }, "addressType": "IPv4", "endpoints": [] }),
            json!(["none", "IPv4", "<unset>", "<unset>", "0s"]),
        ),
        case(
            slices,
            json!({
                "metadata": { "name": "many" }, "addressType": "IPv4",
                "ports": [{ "name": "a", "port": 80 }, { "name": "b" }],
                "endpoints": [
                    { "addresses": ["10.0.0.1"] }, { "addresses": ["10.0.0.2"] },
                    { "addresses": ["10.0.0.3"] }, { "addresses": ["10.0.0.4"] },
                ],
            }),
            json!(["many", "IPv4", "80,b", "10.0.0.1,10.0.0.2,10.0.0.3 + 1 more...", "0s"]),
        ),
    ];
    let kinds = [
        ("/endpoints", "Name | Endpoints | Age"),
        ("/endpointslices", "Name | AddressType | Ports | Endpoints | Age"),
    ];
    shows(&kinds, &cases).await;
}

#[tokio::test]
async fn an_ingress_shows_its_hosts_and_addresses() {
    let path = "/apis/networking.k8s.io/v1/namespaces/default/ingresses";
    let backend = json!({ "service": { "name": "s", "port": { "number": 80 } } });
    let ingress = |name: &str, mut spec: Value| {
        spec["defaultBackend"] = backend.clone();
        json!({ "metadata": { "name": name }, "spec": spec })
    };
    let cases = [
        case(path, ingress("plain", json!({})), json!(["plain", "<none>", "*", "", "80", "0s"])),
        case(
            path,
            ingress(
                "full",
                json!({
                    "ingressClassName": "nginx", "rules": [{ "host": "a.io" }, { "host": "b.io" }],
                    "tls": [{ "hosts": ["a.io"] }],
                }),
            ),
            json!(["full", "nginx", "a.io,b.io", "1.2.3.4,lb.example.com", "80, 443", "0s"]),
        )
        .status(
            json!({ "loadBalancer": { "ingress": [{ "hostname": "lb.example.com" }, { "ip": "1.2.3.4" }] } }),
        ),
        case(
            path,
            ingress(
                "many",
                json!({ "rules": [
                    { "host": "a.io" }, { "host": "b.io" }, { "host": "c.io" }, { "host": "d.io" }, { "host": "e.io" },
                ]}),
            ),
            json!(["many", "<none>", "a.io,b.io,c.io + 2 more...", "", "80", "0s"]),
        ),
    ];
    shows(&[("/ingresses", "Name | Class | Hosts | Address | Ports | Age")], &cases).await;
}

#[tokio::test]
async fn other_network_kinds_have_their_print_columns() {
    let policies = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies";
    let classes = "/apis/networking.k8s.io/v1/ingressclasses";
    let cases = [
        case(
            policies,
            json!({ "metadata": { "name": "all" }, "spec": { "podSelector": {} } }),
            json!(["all", "<none>", "0s"]),
        ),
        case(
            policies,
            json!({ "metadata": { "name": "some" }, "spec": { "podSelector": { "matchLabels": { "a": "b" } } } }),
            json!(["some", "a=b", "0s"]),
        ),
        case(
            classes,
            json!({ "metadata": { "name": "plain" }, "spec": { "controller": "x.io/c" } }),
            json!(["plain", "x.io/c", "<none>", "0s"]),
        ),
        case(
            classes,
            json!({
                "metadata": { "name": "main", "annotations": {
                    "ingressclass.kubernetes.io/is-default-class": "true",
                }},
                "spec": { "controller": "x.io/c", "parameters": {
                    "apiGroup": "x.io", "kind": "Settings", "name": "s", "scope": "Cluster",
                }},
            }),
            json!(["main (default)", "x.io/c", "Settings.x.io/s", "0s"]),
        ),
        case(
            "/apis/networking.k8s.io/v1/servicecidrs",
            json!({ "metadata": { "name": "more" }, "spec": { "cidrs": ["10.7.0.0/24", "fd00:7::/112"] } }),
            json!(["more", "10.7.0.0/24,fd00:7::/112", "0s"]),
        ),
        case(
            "/apis/networking.k8s.io/v1/ipaddresses",
            json!({ "metadata": { "name": "10.7.0.9" }, "spec": { "parentRef": {
                "resource": "services", "namespace": "default", "name": "s",
            }}}),
            json!(["10.7.0.9", "services/default/s"]),
        ),
    ];
    let kinds = [
        ("/networkpolicies", "Name | Pod-Selector | Age"),
        ("/ingressclasses", "Name | Controller | Parameters | Age"),
        ("/servicecidrs", "Name | CIDRs | Age"),
        ("/ipaddresses", "Name | ParentRef"),
    ];
    shows(&kinds, &cases).await;
}
