//! An object that a plugin needs and that another client is about to create.

use std::time::Duration;

use plumb_store::{EventFilter, Key};

use super::Attributes;

/// An object, and the timeout of the wait for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Awaited {
    /// The key of the object.
    pub key: Key,
    /// The timeout.
    pub timeout: Duration,
}

impl Awaited {
    /// Waits until the object exists, or until the timeout; then the plugin finds the object missing. Meanwhile the request
    /// releases its permit, which the writer of the object may need.
    pub(super) async fn wait(&self, attributes: &Attributes<'_>) {
        // The watch has every write after this revision.
        let store = attributes.cluster.store();
        let revision = store.revision();
        if store.get(&self.key).is_some() {
            return;
        }
        let Ok(mut changes) = store.watch(EventFilter::prefix((&self.key).into()), revision) else { return };
        let written = async {
            while let Ok(event) = changes.next().await {
                if event.key() == &self.key && event.current().is_some() {
                    break;
                }
            }
        };
        // After the timeout the plugin reads the store, and says what is missing.
        let _ = attributes.permit.released_while(tokio::time::timeout(self.timeout, written)).await;
    }
}
