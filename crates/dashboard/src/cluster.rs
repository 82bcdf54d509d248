//! What the pages show: the objects of a cluster, as this user may read them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::api::core::v1::{Container, Event, Node, Pod};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::core::{NamespaceResourceScope, PartialObjectMeta};
use kube::{Client, Resource};
use parking_lot::Mutex;
use plumb_client::Api;
use plumb_controller_runtime::{ObjectRef, WatchConfig};
use plumb_recommender::input::live_usage::MetricsApi;
use plumb_rollout::api::advanced::{AdvancedDaemonSet, AdvancedStatefulSet};
use plumb_rollout::api::cloneset::CloneSet;
use plumb_rollout::commands::Command;
use plumb_vpa::namespaces::Namespaces;
use plumb_vpa_api::{VerticalPodAutoscaler, VerticalPodAutoscalerCheckpoint};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::actions::{Kind, carry_out};
use crate::source::{Access, Changes, Metadata, Reader, Source, Whole, keep};
use crate::usage::Usage;
use crate::{Config, Prices};

/// The reason of the event with which the node says who holds the capacity that a resize waits for.
const RESIZE_WAITS: &str = "ResizeWaits";
/// The timeout of what is read for one page, which is complete without it.
const READ_TIMEOUT: Duration = Duration::from_secs(3);
/// How long an answer about a right is used.
const PERMISSIONS: Duration = Duration::from_mins(1);
/// How long a page waits for the first lists.
const FIRST_LISTS: Duration = Duration::from_secs(2);
/// How many events of a pod are read at most.
const EVENTS: u32 = 200;

/// Metadata of workloads: the record and the status of a rollout are annotations.
pub(crate) type Workloads<K> = Source<PartialObjectMeta<K>>;

/// The objects of a cluster.
pub(crate) struct Cluster {
    client: Client,
    namespaces: Namespaces,
    /// What resources cost, if the user has set that.
    pub(crate) prices: Option<Prices>,
    changes: Changes,
    pub(crate) nodes: Source<Node>,
    pub(crate) pods: Source<Pod>,
    pub(crate) vpas: Source<VerticalPodAutoscaler>,
    /// The events of nodes about resizes that wait.
    pub(crate) waits: Source<Event>,
    pub(crate) deployments: Workloads<Deployment>,
    pub(crate) replica_sets: Workloads<ReplicaSet>,
    pub(crate) stateful_sets: Workloads<StatefulSet>,
    pub(crate) daemon_sets: Workloads<DaemonSet>,
    pub(crate) advanced_stateful_sets: Workloads<AdvancedStatefulSet>,
    pub(crate) advanced_daemon_sets: Workloads<AdvancedDaemonSet>,
    pub(crate) clone_sets: Source<CloneSet>,
    pub(crate) usage: Arc<Usage>,
    /// Whether the user may patch workloads, as last asked.
    permissions: Mutex<HashMap<(Kind, String), (Instant, bool)>>,
}

impl Cluster {
    /// The objects that a dashboard is about, of which none is read yet.
    pub(crate) fn new(config: &Config) -> Self {
        let changes = Changes::default();
        let usage: Arc<Usage> = Arc::default();
        let pods: Source<Pod> = Source::new(&changes);
        let observer = usage.clone();
        pods.store().add_handler(move |change| {
            observer.observe(change.before.map(|pod| &**pod), change.after.map(|pod| &**pod));
        });
        Self {
            client: config.client.clone(),
            namespaces: config.namespace.clone().map_or(Namespaces::All, Namespaces::Only),
            prices: config.prices,
            nodes: Source::new(&changes),
            pods,
            vpas: Source::new(&changes),
            waits: Source::new(&changes),
            deployments: Source::new(&changes),
            replica_sets: Source::new(&changes),
            stateful_sets: Source::new(&changes),
            daemon_sets: Source::new(&changes),
            advanced_stateful_sets: Source::new(&changes),
            advanced_daemon_sets: Source::new(&changes),
            clone_sets: Source::new(&changes),
            usage,
            permissions: Mutex::default(),
            changes,
        }
    }

    /// The only namespace whose objects are read; `None` for all.
    pub(crate) fn namespace(&self) -> Option<&str> {
        self.namespaces.only()
    }

    /// Waits until objects were listed or are known to be unreadable, but not for long: pages say what is missing.
    pub(crate) async fn first_lists(&self) {
        let mut changes = self.changes.subscribe();
        let listed = async { while self.is_listing() && changes.changed().await.is_ok() {} };
        // An elapsed timeout is no failure.
        let _ = tokio::time::timeout(FIRST_LISTS, listed).await;
    }

    fn is_listing(&self) -> bool {
        let all = [
            self.nodes.access(),
            self.pods.access(),
            self.vpas.access(),
            self.waits.access(),
            self.deployments.access(),
            self.replica_sets.access(),
            self.stateful_sets.access(),
            self.daemon_sets.access(),
            self.advanced_stateful_sets.access(),
            self.advanced_daemon_sets.access(),
            self.clone_sets.access(),
            self.usage.access(),
        ];
        all.contains(&Access::Unknown)
    }

    /// Counts changes of the objects.
    pub(crate) fn changes(&self) -> &Changes {
        &self.changes
    }

    /// The tasks that read the objects for good.
    pub(crate) fn readers(
        self: &Arc<Self>,
        recheck: Duration,
        usage_interval: Duration,
    ) -> Vec<BoxFuture<'static, ()>> {
        let cluster = self.clone();
        let metrics = MetricsApi::new(self.client.clone(), &self.namespaces);
        let usage = async move { cluster.usage.keep(metrics, usage_interval, cluster.changes()).await };
        vec![
            Box::pin(usage),
            task(&self.nodes, whole(Api::all(self.client.clone()), without_details), recheck),
            task(&self.pods, whole(self.api(), reduced), recheck),
            task(&self.vpas, whole(self.api(), std::convert::identity), recheck),
            task(&self.waits, self.waiting(), recheck),
            task(&self.deployments, Metadata(self.api()), recheck),
            task(&self.replica_sets, Metadata(self.api()), recheck),
            task(&self.stateful_sets, Metadata(self.api()), recheck),
            task(&self.daemon_sets, Metadata(self.api()), recheck),
            task(&self.advanced_stateful_sets, Metadata(self.api()), recheck),
            task(&self.advanced_daemon_sets, Metadata(self.api()), recheck),
            task(&self.clone_sets, whole(self.api(), std::convert::identity), recheck),
        ]
    }

    fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        match self.namespaces.only() {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        }
    }

    fn waiting(&self) -> Whole<Event> {
        let config = WatchConfig::default().fields(format!("reason={RESIZE_WAITS}"));
        Whole { api: self.api(), config, transform: std::convert::identity }
    }

    /// The events of a pod, the latest first, or why there are none.
    pub(crate) async fn events(&self, pod: &Pod) -> Result<Vec<Event>, Access> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let api: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let params = ListParams::default().fields(&format!("involvedObject.uid={uid}")).limit(EVENTS);
        match tokio::time::timeout(READ_TIMEOUT, api.list(&params)).await {
            Ok(Ok(list)) => {
                let mut events = list.items;
                events.sort_by_key(|event| std::cmp::Reverse(last_seen(event)));
                Ok(events)
            }
            Ok(Err(error)) => Err(Access::from_error(error)),
            Err(_) => Err(Access::Unreachable("the API server did not answer in time".to_owned())),
        }
    }

    /// The histories of the containers of a VPA, or why they cannot be read.
    pub(crate) async fn checkpoints(
        &self,
        namespace: &str,
        vpa: &str,
    ) -> Result<Vec<VerticalPodAutoscalerCheckpoint>, Access> {
        let api: Api<VerticalPodAutoscalerCheckpoint> = Api::namespaced(self.client.clone(), namespace);
        match tokio::time::timeout(READ_TIMEOUT, api.list(&ListParams::default())).await {
            Ok(Ok(list)) => {
                // No field selector selects them by their VPA.
                Ok(list.items.into_iter().filter(|one| one.spec.vpa_object_name == vpa).collect())
            }
            Ok(Err(error)) => Err(Access::from_error(error)),
            Err(_) => Err(Access::Unreachable("the API server did not answer in time".to_owned())),
        }
    }

    /// Has the API server check a resize without making it.
    pub(crate) async fn dry_run_resize(
        &self,
        namespace: &str,
        name: &str,
        patch: Value,
    ) -> Result<(), String> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let params = PatchParams { dry_run: true, ..PatchParams::default() };
        match api.patch_resize(name, &params, &Patch::Strategic(patch)).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) => Err(status.message),
            Err(other) => Err(other.to_string()),
        }
    }

    /// Whether the user may patch the workloads of a kind in a namespace. The answer is kept for a while.
    pub(crate) async fn may_patch(&self, kind: Kind, namespace: &str) -> bool {
        let key = (kind, namespace.to_owned());
        let known = self.permissions.lock().get(&key).copied();
        if let Some((_, may)) = known.filter(|(asked, _)| asked.elapsed() < PERMISSIONS) {
            return may;
        }
        let (group, resource) = kind.resource();
        let review: Result<SelfSubjectAccessReview, _> = serde_json::from_value(json!({ "spec": {
            "resourceAttributes": { "verb": "patch", "group": group, "resource": resource, "namespace": namespace },
        } }));
        let Ok(review) = review else { return false };
        let api: kube::Api<SelfSubjectAccessReview> = kube::Api::all(self.client.clone());
        let answer = api.create(&PostParams::default(), &review).await;
        let may = answer.is_ok_and(|review| review.status.is_some_and(|status| status.allowed));
        let mut permissions = self.permissions.lock();
        permissions.retain(|_, (asked, _)| asked.elapsed() < PERMISSIONS);
        permissions.insert(key, (Instant::now(), may));
        may
    }

    /// Carries out a command for the rollout of a workload.
    pub(crate) async fn carry_out(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        command: Command,
    ) -> Result<(), String> {
        carry_out(&self.client, kind, namespace, name, command).await
    }

    /// The pod of a name.
    pub(crate) fn pod(&self, namespace: &str, name: &str) -> Option<Arc<Pod>> {
        self.pods.store().get(&ObjectRef::namespaced(namespace, name))
    }

    /// Who holds the capacity that the resize of a pod waits for, by the last event of its node.
    pub(crate) fn explanation(&self, pod: &Pod) -> Option<String> {
        let uid = pod.metadata.uid.as_deref()?;
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let events = self.waits.store().in_namespace(namespace).into_iter();
        let last = events
            .filter(|event| event.involved_object.uid.as_deref() == Some(uid))
            .max_by_key(|event| last_seen(event))?;
        last.message.clone()
    }
}

/// When an event was last emitted.
pub(crate) fn last_seen(event: &Event) -> Option<jiff::Timestamp> {
    let series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref());
    let last = series.map(|time| time.0).or_else(|| event.last_timestamp.as_ref().map(|time| time.0));
    last.or_else(|| event.event_time.as_ref().map(|time| time.0))
}

fn whole<K>(api: Api<K>, transform: fn(K) -> K) -> Whole<K> {
    Whole { api, config: WatchConfig::default(), transform }
}

fn task<K>(source: &Source<K>, reader: impl Reader<K>, recheck: Duration) -> BoxFuture<'static, ()>
where
    K: Resource + Clone + Send + Sync + 'static,
{
    Box::pin(keep(source.clone(), reader, recheck))
}

/// A pod without the configuration of its containers, of which only names and resources are shown.
fn reduced(mut pod: Pod) -> Pod {
    let reduce = |container: &mut Container| {
        *container = Container {
            name: std::mem::take(&mut container.name),
            resources: container.resources.take(),
            resize_policy: container.resize_policy.take(),
            restart_policy: container.restart_policy.take(),
            ..Container::default()
        };
    };
    if let Some(spec) = &mut pod.spec {
        spec.containers.iter_mut().for_each(reduce);
        spec.init_containers.iter_mut().flatten().for_each(reduce);
        spec.volumes = None;
    }
    pod
}

/// A node without the list of its images, which is most of it.
fn without_details(mut node: Node) -> Node {
    if let Some(status) = &mut node.status {
        status.images = None;
    }
    node
}
