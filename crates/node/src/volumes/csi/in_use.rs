//! `volumesInUse` of the node: the attached volumes that must not be detached, because pods have them or may still have them.
//!
//! It is written before a volume is mounted, and shortened only after it was unmounted: the attach/detach controller of the
//! cluster relies on it.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Patch, PatchParams};
use plumb_client::Api;
use serde_json::json;
use tokio::sync::{Mutex, watch};

use super::records::Layout;

pub(super) struct InUse {
    client: Client,
    node: String,
    /// What the status of the node has, once this agent has written it. Locked while it is written.
    written: Mutex<Option<Vec<String>>>,
    /// What is about to be mounted, and has no record yet.
    expected: parking_lot::Mutex<BTreeSet<String>>,
    current: watch::Sender<Vec<String>>,
}

impl InUse {
    pub(super) fn new(client: Client, node: String) -> Self {
        Self {
            client,
            node,
            written: Mutex::new(None),
            expected: parking_lot::Mutex::default(),
            current: watch::Sender::default(),
        }
    }

    /// What is in use. The status of the node has it with each of its writes.
    pub(super) fn subscribe(&self) -> watch::Receiver<Vec<String>> {
        self.current.subscribe()
    }

    /// Counts a volume as in use although it has no record yet, or no longer.
    pub(super) fn expect(&self, name: &str, is_expected: bool) {
        let mut expected = self.expected.lock();
        if is_expected {
            expected.insert(name.to_owned());
        } else {
            expected.remove(name);
        }
    }

    /// Writes what the records say is in use, if the status of the node differs.
    pub(super) async fn report(&self, layout: &Layout) -> Result<(), kube::Error> {
        let mut written = self.written.lock().await;
        let (layout, expected) = (layout.clone(), self.expected.lock().clone());
        let listed = tokio::task::spawn_blocking(move || names(&layout, expected)).await;
        // A directory that cannot be read shortens nothing.
        let Ok(Ok(names)) = listed else { return Ok(()) };
        if written.as_ref() == Some(&names) {
            return Ok(());
        }
        self.current.send_replace(names.clone());
        let nodes = Api::<Node>::all(self.client.clone());
        if written.is_none() {
            // The agent before this one may have been killed before it wrote the last change.
            let known = nodes.get(&self.node).await?.status.and_then(|status| status.volumes_in_use);
            if known.unwrap_or_default() == names {
                *written = Some(names);
                return Ok(());
            }
        }
        let patch = Patch::Merge(json!({ "status": { "volumesInUse": names } }));
        nodes.patch_status(&self.node, &PatchParams::default(), &patch).await?;
        *written = Some(names);
        Ok(())
    }
}

/// The names of all attached volumes that have a record, and of those that are expected.
fn names(layout: &Layout, expected: BTreeSet<String>) -> std::io::Result<Vec<String>> {
    let all = layout.all_staged()?.into_iter().chain(layout.published_to_all()?);
    let attached = all.map(|recorded| recorded.record).filter(|record| !record.attachment_id.is_empty());
    let names = attached.map(|record| plumb_csi::unique_name(&record.driver_name, &record.volume_handle));
    Ok(names.chain(expected).collect::<BTreeSet<String>>().into_iter().collect())
}
