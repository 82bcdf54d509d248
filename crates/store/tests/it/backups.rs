//! Backup and restore.

use std::{fs, thread};

use plumb_store::{Attributes, EventFilter, OpenError, Store, Write, restore, verify};

use crate::support::{Follower, all, key, prefix, put, small};

#[test]
fn a_backup_of_a_busy_store_is_consistent() {
    let from = tempfile::tempdir().unwrap();
    let to = tempfile::tempdir().unwrap();
    let store = Store::open(from.path(), small()).unwrap();
    for n in 0..500 {
        let attributes = Attributes::one("node", (n % 3).to_string());
        store.write(Write::put(key(&format!("k/{n}")), "x".repeat(n)).attributes(attributes)).wait().unwrap();
    }
    let mut copy = Vec::new();
    let revision = thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..300 {
                put(&store, &format!("k/{n}"), "new");
            }
        });
        store.backup(&mut copy).unwrap()
    });
    assert_eq!(restore(copy.as_slice(), to.path().join("new")).unwrap(), revision);
    let restored = Store::open(to.path().join("new"), small()).unwrap();
    assert_eq!(restored.revision(), revision);
    let mut follower = Follower::list(&restored, &prefix(""));
    // From the moment of the backup, the events of the original lead to its present.
    let mut watch = store.watch(all(), revision).unwrap();
    while let Some(event) = watch.try_next().unwrap() {
        follower.follow(&event);
    }
    store.close();
    while let Ok(event) = watch.wait_next() {
        follower.follow(&event);
    }
    assert_eq!(follower.objects, Follower::list(&store, &prefix("")).objects);
    // Attributes come along.
    let mut one = restored.watch(EventFilter::prefix(prefix("k")).attribute("node", "1"), revision).unwrap();
    restored.write(Write::delete(key("k/400"))).wait().unwrap();
    assert_eq!(one.wait_next().unwrap().revision, revision + 1);
}

#[test]
fn a_restore_does_not_touch_existing_files() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path().join("a"), small()).unwrap();
    put(&store, "a", "1");
    let mut copy = Vec::new();
    store.backup(&mut copy).unwrap();
    drop(store);
    assert!(matches!(restore(copy.as_slice(), directory.path().join("a")), Err(OpenError::NotEmpty(_))));
    fs::create_dir(directory.path().join("empty")).unwrap();
    assert_eq!(restore(copy.as_slice(), directory.path().join("empty")).unwrap(), 1);
}

#[test]
fn a_damaged_backup_is_rejected_with_the_offset_and_leaves_no_store() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path().join("a"), small()).unwrap();
    for n in 0..20 {
        put(&store, &format!("k/{n}"), "some text");
    }
    let mut copy = Vec::new();
    store.backup(&mut copy).unwrap();
    let target = directory.path().join("b");
    for at in 0..copy.len() {
        let mut bad = copy.clone();
        bad[at] ^= 0x10;
        let error = restore(bad.as_slice(), &target).unwrap_err();
        assert!(matches!(error, OpenError::Damaged(_)), "flipped at {at}: {error}");
        let error = restore(&copy[..at], &target).unwrap_err();
        assert!(matches!(error, OpenError::Damaged(_)), "cut at {at}: {error}");
        assert!(verify(bad.as_slice()).is_err() && verify(&copy[..at]).is_err(), "{at}");
    }
    assert_eq!(verify(copy.as_slice()).unwrap(), 20);
    copy.push(0);
    assert!(matches!(restore(copy.as_slice(), &target), Err(OpenError::Damaged(_))));
    assert!(!target.exists());
}
