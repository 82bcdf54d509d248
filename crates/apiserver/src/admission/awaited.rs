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
    /// Waits until the object is there, or it has taken too long: then whoever needs it finds out. Meanwhile the
    /// request releases its permit, which the writer of the object may need.
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
        // Out of time is an answer too: the plugin looks, and says what is missing.
        let _ = attributes.permit.released_while(tokio::time::timeout(self.patience, written)).await;
    }
}
