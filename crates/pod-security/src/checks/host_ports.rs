//! Containers must not use ports of the node.

use std::collections::BTreeSet;

use crate::check::{Check, Forbidden, Revision};
use crate::level::Level;
use crate::message::{containers, plural};
use crate::pod::Pod;

pub(super) static BASELINE: Check =
    Check { id: "hostPorts", level: Level::Baseline, revisions: &[Revision::new(0, v1_0)] };

fn v1_0(pod: Pod<'_>) -> Option<Forbidden> {
    // Upstream sorts them as strings.
    let mut all = BTreeSet::new();
    let bad = pod.names_of(|container| {
        let ports = container.ports().filter_map(|port| port.host_port);
        let ports: Vec<String> = ports.filter(|port| *port != 0).map(|port| port.to_string()).collect();
        let uses_any = !ports.is_empty();
        all.extend(ports);
        uses_any
    });
    if bad.is_empty() {
        return None;
    }
    let (uses, what) = (plural(bad.len(), "uses", "use"), plural(all.len(), "hostPort", "hostPorts"));
    let ports = Vec::from_iter(all).join(", ");
    Some(Forbidden { reason: "hostPort", detail: format!("{} {uses} {what} {ports}", containers(&bad)) })
}
