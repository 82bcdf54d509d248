//! The events that the processes of a cluster emit to its owner: one JSON object per line.

use std::io::Write as _;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A line from the monitor or the launcher to the owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Event {
    /// The cluster's folder and number are known.
    Placed { dir: PathBuf, slot: u8 },
    /// A step of the start is done.
    Step(String),
    /// All components are ready.
    Ready(Endpoints),
    /// The container runtime is ready, and the instance has no other component.
    RuntimeReady(RuntimeEndpoints),
    /// The cluster did not start, or a component ended by itself later.
    Failed(String),
    /// The monitor kept the logs in this folder.
    LogsKept(PathBuf),
}

/// How to reach a running cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Endpoints {
    /// The API server.
    pub server: String,
    /// The administrator's kubeconfig (client certificate).
    pub kubeconfig: PathBuf,
    /// A bearer token of the same administrator, for clients that take one.
    pub token: String,
    /// The administrator's certificate.
    pub certificate: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
    /// The certificate authority that signed the API server's certificate.
    pub authority: PathBuf,
    /// The node's name, if there is one.
    pub node: Option<String>,
    /// The parent cgroup of the kubelet's `kubepods`, relative to each hierarchy, if there is a node.
    pub cgroup: Option<String>,
}

/// How to reach a running container runtime.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RuntimeEndpoints {
    /// Its socket.
    pub socket: PathBuf,
    /// A cgroup that is removed with all below it at the end, relative to each hierarchy.
    pub cgroup: String,
    /// The subnet of its pods.
    pub subnet: String,
}

/// Writes an event to the owner. If the owner has ended, its closed pipe ends this process.
pub(crate) fn emit(event: &Event) {
    if let Ok(mut line) = serde_json::to_vec(event) {
        line.push(b'\n');
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(&line).and_then(|()| out.flush());
    }
}
