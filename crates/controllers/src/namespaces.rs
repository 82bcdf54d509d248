//! Deletes the content of terminating namespaces, and then finalizes them.
//!
//! ```text
//!   terminating ──▶ delete the pods ──▶ delete the rest ──▶ no content remains ──▶ finalize
//!                        ▲   remaining content and its finalizers are in the conditions
//!                        └── again when the last object is deleted, or after a while
//! ```
//!
//! Pods are deleted first, so that running containers do not lose objects that they rely on.

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
use plumb_controller_runtime::clock::whole_seconds;
use plumb_controller_runtime::{Clock, InformerFactory, ObjectRef, Reconciler, Requeue};

use crate::Clients;
use crate::garbage::graph_builder::{GraphBuilder, ServedResource};

/// The name of this controller's user.
pub const NAME: &str = "namespace-controller";
/// The finalizer of a namespace until it is empty.
const FINALIZER: &str = "kubernetes";
/// When a namespace that is not empty is reconciled again without a change.
const RETRY: Duration = Duration::from_secs(2);

/// The content that remains in a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remaining {
    /// How many objects, by resource and group.
    pub objects: BTreeMap<String, usize>,
    /// How many objects have each finalizer.
    pub finalizers: BTreeMap<String, usize>,
    /// What could not be deleted, and why.
    pub failures: Vec<String>,
}

impl Remaining {
    /// Whether no content remains, and no deletion failed.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.failures.is_empty()
    }

    fn note(&mut self, kind: &ServedResource, objects: &[PartialObjectMeta<DynamicObject>]) {
        if objects.is_empty() {
            return;
        }
        let resource = &kind.resource;
        // As in upstream, a kind of the core group ends with a full stop, too.
        self.objects.insert(format!("{}.{}", resource.plural, resource.group), objects.len());
        for finalizer in objects.iter().flat_map(|object| object.metadata.finalizers.iter().flatten()) {
            *self.finalizers.entry(finalizer.clone()).or_default() += 1;
        }
    }
}

/// The conditions of a namespace with this remaining content, if they change.
pub fn decide(
    namespace: &Namespace,
    remaining: &Remaining,
    now: Timestamp,
) -> Option<Vec<NamespaceCondition>> {
    let list = |counts: &BTreeMap<String, usize>, words: &str| {
        let each = counts.iter().map(|(name, count)| format!("{name} {words} {count} resource instances"));
        each.collect::<Vec<_>>().join(", ")
    };
    let failure = remaining.failures.join(", ");
    let conditions: [(&str, bool, &str, String); 5] = [
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
            let message = format!(
                "Failed to delete all resource types, {} remaining: {failure}",
                remaining.failures.len()
            );
            ("NamespaceDeletionContentFailure", true, "ContentDeletionFailed", message)
        },
        if remaining.objects.is_empty() {
            let message = "All content successfully removed".to_owned();
            ("NamespaceContentRemaining", false, "ContentRemoved", message)
        } else {
            let message = format!("Some resources are remaining: {}", list(&remaining.objects, "has"));
            ("NamespaceContentRemaining", true, "SomeResourcesRemain", message)
        },
        if remaining.finalizers.is_empty() {
            let message = "All content-preserving finalizers finished".to_owned();
            ("NamespaceFinalizersRemaining", false, "ContentHasNoFinalizers", message)
        } else {
            let held = list(&remaining.finalizers, "in");
            let message = format!("Some content in the namespace has finalizers remaining: {held}");
            ("NamespaceFinalizersRemaining", true, "SomeFinalizersRemain", message)
        },
    ];
    let before = namespace.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    let mut after = before.clone();
    for (type_, is_so, reason, message) in conditions {
        let status = if is_so { "True" } else { "False" };
        let wanted = NamespaceCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message),
            last_transition_time: Some(Time(whole_seconds(now))),
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

/// Reconciles terminating namespaces until the future is dropped.
pub fn run(
    graph_builder: &Arc<GraphBuilder>,
    clients: Clients,
    informers: &InformerFactory,
    clock: Clock,
) -> BoxFuture<'static, ()> {
    let namespaces = informers.informer::<Namespace>();
    let reconciler = NamespaceDeleter {
        graph_builder: graph_builder.clone(),
        client: clients.write.clone(),
        clock: clock.clone(),
    };
    let controller = clients
        .controller(NAME, reconciler)
        .with_clock(clock)
        .awaits(graph_builder.clone())
        .reconciles_if(&namespaces, |namespace| namespace.metadata.deletion_timestamp.is_some());
    let queue = controller.queue().clone();
    graph_builder.on_empty_namespace(move |namespace| queue.add(ObjectRef::cluster(namespace)));
    controller.run()
}

/// Reconciles namespaces that are terminating.
struct NamespaceDeleter {
    graph_builder: Arc<GraphBuilder>,
    client: Client,
    clock: Clock,
}

impl Reconciler for NamespaceDeleter {
    type Key = ObjectRef;
    type Error = kube::Error;

    /// Deletes the content of a namespace, as far as that is possible.
    async fn reconcile(&self, namespace: &ObjectRef) -> kube::Result<Requeue> {
        let name = &*namespace.name;
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let Some(mut namespace) = namespaces.get_opt(name).await? else { return Ok(Requeue::AwaitChange) };
        let held = namespace.spec.as_ref().and_then(|spec| spec.finalizers.clone()).unwrap_or_default();
        if namespace.metadata.deletion_timestamp.is_none() || !held.iter().any(|one| one == FINALIZER) {
            return Ok(Requeue::AwaitChange);
        }
        let remaining = self.delete_content(name).await;
        if let Some(conditions) = decide(&namespace, &remaining, self.clock.now()) {
            namespace.status.get_or_insert_default().conditions = Some(conditions);
            namespace = namespaces.replace_status(name, &PostParams::default(), &namespace).await?;
        }
        if !remaining.is_empty() {
            return Ok(Requeue::After(RETRY));
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
    async fn delete_content(&self, namespace: &str) -> Remaining {
        let mut remaining = Remaining::default();
        let kinds = self
            .graph_builder
            .served()
            .into_iter()
            .filter(|kind| kind.namespaced && kind.deletes_collections);
        let (pods, others): (Vec<ServedResource>, Vec<ServedResource>) = kinds
            .partition(|kind| (kind.resource.group.as_str(), kind.resource.plural.as_str()) == ("", "pods"));
        for kind in pods {
            self.delete_all(namespace, &kind, &mut remaining).await;
        }
        if remaining.is_empty() {
            for kind in others {
                self.delete_all(namespace, &kind, &mut remaining).await;
            }
        }
        remaining
    }

    async fn delete_all(&self, namespace: &str, kind: &ServedResource, remaining: &mut Remaining) {
        let api = kind.api(&self.client, namespace);
        let all = ListParams::default();
        let deleted = async {
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
        match deleted.await {
            Ok(items) => remaining.note(kind, &items),
            // It is not served any more, or in another version: the next attempt knows.
            Err(kube::Error::Api(status)) if status.is_not_found() => {
                self.graph_builder.rediscover();
                remaining.failures.push(format!("{}: not served", kind.resource.plural));
            }
            Err(error) => remaining.failures.push(format!("{}: {error}", kind.resource.plural)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_conditions_of_a_namespace_name_the_remaining_content() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let remaining = Remaining {
            objects: BTreeMap::from([("pods.".to_owned(), 2)]),
            finalizers: BTreeMap::from([("example.com/mine".to_owned(), 1)]),
            failures: Vec::new(),
        };
        let mut namespace = Namespace::default();
        let said = decide(&namespace, &remaining, now).unwrap();
        let find = |said: &[NamespaceCondition], type_: &str| {
            let found = said.iter().find(|condition| condition.type_ == type_).cloned().unwrap();
            (found.status, found.message.unwrap())
        };
        let message = "Some resources are remaining: pods. has 2 resource instances".to_owned();
        assert_eq!(find(&said, "NamespaceContentRemaining"), ("True".to_owned(), message));
        let held = "Some content in the namespace has finalizers remaining: example.com/mine in 1 resource instances";
        assert_eq!(find(&said, "NamespaceFinalizersRemaining"), ("True".to_owned(), held.to_owned()));
        assert_eq!(find(&said, "NamespaceDeletionContentFailure").0, "False");
        namespace.status.get_or_insert_default().conditions = Some(said);
        assert_eq!(decide(&namespace, &remaining, now), None);
        let said = decide(&namespace, &Remaining::default(), now).unwrap();
        assert!(said.iter().all(|condition| condition.status == "False"));
    }
}
