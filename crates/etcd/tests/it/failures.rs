//! etcd is killed, compacted or full.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use plumb_etcd::proto::{DeleteRangeRequest, Operation, TxnRequest};
use plumb_etcd::{Client, TlsFiles};
use plumb_store::{RevisionError, WatchEnd, Write, WriteError};

use crate::support::{Follower, all, eventually, key, objects, open_at, put, text};
use plumb_testkit::Etcd;

#[test]
fn no_acknowledged_write_is_lost_and_no_event_missed_when_etcd_is_killed() {
    let Some(mut etcd) = Etcd::start() else { return };
    let store = open_at(&etcd.url()).unwrap();
    let mut follower = Follower::new(&store);
    let acknowledged = Mutex::new(BTreeMap::new());
    let (count, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|threads| {
        for writer in 0..4 {
            let (store, acknowledged, count, stop) = (&store, &acknowledged, &count, &stop);
            threads.spawn(move || {
                for n in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let at = format!("a/x/{writer}-{n}");
                    match store.write(Write::create(key(&at), Bytes::from(at.clone()))).wait() {
                        Ok(event) => {
                            acknowledged.lock().insert(at, event.revision);
                            count.fetch_add(1, Ordering::Relaxed);
                        }
                        // Each is a new object: whether it exists is not known, or it does not.
                        Err(WriteError::Unknown(_) | WriteError::Unavailable(_)) => {
                            std::thread::park_timeout(std::time::Duration::from_millis(10));
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
        for _ in 0..3 {
            let reached = count.load(Ordering::Relaxed) + 20;
            eventually("writes are acknowledged", || count.load(Ordering::Relaxed) > reached);
            etcd.kill();
            etcd.restart();
        }
        let reached = count.load(Ordering::Relaxed) + 20;
        eventually("writes are acknowledged again", || count.load(Ordering::Relaxed) > reached);
        stop.store(true, Ordering::Relaxed);
    });
    eventually("reads work again", || store.refresh().wait().is_ok());
    for (at, revision) in &*acknowledged.lock() {
        let object = store.get(&key(at)).unwrap_or_else(|| panic!("{at} is lost"));
        assert_eq!(object.mod_revision, *revision);
    }
    follower.follow().unwrap();
    assert_eq!(follower.objects, objects(&store));
    assert_eq!(objects(&open_at(&etcd.url()).unwrap()), objects(&store));
}

#[test]
fn without_etcd_reads_of_the_cache_work_and_all_else_is_an_error_until_it_is_back() {
    let Some(mut etcd) = Etcd::start() else { return };
    let store = open_at(&etcd.url()).unwrap();
    put(&store, "a/x/1", "one");
    store.writable().unwrap();
    etcd.kill();
    let failed = store.write(Write::put(key("a/x/1"), "two")).wait();
    assert!(matches!(failed, Err(WriteError::Unavailable(_) | WriteError::Unknown(_))), "{failed:?}");
    assert!(matches!(store.refresh().wait(), Err(WriteError::Unavailable(_))));
    assert_eq!(text(&store, "a/x/1").as_deref(), Some("one"));
    eventually("the store reports that etcd is away", || store.writable().is_err());
    etcd.restart();
    eventually("the store reports that etcd is back", || store.writable().is_ok());
    eventually("reads work again", || store.refresh().wait().is_ok());
    put(&store, "a/x/1", "three");
}

#[test]
fn a_watch_that_is_behind_a_compaction_ends_and_the_cache_is_listed_again() {
    let Some(mut etcd) = Etcd::start() else { return };
    let store = open_at(&etcd.url()).unwrap();
    put(&store, "a/x/stays", "one");
    put(&store, "a/x/goes", "one");
    let seen = store.revision();
    let mut watch = store.watch(all(), seen).unwrap();

    // The store cannot follow it there.
    let port = etcd.port();
    etcd.restart_elsewhere();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Client::new(&[etcd.url()], &TlsFiles::default()).unwrap();
        let other = open_at(&etcd.url()).unwrap();
        put(&other, "a/x/new", "one");
        let delete = DeleteRangeRequest { key: b"/registry/a/x/goes".to_vec() };
        let request = TxnRequest { success: vec![Operation::Delete(delete).into()], ..TxnRequest::default() };
        client.txn(request).await.unwrap();
        let now = client.revision(b"/").await.unwrap();
        client.compact(now).await.unwrap();
    });
    etcd.restart_at(port);

    assert_eq!(watch.wait_next(), Err(WatchEnd::Lagged(seen)));
    assert!(matches!(store.watch(all(), seen), Err(RevisionError::Compacted { .. })));
    store.refresh().wait().unwrap();
    assert_eq!(
        objects(&store).keys().map(plumb_store::Key::as_str).collect::<Vec<_>>(),
        ["a/x/new", "a/x/stays"]
    );
    let mut watch = store.watch(all(), store.revision()).unwrap();
    let event = put(&store, "a/x/new", "two");
    assert_eq!(watch.wait_next().unwrap(), event);
}

#[test]
fn a_full_etcd_rejects_writes_with_its_reason() {
    let Some(etcd) = Etcd::start_with(&["--quota-backend-bytes=200000"]) else { return };
    let store = open_at(&etcd.url()).unwrap();
    let large = || Bytes::from(vec![b'x'; 20_000]);
    let mut failed = None;
    for n in 0..100 {
        if let Err(error) = store.write(Write::create(key(&format!("a/x/{n}")), large())).wait() {
            failed = Some(error);
            break;
        }
    }
    let Some(WriteError::Rejected(why)) = failed else { panic!("{failed:?}") };
    assert_eq!(&*why, "etcdserver: mvcc: database space exceeded");
    assert!(text(&store, "a/x/0").is_some());
}
