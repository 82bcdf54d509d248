//! A panic while an object is reconciled: an event of the object, a metric and a retry, while the other objects are
//! reconciled.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ReplicationController;
use kube::Api;
use kube::api::PostParams;
use plumb_controller_runtime::Clock;
use plumb_controller_runtime::metrics::{Metrics, ReconcileResult};
use plumb_controllers::workload::{Action, Context, Informers, Manager, Note, Watches, Workload};
use plumb_controllers::{GROUPS, WATCHER, user_of};
use plumb_supervise::Supervisor;
use plumb_testkit::{TestCluster, event};
use serde_json::json;

/// A controller that panics over the object named `bad`.
struct Panics;

impl Workload for Panics {
    const NAME: &'static str = "replication-controller";
    type Kind = ReplicationController;
    type State = String;

    fn watch(&self, _: &Watches<ReplicationController>) {}

    fn claims(&self, _: &ReplicationController, _: &Informers) -> Vec<Action> {
        Vec::new()
    }

    fn gather(&self, object: &Arc<ReplicationController>, _: &Informers) -> String {
        object.metadata.name.clone().unwrap()
    }

    fn decide(&self, name: &String, _: &Context) -> Vec<Action> {
        assert!(name != "bad", "cannot decide about {name}");
        vec![Action::Event(Note::normal("Reconciled", "it was looked at"))]
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_over_one_object_is_an_event_of_it_and_the_others_go_on() {
    let cluster = TestCluster::start();
    let supervisor = Supervisor::default();
    let metrics = Metrics::default();
    let mut manager = Manager::new(Clock::default(), supervisor.clone(), metrics.clone());
    manager.add(Panics, cluster.client_as(&user_of(Panics::NAME), GROUPS));
    let running = tokio::spawn(manager.run(cluster.client(WATCHER)));

    let admin = cluster.admin();
    let objects: Api<ReplicationController> = Api::default_namespaced(admin.clone());
    let create = async |name: &str| {
        let template = json!({ "metadata": { "labels": { "a": "b" } }, "spec": { "containers": [{ "name": "c", "image": "i" }] } });
        let object = json!({ "metadata": { "name": name }, "spec": { "selector": { "a": "b" }, "template": template } });
        objects.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    };
    create("bad").await;
    create("good").await;
    // It is retried.
    let said = event(&admin, "bad", "ReconcilePanicked", 2).await;
    assert_eq!(said.type_.as_deref(), Some("Warning"));
    assert_eq!(said.involved_object.kind.as_deref(), Some("ReplicationController"));
    let message = said.message.unwrap();
    assert!(message.contains("cannot decide about bad"), "{message}");
    assert!(supervisor.panics(Panics::NAME) >= 2);
    assert!(metrics.controller(Panics::NAME).panics() >= 2);
    event(&admin, "good", "Reconciled", 1).await;
    create("later").await;
    event(&admin, "later", "Reconciled", 1).await;
    assert_eq!(supervisor.restarts(Panics::NAME), 0, "the controller itself runs on");

    // Every task of the controller is killed, and restarted.
    for task in supervisor.tasks() {
        assert!(supervisor.abort(&task.name), "{}", task.name);
    }
    create("last").await;
    event(&admin, "last", "Reconciled", 1).await;
    assert_eq!(supervisor.restarts(Panics::NAME), 1);
    assert!(metrics.controller(Panics::NAME).count(ReconcileResult::Success) >= 3);
    assert!(metrics.reflector("replicationcontrollers").lists() >= 1);
    running.abort();
}
