//! Releases the workloads that an in-place rollout holds, once its controllers have no permission to write.

use std::time::Duration;

use kube::Client;
use plumb_resize::rules::Rules;
use plumb_rollout::workloads::{self, HeldError};
use plumb_rollout::{Config, release_all};

use super::UninstallError;
use crate::apply::{ApplyError, failed};

/// How long to retry while the API server refuses the writes.
const DEADLINE: Duration = Duration::from_mins(1);

/// The workloads that a rollout holds: `deployment.apps/web of namespace default`.
pub(super) async fn held(client: &Client) -> Result<Vec<String>, ApplyError> {
    workloads::held(client)
        .await
        .map_err(|HeldError { resource, source }| failed("listing", &resource)(source))
}

/// Releases them, with the permissions of the client. Their own controllers recreate the pods that were not resized yet.
pub(super) async fn release(client: &Client) -> Result<(), UninstallError> {
    let config = Config::new(client.clone(), Rules::v1_36(), false);
    match tokio::time::timeout(DEADLINE, release_all(config)).await {
        Ok(_) => Ok(()),
        Err(_) => Err(UninstallError::StillHeld(held(client).await?)),
    }
}
