//! `PostgreSQL` in a StatefulSet, while rows are written: its pod is deleted, its node's agent killed, and `plumb up` killed and
//! started. Every row whose commit was acknowledged is there afterwards.
//!
//! ```text
//!   writer ── psql: INSERT, by the socket in the volume ──▶ postgres in a container ──▶ volume of the class local-path
//!      │ committed                                              ✂ pod, agent, plumb up        │
//!      └───────────────────────── compared with what the table has ◀─────────────────────────┘
//! ```

mod image;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};
use plumb_testkit::{eventually, free_port, in_time, object, until};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use self::image::Installed;
use super::cluster::Cluster;
use super::join::{ALONE, Agent, invitation};
use super::nodes::machine::{Machine, id};

/// The user of the database in its container.
const USER: u32 = 4711;

/// Makes the database unless it is there, and runs it. A directory that `initdb` has not completed is not used.
const RUN: &str = "set -e; cd /data; if [ ! -d database ]; then rm -rf new; initdb -D new -U postgres -A trust -E UTF8 \
                   --locale=C; mv new database; fi; exec postgres -D /data/database -c listen_addresses= \
                   -c unix_socket_directories=/data -c dynamic_shared_memory_type=mmap -c jit=off";

fn database() -> StatefulSet {
    let container = json!({
        "name": "postgres", "image": image::NAME, "imagePullPolicy": "Never", "command": ["/bin/sh", "-c", RUN],
        "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
    });
    let spec = json!({
        // Killed, as by a node that fails.
        "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": false, "containers": [container],
        // PostgreSQL refuses a directory that its group may write: the files get the group once.
        "securityContext": {
            "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER, "fsGroupChangePolicy": "OnRootMismatch",
        },
        // The disk of a machine that builds may be almost full.
        "tolerations": [{ "operator": "Exists" }],
    });
    let claim =
        json!({ "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "100Mi" } } });
    object(json!({
        "metadata": { "name": "db" },
        "spec": {
            "replicas": 1, "serviceName": "db", "selector": { "matchLabels": { "app": "db" } },
            "template": { "metadata": { "labels": { "app": "db" } }, "spec": spec },
            "volumeClaimTemplates": [{ "metadata": { "name": "data" }, "spec": claim }],
        },
    }))
}

/// A client of the database, by the socket that it has in its volume.
#[derive(Clone)]
struct Database {
    psql: PathBuf,
    /// A short path of the volume: that of a socket may have no more than 107 characters.
    socket: PathBuf,
}

impl Database {
    /// What a statement gives; `None` if it was not acknowledged.
    async fn run(&self, statement: String) -> Option<String> {
        let Self { psql, socket } = self.clone();
        let mut command = Command::new(psql);
        command.args(["-X", "-A", "-t", "-q", "-U", "postgres", "-d", "postgres", "-c", &statement, "-h"]);
        command.arg(socket);
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    }
}

/// Writes one row after the other until it is dropped.
struct Writer {
    committed: watch::Receiver<Vec<u64>>,
    task: JoinHandle<()>,
}

impl Writer {
    fn start(database: Database) -> Self {
        let (sender, committed) = watch::channel(Vec::new());
        let task = tokio::spawn(async move {
            for number in 0_u64.. {
                // A row without an acknowledgement may be there or not, and is not written again.
                if database.run(format!("INSERT INTO rows VALUES ({number})")).await.is_some() {
                    sender.send_modify(|committed: &mut Vec<u64>| committed.push(number));
                }
            }
        });
        Self { committed, task }
    }

    /// Waits until so many more rows are committed.
    async fn more(&self, count: usize) {
        let mut committed = self.committed.clone();
        let wanted = committed.borrow().len() + count;
        in_time(committed.wait_for(|committed| committed.len() >= wanted)).await.unwrap();
    }

    /// Ends it, and returns what was committed.
    async fn finish(self) -> Vec<u64> {
        self.task.abort();
        let _ = self.task.await;
        self.committed.borrow().clone()
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Deletes the pod of the database, and waits for the next one.
async fn delete_pod(client: &Client) -> Pod {
    let pods = Api::<Pod>::default_namespaced(client.clone());
    let before = pods.get("db-0").await.unwrap().metadata.uid;
    pods.delete("db-0", &DeleteParams::default()).await.unwrap();
    until(&pods, "db-0", |pod| pod.metadata.uid != before && is_ready(pod)).await
}

/// Where the volume of the database is on this machine.
async fn volume(client: &Client) -> PathBuf {
    let claims = Api::<PersistentVolumeClaim>::default_namespaced(client.clone());
    let is_bound = |claim: &PersistentVolumeClaim| {
        claim.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Bound"))
    };
    let claim = until(&claims, "data-db-0", is_bound).await;
    let name = claim.spec.unwrap().volume_name.unwrap();
    let volume = Api::<PersistentVolume>::all(client.clone()).get(&name).await.unwrap();
    PathBuf::from(volume.spec.unwrap().local.unwrap().path)
}

/// The command of an agent with containers.
fn agent(words: &[String], data: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plumb"));
    command.args(words).args(["--name", "n1", "--runtime", "builtin", "--listen", "127.0.0.1:0"]);
    // The network settings of this machine stay as they are.
    command.args(["--pod-network", "none", "--service-proxy", "none", "--data-dir"]).arg(data);
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_loses_no_committed_row_when_its_pod_its_agent_and_the_cluster_are_killed() {
    let Some(machine) = Machine::here() else { return };
    let Some(installed) = Installed::find() else {
        plumb_testkit::skip(
            plumb_testkit::POSTGRESQL,
            "PostgreSQL is not installed (apt-get install postgresql)",
        );
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    installed.import(folder.path(), &machine.data());
    // The port stays, so that the agent finds a cluster that was started again.
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let start = || Cluster::start_at(&folder.path().join("data"), address, &ALONE);
    let cluster = start();
    let words: Vec<String> = invitation(&cluster).split_whitespace().skip(1).map(str::to_owned).collect();
    let first_agent = Agent::start(agent(&words, &machine.data()), &machine.data());
    let client = cluster.client().await;
    let sets = Api::<StatefulSet>::default_namespaced(client.clone());
    sets.create(&PostParams::default(), &database()).await.unwrap();
    let socket = folder.path().join("s");
    symlink(volume(&client).await, &socket).unwrap();
    let database = Database { psql: installed.program("psql"), socket };
    let create = "CREATE TABLE IF NOT EXISTS rows (number bigint PRIMARY KEY)";
    eventually(async || database.run(create.to_owned()).await.is_some()).await;
    let writer = Writer::start(database.clone());
    writer.more(10).await;

    delete_pod(&client).await;
    writer.more(10).await;

    // The container runs without its agent, and the next agent adopts it.
    drop(first_agent);
    writer.more(10).await;
    let pods = Api::<Pod>::default_namespaced(client.clone());
    let before = id(&pods.get("db-0").await.unwrap(), "postgres");
    let second_agent = Agent::start(agent(&words, &machine.data()), &machine.data());
    assert_eq!(id(&until(&pods, "db-0", is_ready).await, "postgres"), before);
    delete_pod(&client).await;
    writer.more(10).await;

    cluster.kill();
    writer.more(10).await;
    let cluster = start();
    let client = cluster.client().await;
    delete_pod(&client).await;
    writer.more(10).await;

    let committed = writer.finish().await;
    let mut rows = None;
    eventually(async || {
        rows = database.run("SELECT number FROM rows".to_owned()).await;
        rows.is_some()
    })
    .await;
    let found: BTreeSet<u64> = rows.unwrap().lines().map(|line| line.parse().unwrap()).collect();
    let lost: Vec<&u64> = committed.iter().filter(|number| !found.contains(number)).collect();
    assert!(lost.is_empty(), "lost {lost:?} of {} committed rows", committed.len());
    drop((second_agent, cluster));
    machine.clear();
}
