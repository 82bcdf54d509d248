//! Only kernel parameters that are safe may be set: those that have effect in the pod alone.

use crate::check::{Check, Forbidden, Revision};
use crate::level::Level;
use crate::pod::Pod;

pub(super) static BASELINE: Check = Check {
    id: "sysctls",
    level: Level::Baseline,
    revisions: &[
        Revision::new(0, |pod| evaluate(pod, &SAFE[..5])),
        Revision::new(27, |pod| evaluate(pod, &SAFE[..6])),
        Revision::new(29, |pod| evaluate(pod, &SAFE[..10])),
        Revision::new(32, |pod| evaluate(pod, &SAFE)),
    ],
};

/// The safe kernel parameters, in the order of the versions that added them.
const SAFE: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    // 1.27
    "net.ipv4.ip_local_reserved_ports",
    // 1.29
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    // 1.32
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
];

fn evaluate(pod: Pod<'_>, safe: &[&str]) -> Option<Forbidden> {
    let sysctls = pod.security_context().and_then(|context| context.sysctls.as_ref());
    let names = sysctls.into_iter().flatten().map(|sysctl| sysctl.name.as_str());
    let unsafe_ones: Vec<&str> = names.filter(|name| !safe.contains(name)).collect();
    (!unsafe_ones.is_empty())
        .then(|| Forbidden { reason: "forbidden sysctls", detail: unsafe_ones.join(", ") })
}
