//! A cluster whose objects are in etcd: `plumb up --store etcd=…`.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use plumb_testkit::{Etcd, until};
use serde_json::json;

use super::cluster::{Cluster, complaint, up};

fn deployment() -> Deployment {
    plumb_testkit::object(json!({
        "metadata": { "name": "web" },
        "spec": {
            "replicas": 2,
            "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [{ "name": "web", "image": "web:1" }] },
            },
        },
    }))
}

/// Whether all replicas are updated and available.
fn has_rolled(deployment: &Deployment) -> bool {
    let status = deployment.status.clone().unwrap_or_default();
    status.observed_generation == deployment.metadata.generation
        && status.updated_replicas == Some(2)
        && status.available_replicas == Some(2)
        && status.replicas == Some(2)
}

#[tokio::test]
async fn a_deployment_rolls_on_etcd_and_all_objects_are_there_after_a_kill() {
    let Some(etcd) = Etcd::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let store = format!("etcd={}", etcd.url());
    let flags =
        ["--store", &store, "--runtime", "virtual", "--components", "apiserver,controllers,scheduler,node"];
    let cluster = Cluster::start_with(&data, &flags);
    let client = cluster.client().await;
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    deployments.create(&PostParams::default(), &deployment()).await.unwrap();
    until(&deployments, "web", has_rolled).await;
    let image = json!({ "spec": { "template": { "spec": { "containers": [{ "name": "web", "image": "web:2" }] } } } });
    let changed = deployments.patch("web", &PatchParams::default(), &Patch::Strategic(image)).await.unwrap();
    let generation = changed.metadata.generation;
    until(&deployments, "web", |web| web.metadata.generation == generation && has_rolled(web)).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let map = plumb_testkit::object(json!({ "metadata": { "name": "kept" }, "data": { "a": "1" } }));
    let created: ConfigMap = maps.create(&PostParams::default(), &map).await.unwrap();
    cluster.kill();

    let cluster = Cluster::start_with(&data, &flags);
    let client = cluster.client().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    assert_eq!(maps.get("kept").await.unwrap(), created);
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let web = pods.list(&ListParams::default().labels("app=web")).await.unwrap();
    let of_new = web.items.iter().filter(|pod| {
        pod.spec.as_ref().is_some_and(|spec| spec.containers[0].image.as_deref() == Some("web:2"))
    });
    assert_eq!(of_new.count(), 2);
    until(&Api::<Deployment>::default_namespaced(client), "web", has_rolled).await;
    assert!(cluster.stop().success());
}

#[tokio::test]
async fn two_api_servers_on_one_etcd_serve_the_same_objects() {
    let Some(etcd) = Etcd::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let store = format!("etcd={}", etcd.url());
    let flags = ["--store", &store, "--components", "apiserver"];
    let one = Cluster::start_with(&folder.path().join("one"), &flags);
    let other = Cluster::start_with(&folder.path().join("other"), &flags);
    let of_one: Api<ConfigMap> = Api::default_namespaced(one.client().await);
    let of_other: Api<ConfigMap> = Api::default_namespaced(other.client().await);
    let map: ConfigMap = plumb_testkit::object(json!({ "metadata": { "name": "shared" } }));
    of_one.create(&PostParams::default(), &map).await.unwrap();
    for n in 0..10 {
        // Each server reads what the other has written, without a retry, and its update is not a conflict.
        for api in [&of_other, &of_one] {
            let mut read = api.get("shared").await.unwrap();
            read.data.get_or_insert_default().insert(n.to_string(), "written".to_owned());
            let written = api.replace("shared", &PostParams::default(), &read).await.unwrap();
            let listed = of_one.list(&ListParams::default()).await.unwrap();
            let found =
                listed.items.iter().find(|map| map.metadata.name.as_deref() == Some("shared")).unwrap();
            assert_eq!(found.metadata.resource_version, written.metadata.resource_version);
        }
    }
    assert!(one.stop().success());
    assert!(other.stop().success());
}

#[test]
fn a_store_that_cannot_be_used_is_an_error_and_leaves_no_directory() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    for (flags, said) in [
        (&["--store", "redb"][..], "write `embedded`, or `etcd=`"),
        (&["--store", "etcd=127.0.0.1:2379"], "is not the URL of a member of etcd"),
        (&["--store", "etcd=https://127.0.0.1:2379"], "needs --etcd-cafile"),
        (&["--etcd-cafile", "ca.crt"], "need --store etcd=URL"),
    ] {
        let mut command = up(&data);
        command.args(flags);
        let complaint = complaint(command);
        assert!(complaint.contains(said), "{flags:?}: {complaint}");
        assert!(!data.exists(), "{flags:?}");
    }
}
