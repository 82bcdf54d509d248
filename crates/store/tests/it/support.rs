//! Builders that all tests share.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use plumb_store::{
    Event, EventFilter, Key, List, Object, Options, Prefix, Revision, Store, WatchBuffer, Write,
};

pub(crate) fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

pub(crate) fn prefix(text: &str) -> Prefix {
    Prefix::new(text).unwrap()
}

pub(crate) fn all() -> EventFilter {
    EventFilter::prefix(Prefix::everything())
}

pub(crate) fn value(text: impl AsRef<str>) -> Bytes {
    Bytes::copy_from_slice(text.as_ref().as_bytes())
}

pub(crate) fn put(store: &Store, at: &str, text: &str) -> Arc<Event> {
    store.write(Write::put(key(at), value(text))).wait().unwrap()
}

/// Key and text of each object under a prefix.
pub(crate) fn texts(store: &Store, under: &str) -> Vec<(String, String)> {
    let page = store.list(&List::all(prefix(under))).unwrap();
    page.objects.iter().map(|object| (object.key.to_string(), text(object))).collect()
}

pub(crate) fn text(object: &Object) -> String {
    String::from_utf8(object.value.to_vec()).unwrap()
}

/// Small enough for tests to reach every limit.
pub(crate) fn small() -> Options {
    Options {
        history: 1 << 20,
        watch_buffer: WatchBuffer { events: 1 << 20, bytes: 1 << 30 },
        checkpoint: 64 << 10,
        ..Options::default()
    }
}

/// What a client knows that lists once and then follows events.
#[derive(Debug, Default)]
pub(crate) struct Follower {
    pub(crate) objects: BTreeMap<Key, Arc<Object>>,
    pub(crate) revision: Revision,
}

impl Follower {
    pub(crate) fn list(store: &Store, under: &Prefix) -> Self {
        let page = store.list(&List::all(under.clone())).unwrap();
        let objects = page.objects.into_iter().map(|object| (object.key.clone(), object)).collect();
        Self { objects, revision: page.revision }
    }

    /// Takes an event, which must fit exactly to what is known: no gap, no duplicate.
    pub(crate) fn follow(&mut self, event: &Event) {
        assert!(event.revision > self.revision, "{} again or out of order", event.revision);
        self.revision = event.revision;
        let before = match event.current() {
            Some(object) => {
                assert_eq!(object.mod_revision, event.revision);
                self.objects.insert(object.key.clone(), object.clone())
            }
            None => self.objects.remove(event.key()),
        };
        assert_eq!(before.as_ref(), event.previous(), "a gap before revision {}", event.revision);
    }
}
