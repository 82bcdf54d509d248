//! Waiting until a volume is attached to this node.

use std::time::Duration;

use k8s_openapi::api::storage::v1::VolumeAttachment;
use plumb_client::Api;
use plumb_csi::api::Map;
use plumb_supervise::{Backoff, Exponential};

use super::{State, VolumeId};
use crate::volumes::error::VolumeError;

/// How long a pod worker waits: then it looks at its pod again, which may have been deleted.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The name of the attachment of a volume to this node.
pub(super) fn name(state: &State, id: &VolumeId) -> String {
    plumb_csi::attachment_name(&id.handle, &id.driver, &state.node)
}

/// Waits until the volume is attached, and returns what the attacher says about it. A node may read the attachment only by its
/// name, and only once it exists, so that it asks repeatedly, as the kubelet.
pub(super) async fn wait(state: &State, id: &VolumeId, volume: &str) -> Result<Map, VolumeError> {
    let attachments = Api::<VolumeAttachment>::all(state.client.clone());
    let name = name(state, id);
    let mut backoff = Backoff::new(Exponential::new(Duration::from_millis(20), Duration::from_secs(1)));
    let attached = async {
        loop {
            match attachments.get(&name).await {
                Ok(found) if found.metadata.deletion_timestamp.is_some() => {
                    return Err(VolumeError::Detaching(volume.to_owned()));
                }
                Ok(found) => {
                    let status = found.status.unwrap_or_default();
                    if status.attached {
                        return Ok(status.attachment_metadata.unwrap_or_default());
                    }
                    if let Some(why) = status.attach_error.and_then(|error| error.message) {
                        return Err(VolumeError::Attach(why));
                    }
                }
                // The node authorizer allows a node no more than what is there for it.
                Err(kube::Error::Api(status)) if status.is_not_found() || status.is_forbidden() => {}
                Err(error) => return Err(VolumeError::Api(Box::new(error))),
            }
            backoff.wait().await;
        }
    };
    match tokio::time::timeout(TIMEOUT, attached).await {
        Ok(attached) => attached,
        Err(_) => Err(VolumeError::NotAttached { driver: id.driver.clone(), volume: volume.to_owned() }),
    }
}
