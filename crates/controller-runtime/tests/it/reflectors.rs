//! The list-and-watch loop on an API server in this process, whose requests the test sees and redirects.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{DeleteParams, PostParams};
use kube::client::Body;
use kube::{Api, Client};
use plumb_controller_runtime::{Reflector, WatchConfig, WatchEvent};
use plumb_store::{Store, WatchBuffer};
use plumb_testkit::{Options, TestCluster, object};
use serde_json::{Value, json};

/// The requests that a reflector made.
#[derive(Clone, Default)]
struct Requests(Arc<Mutex<Vec<String>>>);

impl Requests {
    fn note(&self, uri: &http::Uri) {
        self.0.lock().unwrap().push(uri.query().unwrap_or_default().to_owned());
    }

    fn lists(&self) -> usize {
        self.0.lock().unwrap().iter().filter(|query| !query.contains("watch=true")).count()
    }

    fn watches(&self) -> usize {
        self.0.lock().unwrap().iter().filter(|query| query.contains("watch=true")).count()
    }
}

fn watched(cluster: &TestCluster, requests: &Requests) -> Client {
    let requests = requests.clone();
    cluster.intercepted("admin", ["system:masters"], move |uri| requests.note(uri))
}

async fn create(maps: &Api<ConfigMap>, name: &str) {
    let map = object(json!({ "metadata": { "name": name, "labels": { "name": name } } }));
    maps.create(&PostParams::default(), &map).await.unwrap();
}

#[test]
fn an_object_that_is_watched_takes_no_more_memory_than_it_needs() {
    let status = json!({ "name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0 });
    let text = json!({
        "metadata": { "name": "a", "managedFields": [{ "manager": "m" }] },
        "spec": { "containers": [{ "name": "c" }] },
        "status": { "containerStatuses": [status] },
    });
    let pod: Pod = serde_json::from_str(&text.to_string()).unwrap();
    let capacity = |pod: &Pod| pod.status.as_ref()?.container_statuses.as_ref().map(Vec::capacity);
    assert!(capacity(&pod) > Some(1), "there is nothing to save");
    let compacted = plumb_controller_runtime::compact(pod);
    assert_eq!((capacity(&compacted), compacted.metadata.managed_fields), (Some(1), None));
}

type Events = Pin<Box<dyn Stream<Item = WatchEvent<ConfigMap>> + Send>>;

fn events(client: &Client, config: WatchConfig) -> Events {
    Box::pin(Reflector::new(Api::default_namespaced(client.clone()), config).into_stream())
}

/// The next event in a few words.
async fn next(events: &mut Events) -> String {
    let event = tokio::time::timeout(Duration::from_hours(1), events.next()).await.unwrap().unwrap();
    let name = |map: &ConfigMap| map.metadata.name.clone().unwrap();
    match event {
        WatchEvent::Restarted(maps) => format!("= {}", maps.iter().map(name).collect::<Vec<_>>().join(" ")),
        WatchEvent::Applied(map) => format!("+ {}", name(&map)),
        WatchEvent::Deleted(map) => format!("- {}", map.name),
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_is_read_in_pages_and_delivered_as_one() {
    let (cluster, requests) = (TestCluster::start(), Requests::default());
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.admin());
    for number in 0..7 {
        create(&maps, &format!("m{number}")).await;
    }
    let mut events = events(&watched(&cluster, &requests), WatchConfig::default().page_size(3));
    assert_eq!(next(&mut events).await, "= m0 m1 m2 m3 m4 m5 m6");
    assert_eq!((requests.lists(), requests.watches()), (3, 0));
    create(&maps, "m7").await;
    assert_eq!(next(&mut events).await, "+ m7");
}

#[tokio::test(start_paused = true)]
async fn selectors_hold_for_the_list_and_for_the_watch() {
    let cluster = TestCluster::start();
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.admin());
    create(&maps, "a").await;
    create(&maps, "b").await;
    let mut by_name = events(&cluster.admin(), WatchConfig::default().fields("metadata.name=b"));
    let mut by_label = events(&cluster.admin(), WatchConfig::default().labels("name=b"));
    for events in [&mut by_name, &mut by_label] {
        assert_eq!(next(events).await, "= b");
    }
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    maps.delete("b", &DeleteParams::default()).await.unwrap();
    for events in [&mut by_name, &mut by_label] {
        assert_eq!(next(events).await, "- b");
    }
    let metadata = Reflector::metadata_only(maps.clone(), WatchConfig::default());
    let mut metadata = Box::pin(metadata.into_stream());
    let first = metadata.next().await;
    assert!(matches!(first, Some(WatchEvent::Restarted(maps)) if maps.is_empty()));
    create(&maps, "c").await;
    let Some(WatchEvent::Applied(map)) = metadata.next().await else { panic!("a config map was created") };
    assert_eq!(map.metadata.name.as_deref(), Some("c"));
}

/// The server ends each watch after some minutes; the clock is virtual.
#[tokio::test(start_paused = true)]
async fn a_watch_that_ended_is_resumed_without_a_list() {
    let (cluster, requests) = (TestCluster::start(), Requests::default());
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.admin());
    let mut events = events(&watched(&cluster, &requests), WatchConfig::default());
    assert_eq!(next(&mut events).await, "= ");
    for number in 0..3 {
        let passed = tokio::time::timeout(Duration::from_mins(20), events.next()).await;
        assert!(passed.is_err(), "nothing happened");
        create(&maps, &format!("m{number}")).await;
        assert_eq!(next(&mut events).await, format!("+ m{number}"));
    }
    assert_eq!(requests.lists(), 1);
    assert!((12..20).contains(&requests.watches()), "{} watches in an hour", requests.watches());
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_cannot_start_is_retried_without_a_list() {
    let (cluster, requests) = (TestCluster::start(), Requests::default());
    let noted = requests.clone();
    let client = cluster.intercepted("admin", ["system:masters"], move |uri| {
        noted.note(uri);
        if (1..=8).contains(&noted.watches()) {
            *uri = "/api/v1/nowhere?watch=true".parse().unwrap();
        }
    });
    let mut events = events(&client, WatchConfig::default());
    assert_eq!(next(&mut events).await, "= ");
    create(&Api::default_namespaced(cluster.admin()), "a").await;
    let began = tokio::time::Instant::now();
    assert_eq!(next(&mut events).await, "+ a");
    assert_eq!((requests.lists(), requests.watches()), (1, 9));
    // 50 ms, 100 ms, … 6.4 s, each up to a half shorter.
    let whole = Duration::from_millis(50 * 255);
    assert!((whole / 2..=whole).contains(&began.elapsed()), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_watch_whose_history_is_forgotten_is_followed_by_a_list() {
    let watch_buffer = WatchBuffer { events: 2, bytes: 1 << 20 };
    let options = plumb_store::Options { history: 16 << 10, watch_buffer, ..plumb_store::Options::default() };
    let cluster = TestCluster::with(Options { store: Store::in_memory(&options), ..Options::default() });
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.admin());
    create(&maps, "first").await;
    let mut events = events(&cluster.admin(), WatchConfig::default());
    assert_eq!(next(&mut events).await, "= first");
    create(&maps, "observed").await;
    assert_eq!(next(&mut events).await, "+ observed");
    // While no task reads the watch, more changes happen than the server retains.
    for number in 0..200 {
        create(&maps, &format!("later-{number:03}")).await;
    }
    maps.delete("first", &DeleteParams::default()).await.unwrap();
    loop {
        let event = next(&mut events).await;
        if let Some(listed) = event.strip_prefix("= ") {
            assert!(listed.starts_with("later-000 ") && listed.ends_with("later-199 observed"), "{listed}");
            break;
        }
    }
}

/// A client of an API server that responds with these bodies, one after the other, and to further requests not at all.
fn scripted(bodies: impl IntoIterator<Item = String>) -> Client {
    let bodies = Arc::new(Mutex::new(bodies.into_iter().collect::<VecDeque<_>>()));
    let service = tower::service_fn(move |_: http::Request<Body>| {
        let body = bodies.lock().unwrap().pop_front();
        async move {
            match body {
                Some(body) => Ok::<_, std::io::Error>(http::Response::new(Body::from(body.into_bytes()))),
                None => std::future::pending().await,
            }
        }
    });
    Client::new(service, "default")
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_decoded_hides_no_other() {
    let map = |name: &str, version: &str, data: Value| json!({ "metadata": { "name": name, "resourceVersion": version }, "data": data });
    let list = |version: &str, items: Value| {
        json!({ "metadata": { "resourceVersion": version }, "items": items }).to_string()
    };
    let event = |object: Value| format!("{}\n", json!({ "type": "MODIFIED", "object": object }));
    let (wrong, fine) = (json!({ "key": 5 }), json!({ "key": "5" }));
    let client = scripted([
        list(
            "3",
            json!([map("a", "1", wrong.clone()), map("b", "2", fine.clone()), map("c", "3", fine.clone())]),
        ),
        event(map("b", "4", wrong.clone())) + &event(map("c", "5", fine.clone())),
        list("5", json!([map("a", "1", wrong.clone()), map("b", "4", wrong), map("c", "5", fine.clone())])),
        event(map("a", "6", fine)),
    ]);
    let api = plumb_client::Api::default_namespaced(client);
    let mut events: Events = Box::pin(Reflector::new(api, WatchConfig::default()).into_stream());
    assert_eq!(next(&mut events).await, "= b c");
    assert_eq!(next(&mut events).await, "= c", "the list after the watch that failed");
    assert_eq!(next(&mut events).await, "+ a");
}

#[tokio::test(start_paused = true)]
async fn a_permission_that_is_granted_late_is_used() {
    let cluster = TestCluster::start();
    let mut events = events(&cluster.client("watcher"), WatchConfig::default());
    let hour = tokio::time::timeout(Duration::from_hours(1), events.next()).await;
    assert!(hour.is_err(), "it may not list");
    let rule = json!({ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"] });
    let role: ClusterRole = object(json!({ "metadata": { "name": "watcher" }, "rules": [rule] }));
    let params = PostParams::default();
    Api::all(cluster.admin()).create(&params, &role).await.unwrap();
    let binding: ClusterRoleBinding = object(json!({
        "metadata": { "name": "watcher" },
        "subjects": [{ "kind": "User", "name": "watcher", "apiGroup": "rbac.authorization.k8s.io" }],
        "roleRef": { "kind": "ClusterRole", "name": "watcher", "apiGroup": "rbac.authorization.k8s.io" },
    }));
    Api::all(cluster.admin()).create(&params, &binding).await.unwrap();
    let began = tokio::time::Instant::now();
    assert_eq!(next(&mut events).await, "= ");
    assert!(began.elapsed() <= Duration::from_mins(1), "{:?}", began.elapsed());
}
