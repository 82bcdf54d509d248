//! Services.

mod allocation;
mod validation;
mod warnings;

use std::collections::BTreeSet;

use plumb_resize::rules::Rules;
use serde_json::{Value, json};

use crate::registry::{Context, Strategy, SubresourceHandler};
use crate::warnings::addresses;
use plumb_apiserver::allocation::Reservation;
use plumb_apiserver::error::ApiError;
use plumb_apiserver::table::PrintColumns;
use plumb_apiserver::table::column::{AGE, Column, NAME};
use plumb_apiserver::table::labels::labels;
use plumb_apiserver::table::view::{View, or};
use plumb_apiserver::validation::{Errors, NameFormat};

/// The strategy of Services.
#[derive(Debug)]
pub(in crate::registry) struct ServiceStrategy;

impl Strategy for ServiceStrategy {
    fn name_format(&self) -> NameFormat {
        NameFormat::DnsLabel
    }

    fn print_columns(&self) -> &'static PrintColumns {
        &PRINT_COLUMNS
    }

    fn selectable_fields(&self) -> Option<&'static [&'static str]> {
        Some(&["metadata.namespace", "spec.clusterIP", "spec.type"])
    }

    fn subresource_handler(&self, name: &str) -> Option<SubresourceHandler> {
        (name == "proxy").then_some(SubresourceHandler::ServiceProxy)
    }

    fn allocate(
        &self,
        cx: Context<'_>,
        old: Option<&Value>,
        new: &mut Value,
    ) -> Result<Reservation, ApiError> {
        allocation::allocate(cx.allocations, old, new)
    }

    fn validate(&self, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validation::create(new, errors);
    }

    fn validate_update(&self, old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validation::update(old, new, errors);
    }

    fn validate_status_update(&self, _old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validation::update_status(new, errors);
    }

    fn warnings_on_create(&self, new: &Value) -> Vec<String> {
        warnings::of(new)
    }

    fn warnings_on_update(&self, _old: &Value, new: &Value) -> Vec<String> {
        warnings::of(new)
    }

    fn warnings_on_status_update(&self, new: &Value) -> Vec<String> {
        addresses::of_list(&new["status"]["loadBalancer"]["ingress"], "status.loadBalancer.ingress", "")
    }

    fn returns_deleted_object(&self) -> bool {
        true
    }

    fn canonicalize(&self, new: &mut Value) {
        allocation::drop_internal_traffic_policy(new);
    }
}

static PRINT_COLUMNS: PrintColumns = PrintColumns::new(
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
);

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
            let mut all = load_balancer_addresses(service);
            all.append(&mut given);
            or(all.join(","), "<pending>")
        }
        "ExternalName" => service.text("/spec/externalName").to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

/// The IP addresses of a load balancer's ingress points, or their hostnames.
pub(in crate::registry) fn load_balancer_addresses(object: View<'_>) -> Vec<&str> {
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
