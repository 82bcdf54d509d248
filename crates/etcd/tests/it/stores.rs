//! Stores on etcd: what holds for the embedded one, and what several of them share.

use std::collections::BTreeMap;

use bytes::Bytes;
use plumb_etcd::proto::{Operation, PutRequest, TxnRequest};
use plumb_etcd::{Client, Config, OpenError, TlsFiles, ValueError};
use plumb_store::{
    Attributes, Edit, EventFilter, List, Options, Precondition, Prefix, Quota, Store, UpdateOutcome, Write,
    WriteError,
};

use crate::support::{Follower, all, config, key, objects, open_at, put, text};
use plumb_testkit::Etcd;

/// Numbers that look random, and are the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

const KEYS: [&str; 6] = ["a", "a-1", "a/x", "a/x/1", "a/y/1", "b/x/1"];

#[test]
fn a_store_on_etcd_behaves_like_a_map_with_revisions() {
    let Some(etcd) = Etcd::start() else { return };
    let store = open_at(&etcd.url()).unwrap();
    let mut follower = Follower::new(&store);
    let mut model: BTreeMap<&str, (u64, u64, String)> = BTreeMap::new();
    let mut numbers = Numbers(48);
    for n in 0..400 {
        let at = KEYS[usize::try_from(numbers.below(6)).unwrap()];
        let known = model.get(at).cloned();
        let (precondition, holds) = match numbers.below(4) {
            0 => (Precondition::Anything, true),
            1 => (Precondition::Absent, known.is_none()),
            2 => (Precondition::Present, known.is_some()),
            _ => {
                let less = numbers.below(2);
                let revision = known.as_ref().map_or(7, |(revision, ..)| revision - less);
                (Precondition::Revision(revision), known.is_some() && less == 0)
            }
        };
        let deletes = numbers.below(4) == 0;
        let value = format!("value {n}");
        let write =
            if deletes { Write::delete(key(at)) } else { Write::put(key(at), Bytes::from(value.clone())) };
        let holds = holds && (known.is_some() || !deletes);
        match store.write(write.precondition(precondition)).wait() {
            Ok(event) => {
                assert!(holds, "{n}: {precondition:?} of {known:?}");
                let previous = event.previous().map(|object| object.mod_revision);
                assert_eq!(previous, known.as_ref().map(|(revision, ..)| *revision));
                match event.current() {
                    None => _ = model.remove(at),
                    Some(object) => {
                        let version = known.map_or(1, |(_, version, _)| version + 1);
                        assert_eq!((object.mod_revision, object.version), (event.revision, version));
                        model.insert(at, (event.revision, version, value));
                    }
                }
            }
            Err(WriteError::Conflict(conflict)) => {
                assert!(!holds, "{n}: {conflict}");
                let found = conflict.current.map(|object| object.mod_revision);
                assert_eq!(found, known.map(|(revision, ..)| revision));
            }
            Err(error) => panic!("{error}"),
        }
        // A write is read, and was sent to the watches, when its ticket resolves.
        for at in KEYS {
            assert_eq!(text(&store, at).as_ref(), model.get(at).map(|(.., value)| value));
        }
    }
    follower.follow().unwrap();
    assert_eq!(follower.objects, objects(&store));
    // Another store lists what this one has received.
    assert_eq!(objects(&open_at(&etcd.url()).unwrap()), objects(&store));
}

#[test]
fn a_transaction_writes_all_or_nothing() {
    let Some(etcd) = Etcd::start() else { return };
    let store = open_at(&etcd.url()).unwrap();
    let both = |precondition| {
        let second = Write::put(key("b/x/2"), "two").precondition(precondition);
        store.transact(vec![Write::put(key("a/x/1"), "one"), second]).wait()
    };
    let conflict = both(Precondition::Present).unwrap_err();
    assert!(
        matches!(&conflict, WriteError::Conflict(conflict) if conflict.key == key("b/x/2")),
        "{conflict}"
    );
    assert_eq!(text(&store, "a/x/1"), None);
    let from = store.revision();
    let mut watch = store.watch(all(), from).unwrap();
    let events = both(Precondition::Absent).unwrap();
    assert_eq!(events.iter().map(|event| event.key().as_str()).collect::<Vec<_>>(), ["a/x/1", "b/x/2"]);
    assert_eq!(events[0].revision, events[1].revision, "etcd has one revision for a transaction");
    // A watcher that has only one of the two must not resume after the other.
    assert!(watch.wait_next().unwrap().revision == events[0].revision);
    assert!(watch.progress() < events[0].revision);
    assert!(watch.wait_next().unwrap().revision == events[0].revision);
    assert_eq!(watch.progress(), events[0].revision);
    let mut again = store.watch(all(), from).unwrap();
    assert_eq!(
        (again.wait_next().unwrap(), again.wait_next().unwrap()),
        (events[0].clone(), events[1].clone())
    );
    assert!(store.transact(vec![]).wait().unwrap().is_empty());
}

#[test]
fn stores_see_the_writes_of_each_other_and_conflict_with_them() {
    let Some(etcd) = Etcd::start() else { return };
    let [one, other] = [open_at(&etcd.url()).unwrap(), open_at(&etcd.url()).unwrap()];
    let mut follower = Follower::new(&other);
    let created = put(&one, "a/x/1", "of one");
    other.refresh().wait().unwrap();
    assert_eq!(text(&other, "a/x/1").as_deref(), Some("of one"));
    follower.follow().unwrap();
    assert_eq!(follower.revision, created.revision);

    let changed = put(&other, "a/x/1", "of other");
    let stale = Write::put(key("a/x/1"), "stale").precondition(Precondition::Revision(created.revision));
    let WriteError::Conflict(conflict) = one.write(stale).wait().unwrap_err() else { panic!("no conflict") };
    assert_eq!(conflict.current.as_ref(), changed.current());
    // The store of the conflict has the object that caused it, so that another attempt succeeds.
    assert_eq!(one.get(&key("a/x/1")).as_ref(), changed.current());

    let deleted = other.write(Write::delete(key("a/x/1"))).wait().unwrap();
    let stale = Write::put(key("a/x/1"), "stale").precondition(Precondition::Revision(changed.revision));
    assert!(
        matches!(one.write(stale).wait(), Err(WriteError::Conflict(conflict)) if conflict.current.is_none())
    );
    assert_eq!(one.get(&key("a/x/1")), None);
    assert!(one.revision() >= deleted.revision);
}

#[test]
fn concurrent_updates_of_several_stores_lose_nothing() {
    let Some(etcd) = Etcd::start() else { return };
    let stores = [open_at(&etcd.url()).unwrap(), open_at(&etcd.url()).unwrap()];
    put(&stores[0], "a/x/1", "");
    std::thread::scope(|threads| {
        for store in &stores {
            for _ in 0..3 {
                threads.spawn(|| {
                    for _ in 0..10 {
                        let append = |old: Option<&std::sync::Arc<plumb_store::Object>>| {
                            let old = String::from_utf8(old.unwrap().value.to_vec()).unwrap();
                            Ok::<_, ()>(Some(Edit::put(Bytes::from(old + "+"))))
                        };
                        let updated = store.update(&key("a/x/1"), append).wait().unwrap();
                        assert!(matches!(updated, UpdateOutcome::Changed(_)));
                    }
                });
            }
        }
    });
    for store in &stores {
        store.refresh().wait().unwrap();
        assert_eq!(text(store, "a/x/1").unwrap().len(), 60);
    }
}

#[test]
fn writes_of_other_programs_in_etcd_do_not_make_a_read_wait() {
    let Some(etcd) = Etcd::start() else { return };
    for reliable_progress in [Some(true), Some(false)] {
        let config = Config { reliable_progress, ..config(&etcd.url(), &TlsFiles::default()) };
        read_after_another_program(&etcd, &plumb_etcd::open(&config, &Options::default()).unwrap());
    }
}

fn read_after_another_program(etcd: &Etcd, store: &Store) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = Client::new(&[etcd.url()], &TlsFiles::default()).unwrap();
    let written = runtime.block_on(client.txn(other_program("/elsewhere"))).unwrap();
    store.refresh().wait().unwrap();
    assert!(store.revision() >= u64::try_from(written.header.unwrap().revision).unwrap());
}

/// A write of another program.
fn other_program(path: &str) -> TxnRequest {
    let put = PutRequest { key: path.into(), value: "k8s\0...".into() };
    TxnRequest { success: vec![Operation::Put(put).into()], ..TxnRequest::default() }
}

#[test]
fn a_prefix_with_values_of_another_program_is_refused() {
    let Some(etcd) = Etcd::start() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = Client::new(&[etcd.url()], &TlsFiles::default()).unwrap();
    runtime.block_on(client.txn(other_program("/registry/pods/default/web"))).unwrap();
    let error = open_at(&etcd.url()).unwrap_err();
    assert!(matches!(error, OpenError::Value(ValueError::Foreign { .. })), "{error}");
    assert!(error.to_string().contains("/registry/pods/default/web"), "{error}");
    let mut elsewhere = config(&etcd.url(), &TlsFiles::default());
    elsewhere.prefix = "/plumb".to_owned();
    let store = plumb_etcd::open(&elsewhere, &Options::default()).unwrap();
    put(&store, "a/x/1", "one");
    assert_eq!(objects(&store).len(), 1);
}

#[test]
fn attributes_and_stamped_values_are_those_of_the_embedded_store() {
    let Some(etcd) = Etcd::start() else { return };
    let mut config = config(&etcd.url(), &TlsFiles::default());
    config.stamp = |bytes, revision| Bytes::from([&bytes[..], revision.to_string().as_bytes()].concat());
    let store = plumb_etcd::open(&config, &Options::default()).unwrap();
    let filter = EventFilter::prefix(Prefix::everything()).attribute("node", "one");
    let mut watch = store.watch(filter, store.revision()).unwrap();
    put(&store, "a/x/1", "without");
    let with = Write::put(key("a/x/2"), "at ").attributes(Attributes::one("node", "one"));
    let event = store.write(with).wait().unwrap();
    assert_eq!(watch.wait_next().unwrap(), event);
    assert_eq!(text(&store, "a/x/2").unwrap(), format!("at {}", event.revision));
}

#[test]
fn a_list_is_read_in_pages_and_past_revisions_from_the_history() {
    let Some(etcd) = Etcd::start() else { return };
    let store = open_at(&etcd.url()).unwrap();
    // More than one page of etcd.
    let tickets: Vec<_> =
        (0..1201).map(|n| store.write(Write::create(key(&format!("a/x/{n:04}")), "old"))).collect();
    for ticket in tickets {
        ticket.wait().unwrap();
    }
    let other = open_at(&etcd.url()).unwrap();
    assert_eq!(objects(&other), objects(&store));
    let before = store.revision();
    put(&store, "a/x/0000", "new");
    let page = store.list(&List::all(Prefix::new("a/x").unwrap()).at(before).limit(1)).unwrap();
    assert_eq!((&*page.objects[0].value, page.remaining), (&b"old"[..], 1200));
}

#[test]
fn quotas_limit_the_writes_of_a_store_on_etcd() {
    let Some(etcd) = Etcd::start() else { return };
    let options = Options { quota: Quota { bytes: 4_000, ..Quota::UNLIMITED }, ..Options::default() };
    let store = plumb_etcd::open(&config(&etcd.url(), &TlsFiles::default()), &options).unwrap();
    let large = || Bytes::from(vec![b'x'; 3_000]);
    store.write(Write::put(key("a/x/1"), large()).limited()).wait().unwrap();
    let rejected = store.write(Write::put(key("a/x/2"), large()).limited()).wait();
    assert!(matches!(rejected, Err(WriteError::QuotaExceeded { .. })), "{rejected:?}");
    store.write(Write::put(key("a/x/2"), large())).wait().unwrap();
    assert!(store.usage().alarm());
}

#[test]
fn sync_resolves_after_the_writes_that_were_sent_before() {
    let Some(etcd) = Etcd::start() else { return };
    let store = open_at(&etcd.url()).unwrap();
    for n in 0..50 {
        drop(store.write(Write::put(key("a/x/1"), Bytes::from(n.to_string()))));
    }
    store.sync().wait().unwrap();
    assert_eq!(store.get(&key("a/x/1")).unwrap().version, 50);
}

#[test]
fn a_closed_store_rejects_writes_and_ends_watches() {
    let Some(etcd) = Etcd::start() else { return };
    let store = open_at(&etcd.url()).unwrap();
    let mut watch = store.watch(all(), store.revision()).unwrap();
    let written = store.write(Write::put(key("a/x/1"), "one"));
    store.close();
    assert_eq!(written.wait().unwrap(), watch.wait_next().unwrap());
    assert!(watch.wait_next().is_err());
    assert!(matches!(store.write(Write::put(key("a/x/1"), "two")).wait(), Err(WriteError::Closed)));
    assert_eq!(text(&store, "a/x/1").as_deref(), Some("one"), "reads still work");
}
