//! Services and their endpoints.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::column::{AGE, Column, NAME};
use super::labels::labels;
use super::layout::Layout;
use super::view::{View, few, or};

pub(super) const LAYOUTS: &[Layout] = &[
    Layout::new(
        "",
        "Service",
        &[
            NAME,
            Column::text("Type", "how the service can be reached"),
            Column::text("Cluster-IP", "its first address inside the cluster"),
            Column::text("External-IP", "its addresses outside the cluster"),
            Column::text("Port(s)", "its ports, with the nodes' ports behind them"),
            AGE,
            Column::text("Selector", "the labels of the pods that serve").wide(),
        ],
        service,
    ),
    Layout::new(
        "",
        "Endpoints",
        &[NAME, Column::text("Endpoints", "addresses and ports of what serves"), AGE],
        |object| json!([object.name(), endpoints(object), object.age()]),
    ),
];

fn service(service: View<'_>) -> Value {
    let cluster_ip = service.texts("/spec/clusterIPs").first().copied().unwrap_or_default();
    let cluster_ip =
        if cluster_ip.is_empty() { service.text_or("/spec/clusterIP", "<none>") } else { cluster_ip };
    json!([
        service.name(),
        service.text_or("/spec/type", "ClusterIP"),
        cluster_ip,
        external_ip(service),
        ports(service),
        service.age(),
        labels(service, "/spec/selector"),
    ])
}

fn external_ip(service: View<'_>) -> String {
    let mut given: Vec<&str> = service.texts("/spec/externalIPs");
    match service.text_or("/spec/type", "ClusterIP") {
        "ClusterIP" | "NodePort" => or(given.join(","), "<none>"),
        "LoadBalancer" => {
            let mut all = balancer_addresses(service);
            all.append(&mut given);
            or(all.join(","), "<pending>")
        }
        "ExternalName" => service.text("/spec/externalName").to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

/// The addresses, or else the names, at which a load balancer can be reached.
pub(super) fn balancer_addresses(object: View<'_>) -> Vec<&str> {
    let points = object.items("/status/loadBalancer/ingress");
    let addresses: BTreeSet<&str> = points
        .map(|point| point.text_or("/ip", point.text("/hostname")))
        .filter(|address| !address.is_empty())
        .collect();
    addresses.into_iter().collect()
}

fn ports(service: View<'_>) -> String {
    let texts = service.items("/spec/ports").map(|port| {
        let (number, protocol) = (port.number("/port"), port.text_or("/protocol", "TCP"));
        match port.number("/nodePort") {
            node_port @ 1.. => format!("{number}:{node_port}/{protocol}"),
            _ => format!("{number}/{protocol}"),
        }
    });
    or(texts.collect::<Vec<_>>().join(","), "<none>")
}

fn endpoints(object: View<'_>) -> String {
    if object.count("/subsets") == 0 {
        return "<none>".to_owned();
    }
    let mut all = Vec::new();
    for subset in object.items("/subsets") {
        let addresses: Vec<&str> = subset.items("/addresses").map(|address| address.text("/ip")).collect();
        // A headless service may have no ports.
        if subset.count("/ports") == 0 {
            all.extend(addresses.iter().map(|ip| (*ip).to_owned()));
        }
        for port in subset.items("/ports").map(|port| port.number("/port")) {
            all.extend(
                addresses.iter().map(|ip| {
                    if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
                }),
            );
        }
    }
    few(&all, 3, ",")
}
