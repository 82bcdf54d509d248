//! Floods of commands and of attached clients in a pod.

use serde_json::json;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::it::cluster::Cluster;
use crate::it::exec::start_with;
use crate::it::nodes::machine::Machine;
use crate::it::streams::upgrade;
use crate::it::wire::soon;

/// How many sessions of one pod its agent has at a time, as docs/security.md has it.
const SESSIONS_OF_A_POD: usize = 256;

const WEBSOCKET: &str = "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
                         Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n";

fn path(subresource: &str) -> String {
    format!("/api/v1/namespaces/default/pods/web/{subresource}")
}

/// The status line of a request that upgrades its connection, and the connection.
async fn open(cluster: &Cluster, path: &str) -> (String, TlsStream<TcpStream>) {
    let (head, stream) = soon(upgrade(cluster, ("GET", path), WEBSOCKET)).await;
    (head.lines().next().unwrap_or_default().to_owned(), stream)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_has_no_more_attached_clients_and_commands_than_the_limit() {
    let Some(machine) = Machine::here() else { return };
    let cluster = machine.start(&[]);
    start_with(&cluster, json!({})).await;
    sessions_beyond_the_limit(&cluster).await;
    drop(cluster);
    machine.clear();
}

/// Opens sessions of the pod `web` until its agent refuses one.
pub(super) async fn sessions_beyond_the_limit(cluster: &Cluster) {
    let (attach, exec) = (path("attach?stdout=true"), path("exec?command=true&stdout=true"));
    let mut open_ones = Vec::new();
    let refused = loop {
        let (status, stream) = open(cluster, &attach).await;
        if !status.starts_with("HTTP/1.1 101 ") {
            break status;
        }
        open_ones.push(stream);
        assert!(open_ones.len() <= SESSIONS_OF_A_POD, "{} sessions", open_ones.len());
    };
    assert!(refused.starts_with("HTTP/1.1 429 "), "{refused}");
    assert_eq!(open_ones.len(), SESSIONS_OF_A_POD);
    // Commands share the limit.
    let (status, _) = open(cluster, &exec).await;
    assert!(status.starts_with("HTTP/1.1 429 "), "{status}");
    // The sessions of clients that are gone end.
    drop(open_ones);
    let served = async { while !open(cluster, &exec).await.0.starts_with("HTTP/1.1 101 ") {} };
    soon(Box::pin(served)).await;
}
