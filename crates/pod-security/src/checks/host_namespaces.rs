//! Pods must not share namespaces of the node.

use crate::check::{Check, Forbidden, Revision};
use crate::level::Level;
use crate::pod::Pod;

pub(super) static BASELINE: Check =
    Check { id: "hostNamespaces", level: Level::Baseline, revisions: &[Revision::new(0, v1_0)] };

fn v1_0(pod: Pod<'_>) -> Option<Forbidden> {
    let spec = pod.spec;
    let namespaces = [
        (spec.host_network, "hostNetwork=true"),
        (spec.host_pid, "hostPID=true"),
        (spec.host_ipc, "hostIPC=true"),
    ];
    let shared = namespaces.into_iter().filter(|(is_shared, _)| *is_shared == Some(true));
    let shared: Vec<&str> = shared.map(|(_, text)| text).collect();
    (!shared.is_empty()).then(|| Forbidden { reason: "host namespaces", detail: shared.join(", ") })
}
