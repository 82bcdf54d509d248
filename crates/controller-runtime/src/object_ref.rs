//! Objects by namespace and name, and by who controls them.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Resource, ResourceExt as _};

/// An object of a kind, by namespace and name. It sorts by namespace first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectRef {
    /// The namespace; empty if the kind is cluster-scoped.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl ObjectRef {
    /// An object in a namespace.
    pub fn namespaced(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// An object of a cluster-scoped kind.
    pub fn cluster(name: impl Into<String>) -> Self {
        Self { namespace: String::new(), name: name.into() }
    }

    /// The reference to an object that is at hand.
    pub fn of(object: &impl Resource) -> Self {
        Self { namespace: object.namespace().unwrap_or_default(), name: object.name_any() }
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

/// The owner reference of the controller of an object (client-go's `GetControllerOf`).
pub fn controller_of(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    metadata.owner_references.as_ref()?.iter().find(|owner| owner.controller == Some(true))
}

/// The controller of an object, if it is of kind `Owner`.
pub fn controller_of_kind<Owner: Resource<DynamicType = ()>>(object: &impl Resource) -> Option<ObjectRef> {
    let owner = controller_of(object.meta())?;
    let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
    let is_of_kind = owner.kind == Owner::kind(&()) && group == Owner::group(&());
    is_of_kind.then(|| {
        ObjectRef::namespaced(object.meta().namespace.clone().unwrap_or_default(), owner.name.clone())
    })
}

/// The owner reference that makes an object the controller of another (client-go's `NewControllerRef`).
pub fn controller_reference<K: Resource<DynamicType = ()>>(owner: &K) -> OwnerReference {
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: owner.meta().name.clone().unwrap_or_default(),
        uid: owner.meta().uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// The resource version of an object as a number, which grows with each write since Kubernetes 1.35 guarantees it; 0 if it
/// is missing or not a number, which compares as "observed" everywhere.
pub fn resource_version(metadata: &ObjectMeta) -> u64 {
    metadata.resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or_default()
}
