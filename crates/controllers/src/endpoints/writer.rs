//! Writes `EndpointSlice`s, and waits until the store has them.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Client;
use kube::api::{DeleteParams, PostParams, Preconditions};
use plumb_client::Api;
use plumb_controller_runtime::api_error::{is_conflict, is_settled};
use plumb_controller_runtime::{ObjectRef, Store, Write};

/// How long own writes are awaited.
const OBSERVED_WITHIN: Duration = Duration::from_secs(30);

/// The writes that a decision asks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// Slices to create; the API server chooses their names.
    pub create: Vec<EndpointSlice>,
    /// Slices to update.
    pub update: Vec<EndpointSlice>,
    /// Slices to delete.
    pub delete: Vec<Arc<EndpointSlice>>,
}

impl Changes {
    /// How many writes there are.
    pub fn len(&self) -> usize {
        self.create.len() + self.update.len() + self.delete.len()
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A write of an EndpointSlice that failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    #[error("failed to create EndpointSlice for {0}: {1}")]
    Create(String, kube::Error),
    #[error("failed to update {0} EndpointSlice for {1}: {2}")]
    Update(String, String, kube::Error),
    #[error("failed to delete {0} EndpointSlice for {1}: {2}")]
    Delete(String, String, kube::Error),
    #[error("EndpointSlice {0} was modified concurrently")]
    Conflict(String),
}

impl WriteError {
    /// Whether the object was modified concurrently. No event is emitted: the slice is reconciled again.
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict(_))
    }
}

/// Writes the slices of one Service or Endpoints object.
pub(crate) struct SliceWriter {
    pub(crate) client: Client,
    pub(crate) slices: Arc<Store<EndpointSlice>>,
}

impl SliceWriter {
    /// Performs changes up to the first that fails, and returns when the store has observed them. `about` names the owner in
    /// errors.
    pub(crate) async fn perform(
        &self,
        namespace: &str,
        about: &str,
        changes: &Changes,
    ) -> Result<(), WriteError> {
        let api = Api::<EndpointSlice>::namespaced(self.client.clone(), namespace);
        let mut writes = Vec::new();
        let done = write(&api, about, changes, &mut writes).await;
        let observed = async {
            for write in &writes {
                self.slices.wait_for_write(write).await;
            }
        };
        if tokio::time::timeout(OBSERVED_WITHIN, observed).await.is_err() {
            tracing::warn!(
                about,
                "own writes of EndpointSlices were not observed in time, continuing without them"
            );
        }
        done
    }
}

async fn write(
    api: &Api<EndpointSlice>,
    about: &str,
    changes: &Changes,
    writes: &mut Vec<Write>,
) -> Result<(), WriteError> {
    for slice in &changes.create {
        match api.create(&PostParams::default(), slice).await {
            Ok(created) => writes.push(Write::created(&created.metadata)),
            // The namespace is terminating: nothing else can be created in it either.
            Err(error) if is_settled(&error) => return Ok(()),
            Err(error) => return Err(WriteError::Create(about.to_owned(), error)),
        }
    }
    for slice in &changes.update {
        let name = slice.metadata.name.clone().unwrap_or_default();
        match api.replace(&name, &PostParams::default(), slice).await {
            Ok(updated) => writes.push(Write::updated(&updated.metadata)),
            // The watch delivers that it is gone, and the Service is reconciled again.
            Err(error) if is_conflict(&error) || is_settled(&error) => {
                return Err(WriteError::Conflict(name));
            }
            Err(error) => return Err(WriteError::Update(name, about.to_owned(), error)),
        }
    }
    for slice in &changes.delete {
        let reference = ObjectRef::of(&**slice);
        let uid = slice.metadata.uid.clone();
        let preconditions = Some(Preconditions { uid: uid.clone(), resource_version: None });
        let params = DeleteParams { preconditions, ..DeleteParams::default() };
        match api.delete(&reference.name, &params).await {
            Ok(()) => writes.push(Write::deleted(reference, uid.unwrap_or_default())),
            Err(error) if is_settled(&error) || is_conflict(&error) => {}
            Err(error) => return Err(WriteError::Delete(reference.name, about.to_owned(), error)),
        }
    }
    Ok(())
}
