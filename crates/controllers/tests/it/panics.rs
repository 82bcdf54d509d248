//! A panic over one object: an event of it, a count, and a retry, while the other objects go on.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, ReplicationController};
use kube::api::{PostParams, WatchEvent, WatchParams};
use kube::{Api, Client};
use plumb_apiserver::admission::Plugins;
use plumb_apiserver::authn::{Authenticator, Tokens, User};
use plumb_apiserver::pki::SystemClock;
use plumb_apiserver::{ApiServer, Config, Limits};
use plumb_controllers::workload::{Action, Around, Note, Shelves, Wiring, Workload, Workloads};
use plumb_controllers::{GROUPS, WATCHER, user_of};
use plumb_resize::rules::Rules;
use plumb_store::{Options, Store};
use plumb_supervise::Supervisor;
use serde_json::json;

/// A controller that panics over the object named `bad`.
struct Panics;

impl Workload for Panics {
    const NAME: &'static str = "replication-controller";
    type Kind = ReplicationController;
    type State = String;

    fn wire(&self, _: &Wiring<ReplicationController>) {}

    fn claims(&self, _: &ReplicationController, _: &Shelves) -> Vec<Action> {
        Vec::new()
    }

    fn gather(&self, object: &Arc<ReplicationController>, _: &Shelves) -> String {
        object.metadata.name.clone().unwrap()
    }

    fn decide(&self, name: &String, _: &Around) -> Vec<Action> {
        assert!(name != "bad", "cannot decide about {name}");
        vec![Action::Event(Note::normal("Reconciled", "it was looked at"))]
    }
}

/// Waits for an event about an object that was said so often.
async fn event(events: &Api<Event>, object: &str, reason: &str, times: i32) -> Event {
    let fields = WatchParams::default().fields(&format!("involvedObject.name={object},reason={reason}"));
    let watching = async {
        loop {
            let mut seen = events.watch(&fields, "0").await.unwrap().boxed();
            while let Some(Ok(event)) = seen.next().await {
                if let WatchEvent::Added(event) | WatchEvent::Modified(event) = event
                    && event.count >= Some(times)
                {
                    return event;
                }
            }
        }
    };
    tokio::time::timeout(Duration::from_mins(1), watching).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_over_one_object_is_an_event_of_it_and_the_others_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = Tokens::default();
    let server = ApiServer::new(Config {
        store: Store::open(folder.path().join("objects"), Options::default()).unwrap(),
        rules: Rules::v1_36(),
        clock: Arc::new(Timestamp::now),
        limits: Limits::default(),
        authenticator: Authenticator::new(tokens, Arc::new(SystemClock)),
        nodes: None,
        plugins: Plugins::new("", "ServiceAccount").unwrap(),
        usage: None,
    })
    .unwrap();
    let client = |user: User| Client::new(server.inside(user), "default");
    let none: [&str; 0] = [];
    let supervisor = Supervisor::default();
    let mut workloads = Workloads::new(Arc::new(Timestamp::now), supervisor.clone());
    workloads.add(Panics, client(User::new(user_of(Panics::NAME), "", GROUPS)));
    let running = tokio::spawn(workloads.run(client(User::new(WATCHER, "", none))));

    let admin = client(User::new("admin", "", ["system:masters"]));
    let objects: Api<ReplicationController> = Api::default_namespaced(admin.clone());
    let create = async |name: &str| {
        let template = json!({ "metadata": { "labels": { "a": "b" } }, "spec": { "containers": [{ "name": "c", "image": "i" }] } });
        let object = json!({ "metadata": { "name": name }, "spec": { "selector": { "a": "b" }, "template": template } });
        objects.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    };
    let events: Api<Event> = Api::default_namespaced(admin);
    create("bad").await;
    create("good").await;
    // It is retried.
    let said = event(&events, "bad", "ReconcilePanicked", 2).await;
    assert_eq!(said.type_.as_deref(), Some("Warning"));
    assert_eq!(said.involved_object.kind.as_deref(), Some("ReplicationController"));
    let message = said.message.unwrap();
    assert!(message.contains("cannot decide about bad"), "{message}");
    assert!(supervisor.panics(Panics::NAME) >= 2);
    event(&events, "good", "Reconciled", 1).await;
    create("later").await;
    event(&events, "later", "Reconciled", 1).await;
    assert_eq!(supervisor.restarts(Panics::NAME), 0, "the controller itself runs on");

    // Every task of it is killed; it goes on.
    for task in supervisor.tasks() {
        assert!(supervisor.abort(&task.name), "{}", task.name);
    }
    create("last").await;
    event(&events, "last", "Reconciled", 1).await;
    assert_eq!(supervisor.restarts(Panics::NAME), 1);
    running.abort();
}
