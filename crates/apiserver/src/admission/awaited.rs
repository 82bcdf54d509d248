//! Objects that a plugin needs and that another component is about to create.

use std::time::Duration;

use plumb_store::{EventFilter, Key};

use super::Attributes;

/// An object to wait for, with a timeout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Awaited {
    /// The key of the object.
    pub(crate) key: Key,
    /// The timeout of the wait.
    pub(crate) patience: Duration,
}

impl Awaited {
    /// Waits until the object exists or the timeout expires. Meanwhile the request releases its in-flight slot, which
    /// the writer of the object may need.
    pub(super) async fn come(&self, attributes: &Attributes<'_>) {
        // The watch reports all writes after this read.
        let store = attributes.server.store();
        let seen = store.revision();
        if store.get(&self.key).is_some() {
            return;
        }
        let Ok(mut changes) = store.watch(EventFilter::prefix((&self.key).into()), seen) else { return };
        let written = async {
            while let Ok(event) = changes.next().await {
                if event.key() == &self.key && event.current().is_some() {
                    break;
                }
            }
        };
        // On a timeout the plugin reads the object itself and rejects the request if it is missing.
        let _ = attributes.place.left_for(tokio::time::timeout(self.patience, written)).await;
    }
}
