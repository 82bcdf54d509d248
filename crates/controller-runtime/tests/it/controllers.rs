//! The loop of a controller on an API server in this process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use plumb_controller_runtime::events::{EventRecorder, RecorderConfig};
use plumb_controller_runtime::{
    Controller, InformerFactory, ObjectRef, Reconciler, Requeue, Store, controller_reference,
};
use plumb_supervise::Supervisor;
use plumb_testkit::{TestCluster, event, object, until};
use serde_json::json;

/// Reconciles a secret with the name of each config map, which the config map controls.
struct Copies {
    client: Client,
    maps: Arc<Store<ConfigMap>>,
    secrets: Arc<Store<Secret>>,
    /// How often an object named `bad` was reconciled, which panics at first.
    bad: AtomicU32,
    recovered: Arc<AtomicU32>,
}

impl Reconciler for Copies {
    type Key = ObjectRef;
    type Error = kube::Error;

    async fn reconcile(&self, map: &ObjectRef) -> kube::Result<Requeue> {
        assert!(map.name != "bad" || self.bad.fetch_add(1, SeqCst) > 1, "the first two times panic");
        let Some(found) = self.maps.get(map) else { return Ok(Requeue::AwaitChange) };
        if self.secrets.get(map).is_none() {
            let mut secret: Secret = object(json!({ "metadata": { "name": map.name } }));
            secret.metadata.owner_references = Some(vec![controller_reference(&*found)]);
            let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &map.namespace);
            let created = secrets.create(&PostParams::default(), &secret).await?;
            self.secrets.wait_for_write(&plumb_controller_runtime::Write::created(&created.metadata)).await;
        }
        Ok(Requeue::AwaitChange)
    }

    async fn recover(&self) {
        self.recovered.fetch_add(1, SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn objects_and_what_they_own_are_reconciled_and_a_panic_is_that_of_one_object() {
    let cluster = TestCluster::start();
    let (client, supervisor) = (cluster.admin(), Supervisor::default());
    let informers = InformerFactory::default();
    let (maps, secrets) = (informers.informer::<ConfigMap>(), informers.informer::<Secret>());
    let recovered: Arc<AtomicU32> = Arc::default();
    let copies = Copies {
        client: client.clone(),
        maps: maps.store().clone(),
        secrets: secrets.store().clone(),
        bad: AtomicU32::new(0),
        recovered: recovered.clone(),
    };
    let config = RecorderConfig::new(client.clone(), "copies", &supervisor);
    let controller = Controller::new("copies", copies, &supervisor)
        .with_panic_events(move || EventRecorder::start(config.clone()))
        .with_workers(4)
        .reconciles_if(&maps, |map| map.metadata.name.as_deref() != Some("ignored"))
        .owns::<ConfigMap, Secret>(&secrets);
    let create = async |name: &str| {
        let map: ConfigMap = object(json!({ "metadata": { "name": name } }));
        Api::default_namespaced(client.clone()).create(&PostParams::default(), &map).await.unwrap();
    };
    create("early").await;
    let _informing = informers.start(&client, &supervisor);
    let running = tokio::spawn(controller.run());
    let copies: Api<Secret> = Api::default_namespaced(client.clone());
    let first = until(&copies, "early", |_| true).await;
    create("ignored").await;
    create("bad").await;
    create("late").await;
    until(&copies, "late", |_| true).await;
    until(&copies, "bad", |_| true).await;
    assert_eq!(recovered.load(SeqCst), 2);
    assert_eq!((supervisor.panics("copies"), supervisor.restarts("copies")), (2, 0));
    let emitted = event(&client, "bad", "ReconcilePanicked", 2).await;
    assert_eq!(emitted.involved_object.kind.as_deref(), Some("ConfigMap"));
    assert!(emitted.message.unwrap().ends_with("will retry: the first two times panic"));
    assert!(copies.get_opt("ignored").await.unwrap().is_none());

    // A deleted secret is created again, since its controller is reconciled.
    copies.delete("early", &DeleteParams::default()).await.unwrap();
    until(&copies, "early", |copy| copy.metadata.uid != first.metadata.uid).await;

    // The loop itself is restarted, and continues with its keys.
    assert!(supervisor.abort("copies"));
    create("last").await;
    until(&copies, "last", |_| true).await;
    assert_eq!((recovered.load(SeqCst), supervisor.restarts("copies")), (3, 1));
    running.abort();
}

/// Counts its calls, and fails until it may not.
struct Flaky(Arc<AtomicU32>);

impl Reconciler for Flaky {
    type Key = ObjectRef;
    type Error = &'static str;

    async fn reconcile(&self, _: &ObjectRef) -> Result<Requeue, &'static str> {
        match self.0.fetch_add(1, SeqCst) {
            0..4 => Err("not yet"),
            4 => Ok(Requeue::Now),
            5 => Ok(Requeue::After(Duration::from_mins(10))),
            _ => Ok(Requeue::AwaitChange),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_is_repeated_after_errors_and_when_it_asks_for_it() {
    let (cluster, supervisor) = (TestCluster::start(), Supervisor::default());
    let informers = InformerFactory::default();
    let count: Arc<AtomicU32> = Arc::default();
    let maps = informers.informer::<ConfigMap>();
    let controller = Controller::new("flaky", Flaky(count.clone()), &supervisor).reconciles(&maps);
    let map: ConfigMap = object(json!({ "metadata": { "name": "a" } }));
    let api: Api<ConfigMap> = Api::default_namespaced(cluster.admin());
    api.create(&PostParams::default(), &map).await.unwrap();
    let _informing = informers.start(&cluster.admin(), &supervisor);
    let running = tokio::spawn(controller.run());
    let asked = async |minutes: u64| {
        tokio::time::sleep(Duration::from_mins(minutes)).await;
        count.load(SeqCst)
    };
    assert_eq!(asked(1).await, 6);
    assert_eq!(asked(10).await, 7);
    assert_eq!(asked(60).await, 7, "nothing changes, and nothing is asked");
    let patch = Patch::Merge(json!({ "data": { "a": "b" } }));
    api.patch("a", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(asked(1).await, 8);
    running.abort();
}
