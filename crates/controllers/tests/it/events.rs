//! Events expire.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use plumb_controller_runtime::metrics::Metrics;
use plumb_controllers::{Clients, GROUPS, WATCHER, garbage, user_of};
use plumb_supervise::Supervisor;
use plumb_testkit::{Options, TestCluster, object, until_gone, virtual_clock};
use serde_json::json;

#[tokio::test(start_paused = true)]
async fn an_event_is_deleted_an_hour_after_it_was_last_observed() {
    let clock = virtual_clock("2026-01-01T00:00:00Z".parse().unwrap());
    let wall = clock.clone();
    let cluster = TestCluster::with(Options { clock: Arc::new(move || wall.now()), ..Options::default() });
    let supervisor = Supervisor::default();
    let clients = Clients {
        watch: cluster.client(WATCHER),
        write: cluster.client_as(&user_of(garbage::NAME), GROUPS),
        supervisor: supervisor.clone(),
        metrics: Metrics::default(),
    };
    let events: Api<Event> = Api::default_namespaced(cluster.admin());
    let create = async |name: &str| {
        let event = json!({
            "metadata": { "name": name }, "involvedObject": { "namespace": "default" },
            "lastTimestamp": clock.now().to_string(),
        });
        events.create(&PostParams::default(), &object(event)).await.unwrap();
    };
    create("before").await;
    let running = tokio::spawn(garbage::events::run(clients, clock.clone()));
    create("after").await;
    create("repeated").await;
    tokio::time::sleep(Duration::from_mins(30)).await;
    let again = json!({ "count": 2, "lastTimestamp": clock.now().to_string() });
    events.patch("repeated", &PatchParams::default(), &Patch::Merge(again)).await.unwrap();
    tokio::time::sleep(Duration::from_mins(29)).await;
    assert_eq!(events.list(&ListParams::default()).await.unwrap().items.len(), 3, "none has expired yet");
    tokio::time::sleep(Duration::from_mins(2)).await;
    until_gone(&events, "before").await;
    until_gone(&events, "after").await;
    assert!(events.get_opt("repeated").await.unwrap().is_some(), "it was observed again");

    // The queue outlives its task.
    assert!(supervisor.abort(garbage::events::TASK));
    tokio::time::sleep(Duration::from_mins(30)).await;
    until_gone(&events, "repeated").await;
    running.abort();
}
