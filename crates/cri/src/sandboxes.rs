//! The configurations of sandboxes, which the CRI requires again for each container.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use plumb_runtime::types::{SandboxConfig, SandboxId};
use plumb_runtime::{Error, Result};

use crate::error::from_status;
use crate::{State, api, convert};

/// A cache of the configurations. The runtime has all of them, in annotations.
#[derive(Debug, Default)]
pub(crate) struct Sandboxes {
    known: Mutex<HashMap<SandboxId, Arc<SandboxConfig>>>,
}

impl Sandboxes {
    pub(crate) fn insert(&self, id: SandboxId, config: SandboxConfig) -> Arc<SandboxConfig> {
        let config = Arc::new(config);
        self.known.lock().insert(id, config.clone());
        config
    }

    pub(crate) fn remove(&self, id: &SandboxId) {
        self.known.lock().remove(id);
    }

    fn get(&self, id: &SandboxId) -> Option<Arc<SandboxConfig>> {
        self.known.lock().get(id).cloned()
    }
}

impl State {
    /// The configuration that a sandbox was created with.
    pub(crate) async fn config_of(&self, id: &SandboxId) -> Result<Arc<SandboxConfig>> {
        if let Some(config) = self.sandboxes.get(id) {
            return Ok(config);
        }
        let status = self.pod_sandbox_status(id).await?;
        let config = convert::stored(&status).ok_or_else(|| {
            Error::failed(
                format!("reading sandbox {id}"),
                "it does not have the annotation with its configuration",
            )
        })?;
        Ok(self.sandboxes.insert(id.clone(), config))
    }

    /// The status of a sandbox, as the runtime reports it.
    pub(crate) async fn pod_sandbox_status(&self, id: &SandboxId) -> Result<api::PodSandboxStatus> {
        let request = api::PodSandboxRequest { pod_sandbox_id: id.to_string() };
        let response: api::PodSandboxStatusResponse =
            self.runtime.call("/runtime.v1.RuntimeService/PodSandboxStatus", request).await.map_err(
                |status| from_status(&format!("reading sandbox {id}"), "sandbox", id.as_str(), &status),
            )?;
        response.status.ok_or_else(|| Error::no_sandbox(id.as_str()))
    }
}
