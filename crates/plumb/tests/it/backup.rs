//! `plumb backup` and `plumb restore`, of a cluster that stands still and of one that runs.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::json;

use super::cluster::{Cluster, config_of};

fn map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({ "metadata": { "name": name }, "data": { "k": "v" } })).unwrap()
}

async fn maps(cluster: &Cluster) -> Api<ConfigMap> {
    Api::default_namespaced(cluster.client().await)
}

/// A command of the product about a file and a data directory.
fn plumb(verb: &str, file: &Path, data: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plumb"));
    command.arg(verb).arg(file).arg("--data-dir").arg(data).output().unwrap()
}

/// The same, if it is to work, with what it prints.
fn done(verb: &str, file: &Path, data: &Path) -> String {
    let output = plumb(verb, file, data);
    assert!(output.status.success(), "{verb}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn paths(folder: &Path) -> [PathBuf; 3] {
    ["data", "copy", "again"].map(|name| folder.join(name))
}

#[tokio::test]
async fn a_copy_brings_everything_back() {
    let folder = tempfile::tempdir().unwrap();
    let [data, copy, again] = paths(folder.path());
    let cluster = Cluster::start(&data);
    let made = maps(&cluster).await.create(&PostParams::default(), &map("kept")).await.unwrap();
    cluster.stop();
    done("backup", &copy, &data);
    assert_eq!(std::fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
    done("restore", &copy, &again);
    let cluster = Cluster::start(&again);
    assert_eq!(maps(&cluster).await.get("kept").await.unwrap(), made);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_a_cluster_that_runs_has_all_that_was_acknowledged_before_it() {
    const BEFORE: usize = 50;
    let folder = tempfile::tempdir().unwrap();
    // Deeper than the address of a socket can be long.
    let [data, copy, again] = paths(&folder.path().join("deep".repeat(50)));
    std::fs::create_dir_all(data.parent().unwrap()).unwrap();
    let cluster = Cluster::start(&data);
    let all = maps(&cluster).await;
    let mut before = Vec::new();
    for n in 0..BEFORE {
        before.push(all.create(&PostParams::default(), &map(&format!("before-{n}"))).await.unwrap());
    }
    // A client goes on writing.
    let writing = tokio::spawn({
        let all = all.clone();
        async move {
            for n in 0.. {
                if all.create(&PostParams::default(), &map(&format!("during-{n}"))).await.is_err() {
                    return;
                }
            }
        }
    });
    let said = tokio::task::spawn_blocking({
        let (data, copy) = (data.clone(), copy.clone());
        move || done("backup", &copy, &data)
    });
    let said = said.await.unwrap();
    assert!(said.starts_with("backed up ") && said.contains(" at revision "), "{said}");
    // What is there stays there.
    let refused = plumb("backup", &copy, &data);
    let message = format!("plumb: {} exists; name a new file, or remove it first\n", copy.display());
    assert_eq!((refused.status.code(), String::from_utf8(refused.stderr).unwrap()), (Some(1), message));
    assert!(cluster.stop().success());
    writing.await.unwrap();

    done("restore", &copy, &again);
    let cluster = Cluster::start_alone(&again);
    let all = maps(&cluster).await;
    for map in before {
        assert_eq!(all.get(map.metadata.name.as_deref().unwrap()).await.unwrap(), map);
    }
    // Of what was written meanwhile the first ones, without a gap.
    let found = all.list(&ListParams::default()).await.unwrap().items;
    let names: Vec<String> = found.into_iter().filter_map(|map| map.metadata.name).collect();
    let during = names.iter().filter(|name| name.starts_with("during-")).count();
    assert!((0..during).all(|n| names.contains(&format!("during-{n}"))), "{names:?}");
}

#[test]
fn a_restore_over_objects_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let [data, copy, _] = paths(folder.path());
    assert!(Cluster::start_alone(&data).stop().success());
    done("backup", &copy, &data);
    let refused = plumb("restore", &copy, &data);
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("move them away, or name another directory with --data-dir"), "{said}");
}

#[tokio::test]
async fn with_the_keys_put_back_first_clients_and_tokens_are_good_as_before() {
    let folder = tempfile::tempdir().unwrap();
    let [data, copy, again] = paths(folder.path());
    let cluster = Cluster::start(&data);
    let secrets: Api<Secret> = Api::default_namespaced(cluster.client().await);
    let secret: Secret =
        serde_json::from_value(json!({ "metadata": { "name": "s" }, "stringData": { "k": "v" } })).unwrap();
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    let mut old = config_of(&cluster.kubeconfig()).await;
    done("backup", &copy, &data);
    cluster.stop();

    std::fs::create_dir(&again).unwrap();
    let copied = Command::new("cp").arg("-a").arg(data.join("pki")).arg(&again).status().unwrap();
    assert!(copied.success());
    done("restore", &copy, &again);
    let cluster = Cluster::start(&again);
    old.cluster_url = config_of(&cluster.kubeconfig()).await.cluster_url;
    let secrets: Api<Secret> = Api::default_namespaced(kube::Client::try_from(old).unwrap());
    assert_eq!(secrets.get("s").await.unwrap().data.unwrap()["k"].0, b"v");
}
