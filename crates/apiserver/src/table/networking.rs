//! Ways into the cluster and inside it.

use serde_json::{Value, json};

use super::column::{AGE, Column, NAME};
use super::labels::selector;
use super::layout::Layout;
use super::services::balancer_addresses;
use super::view::View;

const GROUP: &str = "networking.k8s.io";

pub(super) const LAYOUTS: &[Layout] = &[
    Layout::new(
        GROUP,
        "Ingress",
        &[
            NAME,
            Column::text("Class", "the class that carries it out"),
            Column::text("Hosts", "the hosts that its rules are for"),
            Column::text("Address", "where it can be reached"),
            Column::text("Ports", "the ports that it opens"),
            AGE,
        ],
        |object| {
            json!([
                object.name(),
                object.text_or("/spec/ingressClassName", "<none>"),
                hosts(object),
                balancer_addresses(object).join(","),
                if object.count("/spec/tls") == 0 { "80" } else { "80, 443" },
                object.age(),
            ])
        },
    ),
    Layout::new(
        GROUP,
        "IngressClass",
        &[
            NAME,
            Column::text("Controller", "who carries out ingresses of this class"),
            Column::text("Parameters", "where its settings are"),
            AGE,
        ],
        ingress_class,
    ),
    Layout::new(
        GROUP,
        "NetworkPolicy",
        &[NAME, Column::text("Pod-Selector", "the labels of the pods it is about"), AGE],
        |object| json!([object.name(), selector(object, "/spec/podSelector"), object.age()]),
    ),
    Layout::new(
        GROUP,
        "ServiceCIDR",
        &[NAME, Column::text("CIDRs", "the ranges that services take their addresses from"), AGE],
        |object| json!([object.name(), object.texts("/spec/cidrs").join(","), object.age()]),
    ),
    Layout::new(GROUP, "IPAddress", &[NAME, Column::text("ParentRef", "what has the address")], |object| {
        json!([object.name(), parent(object)])
    }),
];

/// The hosts of an ingress. Those of the first three are named; rules are counted, even those for any host.
fn hosts(ingress: View<'_>) -> String {
    const SHOWN: usize = 3;
    let mut hosts = Vec::new();
    let mut more = false;
    for rule in ingress.items("/spec/rules") {
        more = hosts.len() == SHOWN;
        let host = rule.text("/host");
        if !more && !host.is_empty() {
            hosts.push(host);
        }
    }
    match (hosts.len(), more) {
        (0, _) => "*".to_owned(),
        (_, false) => hosts.join(","),
        (_, true) => format!("{} + {} more...", hosts.join(","), ingress.count("/spec/rules") - SHOWN),
    }
}

fn ingress_class(class: View<'_>) -> Value {
    let is_default = class.entry("/metadata/annotations", "ingressclass.kubernetes.io/is-default-class");
    let mark = if is_default == Some("true") { " (default)" } else { "" };
    let parameters = class.at("/spec/parameters").map(|at| match at.text("/apiGroup") {
        "" => format!("{}/{}", at.text("/kind"), at.text("/name")),
        group => format!("{}.{group}/{}", at.text("/kind"), at.text("/name")),
    });
    json!([
        format!("{}{mark}", class.name()),
        class.text("/spec/controller"),
        parameters.unwrap_or_else(|| "<none>".to_owned()),
        class.age(),
    ])
}

/// What an address belongs to: `services/default/web`.
fn parent(address: View<'_>) -> String {
    let Some(parent) = address.at("/spec/parentRef") else { return "<none>".to_owned() };
    let resource = match parent.text("/group") {
        "" => parent.text("/resource").to_lowercase(),
        group => format!("{}.{group}", parent.text("/resource")).to_lowercase(),
    };
    let name = parent.text("/name");
    match parent.text("/namespace") {
        "" => format!("{resource}/{name}"),
        namespace => format!("{resource}/{namespace}/{name}"),
    }
}
