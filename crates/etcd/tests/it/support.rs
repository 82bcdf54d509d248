//! Builders that all tests share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use plumb_etcd::{Config, DEFAULT_PREFIX, OpenError, TlsFiles, open};
use plumb_store::{
    Event, EventFilter, Key, List, Object, Options, Prefix, Revision, Store, Watch, WatchBuffer, WatchEnd,
    Write,
};

/// How long anything may take on a loaded machine.
pub(crate) const DEADLINE: Duration = Duration::from_mins(2);

pub(crate) fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

pub(crate) fn all() -> EventFilter {
    EventFilter::prefix(Prefix::everything())
}

/// The configuration of a store on a member.
pub(crate) fn config(url: &str, tls: &TlsFiles) -> Config {
    Config {
        endpoints: vec![url.to_owned()],
        tls: tls.clone(),
        prefix: DEFAULT_PREFIX.to_owned(),
        compaction_interval: None,
        reliable_progress: None,
        stamp: |bytes, _| bytes.clone(),
    }
}

pub(crate) fn open_at(url: &str) -> Result<Store, OpenError> {
    // No watch of these tests is too slow.
    let watch_buffer = WatchBuffer { events: 1 << 20, bytes: 1 << 30 };
    open(&config(url, &TlsFiles::default()), &Options { watch_buffer, ..Options::default() })
}

pub(crate) fn put(store: &Store, at: &str, text: impl Into<String>) -> Arc<Event> {
    store.write(Write::put(key(at), Bytes::from(text.into()))).wait().unwrap()
}

pub(crate) fn text(store: &Store, at: &str) -> Option<String> {
    store.get(&key(at)).map(|object| String::from_utf8(object.value.to_vec()).unwrap())
}

pub(crate) fn objects(store: &Store) -> BTreeMap<Key, Arc<Object>> {
    let page = store.list(&List::all(Prefix::everything())).unwrap();
    page.objects.into_iter().map(|object| (object.key.clone(), object)).collect()
}

/// Waits until a condition holds that no event reports.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// What a client knows that lists once and then follows events.
pub(crate) struct Follower {
    pub(crate) objects: BTreeMap<Key, Arc<Object>>,
    pub(crate) revision: Revision,
    watch: Watch,
}

impl Follower {
    pub(crate) fn new(store: &Store) -> Self {
        let page = store.list(&List::all(Prefix::everything())).unwrap();
        let watch = store.watch(all(), page.revision).unwrap();
        let objects = page.objects.into_iter().map(|object| (object.key.clone(), object)).collect();
        Self { objects, revision: page.revision, watch }
    }

    /// Applies the queued events, each of which must fit exactly to what is known: no gap, no duplicate.
    pub(crate) fn follow(&mut self) -> Result<(), WatchEnd> {
        while let Some(event) = self.watch.try_next()? {
            assert!(event.revision >= self.revision, "{} out of order", event.revision);
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
        Ok(())
    }
}
