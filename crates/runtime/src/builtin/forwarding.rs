//! Whether the machine forwards packets, and those of pods in any case.
//!
//! The kernel reads the setting of the interface that a packet came in by. So packets between pods need the bridge's alone,
//! and `net.ipv4.ip_forward` stays as it is. But a program that writes that one sets those of all interfaces with it.

use std::fs;
use std::io;
use std::os::fd::AsFd as _;

use netlink_sys::{Socket, protocols::NETLINK_ROUTE};
use tokio::net::UnixDatagram;

use super::network::set_sysctl;

/// `RTNLGRP_IPV4_NETCONF`: the group of those that are notified of changes of such settings.
const RTNLGRP_IPV4_NETCONF: u32 = 24;

/// Whether the machine forwards what comes in by any interface, in the network namespace of the calling thread.
pub(super) fn is_on() -> bool {
    fs::read_to_string("/proc/sys/net/ipv4/ip_forward").is_ok_and(|value| value.trim() == "1")
}

/// Has the machine forward what comes in by the bridge.
pub(super) fn forward_between_pods(bridge: &str) {
    for (sysctl, value) in [("forwarding", "1"), ("send_redirects", "0")] {
        if let Err(error) = set_sysctl(&format!("net/ipv4/conf/{bridge}/{sysctl}"), value) {
            tracing::warn!(%error, "pods of this node may not reach each other");
        }
    }
}

/// Calls a function whenever such a setting has changed, until the future is dropped.
pub(super) async fn on_change(react: impl Fn() + Clone + Send + 'static) {
    let Ok(monitor) = open_monitor() else { return std::future::pending().await };
    while monitor.readable().await.is_ok() {
        let mut buffer = [0; 4096];
        // What changed is not read, only that it did: too much of it (ENOBUFS) is a change as well.
        while monitor.try_recv(&mut buffer).is_ok() {}
        // It fails only if the runtime shuts down.
        let _ = tokio::task::spawn_blocking(react.clone()).await;
    }
}

fn open_monitor() -> io::Result<UnixDatagram> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.add_membership(RTNLGRP_IPV4_NETCONF)?;
    socket.set_non_blocking(true)?;
    // Tokio has no netlink sockets. One is received from like any other socket of datagrams.
    UnixDatagram::from_std(socket.as_fd().try_clone_to_owned()?.into())
}
