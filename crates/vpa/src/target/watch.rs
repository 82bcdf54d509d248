//! Watches well-known kinds, so that what changes is read again at once rather than when it expires.

use futures_util::StreamExt as _;
use futures_util::future::{BoxFuture, FutureExt as _};
use kube::ResourceExt as _;
use kube::api::{ApiResource, DynamicObject, PartialObjectMeta};
use plumb_client::Api;
use plumb_controller_runtime::{Reflector, WatchConfig, WatchEvent};

use super::controller_ref::{ControllerRef, WellKnown};
use super::{Targets, VERSION};
use crate::namespaces::Namespaces;

impl Targets {
    /// Watches the metadata of a kind for good, and has the next lookup of a changed object read it again. The client
    /// has to be allowed to list and watch the kind.
    pub fn watch(&self, kind: WellKnown, namespaces: &Namespaces) -> BoxFuture<'static, ()> {
        let targets = self.clone();
        let resource = resource(kind);
        let client = self.shared.client.clone();
        let objects: Api<DynamicObject> = match namespaces.only() {
            Some(only) => Api::namespaced_with(client, only, &resource),
            None => Api::all_with(client, &resource),
        };
        async move {
            let reflector = Reflector::metadata_only(objects, WatchConfig::default());
            let mut events = std::pin::pin!(reflector.into_stream());
            let expire = |namespace: &str, name: &str| {
                targets.expire(&ControllerRef {
                    namespace: namespace.to_owned(),
                    group: kind.group().to_owned(),
                    kind: kind.kind().to_owned(),
                    name: name.to_owned(),
                });
            };
            let changed = |object: &PartialObjectMeta<DynamicObject>| {
                expire(object.metadata.namespace.as_deref().unwrap_or_default(), &object.name_any());
            };
            while let Some(event) = events.next().await {
                match event {
                    WatchEvent::Restarted(objects) => objects.iter().for_each(changed),
                    WatchEvent::Applied(object) => changed(&object),
                    WatchEvent::Deleted(object) => expire(&object.namespace, &object.name),
                }
            }
        }
        .boxed()
    }
}

/// Where a kind is served.
pub(super) fn resource(kind: WellKnown) -> ApiResource {
    let group = kind.group();
    ApiResource {
        group: group.to_owned(),
        version: VERSION.to_owned(),
        api_version: if group.is_empty() { VERSION.to_owned() } else { format!("{group}/{VERSION}") },
        kind: kind.kind().to_owned(),
        plural: kind.plural().to_owned(),
    }
}
