//! Own writes, and when a store has observed them.
//!
//! A controller that decides from a store must not decide again before the store has the controller's own writes: it
//! would create the same object twice. Upstream's controllers count expected events (`ControllerExpectations`); here
//! a controller
//! waits for the resource version that the API answered with, which also covers updates.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::object_ref::{ObjectRef, resource_version};

/// A write of this process, which [`Store::wait_for_write`](crate::Store::wait_for_write) waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// An object was created.
    Created {
        /// The resource version that it was created at.
        resource_version: u64,
    },
    /// An object was updated or patched.
    Updated {
        /// Which.
        object: ObjectRef,
        /// Another object of the same name is another object.
        uid: String,
        /// The resource version after the update.
        resource_version: u64,
    },
    /// An object was deleted, or has its deletion timestamp.
    Deleted {
        /// Which.
        object: ObjectRef,
        /// Another object of the same name is another object.
        uid: String,
    },
}

impl Write {
    /// The creation of an object, from the response of the API server.
    pub fn created(answer: &ObjectMeta) -> Self {
        Self::Created { resource_version: resource_version(answer) }
    }

    /// The update of an object, from the response of the API server.
    pub fn updated(answer: &ObjectMeta) -> Self {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        Self::Updated {
            object: ObjectRef::namespaced(text(&answer.namespace), text(&answer.name)),
            uid: text(&answer.uid),
            resource_version: resource_version(answer),
        }
    }

    /// The deletion of an object.
    pub fn deleted(object: ObjectRef, uid: impl Into<String>) -> Self {
        Self::Deleted { object, uid: uid.into() }
    }
}
