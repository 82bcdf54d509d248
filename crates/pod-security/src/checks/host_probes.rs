//! Probes and lifecycle handlers must not make the kubelet connect to other hosts than the pod.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{HTTPGetAction, TCPSocketAction};

use crate::check::{Check, Forbidden, Revision};
use crate::level::Level;
use crate::message::{containers, plural, quoted};
use crate::pod::{AnyContainer, Pod};

pub(super) static BASELINE: Check = Check {
    id: "hostProbesAndHostLifecycle",
    level: Level::Baseline,
    revisions: &[Revision::new(34, v1_34)],
};

fn v1_34(pod: Pod<'_>) -> Option<Forbidden> {
    let mut hosts: BTreeSet<&str> = BTreeSet::new();
    let bad = pod.names_of(|container| {
        let found = hosts_of(container);
        hosts.extend(&found);
        !found.is_empty()
    });
    if bad.is_empty() {
        return None;
    }
    // Upstream sorts the names of the containers in this check alone.
    let bad: Vec<&str> = BTreeSet::from_iter(bad).into_iter().collect();
    let uses = plural(bad.len(), "uses", "use");
    let what = plural(hosts.len(), "probe or lifecycle host", "probe or lifecycle hosts");
    Some(Forbidden {
        reason: "probe or lifecycle host",
        detail: format!("{} {uses} {what} {}", containers(&bad), quoted(&hosts)),
    })
}

/// The hosts that probes and lifecycle handlers of a container name.
fn hosts_of<'a>(container: &AnyContainer<'a>) -> Vec<&'a str> {
    let probes = container.probes().map(|probe| (probe.http_get.as_ref(), probe.tcp_socket.as_ref()));
    let handlers = container.lifecycle().map(|lifecycle| [&lifecycle.post_start, &lifecycle.pre_stop]);
    let handlers = handlers.into_iter().flatten().flatten();
    let handlers = handlers.map(|handler| (handler.http_get.as_ref(), handler.tcp_socket.as_ref()));
    probes.chain(handlers).flat_map(|(http, tcp)| hosts(http, tcp)).collect()
}

fn hosts<'a>(http: Option<&'a HTTPGetAction>, tcp: Option<&'a TCPSocketAction>) -> Vec<&'a str> {
    let http = http.and_then(|http| http.host.as_deref());
    let tcp = tcp.and_then(|tcp| tcp.host.as_deref());
    [http, tcp].into_iter().flatten().filter(|host| !host.is_empty()).collect()
}
