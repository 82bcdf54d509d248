//! When the disk fails, fills up, stands still or loses its power.

use std::{
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Waker},
};

use plumb_store::{
    Conflict, Edit, Options, Precondition, Store, Ticket, UpdateError, WatchEnd, Write, WriteError,
};
use proptest::prelude::*;

use crate::{
    sim::SimDisk,
    support::{all, key, put, small, text, texts},
};

fn open(disk: &SimDisk, options: Options) -> Store {
    Store::open_on(Arc::new(disk.clone()), options).unwrap()
}

fn is_pending<T: Unpin, E: From<WriteError> + Unpin>(ticket: &mut Ticket<T, E>) -> bool {
    Pin::new(ticket).poll(&mut Context::from_waker(Waker::noop())).is_pending()
}

#[test]
fn a_write_is_not_observable_before_it_is_durable_and_reads_do_not_wait() {
    let disk = SimDisk::default();
    let store = open(&disk, small());
    put(&store, "a", "1");
    let mut watch = store.watch(all(), 1).unwrap();
    disk.hold_syncs();
    let mut first = store.write(Write::put(key("a"), "2"));
    disk.wait_for_held_sync();
    // All of these were drawn from what is not durable.
    let mut second = store.write(Write::create(key("a"), "3"));
    let mut kept = store.update(&key("a"), |old| {
        assert_eq!(text(old.unwrap()), "2");
        Ok::<_, ()>(None)
    });
    let mut refused = store.update(&key("a"), |_| Err("seen 2"));
    let mut built = store.update(&key("a"), |old| Ok::<_, ()>(Some(Edit::put(text(old.unwrap()) + "+1"))));
    assert!(is_pending(&mut first) && is_pending(&mut second) && is_pending(&mut built));
    assert!(is_pending(&mut kept) && is_pending(&mut refused));
    assert_eq!(texts(&store, ""), [("a".into(), "1".into())]);
    assert_eq!((store.revision(), watch.try_next(), watch.progress()), (1, Ok(None), 1));
    assert!(store.watch(all(), 2).is_err());
    disk.let_syncs_go();
    let current = first.wait().unwrap().current().cloned();
    assert!(
        matches!(second.wait(), Err(WriteError::Conflict(Conflict { current: found, .. })) if found == current)
    );
    assert!(kept.wait().is_ok() && built.wait().is_ok());
    assert!(matches!(refused.wait(), Err(UpdateError::Refused("seen 2"))));
    assert_eq!(texts(&store, ""), [("a".into(), "2+1".into())]);
    assert_eq!((watch.wait_next().unwrap().revision, watch.wait_next().unwrap().revision), (2, 3));
}

#[test]
fn a_slow_writer_sees_accepted_writes_and_gets_a_conflict_at_once() {
    let disk = SimDisk::default();
    let store = open(&disk, small());
    put(&store, "a", "1");
    let epoch = store.epoch();
    let seen = store.get_uncommitted(&key("a")).unwrap();
    disk.hold_syncs();
    let mut other = store.write(Write::put(key("a"), "2"));
    disk.wait_for_held_sync();
    let mine = |seen: u64| Write::put(key("a"), "mine").precondition(Precondition::Revision(seen));
    // The race is lost, and nothing of the transaction happened.
    let lost = store.try_transact(epoch, vec![mine(seen.mod_revision), Write::create(key("b"), "beside")]);
    assert_eq!(lost.unwrap_err().key, key("a"));
    let newest = store.get_uncommitted(&key("a")).unwrap();
    assert_eq!((text(&newest), store.get_uncommitted(&key("b"))), ("2".into(), None));
    let mut settled = store.sync();
    let mut won = store
        .try_transact(epoch, vec![mine(newest.mod_revision), Write::create(key("b"), "beside")])
        .unwrap();
    assert!(is_pending(&mut other) && is_pending(&mut settled) && is_pending(&mut won));
    disk.let_syncs_go();
    settled.wait().unwrap();
    let events = won.wait().unwrap();
    assert_eq!(events.iter().map(|event| event.revision).collect::<Vec<_>>(), [3, 4]);
    assert_eq!(texts(&store, ""), [("a".into(), "mine".into()), ("b".into(), "beside".into())]);
}

#[test]
fn a_failed_sync_makes_the_store_read_only_and_rolls_back_dependent_writes() {
    for break_disk in [SimDisk::fail_syncs, SimDisk::fail_writes] {
        let disk = SimDisk::default();
        let store = open(&disk, small());
        put(&store, "a", "1");
        let mut watch = store.watch(all(), 1).unwrap();
        disk.hold_syncs();
        let before = store.write(Write::put(key("b"), "durable"));
        disk.wait_for_held_sync();
        // A batch that is sure to be broken, and one upon it.
        break_disk(&disk, true);
        let upon: Vec<_> = (0..3).map(|n| store.write(Write::put(key("a"), n.to_string()))).collect();
        disk.let_syncs_go();
        // The sync that stood still may be the first to fail.
        let kept = before.wait().is_ok();
        for ticket in upon {
            let error = ticket.wait().unwrap_err();
            assert!(
                matches!(&error, WriteError::ReadOnly(why) if why.contains("the disk is broken")),
                "{error}"
            );
        }
        // It does not come back by itself.
        break_disk(&disk, false);
        let error = store.write(Write::put(key("a"), "3")).wait().unwrap_err();
        assert!(matches!(error, WriteError::ReadOnly(_)));
        assert!(store.update(&key("a"), |_| Ok::<_, ()>(Some(Edit::Delete))).wait().is_err());
        assert_eq!(store.revision(), if kept { 2 } else { 1 });
        assert_eq!(text(&store.get(&key("a")).unwrap()), "1");
        store.close();
        if kept {
            assert_eq!(watch.wait_next().unwrap().revision, 2);
        }
        assert_eq!(watch.wait_next(), Err(WatchEnd::Closed));
        // Opened anew it serves what was acknowledged, and goes on.
        let again = open(&disk.after_power_loss(|| false), small());
        assert_eq!(again.revision(), if kept { 2 } else { 1 });
        put(&again, "a", "4");
    }
}

#[test]
fn a_full_disk_rejects_writes_until_there_is_space() {
    let disk = SimDisk::default();
    let mut options = small();
    options.checkpoint = 1 << 30;
    let store = open(&disk, options.clone());
    put(&store, "a", "1");
    disk.set_free(Some(100));
    let large = "x".repeat(600_000);
    let error = store.write(Write::put(key("a"), large.clone())).wait().unwrap_err();
    assert!(matches!(error, WriteError::Full(_)), "{error}");
    assert_eq!(store.revision(), 1);
    // What fits into the preallocated part of the log is still written.
    assert_eq!(put(&store, "a", "2").revision, 2);
    disk.set_free(None);
    assert_eq!(store.write(Write::put(key("a"), large.clone())).wait().unwrap().revision, 3);
    drop(store);
    let again = open(&disk.after_power_loss(|| false), options);
    assert_eq!((again.revision(), text(&again.get(&key("a")).unwrap())), (3, large));
}

#[test]
fn an_update_of_a_rolled_back_write_is_a_conflict_although_its_revision_was_assigned_again() {
    let disk = SimDisk::default();
    let mut options = small();
    options.checkpoint = 1 << 30;
    let store = open(&disk, options);
    put(&store, "a", "1");
    disk.hold_syncs();
    let durable = store.write(Write::put(key("b"), "1"));
    disk.wait_for_held_sync();
    disk.set_free(Some(100));
    let full = store.write(Write::put(key("a"), "x".repeat(600_000)));
    let epoch = store.epoch();
    let seen = store.get_uncommitted(&key("a")).unwrap();
    disk.let_syncs_go();
    durable.wait().unwrap();
    assert!(matches!(full.wait(), Err(WriteError::Full(_))));
    // What was seen is no more, and an answer that was derived from it is none.
    assert!(matches!(store.sync_in(epoch).wait(), Err(WriteError::Full(_))));
    let other = put(&store, "a", "of another writer");
    assert_eq!(other.revision, seen.mod_revision);
    let mine = Write::put(key("a"), "mine").precondition(Precondition::Revision(seen.mod_revision));
    assert_eq!(store.try_transact(epoch, vec![mine]).unwrap_err().key, key("a"));
    assert_eq!(text(&store.get(&key("a")).unwrap()), "of another writer");
    store.sync_in(store.epoch()).wait().unwrap();
}

#[test]
fn a_failed_checkpoint_on_a_full_disk_loses_nothing() {
    let disk = SimDisk::default();
    let mut options = small();
    options.checkpoint = 10_000;
    let store = open(&disk, options.clone());
    put(&store, "a", &"x".repeat(5_000));
    disk.set_free(Some(4_000));
    for n in 0..20 {
        put(&store, "b", &format!("{n}-{}", "x".repeat(1_000)));
    }
    disk.set_free(None);
    for n in 0..100 {
        put(&store, "c", &format!("{n}-{}", "x".repeat(1_000)));
    }
    let expected = texts(&store, "");
    drop(store);
    let again = open(&disk.after_power_loss(|| false), options);
    assert_eq!((again.revision(), texts(&again, "")), (121, expected));
}

/// Any spread will do, as long as it is the same for the same seed.
fn dice(mut seed: u64) -> impl FnMut(u64) -> u64 {
    move |sides| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % sides
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    /// The power goes at any operation of the disk, again and again, and of what was not synced any part may stay.
    #[test]
    fn an_acknowledged_write_survives_a_power_loss(seed: u64, lives in prop::collection::vec(1_usize..120, 1..5)) {
        let mut roll = dice(seed);
        let mut options = small();
        options.checkpoint = 3_000;
        let mut disk = SimDisk::default();
        // What is at each key after each revision, as far as any life went.
        let mut states: Vec<BTreeMap<String, String>> = vec![BTreeMap::new()];
        let mut acknowledged = 0;
        for power in lives.into_iter().map(Some).chain([None]) {
            if let Some(operations) = power {
                disk.power_for(operations);
            }
            match Store::open_on(Arc::new(disk.clone()), options.clone()) {
                Err(error) => prop_assert_eq!(disk.power_left(), Some(0), "{}", error),
                Ok(store) => {
                    let revision = usize::try_from(store.revision()).unwrap();
                    prop_assert!(revision >= acknowledged, "{} was acknowledged, {} is there", acknowledged, revision);
                    prop_assert!(revision < states.len(), "{} was never written", revision);
                    prop_assert_eq!(texts(&store, ""), states[revision].clone().into_iter().collect::<Vec<_>>());
                    states.truncate(revision + 1);
                    for _ in 0..if power.is_some() { 200 } else { 3 } {
                        let tickets: Vec<_> = (0..=roll(4)).map(|_| {
                            let name = format!("k/{}", roll(8));
                            let mut state = states.last().unwrap().clone();
                            let write = if state.contains_key(&name) && roll(4) == 0 {
                                state.remove(&name);
                                Write::delete(key(&name))
                            } else {
                                let length = usize::try_from(roll(1_500)).unwrap();
                                let value = format!("{}-{}", roll(1_000), "x".repeat(length));
                                state.insert(name.clone(), value.clone());
                                Write::put(key(&name), value)
                            };
                            states.push(state);
                            store.write(write)
                        }).collect();
                        let mut missing = false;
                        for ticket in tickets {
                            match ticket.wait() {
                                Ok(event) => acknowledged = usize::try_from(event.revision).unwrap(),
                                Err(_) => missing = true,
                            }
                        }
                        if missing {
                            break;
                        }
                    }
                    drop(store);
                }
            }
            disk = disk.after_power_loss(|| roll(2) == 0);
        }
    }
}
