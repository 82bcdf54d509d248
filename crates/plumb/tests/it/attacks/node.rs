//! Attacks of a container on its node.

use std::net::Ipv4Addr;
use std::path::Path;

use plumb_resize::qos::QosClass;
use plumb_runtime::builtin::cgroup_of;
use plumb_runtime::cgroup::{Group, Layout, Tree};
use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio::sync::mpsc;

use crate::it::cluster::Cluster;
use crate::it::exec::start_with;
use crate::it::nodes::machine::{Machine, pods, soon};
use crate::it::streams::{listen, open, spdy, text};
use crate::it::wire;

/// A script that forks without end.
pub(super) const FORKS: &str =
    "(i=0; while [ $i -lt 500 ]; do sleep 1000 & i=$((i+1)); done); exec sleep 1000";

/// The cgroup of the pod `web`.
async fn group_of_web(data: &Path, cluster: &Cluster) -> Group {
    let uid = pods(cluster).await.get("web").await.unwrap().metadata.uid.unwrap();
    let tree = Tree::new(Layout::detect().unwrap(), cgroup_of(data).unwrap());
    tree.pod(QosClass::Guaranteed, &uid)
}

/// Waits until the pod `web`, which forks, has as many processes as `--pod-max-pids 64` leaves it.
pub(super) async fn processes_up_to_the_limit(data: &Path, cluster: &Cluster) {
    let group = group_of_web(data, cluster).await;
    let tasks = || group.usage().unwrap().tasks.unwrap_or_default();
    soon("at the limit", || tasks() >= 60).await;
    assert!(tasks() <= 64, "{} tasks", tasks());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_forks_without_end_gets_no_more_processes_than_the_limit() {
    let Some(machine) = Machine::here() else { return };
    let cluster = machine.start(&["--pod-max-pids", "64"]);
    start_with(&cluster, json!({ "command": ["sh", "-c", FORKS] })).await;
    processes_up_to_the_limit(&machine.data(), &cluster).await;
    drop(cluster);
    machine.clear();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_has_a_limit_of_processes_by_default() {
    let Some(machine) = Machine::here() else { return };
    let cluster = machine.start(&[]);
    start_with(&cluster, json!({})).await;
    let group = group_of_web(&machine.data(), &cluster).await;
    assert_eq!(group.read().unwrap().pids_limit, Some(4096));
    drop(cluster);
    machine.clear();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_forward_does_not_open_connections_without_end() {
    let Some(machine) = Machine::here() else { return };
    let cluster = machine.start(&[]);
    start_with(&cluster, json!({})).await;
    let listener = listen(&machine, Ipv4Addr::LOCALHOST);
    let port = listener.local_addr().unwrap().port().to_string();
    let (accepted, mut accepts) = mpsc::unbounded_channel();
    let (closed, mut closes) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            accepted.send(()).unwrap();
            let closed = closed.clone();
            tokio::spawn(async move {
                let _ = stream.read(&mut [0; 1]).await;
                closed.send(()).unwrap();
            });
        }
    });
    let path = "/api/v1/namespaces/default/pods/web/portforward";
    let (handle, connection) = spdy(&cluster, path, "portforward.k8s.io").await;
    let mut streams = Vec::new();
    for request in 0..300 {
        let request = request.to_string();
        let headers = |kind| [("streamType", kind), ("port", port.as_str()), ("requestID", request.as_str())];
        streams.push((open(&handle, &headers("error")).await, open(&handle, &headers("data")).await));
    }
    let (last, _data) = streams.pop().unwrap();
    let why = text(last).await;
    assert!(why.contains("too many connections"), "{why}");
    connection.abort();
    drop(streams);
    let mut count = 0;
    while accepts.try_recv().is_ok() {
        count += 1;
    }
    assert!(count < 256, "{count} connections");
    for _ in 0..count {
        wire::soon(closes.recv()).await.unwrap();
    }
    // Those that come after it are served.
    let (handle, _connection) = spdy(&cluster, path, "portforward.k8s.io").await;
    let headers = |kind| [("streamType", kind), ("port", port.as_str()), ("requestID", "0")];
    let _streams = (open(&handle, &headers("error")).await, open(&handle, &headers("data")).await);
    wire::soon(accepts.recv()).await.unwrap();
    drop(cluster);
    machine.clear();
}
