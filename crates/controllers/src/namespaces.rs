//! Empties namespaces that are to go, and then lets them.
//!
//! ```text
//!   a namespace is to go ──▶ delete its pods ──▶ delete the rest ──▶ nothing is left ──▶ let it go
//!                               ▲   what is left, and what holds it, is said in its status
//!                               └── again when the last object is gone, or after a while
//! ```
//!
//! Pods go first: nothing that runs is to find that what it relied on is gone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::{Namespace, NamespaceCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{DeleteParams, DynamicObject, ListParams, PostParams, PropagationPolicy};
use kube::core::PartialObjectMeta;
use plumb_client::Api;
use plumb_controller::{Clock, InformerFactory, ObjectRef, Reconciler, Requeue};

use crate::Clients;
use crate::garbage::census::{Census, Served};

/// The name of this controller's user.
pub const NAME: &str = "namespace-controller";
/// What holds a namespace until it is empty.
const FINALIZER: &str = "kubernetes";
/// How long it takes until a namespace that is not empty is reconciled again, if nothing changes.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// What is left of a kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// How many objects, by the plural and group of their kind.
    pub objects: BTreeMap<String, usize>,
    /// How many objects are held, by what holds them.
    pub held: BTreeMap<String, usize>,
    /// What could not be deleted, and why.
    pub failures: Vec<String>,
}

impl Left {
    /// Whether nothing is left, and nothing went wrong.
    pub fn is_nothing(&self) -> bool {
        self.objects.is_empty() && self.failures.is_empty()
    }

    fn note(&mut self, kind: &Served, objects: &[PartialObjectMeta<DynamicObject>]) {
        if objects.is_empty() {
            return;
        }
        let resource = &kind.resource;
        // SPEC: a kind of the core group ends with a full stop too.
        self.objects.insert(format!("{}.{}", resource.plural, resource.group), objects.len());
        for finalizer in objects.iter().flat_map(|object| object.metadata.finalizers.iter().flatten()) {
            *self.held.entry(finalizer.clone()).or_default() += 1;
        }
    }
}

/// What is said of a namespace of which so much is left, if it is something else than was said before.
pub fn decide(namespace: &Namespace, left: &Left, now: Timestamp) -> Option<Vec<NamespaceCondition>> {
    let list = |counts: &BTreeMap<String, usize>, words: &str| {
        let each = counts.iter().map(|(name, count)| format!("{name} {words} {count} resource instances"));
        each.collect::<Vec<_>>().join(", ")
    };
    let failure = left.failures.join(", ");
    let says: [(&str, bool, &str, String); 5] = [
        (
            "NamespaceDeletionDiscoveryFailure",
            false,
            "ResourcesDiscovered",
            "All resources successfully discovered".to_owned(),
        ),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            false,
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed".to_owned(),
        ),
        if failure.is_empty() {
            let message = "All content successfully deleted, may be waiting on finalization".to_owned();
            ("NamespaceDeletionContentFailure", false, "ContentDeleted", message)
        } else {
            let message =
                format!("Failed to delete all resource types, {} remaining: {failure}", left.failures.len());
            ("NamespaceDeletionContentFailure", true, "ContentDeletionFailed", message)
        },
        if left.objects.is_empty() {
            let message = "All content successfully removed".to_owned();
            ("NamespaceContentRemaining", false, "ContentRemoved", message)
        } else {
            let message = format!("Some resources are remaining: {}", list(&left.objects, "has"));
            ("NamespaceContentRemaining", true, "SomeResourcesRemain", message)
        },
        if left.held.is_empty() {
            let message = "All content-preserving finalizers finished".to_owned();
            ("NamespaceFinalizersRemaining", false, "ContentHasNoFinalizers", message)
        } else {
            let held = list(&left.held, "in");
            let message = format!("Some content in the namespace has finalizers remaining: {held}");
            ("NamespaceFinalizersRemaining", true, "SomeFinalizersRemain", message)
        },
    ];
    let before = namespace.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    let mut after = before.clone();
    for (type_, is_so, reason, message) in says {
        let status = if is_so { "True" } else { "False" };
        let wanted = NamespaceCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message),
            last_transition_time: Some(Time(Timestamp::from_second(now.as_second()).unwrap_or(now))),
        };
        match after.iter_mut().find(|condition| condition.type_ == type_) {
            None => after.push(wanted),
            Some(said) if said.status == wanted.status => {
                (said.reason, said.message) = (wanted.reason, wanted.message);
            }
            Some(said) => *said = wanted,
        }
    }
    (after != before).then_some(after)
}

/// Empties namespaces until the future is dropped.
pub fn run(
    census: &Arc<Census>,
    clients: Clients,
    informers: &InformerFactory,
    clock: Clock,
) -> BoxFuture<'static, ()> {
    let namespaces = informers.informer::<Namespace>();
    let reconciler =
        NamespaceDeleter { census: census.clone(), client: clients.write.clone(), clock: clock.clone() };
    let controller = clients
        .controller(NAME, reconciler)
        .with_clock(clock)
        .awaits(census.clone())
        .reconciles_if(&namespaces, |namespace| namespace.metadata.deletion_timestamp.is_some());
    let queue = controller.queue().clone();
    census.when_empty(move |namespace| queue.add(ObjectRef::cluster(namespace)));
    controller.run()
}

/// Reconciles namespaces that are terminating.
struct NamespaceDeleter {
    census: Arc<Census>,
    client: Client,
    clock: Clock,
}

impl Reconciler for NamespaceDeleter {
    type Key = ObjectRef;
    type Error = kube::Error;

    /// Empties a namespace as far as that is possible.
    async fn reconcile(&self, namespace: &ObjectRef) -> kube::Result<Requeue> {
        let name = &*namespace.name;
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let Some(mut namespace) = namespaces.get_opt(name).await? else { return Ok(Requeue::AwaitChange) };
        let held = namespace.spec.as_ref().and_then(|spec| spec.finalizers.clone()).unwrap_or_default();
        if namespace.metadata.deletion_timestamp.is_none() || !held.iter().any(|one| one == FINALIZER) {
            return Ok(Requeue::AwaitChange);
        }
        let left = self.sweep(name).await;
        if let Some(conditions) = decide(&namespace, &left, self.clock.now()) {
            namespace.status.get_or_insert_default().conditions = Some(conditions);
            namespace = namespaces.replace_status(name, &PostParams::default(), &namespace).await?;
        }
        if !left.is_nothing() {
            return Ok(Requeue::After(LOOK_AGAIN));
        }
        let others: Vec<String> = held.into_iter().filter(|one| one != FINALIZER).collect();
        namespace.spec.get_or_insert_default().finalizers = (!others.is_empty()).then_some(others);
        let done: kube::Result<Namespace> =
            namespaces.replace_subresource("finalize", name, &PostParams::default(), &namespace).await;
        match done {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(Requeue::AwaitChange),
            other => other.map(|_| Requeue::AwaitChange),
        }
    }
}

impl NamespaceDeleter {
    async fn sweep(&self, namespace: &str) -> Left {
        let mut left = Left::default();
        let kinds = self.census.served().into_iter().filter(|kind| kind.namespaced && kind.sweepable);
        let (pods, others): (Vec<Served>, Vec<Served>) = kinds
            .partition(|kind| (kind.resource.group.as_str(), kind.resource.plural.as_str()) == ("", "pods"));
        for kind in pods {
            self.sweep_kind(namespace, &kind, &mut left).await;
        }
        if left.is_nothing() {
            for kind in others {
                self.sweep_kind(namespace, &kind, &mut left).await;
            }
        }
        left
    }

    async fn sweep_kind(&self, namespace: &str, kind: &Served, left: &mut Left) {
        let api = kind.api(&self.client, namespace);
        let all = ListParams::default();
        let swept = async {
            let found = api.list_metadata(&all).await?;
            if found.items.is_empty() {
                return Ok(found.items);
            }
            let params = DeleteParams {
                propagation_policy: Some(PropagationPolicy::Background),
                ..DeleteParams::default()
            };
            api.delete_collection(&params, &all).await?;
            Ok(api.list_metadata(&all).await?.items)
        };
        match swept.await {
            Ok(items) => left.note(kind, &items),
            // Not served any more.
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(error) => left.failures.push(format!("{}: {error}", kind.resource.plural)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_says_what_is_left_in_it_until_nothing_is() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let left = Left {
            objects: BTreeMap::from([("pods.".to_owned(), 2)]),
            held: BTreeMap::from([("example.com/mine".to_owned(), 1)]),
            failures: Vec::new(),
        };
        let mut namespace = Namespace::default();
        let said = decide(&namespace, &left, now).unwrap();
        let find = |said: &[NamespaceCondition], type_: &str| {
            let found = said.iter().find(|condition| condition.type_ == type_).cloned().unwrap();
            (found.status, found.message.unwrap())
        };
        let remaining = "Some resources are remaining: pods. has 2 resource instances".to_owned();
        assert_eq!(find(&said, "NamespaceContentRemaining"), ("True".to_owned(), remaining));
        let held = "Some content in the namespace has finalizers remaining: example.com/mine in 1 resource instances";
        assert_eq!(find(&said, "NamespaceFinalizersRemaining"), ("True".to_owned(), held.to_owned()));
        assert_eq!(find(&said, "NamespaceDeletionContentFailure").0, "False");
        namespace.status.get_or_insert_default().conditions = Some(said);
        assert_eq!(decide(&namespace, &left, now), None);
        let said = decide(&namespace, &Left::default(), now).unwrap();
        assert!(said.iter().all(|condition| condition.status == "False"));
    }
}
