//! The controller: follows the workloads that have a rollout.

use std::sync::Arc;

use futures_util::future::{BoxFuture, join};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use kube::Resource;
use plumb_controller_runtime::controller_of_kind;
use plumb_controller_runtime::events::{EventRecorder, RecorderConfig};
use plumb_controller_runtime::informer::Synced as _;
use plumb_controller_runtime::{Controller, Informer, InformerFactory, ObjectRef, Watchable, WorkQueue};
use tokio::sync::Notify;

use super::informers::{Informers, is_recorded};
use super::kind::WorkloadKind;
use super::reconcile::Rollouts;
use super::replica_sets::is_marked_orphan;
use super::report::Reporter;
use super::tracker::{Key, Trackers};
use crate::advanced_sets::AdvancedSets;
use crate::api::advanced::AdvancedDaemonSet;
use crate::quotas::Quotas;
use crate::run::Config;
use crate::vpas::Vpas;

/// The name of the controller.
pub const NAME: &str = "rollout-controller";

/// Runs the controller on informers of a factory, which is started afterwards, until the future is dropped.
pub(crate) fn run(
    config: &Config,
    factory: &InformerFactory,
    vpas: &Vpas,
    advanced: &AdvancedSets,
) -> BoxFuture<'static, ()> {
    controller(config, &Informers::new(factory, vpas, advanced)).run()
}

/// Releases every workload that is held, and returns how many there were, see [`release_all`](crate::release_all).
pub(crate) fn release_all(config: Config) -> BoxFuture<'static, usize> {
    let factory = InformerFactory::with_metrics(&config.metrics);
    let informers = Informers::new(&factory, &Vpas::default(), &AdvancedSets::default());
    let controller = controller(&Config { enabled: false, ..config.clone() }, &informers);
    let watching = join(
        informers.vpas.run(&config.watch, &config.supervisor),
        informers.advanced.run(&config.watch, &config.supervisor),
    );
    let changed = Arc::new(Notify::new());
    notify(&informers.deployments, &changed);
    notify(&informers.stateful_sets, &changed);
    notify(&informers.daemon_sets, &changed);
    notify(&informers.advanced.stateful_sets, &changed);
    notify(&informers.advanced.daemon_sets, &changed);
    Box::pin(async move {
        let _informing = factory.start(&config.watch, &config.supervisor);
        let mut watching = std::pin::pin!(watching);
        tokio::select! {
            // They run for good.
            _ = &mut watching => return 0,
            _ = join(factory.wait_for_sync(), informers.advanced.synced()) => {}
        }
        // Counted before the controller runs: it starts to release at once.
        let held = informers.held();
        let released = async {
            while informers.held() > 0 {
                changed.notified().await;
            }
            held
        };
        tokio::select! {
            () = controller.run() => 0,
            _ = watching => 0,
            held = released => held,
        }
    })
}

/// Notifies when a workload changes that has, or had, a record.
fn notify<K: Watchable>(informer: &Informer<K>, changed: &Arc<Notify>) {
    let changed = changed.clone();
    informer.add_handler(move |change| {
        if [change.before, change.after].into_iter().flatten().any(|object| is_recorded(object.meta())) {
            changed.notify_one();
        }
    });
}

/// The controller, which fills its queue from informers.
fn controller(config: &Config, informers: &Informers) -> Controller<Rollouts> {
    let mut recorder = RecorderConfig::new(config.write.clone(), NAME, &config.supervisor);
    recorder.metrics = config.metrics.clone();
    let trackers: Arc<Trackers> = Arc::default();
    let rollouts = Rollouts {
        client: config.write.clone(),
        informers: informers.clone(),
        trackers: trackers.clone(),
        reporter: Reporter::new(EventRecorder::start(recorder), config.rollout_metrics.clone()),
        metrics: config.rollout_metrics.clone(),
        clock: config.clock.clone(),
        rules: config.rules.clone(),
        enabled: config.enabled,
        quotas: Quotas::default(),
    };
    let (policies, by_quotas) = (informers.clone(), informers.clone());
    let (quotas, clock) = (rollouts.quotas.clone(), config.clock.clone());
    let controller = Controller::new(NAME, rollouts, &config.supervisor)
        .with_clock(config.clock.clone())
        .with_workers(4)
        .with_metrics(&config.metrics)
        .watches(&informers.deployments, enqueue(WorkloadKind::Deployment))
        .watches(&informers.stateful_sets, enqueue(WorkloadKind::StatefulSet))
        .watches(&informers.daemon_sets, enqueue(WorkloadKind::DaemonSet))
        .watches(&informers.replica_sets, |change, queue| {
            let Some(set) = change.latest() else { return };
            // One without a Deployment is reconciled by its own name.
            let orphan = is_marked_orphan(set).then(|| ObjectRef::of(&**set));
            let deployment = controller_of_kind::<Deployment>(&**set);
            queue_key(queue, WorkloadKind::Deployment, deployment.or(orphan));
        })
        .watches(&informers.revisions, |change, queue| {
            let Some(revision) = change.latest() else { return };
            let set = controller_of_kind::<DaemonSet>(&**revision);
            queue_key(queue, WorkloadKind::DaemonSet, set);
            let advanced = controller_of_kind::<AdvancedDaemonSet>(&**revision);
            queue_key(queue, WorkloadKind::AdvancedDaemonSet, advanced);
        })
        .watches(&informers.pods, move |change, queue| {
            for pod in [change.before, change.after].into_iter().flatten() {
                if let Some(key) = trackers.pod_changed(pod) {
                    queue.add(key);
                }
            }
        })
        .awaits(Arc::new(informers.vpas.clone()))
        .awaits(Arc::new(informers.advanced.clone()))
        .watches(&informers.policies, move |change, queue| {
            let Some(namespace) = change.latest().and_then(|policy| policy.metadata.namespace.clone()) else {
                return;
            };
            for key in policies.with_records(&namespace) {
                queue.add(key);
            }
        })
        .watches(&informers.quotas, move |change, queue| {
            let Some(namespace) = quotas.note(change, clock.now()) else { return };
            for key in by_quotas.with_records(&namespace) {
                queue.add(key);
            }
        });
    let queue = controller.queue().clone();
    informers.vpas.add_handler(move |target| {
        for kind in WorkloadKind::ALL.into_iter().filter(|kind| kind.name() == target.kind) {
            queue_key(&queue, kind, Some(target.object.clone()));
        }
    });
    let AdvancedSets { stateful_sets, daemon_sets } = &informers.advanced;
    let queue = controller.queue().clone();
    let handler = enqueue(WorkloadKind::AdvancedStatefulSet);
    stateful_sets.add_handler(move |change| handler(change, &queue));
    let queue = controller.queue().clone();
    let handler = enqueue(WorkloadKind::AdvancedDaemonSet);
    daemon_sets.add_handler(move |change| handler(change, &queue));
    controller
}

/// Enqueues the workloads of a kind that have a record.
fn enqueue<K>(
    kind: WorkloadKind,
) -> impl Fn(&plumb_controller_runtime::Change<'_, K>, &WorkQueue<Key>) + Send + Sync + 'static
where
    K: Resource,
{
    move |change, queue| {
        let recorded = |object: &Arc<K>| is_recorded(object.meta());
        let before = change.before.is_some_and(recorded);
        if let Some(object) = change.latest().filter(|object| before || recorded(object)) {
            queue_key(queue, kind, Some(ObjectRef::of(&**object)));
        }
    }
}

fn queue_key(queue: &WorkQueue<Key>, kind: WorkloadKind, object: Option<ObjectRef>) {
    if let Some(object) = object {
        queue.add(Key { kind, object });
    }
}
