//! Watching: order, completeness, filters, laggards, bookmarks, compaction.

use std::{
    sync::{
        Arc, Barrier,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use plumb_store::{
    Attributes, EventFilter, List, Options, Prefix, Recent, RevisionError, Store, WatchBuffer, WatchEnd,
    Write,
};

use crate::support::{Follower, all, key, prefix, put, small};

fn store() -> (tempfile::TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), small()).unwrap();
    (directory, store)
}

fn put_on(store: &Store, at: &str, node: &str) {
    store.write(Write::put(key(at), "x").attributes(Attributes::one("node", node))).wait().unwrap();
}

/// The keys of all events that are there.
fn drain(watch: &mut plumb_store::Watch) -> Vec<(u64, String)> {
    std::iter::from_fn(|| watch.try_next().unwrap())
        .map(|event| (event.revision, event.key().to_string()))
        .collect()
}

/// Waits until all events up to the current revision are dispatched. A write is acknowledged before that.
fn settle(store: &Store) {
    let mut watch = store.watch(all(), store.revision()).unwrap();
    let revision = put(store, "settle", "").revision;
    assert_eq!(watch.wait_next().unwrap().revision, revision);
}

#[test]
fn a_watch_receives_events_of_its_subtree_only_and_from_its_revision_on() {
    let (_directory, store) = store();
    let mut watch = store.watch(EventFilter::prefix(prefix("pods/default")), 0).unwrap();
    for at in
        ["pods/default/a", "pods/default-2/a", "pods", "nodes/default/a", "pods/default/b/c", "pods/default"]
    {
        put(&store, at, "1");
    }
    settle(&store);
    let expected = [(1, "pods/default/a"), (5, "pods/default/b/c"), (6, "pods/default")];
    assert_eq!(drain(&mut watch), expected.map(|(revision, at)| (revision, at.to_string())));
    let mut late = store.watch(EventFilter::prefix(prefix("pods/default")), 1).unwrap();
    assert_eq!(
        drain(&mut late),
        expected[1..].iter().map(|(r, at)| (*r, (*at).to_string())).collect::<Vec<_>>()
    );
}

#[test]
fn a_watch_by_attribute_receives_objects_that_have_gain_or_lose_it() {
    let (_directory, store) = store();
    let on = |node: &str| EventFilter::prefix(prefix("pods")).attribute("node", node);
    let mut one = store.watch(on("one"), 0).unwrap();
    let mut two = store.watch(on("two"), 0).unwrap();
    put_on(&store, "pods/a", "one"); // 1
    put_on(&store, "pods/a", "one"); // 2
    put_on(&store, "other/a", "one"); // 3
    put_on(&store, "pods/a", "two"); // 4
    put(&store, "pods/a", "on none"); // 5
    put_on(&store, "pods/a", "two"); // 6
    store.write(Write::delete(key("pods/a"))).wait().unwrap(); // 7
    settle(&store);
    let revisions =
        |watch: &mut _| drain(watch).into_iter().map(|(revision, _)| revision).collect::<Vec<_>>();
    assert_eq!(revisions(&mut one), [1, 2, 4]);
    assert_eq!(revisions(&mut two), [4, 5, 6, 7]);
    // The same, found in history.
    assert_eq!(revisions(&mut store.watch(on("one"), 0).unwrap()), [1, 2, 4]);
    assert_eq!(revisions(&mut store.watch(on("two"), 4).unwrap()), [5, 6, 7]);
}

#[test]
fn a_collection_that_is_written_often_leaves_the_history_of_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { history: 64 << 10, ..small() };
    let store = Store::open(directory.path(), options).unwrap();
    put(&store, "core/quiet/default/a", "1");
    put(&store, "core/quiet/default/a", "2");
    let text = "x".repeat(1 << 10);
    for _ in 0..1_000 {
        put(&store, "core/busy/default/a", &text);
    }
    assert!(store.stats().history_bytes <= 64 << 10);
    assert!(matches!(
        store.watch(EventFilter::prefix(prefix("core/busy")), 1),
        Err(RevisionError::Compacted { .. })
    ));
    for under in ["core", "", "core/busy/default"] {
        let past = store.list(&List::all(prefix(under)).at(1));
        assert!(matches!(past, Err(RevisionError::Compacted { .. })), "{under:?}");
    }
    for under in ["core/quiet", "core/quiet/default", "core/quiet/default/a", "core/unknown"] {
        let mut watch = store.watch(EventFilter::prefix(prefix(under)), 1).unwrap();
        let expected: &[_] = if under == "core/unknown" { &[] } else { &[2] };
        let found: Vec<_> = drain(&mut watch).into_iter().map(|(revision, _)| revision).collect();
        assert_eq!(found, expected, "{under}");
    }
    let past = store.list(&List::all(prefix("core/quiet")).at(1)).unwrap();
    assert_eq!(&past.objects[0].value[..], b"1");
}

#[test]
fn a_watch_of_several_collections_receives_their_history_in_the_order_of_revisions() {
    let (_directory, store) = store();
    for n in 0..30 {
        put(&store, &format!("r{}/ns{}/a", n % 2, n % 3), "x");
    }
    for (under, expected) in [("", 30), ("r0", 15), ("r1/ns2", 5)] {
        let found = drain(&mut store.watch(EventFilter::prefix(prefix(under)), 0).unwrap());
        assert_eq!(found.len(), expected, "{under:?}");
        assert!(found.is_sorted_by_key(|(revision, _)| *revision), "{under:?}");
    }
}

#[test]
fn recent_events_are_retained_beyond_the_limit_while_memory_allows() {
    let now = Arc::new(AtomicU64::new(0));
    let clock = {
        let now = now.clone();
        Arc::new(move || Duration::from_secs(now.load(Ordering::Relaxed)))
    };
    let recent = Recent { age: Duration::from_mins(5), bytes: 256 << 10, clock };
    let directory = tempfile::tempdir().unwrap();
    let options = Options { history: 32 << 10, recent: Some(recent), ..small() };
    let store = Store::open(directory.path(), options).unwrap();
    let text = "x".repeat(1 << 10);
    let bytes = |writes: u64, second: u64| {
        now.store(second, Ordering::Relaxed);
        for _ in 0..writes {
            put(&store, "core/busy/default/a", &text);
        }
        store.stats().history_bytes
    };
    // More than the limit, all of it recent.
    assert!(bytes(100, 1) > 100 << 10);
    // Never more than memory allows.
    assert!((200 << 10..=256 << 10).contains(&bytes(400, 2)));
    // Five minutes later only as much as is retained whatever its age, and what is recent.
    assert!(bytes(1, 400) <= 32 << 10);
}

#[test]
fn a_list_cannot_continue_at_a_revision_that_is_older_than_the_period() {
    let now = Arc::new(AtomicU64::new(0));
    let clock = {
        let now = now.clone();
        Arc::new(move || Duration::from_secs(now.load(Ordering::Relaxed)))
    };
    let recent = Recent { age: Duration::from_mins(5), bytes: 1 << 20, clock };
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), Options { recent: Some(recent), ..small() }).unwrap();
    for name in ["a", "b", "c"] {
        put(&store, &format!("core/pods/default/{name}"), "x");
    }
    let first = store.list(&List::all(prefix("core/pods")).limit(1)).unwrap();
    let rest = List::all(prefix("core/pods")).after(first.next.clone().unwrap()).at(first.revision);
    put(&store, "core/pods/default/b", "y");
    let at = |second: u64, write: bool| {
        now.store(second, Ordering::Relaxed);
        if write {
            put(&store, "core/leases/default/n", "x");
        }
        store.list(&rest).map(|page| page.objects.len())
    };
    // Little history, and none of it is dropped: its age alone decides.
    assert_eq!(at(299, true), Ok(2));
    assert_eq!(at(301, true), Ok(2), "it is younger than the revision of five minutes before");
    assert_eq!(at(599, true), Ok(2));
    let expired = at(602, true).unwrap_err();
    assert!(
        matches!(expired, RevisionError::Compacted { asked, .. } if asked == first.revision),
        "{expired}"
    );
    // A watch resumes from it all the same, and the current revision can be listed at.
    let mut watch = store.watch(EventFilter::prefix(prefix("core/pods")), first.revision).unwrap();
    assert_eq!(drain(&mut watch).len(), 1);
    let current = store.revision();
    assert!(store.list(&List::all(prefix("core/pods")).at(current)).is_ok());
    // Without any write the current one does not expire either, and older ones do.
    now.store(10_000, Ordering::Relaxed);
    assert!(store.list(&List::all(prefix("core/pods")).at(current)).is_ok());
    assert!(store.list(&List::all(prefix("core/pods")).at(current - 1)).is_err());
}

#[test]
fn lists_and_watches_under_ten_thousand_concurrent_writes_end_with_exactly_the_final_state() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = small();
    options.history = 64 << 20;
    let store = &Store::open(directory.path(), options).unwrap();
    let writers = 8;
    let each = 1_250;
    let followers = 8;
    let start = &Barrier::new(writers + followers);
    thread::scope(|scope| {
        let writing: Vec<_> = (0..writers)
            .map(|writer| {
                scope.spawn(move || {
                    start.wait();
                    for n in 0..each {
                        write_somewhere(store, writer, n);
                    }
                })
            })
            .collect();
        let following: Vec<_> = (0..followers)
            .map(|n| {
                scope.spawn(move || {
                    let under = prefix(["", "r0", "r1/ns1", "r0/ns2/o7"][n % 4]);
                    start.wait();
                    let follower = follow_to_the_end(store, &under);
                    (under, follower)
                })
            })
            .collect();
        for writer in writing {
            writer.join().unwrap();
        }
        store.close();
        for follower in following {
            let (under, follower) = follower.join().unwrap();
            assert_eq!(follower.objects, Follower::list(store, &under).objects, "{under}");
        }
    });
}

fn write_somewhere(store: &Store, writer: usize, n: usize) {
    // Any spread will do.
    let spread = (writer * 7_919 + n * 104_729) % 1_000_003;
    let at = key(&format!("r{}/ns{}/o{}", spread % 2, spread / 2 % 3, spread / 8 % 40));
    let text = format!("{writer}-{n}");
    let write = match spread % 5 {
        0 => Write::delete(at),
        1 => Write::create(at, text),
        _ => Write::put(at, text),
    };
    // Some meet what they did not expect, which is no write.
    let _ = store.write(write).wait();
}

/// Lists, then watches until the store closes, leaving and resuming the watch now and then.
fn follow_to_the_end(store: &Store, under: &Prefix) -> Follower {
    let mut follower = Follower::list(store, under);
    loop {
        let mut watch = store.watch(EventFilter::prefix(under.clone()), follower.revision).unwrap();
        loop {
            match watch.wait_next() {
                Ok(event) => follower.follow(&event),
                Err(end) => {
                    assert_eq!(end, WatchEnd::Closed);
                    return follower;
                }
            }
            if follower.revision.is_multiple_of(97) {
                break;
            }
        }
    }
}

#[test]
fn a_slow_watcher_is_ended_and_others_are_not() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = small();
    options.watch_buffer = WatchBuffer { events: 10, bytes: 1 << 20 };
    let store = Store::open(directory.path(), options).unwrap();
    let mut slow = store.watch(all(), 0).unwrap();
    let mut quick = store.watch(all(), 0).unwrap();
    let mut elsewhere = store.watch(EventFilter::prefix(prefix("elsewhere")), 0).unwrap();
    put(&store, "a", "0");
    assert_eq!(slow.wait_next().unwrap().revision, 1);
    for n in 2..=12 {
        put(&store, "a", &n.to_string());
        assert_eq!(quick.wait_next().map(|event| event.revision), Ok(if n == 2 { 1 } else { n - 1 }));
    }
    settle(&store);
    assert_eq!(slow.try_next(), Err(WatchEnd::Lagged(1)));
    assert_eq!(slow.progress(), 1);
    assert_eq!(elsewhere.try_next(), Ok(None));
    assert_eq!(store.stats().watches, 2);
    // It resumes where it was cut.
    drop(slow);
    let mut again = store.watch(all(), 1).unwrap();
    assert_eq!(again.try_next().unwrap().unwrap().revision, 2);
}

#[test]
fn a_watcher_is_ended_by_bytes_too_but_never_for_a_single_large_object() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = small();
    options.watch_buffer = WatchBuffer { events: 1_000, bytes: 1_000 };
    let store = Store::open(directory.path(), options).unwrap();
    let mut watch = store.watch(all(), 0).unwrap();
    put(&store, "large", &"x".repeat(5_000));
    assert_eq!(watch.wait_next().unwrap().revision, 1);
    for _ in 0..3 {
        put(&store, "a", &"x".repeat(500));
    }
    // No settling: its own event would have to wait, too.
    let end = loop {
        match watch.try_next() {
            Ok(_) => put(&store, "large", &"x".repeat(5_000)),
            Err(end) => break end,
        };
        for _ in 0..3 {
            put(&store, "a", &"x".repeat(500));
        }
    };
    assert!(matches!(end, WatchEnd::Lagged(_)), "{end}");
}

#[test]
fn the_progress_of_an_idle_watcher_follows_the_store_and_that_of_a_busy_one_its_events() {
    let (_directory, store) = store();
    let mut watch = store.watch(EventFilter::prefix(prefix("mine")), 0).unwrap();
    put(&store, "other", "1");
    settle(&store);
    assert_eq!(watch.progress(), 2);
    put(&store, "mine/a", "1");
    put(&store, "mine/b", "1");
    settle(&store);
    assert_eq!(watch.progress(), 0, "two events wait, none was taken");
    assert_eq!(watch.try_next().unwrap().unwrap().revision, 3);
    assert_eq!(watch.progress(), 3);
    assert_eq!(watch.try_next().unwrap().unwrap().revision, 4);
    assert_eq!(watch.progress(), 5);
}

#[test]
fn a_watch_from_before_the_history_fails_as_compacted() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = small();
    options.history = 2_000;
    let store = Store::open(directory.path(), options).unwrap();
    let mut idle = store.watch(EventFilter::prefix(prefix("idle")), 0).unwrap();
    for n in 0..20 {
        put(&store, "a", &n.to_string());
    }
    let oldest = store.stats().oldest;
    let refused = store.watch(all(), oldest - 1).unwrap_err();
    assert_eq!(refused, RevisionError::Compacted { asked: oldest - 1, oldest });
    assert_eq!(store.watch(all(), 99).unwrap_err(), RevisionError::Future { asked: 99, current: 20 });
    let mut watch = store.watch(all(), oldest).unwrap();
    assert_eq!(watch.wait_next().unwrap().revision, oldest + 1);
    // A watcher that received no event can resume from its progress.
    settle(&store);
    assert_eq!(idle.try_next(), Ok(None));
    assert!(store.watch(EventFilter::prefix(prefix("idle")), idle.progress()).is_ok());
}

#[test]
fn a_watch_survives_a_restart_by_its_revision() {
    let directory = tempfile::tempdir().unwrap();
    {
        let store = Store::open(directory.path(), small()).unwrap();
        for n in 1..=5 {
            put(&store, "a", &n.to_string());
        }
    }
    let store = Store::open(directory.path(), small()).unwrap();
    let mut watch = store.watch(all(), 2).unwrap();
    put(&store, "a", "6");
    let revisions: Vec<_> = (0..4).map(|_| watch.wait_next().unwrap().revision).collect();
    assert_eq!(revisions, [3, 4, 5, 6]);
}

#[test]
fn a_closed_store_ends_its_watches_after_their_queued_events() {
    let (_directory, store) = store();
    let mut watch = store.watch(all(), 0).unwrap();
    put(&store, "a", "1");
    store.close();
    assert_eq!(watch.wait_next().unwrap().revision, 1);
    assert_eq!(watch.wait_next(), Err(WatchEnd::Closed));
    let mut late = store.watch(all(), 0).unwrap();
    assert_eq!(late.wait_next().unwrap().revision, 1);
    assert_eq!(late.wait_next(), Err(WatchEnd::Closed));
}

#[test]
fn a_dropped_watch_leaves_nothing_behind() {
    let (_directory, store) = store();
    let watches: Vec<_> = (0..100)
        .map(|n| {
            store.watch(EventFilter::prefix(prefix("pods")).attribute("node", n.to_string()), 0).unwrap()
        })
        .collect();
    assert_eq!(store.stats().watches, 100);
    drop(watches);
    assert_eq!(store.stats().watches, 0);
    put_on(&store, "pods/a", "7");
}
