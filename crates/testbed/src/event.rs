//! What the processes of a cluster tell the one that asked for it: one JSON object per line.

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
    /// Everything is up.
    Ready(Endpoints),
    /// The container runtime is up, which is all that was asked for.
    RuntimeReady(RuntimeEndpoints),
    /// It did not come up, or ended by itself later.
    Failed(String),
    /// The logs were put aside, here.
    LogsKept(PathBuf),
}

/// How to reach a cluster that is up.
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
    /// The key to it.
    pub key: PathBuf,
    /// The authority that signed the API server's certificate.
    pub authority: PathBuf,
    /// The node's name, if there is one.
    pub node: Option<String>,
    /// The cgroup that the kubelet's `kubepods` lies in, relative to each hierarchy, if there is a node.
    pub cgroup: Option<String>,
}

/// How to reach a container runtime that is up.
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

/// Tells the owner. An owner that is gone is noticed elsewhere, by its closed pipe.
pub(crate) fn emit(event: &Event) {
    if let Ok(mut line) = serde_json::to_vec(event) {
        line.push(b'\n');
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(&line).and_then(|()| out.flush());
    }
}
