//! The informers of the scheduler. They outlive a restart of the scheduling loop, which recovers its state from them.
//!
//! An informer here stores no objects: the planner stores what it needs of each. To a loop that subscribes, an informer
//! delivers a list and then the changes; to one that subscribes after a restart, a new list.

use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass};
use plumb_client::Api;
use plumb_controller_runtime::metrics::Metrics;
use plumb_controller_runtime::{Reflector, WatchConfig, WatchEvent, Watchable};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::run::Config;

/// Pods that have ended use no resources and are not scheduled.
const NOT_ENDED: &str = "status.phase!=Succeeded,status.phase!=Failed";
/// The capacity of the channel of a subscriber, in events.
pub(crate) const CAPACITY: usize = 1024;

/// The informers of all kinds that a scheduler watches.
pub(crate) struct Informers {
    nodes: Informer<Node>,
    pods: Informer<Pod>,
    budgets: Informer<PodDisruptionBudget>,
    namespaces: Informer<Namespace>,
    claims: Informer<PersistentVolumeClaim>,
    volumes: Informer<PersistentVolume>,
    classes: Informer<StorageClass>,
    csi_nodes: Informer<CSINode>,
    csi_drivers: Informer<CSIDriver>,
    storage_capacities: Informer<CSIStorageCapacity>,
    _running: JoinSet<()>,
}

impl Informers {
    /// Starts them; they end when they are dropped.
    pub(crate) fn start(config: &Config) -> Self {
        let mut running = JoinSet::new();
        Self {
            nodes: Informer::start(&mut running, config, WatchConfig::default()),
            pods: Informer::start(&mut running, config, WatchConfig::default().fields(NOT_ENDED)),
            budgets: Informer::start(&mut running, config, WatchConfig::default()),
            namespaces: Informer::start(&mut running, config, WatchConfig::default()),
            claims: Informer::start(&mut running, config, WatchConfig::default()),
            volumes: Informer::start(&mut running, config, WatchConfig::default()),
            classes: Informer::start(&mut running, config, WatchConfig::default()),
            csi_nodes: Informer::start(&mut running, config, WatchConfig::default()),
            csi_drivers: Informer::start(&mut running, config, WatchConfig::default()),
            storage_capacities: Informer::start(&mut running, config, WatchConfig::default()),
            _running: running,
        }
    }

    /// Subscribes to all of them. An earlier subscription ends.
    pub(crate) fn subscribe(&self) -> Subscriptions {
        Subscriptions {
            nodes: self.nodes.subscribe(),
            pods: self.pods.subscribe(),
            budgets: self.budgets.subscribe(),
            namespaces: self.namespaces.subscribe(),
            claims: self.claims.subscribe(),
            volumes: self.volumes.subscribe(),
            classes: self.classes.subscribe(),
            csi_nodes: self.csi_nodes.subscribe(),
            csi_drivers: self.csi_drivers.subscribe(),
            storage_capacities: self.storage_capacities.subscribe(),
        }
    }
}

/// What the informers observe: of each kind a list first.
pub(crate) struct Subscriptions {
    pub(crate) nodes: mpsc::Receiver<WatchEvent<Node>>,
    pub(crate) pods: mpsc::Receiver<WatchEvent<Pod>>,
    pub(crate) budgets: mpsc::Receiver<WatchEvent<PodDisruptionBudget>>,
    pub(crate) namespaces: mpsc::Receiver<WatchEvent<Namespace>>,
    pub(crate) claims: mpsc::Receiver<WatchEvent<PersistentVolumeClaim>>,
    pub(crate) volumes: mpsc::Receiver<WatchEvent<PersistentVolume>>,
    pub(crate) classes: mpsc::Receiver<WatchEvent<StorageClass>>,
    pub(crate) csi_nodes: mpsc::Receiver<WatchEvent<CSINode>>,
    pub(crate) csi_drivers: mpsc::Receiver<WatchEvent<CSIDriver>>,
    pub(crate) storage_capacities: mpsc::Receiver<WatchEvent<CSIStorageCapacity>>,
}

type Subscriber<K> = mpsc::Sender<WatchEvent<K>>;

/// The informer of one kind.
struct Informer<K> {
    subscriber: watch::Sender<Option<Subscriber<K>>>,
}

impl<K: Watchable + kube::Resource<DynamicType = ()>> Informer<K> {
    fn start(running: &mut JoinSet<()>, config: &Config, watch: WatchConfig) -> Self {
        let (subscriber, subscribed) = watch::channel(None);
        let api = Api::<K>::all(config.client.clone());
        let metrics = config.metrics.clone();
        running.spawn(config.supervisor.keep(&format!("scheduler-informer/{}", K::plural(&())), move || {
            let api = api.clone();
            let watch = watch.clone();
            let metrics = metrics.toolkit().clone();
            run_informer(api, watch, metrics, subscribed.clone())
        }));
        Self { subscriber }
    }

    fn subscribe(&self) -> mpsc::Receiver<WatchEvent<K>> {
        let (sender, events) = mpsc::channel(CAPACITY);
        self.subscriber.send_replace(Some(sender));
        events
    }
}

/// Lists and watches for one subscriber after the other.
async fn run_informer<K: Watchable>(
    api: Api<K>,
    watch: WatchConfig,
    metrics: Metrics,
    mut subscribed: watch::Receiver<Option<Subscriber<K>>>,
) {
    loop {
        let subscriber = subscribed.borrow_and_update().clone();
        if let Some(subscriber) = subscriber.filter(|subscriber| !subscriber.is_closed()) {
            Reflector::new(api.clone(), watch.clone()).with_metrics(&metrics).run(subscriber).await;
        } else if subscribed.changed().await.is_err() {
            // The informers were dropped, and this task is about to be.
            return std::future::pending().await;
        }
    }
}
