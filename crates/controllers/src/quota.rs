//! The resource quota controller: recalculates `status.used` of quotas.
//!
//! ```text
//!   quotas ────────────────── new, or limits changed ──┐
//!   counted objects ── deleted, or use less now ───────┤
//!   resync: all quotas ────────────────────────────────┴──▶ one quota: read it ▸ list what it counts ▸ measure
//!                                                                ▲               ▸ write its status, if it is still
//!                                                                └── again ◀────── the quota that was read
//! ```
//!
//! Admission charges quotas for created objects and for growth, in one transaction with the write of the object; so
//! this controller watches only for deletions and for objects that use less. It reads a quota *before* it lists the
//! objects that the quota counts, and writes the status only if the quota was not charged since: the list then has
//! every object that was charged, and no charge is lost to a concurrent admission. A quota in the queue is
//! recalculated once, however many changes were the reason.

mod counting;
mod watching;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::{
    ObjectReference, PersistentVolumeClaim, Pod, ResourceQuota, ResourceQuotaStatus, Service,
};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DynamicObject, ListParams, PostParams};
use kube::discovery::ApiResource;
use kube::{Client, Resource as _};
use parking_lot::Mutex;
use plumb_client::Api;
use plumb_controller_runtime::api_error::is_conflict;
use plumb_controller_runtime::{
    Clock, InformerFactory, ObjectRef, Reconciler, Reflector, Requeue, Store, WatchConfig, WorkQueue,
};
use plumb_resize::list::{ResourceList, WireList};
use plumb_resize::quota::{Counted, Item, measure};
use plumb_resize::rules::Rules;
use tokio::task::{AbortHandle, JoinSet};

use crate::Clients;
use counting::Kind;
use watching::{Countable, watch};

/// The controller's name in Kubernetes.
pub const NAME: &str = "resourcequota-controller";
/// The resync period of a quota: a pod that outlives its grace period causes no event.
const EVERYTHING: Duration = Duration::from_mins(5);

/// Configuration of the controller.
#[derive(Clone)]
pub struct Config {
    /// The rules of resizes, which decide what a pod uses.
    pub rules: Rules,
    /// The current time.
    pub clock: Clock,
}

/// Recalculates quotas until the future is dropped.
pub fn run(clients: Clients, informers: &InformerFactory, config: Config) -> BoxFuture<'static, ()> {
    let quotas = informers.informer::<ResourceQuota>();
    let queue = Arc::new(WorkQueue::new(config.clock.clone()));
    let reconciler = QuotaReconciler {
        clients: clients.clone(),
        config,
        quotas: quotas.store().clone(),
        queue: queue.clone(),
        watches: Mutex::default(),
    };
    clients
        .controller(NAME, reconciler)
        .with_queue(queue)
        .watches(&quotas, |change, queue| {
            // A change of `status.used` alone is no reason to recalculate.
            let is_charge = change.before.is_some() && change.after.is_some_and(|quota| !is_stale(quota));
            if let Some(quota) = change.latest().filter(|_| !is_charge) {
                queue.add(ObjectRef::of(&**quota));
            }
        })
        .run()
}

/// Reconciles quotas, one at a time.
struct QuotaReconciler {
    clients: Clients,
    config: Config,
    quotas: Arc<Store<ResourceQuota>>,
    queue: Arc<WorkQueue>,
    watches: Mutex<Watches>,
}

/// The watches of the kinds that quotas count.
#[derive(Default)]
struct Watches {
    running: JoinSet<()>,
    by_kind: BTreeMap<Kind, Watch>,
}

/// The watch of a kind.
struct Watch {
    resource: ApiResource,
    task: AbortHandle,
}

impl Watches {
    /// Ends the watch of a kind.
    fn stop(&mut self, kind: &Kind) {
        if let Some(watch) = self.by_kind.remove(kind) {
            watch.task.abort();
        }
        while self.running.try_join_next().is_some() {}
    }
}

impl Reconciler for QuotaReconciler {
    type Key = ObjectRef;
    type Error = kube::Error;

    async fn reconcile(&self, quota: &ObjectRef) -> kube::Result<Requeue> {
        match self.quotas.get(quota) {
            Some(known) => {
                self.watch_kinds(&known).await;
                if is_stale(&known) {
                    self.stop_unused_watches();
                }
            }
            None => self.stop_unused_watches(),
        }
        self.recalculate(quota).await
    }

    fn regarding(&self, quota: &ObjectRef) -> Option<ObjectReference> {
        self.quotas.get(quota).map(|found| found.object_ref(&()))
    }
}

impl QuotaReconciler {
    /// Watches the kinds that a quota counts and that are not watched yet. The next recalculation tries a kind again
    /// that is not served.
    async fn watch_kinds(&self, quota: &ResourceQuota) {
        for kind in kinds(quota) {
            if self.watches.lock().by_kind.contains_key(&kind) {
                continue;
            }
            if let Some(resource) = kind.resolve(&self.clients.watch).await {
                let task = self.start(&kind, &resource);
                self.watches.lock().by_kind.insert(kind, Watch { resource, task });
            }
        }
    }

    /// Ends the watches of kinds that no quota counts any more.
    fn stop_unused_watches(&self) {
        let counted: BTreeSet<Kind> = self.quotas.all().iter().flat_map(|quota| kinds(quota)).collect();
        let mut watches = self.watches.lock();
        let unused: Vec<Kind> =
            watches.by_kind.keys().filter(|kind| !counted.contains(*kind)).cloned().collect();
        for kind in unused {
            watches.stop(&kind);
        }
    }

    fn start(&self, kind: &Kind, resource: &ApiResource) -> AbortHandle {
        let client = self.clients.watch.clone();
        let all = WatchConfig::default;
        match kind.name() {
            ("", "pods") => {
                let api = Api::<Pod>::all(client);
                self.spawn("pods", kind, move || Reflector::new(api.clone(), all()))
            }
            ("", "services") => {
                let api = Api::<Service>::all(client);
                self.spawn("services", kind, move || Reflector::new(api.clone(), all()))
            }
            ("", "persistentvolumeclaims") => {
                let api = Api::<PersistentVolumeClaim>::all(client);
                self.spawn("persistentvolumeclaims", kind, move || Reflector::new(api.clone(), all()))
            }
            (group, plural) => {
                let name = format!("{plural}.{group}");
                let api = Api::<DynamicObject>::all_with(client, resource);
                let reflector = move || Reflector::metadata_only(api.clone(), all());
                self.spawn(name.trim_end_matches('.'), kind, reflector)
            }
        }
    }

    fn spawn<K: Countable>(
        &self,
        name: &str,
        kind: &Kind,
        reflector: impl Fn() -> Reflector<K> + Send + 'static,
    ) -> AbortHandle {
        let config = self.config.clone();
        let kind = kind.clone();
        let quotas = self.quotas.clone();
        let queue = self.queue.clone();
        // A restarted watch does not know which objects existed before; it sees deletions from then on.
        let watching = self.clients.supervisor.keep(&format!("quota-informer/{name}"), move || {
            let counted = kind.clone();
            let quotas = quotas.clone();
            let queue = queue.clone();
            let released = move |namespace: &str| {
                for quota in
                    quotas.in_namespace(namespace).iter().filter(|quota| kinds(quota).contains(&counted))
                {
                    queue.add(ObjectRef::of(&**quota));
                }
            };
            watch(reflector(), config.clone(), kind.clone(), released)
        });
        self.watches.lock().running.spawn(watching)
    }

    /// How the kinds that are watched are served.
    fn served(&self) -> BTreeMap<Kind, ApiResource> {
        let watches = self.watches.lock();
        watches.by_kind.iter().map(|(kind, watch)| (kind.clone(), watch.resource.clone())).collect()
    }

    /// Recalculates a quota, and writes its status.
    async fn recalculate(&self, reference: &ObjectRef) -> kube::Result<Requeue> {
        // The role of this controller allows to list and watch quotas, but not to get one.
        let quotas = Api::<ResourceQuota>::namespaced(self.clients.watch.clone(), &reference.namespace);
        let named = ListParams::default().fields(&format!("metadata.name={}", reference.name));
        let Some(mut quota) = quotas.list(&named).await?.items.pop() else {
            return Ok(Requeue::AwaitChange);
        };
        let watched = self.served();
        let held = match list(&self.clients.watch, &reference.namespace, &quota, &watched).await {
            Ok(held) => held,
            Err((kind, error)) => {
                // The resource may be served in another version now, which the next attempt discovers.
                if matches!(&error, kube::Error::Api(status) if status.is_not_found()) {
                    self.watches.lock().stop(&kind);
                }
                return Err(error);
            }
        };
        let now = self.config.clock.now();
        let items = held.iter().flat_map(|(kind, list)| list.counted(kind, now, &self.config.rules));
        let decided = decide(&quota, |kind| watched.contains_key(kind), items);
        let status = match decided {
            Ok(None) => return Ok(Requeue::After(EVERYTHING)),
            Ok(Some(status)) => status,
            Err(error) => {
                tracing::warn!(%error, quota = %reference, "a quota counts an invalid quantity");
                return Ok(Requeue::After(EVERYTHING));
            }
        };
        let came_into_force = is_stale(&quota);
        quota.status = Some(status);
        let quotas = Api::<ResourceQuota>::namespaced(self.clients.write.clone(), &reference.namespace);
        match quotas.replace_status(&reference.name, &PostParams::default(), &quota).await {
            // An object may have been created between the list and the moment from which admission charges for it.
            Ok(_) if came_into_force => Ok(Requeue::Now),
            Ok(_) => Ok(Requeue::After(EVERYTHING)),
            Err(error) if is_conflict(&error) => Ok(Requeue::Now),
            Err(error) => Err(error),
        }
    }
}

fn hard(quota: &ResourceQuota) -> Option<&WireList> {
    quota.spec.as_ref().and_then(|spec| spec.hard.as_ref())
}

/// The kinds that a quota counts.
fn kinds(quota: &ResourceQuota) -> BTreeSet<Kind> {
    hard(quota).into_iter().flatten().filter_map(|(name, _)| Kind::for_resource(name)).collect()
}

/// Whether the status of a quota is not for its spec, or has no usage.
fn is_stale(quota: &ResourceQuota) -> bool {
    let status = quota.status.clone().unwrap_or_default();
    let wanted = ResourceList::read(hard(quota));
    let known = ResourceList::read(status.hard.as_ref());
    wanted != known || status.hard.is_none() || status.used.is_none()
}

/// The status that a quota should have, given the objects that it counts; none if it has that status.
fn decide<'a>(
    quota: &ResourceQuota,
    watched: impl Fn(&Kind) -> bool,
    items: impl IntoIterator<Item = Counted<'a>>,
) -> Result<Option<ResourceQuotaStatus>, plumb_resize::list::BadQuantity> {
    let measured = measure(quota, items)?;
    let measured = measured.only(|name| Kind::for_resource(name).is_some_and(|kind| watched(&kind)));
    let status = quota.status.as_ref();
    let before = ResourceList::read(status.and_then(|status| status.used.as_ref()))?;
    if !is_stale(quota) && before == measured {
        return Ok(None);
    }
    Ok(Some(ResourceQuotaStatus {
        hard: Some(ResourceList::read(hard(quota))?.to_wire()),
        used: Some(measured.to_wire()),
    }))
}

/// The listed objects of one kind.
enum Listed {
    Pods(Vec<Pod>),
    Services(Vec<Service>),
    Claims(Vec<PersistentVolumeClaim>),
    Others(usize),
}

impl Listed {
    fn counted<'a>(&'a self, kind: &'a Kind, now: Timestamp, rules: &'a Rules) -> Vec<Counted<'a>> {
        let (group, plural) = kind.name();
        let of = |item: Item<'a>| Counted { group, plural, item, now, rules };
        match self {
            Self::Pods(pods) => pods.iter().map(|pod| of(Item::Pod(pod))).collect(),
            Self::Services(services) => services.iter().map(|service| of(Item::Service(service))).collect(),
            Self::Claims(claims) => claims.iter().map(|claim| of(Item::Claim(claim))).collect(),
            Self::Others(count) => vec![of(Item::Other); *count],
        }
    }
}

/// Lists all objects in a namespace that a quota counts.
async fn list(
    client: &Client,
    namespace: &str,
    quota: &ResourceQuota,
    watched: &BTreeMap<Kind, ApiResource>,
) -> Result<Vec<(Kind, Listed)>, (Kind, kube::Error)> {
    let mut held = Vec::new();
    for kind in kinds(quota) {
        let Some(resource) = watched.get(&kind) else { continue };
        match list_kind(client.clone(), namespace, &kind, resource).await {
            Ok(found) => held.push((kind, found)),
            Err(error) => return Err((kind, error)),
        }
    }
    Ok(held)
}

async fn list_kind(
    client: Client,
    namespace: &str,
    kind: &Kind,
    resource: &ApiResource,
) -> kube::Result<Listed> {
    let all = ListParams::default();
    Ok(match kind.name() {
        ("", "pods") => Listed::Pods(Api::namespaced(client, namespace).list(&all).await?.items),
        ("", "services") => Listed::Services(Api::namespaced(client, namespace).list(&all).await?.items),
        ("", "persistentvolumeclaims") => {
            Listed::Claims(Api::namespaced(client, namespace).list(&all).await?.items)
        }
        _ => {
            let api = Api::<DynamicObject>::namespaced_with(client, namespace, resource);
            Listed::Others(api.list_metadata(&all).await?.items.len())
        }
    })
}

#[cfg(test)]
mod tests {

    use super::*;

    fn quota(hard: &[(&str, &str)], used: Option<&[(&str, &str)]>) -> ResourceQuota {
        let wire = |list: &[(&str, &str)]| -> WireList {
            list.iter()
                .map(|(name, amount)| {
                    let amount =
                        k8s_openapi::apimachinery::pkg::api::resource::Quantity((*amount).to_owned());
                    ((*name).to_owned(), amount)
                })
                .collect()
        };
        ResourceQuota {
            spec: Some(k8s_openapi::api::core::v1::ResourceQuotaSpec {
                hard: Some(wire(hard)),
                ..Default::default()
            }),
            status: used.map(|used| ResourceQuotaStatus { hard: Some(wire(hard)), used: Some(wire(used)) }),
            ..Default::default()
        }
    }

    #[test]
    fn only_changed_usage_of_watched_kinds_is_written() {
        let rules = Rules::v1_36();
        let map = Counted {
            group: "",
            plural: "configmaps",
            item: Item::Other,
            now: Timestamp::UNIX_EPOCH,
            rules: &rules,
        };
        let hard = [("configmaps", "5"), ("count/widgets.example.com", "1")];
        let watched = |kind: &Kind| kind.name() == ("", "configmaps");
        let fresh = decide(&quota(&hard, None), watched, [map, map]).unwrap().unwrap();
        assert_eq!(fresh.used.unwrap().keys().collect::<Vec<_>>(), ["configmaps"]);
        let same = quota(&hard, Some(&[("configmaps", "2")]));
        assert_eq!(decide(&same, watched, [map, map]).unwrap(), None);
        let released = decide(&same, watched, [map]).unwrap().unwrap();
        assert_eq!(released.used.unwrap()["configmaps"].0, "1");
    }
}
