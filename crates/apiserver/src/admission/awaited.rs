//! What a plugin needs that somebody else is about to write.

use std::time::Duration;

use plumb_store::{EventFilter, Key};

use super::Attributes;

/// An object, and how long it is worth waiting for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Awaited {
    /// Where it will be.
    pub(crate) key: Key,
    /// How long a write is kept waiting for it.
    pub(crate) patience: Duration,
}

impl Awaited {
    /// Waits until the object is there, or it has taken too long: then whoever needs it finds out. Meanwhile the
    /// request gives up its place, which the one who writes the object may need.
    pub(super) async fn come(&self, attributes: &Attributes<'_>) {
        // Whatever is written after this look is heard of by the watch.
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
        let _ = attributes.place.left_for(tokio::time::timeout(self.patience, written)).await;
    }
}
