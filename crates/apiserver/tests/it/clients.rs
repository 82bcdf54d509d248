//! Clients of kube-rs that call the API server in this process, without a socket.

use futures_util::StreamExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client};
use plumb_apiserver::authn::User;
use plumb_resize::rules::Rules;
use serde_json::json;

use super::test_api_server::{TestApiServer, pod};

fn client(apiserver: &TestApiServer, name: &str, groups: &[&str]) -> Client {
    Client::new(apiserver.server.inside(User::new(name, "", groups.iter().copied())), "default")
}

fn admin(apiserver: &TestApiServer) -> Client {
    client(apiserver, "kubernetes-admin", &["system:masters"])
}

#[tokio::test]
async fn kube_creates_resizes_watches_and_deletes_pods() {
    let apiserver = TestApiServer::open(Rules::kep());
    let pods: Api<Pod> = Api::default_namespaced(admin(&apiserver));
    let created: Pod = serde_json::from_value(pod("web", "500m", "500Mi")).unwrap();
    pods.create(&PostParams::default(), &created).await.unwrap();
    let mut events = pods.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    assert!(matches!(events.next().await, Some(Ok(WatchEvent::Added(_)))));
    // As upstream: the end of the initial events, whether the client names them or asks for any revision.
    assert!(matches!(events.next().await, Some(Ok(WatchEvent::Bookmark(_)))));

    let amounts = json!({ "cpu": "650m" });
    let patch = json!({ "spec": { "containers": [
        { "name": "main", "resources": { "requests": amounts, "limits": amounts } }] } });
    let resized = pods.patch_resize("web", &PatchParams::default(), &Patch::Strategic(&patch)).await.unwrap();
    assert_eq!(resized.metadata.generation, Some(2));
    assert_eq!(resized.status.unwrap().resize.as_deref(), Some("Proposed"));
    assert!(matches!(events.next().await, Some(Ok(WatchEvent::Modified(_)))));

    pods.delete("web", &DeleteParams::default()).await.unwrap();
    assert!(matches!(events.next().await, Some(Ok(WatchEvent::Deleted(_)))));
    assert_eq!(pods.list(&ListParams::default()).await.unwrap().items.len(), 0);
}

#[tokio::test]
async fn in_process_clients_get_managed_fields_only_of_single_objects() {
    let apiserver = TestApiServer::open(Rules::kep());
    let maps: Api<ConfigMap> = Api::default_namespaced(admin(&apiserver));
    let created: ConfigMap =
        serde_json::from_value(json!({ "metadata": { "name": "m" }, "data": { "a": "1" } })).unwrap();
    maps.create(&PostParams::default(), &created).await.unwrap();
    assert_eq!(maps.get("m").await.unwrap().metadata.managed_fields.unwrap().len(), 1);

    let listed = maps.list(&ListParams::default()).await.unwrap().items.remove(0);
    assert_eq!((listed.data.clone(), listed.metadata.managed_fields.clone()), (created.data, None));
    let mut events = maps.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    let Some(Ok(WatchEvent::Added(watched))) = events.next().await else { panic!("the watch ended") };
    assert_eq!(watched, listed);
    let metadata = maps.list_metadata(&ListParams::default()).await.unwrap().items.remove(0);
    assert_eq!(metadata.metadata, listed.metadata);
    let mut events = maps.watch_metadata(&WatchParams::default(), "0").await.unwrap().boxed();
    let Some(Ok(WatchEvent::Added(watched))) = events.next().await else { panic!("the watch ended") };
    assert_eq!(watched.metadata, listed.metadata);

    // Writing back an object without managed fields does not change the managers.
    let kept = maps.replace("m", &PostParams::default(), &listed).await.unwrap();
    assert_eq!(kept.metadata.managed_fields.unwrap().len(), 1);
    let outside = apiserver.get("/api/v1/namespaces/default/configmaps").await.ok();
    assert_eq!(outside["items"][0]["metadata"]["managedFields"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn kube_uses_every_verb_patch_and_subresource() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let maps: Api<ConfigMap> = Api::default_namespaced(admin(&apiserver));
    let mut map: ConfigMap =
        serde_json::from_value(json!({ "metadata": { "name": "m" }, "data": { "a": "1" } })).unwrap();
    map = maps.create(&PostParams::default(), &map).await.unwrap();
    map.data.as_mut().unwrap().insert("b".into(), "1".into());
    let replaced = maps.replace("m", &PostParams::default(), &map).await.unwrap();
    assert_eq!(replaced.data.unwrap().len(), 2);
    let stale = maps.replace("m", &PostParams::default(), &map).await;
    assert!(matches!(stale, Err(kube::Error::Api(status)) if status.reason == "Conflict"));

    let patches: [(Patch<serde_json::Value>, serde_json::Value); 2] = [
        (Patch::Merge(json!({ "data": { "b": null } })), json!({ "a": "1" })),
        (Patch::Strategic(json!({ "data": { "$patch": "replace", "c": "3" } })), json!({ "c": "3" })),
    ];
    for (patch, expected) in patches {
        let patched = maps.patch("m", &PatchParams::default(), &patch).await.unwrap();
        assert_eq!(json!(patched.data), expected, "{patch:?}");
    }
    let operations = json!([
        { "op": "test", "path": "/data/c", "value": "3" },
        { "op": "move", "from": "/data/c", "path": "/data/d" },
        { "op": "add", "path": "/metadata/labels", "value": { "a.b/c": "x" } },
        { "op": "replace", "path": "/metadata/labels/a.b~1c", "value": "y" },
    ]);
    let json = |operations| Patch::<()>::Json(serde_json::from_value(operations).unwrap());
    let patched = maps.patch("m", &PatchParams::default(), &json(operations.clone())).await.unwrap();
    assert_eq!(json!(patched.data), json!({ "d": "3" }));
    assert_eq!(json!(patched.metadata.labels), json!({ "a.b/c": "y" }));
    // The `test` operation of the patch fails now, so that no operation is applied.
    let failed = maps.patch("m", &PatchParams::default(), &json(operations)).await;
    assert!(matches!(failed, Err(kube::Error::Api(status)) if status.code == 422));
    assert_eq!(maps.get("m").await.unwrap(), patched);
    let tried = maps.delete("m", &DeleteParams { dry_run: true, ..DeleteParams::default() }).await;
    assert!(tried.is_ok() && maps.get_opt("m").await.unwrap().is_some());
    assert_eq!(maps.get_metadata("m").await.unwrap().metadata.name.as_deref(), Some("m"));

    for i in 0..7 {
        let more = json!({ "metadata": { "name": format!("page-{i}"), "labels": { "pages": "yes" } } });
        maps.create(&PostParams::default(), &serde_json::from_value(more).unwrap()).await.unwrap();
    }
    let mut pages = ListParams::default().labels("pages=yes").limit(3);
    let mut names = Vec::new();
    loop {
        let page = maps.list(&pages).await.unwrap();
        names.extend(page.items.into_iter().filter_map(|map| map.metadata.name));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => pages = pages.continue_token(&token),
            None => break,
        }
    }
    assert_eq!(names, (0..7).map(|i| format!("page-{i}")).collect::<Vec<_>>());
    maps.delete_collection(&DeleteParams::default(), &ListParams::default().labels("pages=yes"))
        .await
        .unwrap();
    assert_eq!(maps.list_metadata(&ListParams::default()).await.unwrap().items.len(), 1);

    let deployments: Api<Deployment> = Api::default_namespaced(admin(&apiserver));
    let deployment = json!({ "metadata": { "name": "web" }, "spec": {
        "selector": { "matchLabels": { "app": "web" } },
        "template": { "metadata": { "labels": { "app": "web" } }, "spec": pod("x", "1", "1Gi")["spec"] } } });
    deployments.create(&PostParams::default(), &serde_json::from_value(deployment).unwrap()).await.unwrap();
    let scale = Patch::Merge(json!({ "spec": { "replicas": 4 } }));
    deployments.patch_scale("web", &PatchParams::default(), &scale).await.unwrap();
    assert_eq!(deployments.get_scale("web").await.unwrap().spec.unwrap().replicas, Some(4));
    let status = Patch::Merge(json!({ "status": { "replicas": 4 } }));
    let patched = deployments.patch_status("web", &PatchParams::default(), &status).await.unwrap();
    assert_eq!((patched.status.unwrap().replicas, patched.metadata.generation), (Some(4), Some(2)));
}

#[tokio::test]
async fn only_the_node_of_a_pod_writes_its_allocation() {
    let apiserver = TestApiServer::open(Rules::kep());
    let pods = "/api/v1/namespaces/default/pods";
    apiserver.post(pods, &pod("web", "500m", "500Mi")).await.ok();
    let binding = json!({ "metadata": { "name": "web" }, "target": { "kind": "Node", "name": "n1" } });
    apiserver.post(&format!("{pods}/web/binding"), &binding).await.ok();

    let allocated = json!({ "status": { "containerStatuses": [{
        "name": "main", "image": "plumb/load", "imageID": "", "ready": true, "restartCount": 0,
        "allocatedResources": { "cpu": "400m", "memory": "500Mi" } }] } });
    let as_node = |node: &str| {
        Api::<Pod>::default_namespaced(client(&apiserver, &format!("system:node:{node}"), &["system:nodes"]))
    };
    let patch = Patch::Merge(&allocated);
    let code = |result: Result<Pod, kube::Error>| match result {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(other) => panic!("{other}"),
    };
    let other = as_node("n2").patch_status("web", &PatchParams::default(), &patch).await;
    assert_eq!(code(other), 403);
    let person = Api::<Pod>::default_namespaced(admin(&apiserver));
    assert_eq!(code(person.patch_status("web", &PatchParams::default(), &patch).await), 403);
    assert_eq!(code(as_node("n1").patch_status("web", &PatchParams::default(), &patch).await), 200);
    // The node reports the allocation of its pod, and cannot change the spec.
    let resize = json!({ "spec": { "containers": [] } });
    let refused = as_node("n1").patch_resize("web", &PatchParams::default(), &Patch::Merge(&resize)).await;
    assert_eq!(code(refused), 403);
}

#[tokio::test]
async fn an_anonymous_user_can_read_only_health() {
    let apiserver = TestApiServer::open(Rules::kep());
    let request = |path: &str| {
        let body = http_body_util::Empty::<bytes::Bytes>::new();
        apiserver.server.handle(http::Request::get(path).body(body).unwrap())
    };
    assert_eq!(request("/livez").await.status(), 200);
    assert_eq!(request("/api/v1/pods").await.status(), 401);
    let stranger: Api<ConfigMap> = Api::default_namespaced(client(&apiserver, "jane", &[]));
    let refused = stranger.list(&ListParams::default()).await;
    assert!(matches!(refused, Err(kube::Error::Api(status)) if status.code == 403));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_and_a_watch_under_many_writers_end_with_the_final_state() {
    const WRITERS: usize = 8;
    const WRITES: usize = 1_250;
    let apiserver = TestApiServer::open(Rules::kep());
    let maps: Api<ConfigMap> = Api::default_namespaced(admin(&apiserver));
    let list = maps.list(&ListParams::default()).await.unwrap();
    let mut events =
        maps.watch(&WatchParams::default(), &list.metadata.resource_version.unwrap()).await.unwrap().boxed();
    let follower = tokio::spawn(async move {
        let mut seen = std::collections::BTreeMap::new();
        loop {
            match events.next().await.expect("the watch goes on").unwrap() {
                WatchEvent::Added(map) => {
                    let name = map.metadata.name.clone().unwrap();
                    let ended = name == "the-end";
                    assert!(seen.insert(name, map).is_none(), "added twice");
                    if ended {
                        break;
                    }
                }
                WatchEvent::Modified(map) => {
                    assert!(
                        seen.insert(map.metadata.name.clone().unwrap(), map).is_some(),
                        "modified before added"
                    );
                }
                WatchEvent::Deleted(map) => {
                    assert!(seen.remove(&map.metadata.name.unwrap()).is_some(), "deleted before added");
                }
                other => panic!("{other:?}"),
            }
        }
        seen
    });
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let maps = maps.clone();
            tokio::spawn(async move {
                for i in 0..WRITES {
                    let name = format!("m{}", (writer * 7 + i * 13) % 40);
                    let body = json!({ "apiVersion": "v1", "kind": "ConfigMap",
                        "metadata": { "name": name }, "data": { "by": format!("{writer}-{i}") } });
                    // Writers conflict with each other.
                    let _ = match i % 3 {
                        0 => maps
                            .create(&PostParams::default(), &serde_json::from_value(body).unwrap())
                            .await
                            .is_ok(),
                        1 => maps.patch(&name, &PatchParams::default(), &Patch::Merge(&body)).await.is_ok(),
                        _ => maps.delete(&name, &DeleteParams::default()).await.is_ok(),
                    };
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let end = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "the-end" } });
    maps.create(&PostParams::default(), &serde_json::from_value(end).unwrap()).await.unwrap();
    let seen = follower.await.unwrap();
    let now = maps.list(&ListParams::default()).await.unwrap();
    let listed: Vec<_> =
        now.items.iter().map(|map| (&map.metadata.name, &map.metadata.resource_version)).collect();
    let watched: Vec<_> =
        seen.values().map(|map| (&map.metadata.name, &map.metadata.resource_version)).collect();
    assert_eq!(listed, watched);
}
