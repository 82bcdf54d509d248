//! Writing: expectations, conflicts, updates, transactions, stamps.

use std::{sync::Arc, thread};

use bytes::Bytes;
use plumb_store::{
    Attributes, Change, Conflict, Edit, List, MAX_VALUE, Page, Precondition, Prefix, RevisionError, Store,
    UpdateError, UpdateOutcome, Value, Write, WriteError,
};

use crate::support::{key, put, small, text, texts, value};

fn store() -> (tempfile::TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), small()).unwrap();
    (directory, store)
}

#[test]
fn every_write_has_a_unique_revision_and_increments_the_version() {
    let (_directory, store) = store();
    assert_eq!(put(&store, "a", "1").revision, 1);
    assert_eq!(put(&store, "b", "1").revision, 2);
    let event = put(&store, "a", "2");
    let Change::Updated { current, previous } = &event.change else { panic!("{event:?}") };
    assert_eq!((current.create_revision, current.mod_revision, current.version), (1, 3, 2));
    assert_eq!((previous.create_revision, previous.mod_revision, previous.version), (1, 1, 1));
    let event = store.write(Write::delete(key("a"))).wait().unwrap();
    assert_eq!((event.revision, event.current(), event.previous()), (4, None, Some(current)));
    let Change::Created(again) = &put(&store, "a", "3").change else { panic!() };
    assert_eq!((again.create_revision, again.mod_revision, again.version), (5, 5, 1));
    assert_eq!(store.revision(), 5);
}

#[test]
fn a_write_succeeds_only_if_its_precondition_is_met_and_else_returns_the_current_value() {
    use Precondition::{Absent, Anything, Present, Revision};
    // (whether the key exists, at revision 2), what is expected, whether a put happens, whether a delete does
    let table = [
        (true, Anything, true, true),
        (true, Absent, false, false),
        (true, Present, true, true),
        (true, Revision(2), true, true),
        (true, Revision(1), false, false),
        (false, Anything, true, false),
        (false, Absent, true, false),
        (false, Present, false, false),
        (false, Revision(2), false, false),
    ];
    for (exists, expect, put_happens, delete_happens) in table {
        for (write, happens) in
            [(Write::put(key("a"), "new"), put_happens), (Write::delete(key("a")), delete_happens)]
        {
            let (_directory, store) = store();
            put(&store, "other", "1");
            if exists {
                put(&store, "a", "old");
            }
            let before = store.get(&key("a"));
            let revision = store.revision();
            match store.write(write.precondition(expect)).wait() {
                Ok(event) => {
                    assert!(happens, "{exists} {expect:?}");
                    assert_eq!(event.revision, revision + 1);
                    assert_eq!(store.get(&key("a")).as_ref(), event.current());
                }
                Err(WriteError::Conflict(Conflict { key: at, expected, current })) => {
                    assert!(!happens, "{exists} {expect:?}");
                    assert_eq!((at, expected, &current), (key("a"), expect, &before));
                    assert_eq!((store.get(&key("a")), store.revision()), (before, revision));
                }
                Err(other) => panic!("{other}"),
            }
        }
    }
}

#[test]
fn updates_of_one_key_by_many_writers_are_all_counted() {
    let (_directory, store) = store();
    let writers = 16;
    let each = 100;
    thread::scope(|scope| {
        for _ in 0..writers {
            scope.spawn(|| {
                for _ in 0..each {
                    let updated = store.update(&key("counter"), |old| {
                        let count: u64 = old.map_or(0, |object| text(object).parse().unwrap());
                        Ok::<_, ()>(Some(Edit::put(value((count + 1).to_string()))))
                    });
                    assert!(matches!(updated.wait(), Ok(UpdateOutcome::Changed(_))));
                }
            });
        }
    });
    assert_eq!(texts(&store, ""), [("counter".into(), (writers * each).to_string())]);
    let stats = store.stats();
    assert_eq!(stats.revision, writers * each);
}

#[test]
fn an_update_may_leave_the_key_unchanged_fail_or_delete_it() {
    let (_directory, store) = store();
    let kept = store.update(&key("a"), |old| Ok::<_, ()>(old.map(|_| Edit::Delete))).wait().unwrap();
    assert_eq!(kept, UpdateOutcome::Unchanged(None));
    put(&store, "a", "1");
    let refused = store.update(&key("a"), |_| Err("no")).wait();
    assert!(matches!(refused, Err(UpdateError::Refused("no"))));
    assert_eq!(store.revision(), 1);
    let deleted = store.update(&key("a"), |old| Ok::<_, ()>(old.map(|_| Edit::Delete))).wait().unwrap();
    assert!(matches!(deleted, UpdateOutcome::Changed(event) if event.current().is_none()));
    let nothing = store.update(&key("a"), |_| Ok::<_, ()>(Some(Edit::Delete))).wait();
    assert!(matches!(nothing, Err(UpdateError::Write(WriteError::Conflict(_)))));
}

#[test]
fn a_transaction_is_atomic() {
    let (_directory, store) = store();
    put(&store, "a", "1");
    let refused = store.transact(vec![
        Write::put(key("b"), "1"),
        Write::delete(key("a")),
        Write::create(key("b"), "it was put just now"),
    ]);
    assert!(matches!(refused.wait(), Err(WriteError::Conflict(conflict)) if conflict.key == key("b")));
    assert_eq!((texts(&store, ""), store.revision()), (vec![("a".into(), "1".into())], 1));
    let events = store
        .transact(vec![Write::put(key("b"), "1"), Write::delete(key("a")), Write::put(key("b"), "2")])
        .wait()
        .unwrap();
    assert_eq!(events.iter().map(|event| event.revision).collect::<Vec<_>>(), [2, 3, 4]);
    assert_eq!(texts(&store, ""), [("b".into(), "2".into())]);
    assert!(store.transact(vec![]).wait().unwrap().is_empty());
}

#[test]
fn a_stamped_value_contains_the_revision_of_its_write() {
    let (_directory, store) = store();
    put(&store, "other", "1");
    let stamped = Value::stamped(|revision| Bytes::from(format!("at {revision}")));
    store.write(Write::put(key("a"), stamped)).wait().unwrap();
    assert_eq!(text(&store.get(&key("a")).unwrap()), "at 2");
}

#[test]
fn a_value_that_is_too_large_is_rejected_and_uses_no_revision() {
    let (_directory, store) = store();
    let huge = Bytes::from(vec![0; MAX_VALUE + 1]);
    let refused = store.write(Write::put(key("a"), huge.slice(..))).wait();
    assert!(matches!(refused, Err(WriteError::TooLarge { size, .. }) if size == MAX_VALUE + 1));
    let many: Attributes = (0..17).map(|n| (n.to_string(), "")).collect();
    let refused = store.write(Write::put(key("a"), "").attributes(many)).wait();
    assert!(matches!(refused, Err(WriteError::Attributes(_))));
    let large = huge.slice(..MAX_VALUE);
    let writes = (0..5).map(|n| Write::put(key(&n.to_string()), large.slice(..))).collect();
    assert!(matches!(store.transact(writes).wait(), Err(WriteError::TransactionTooLarge(_))));
    assert_eq!((store.revision(), store.snapshot().len()), (0, 0));
    let written = store.write(Write::put(key("a"), large.clone())).wait().unwrap();
    assert_eq!(written.current().unwrap().value, large);
}

#[test]
fn a_page_continues_at_its_revision_whatever_happens_meanwhile() {
    let (_directory, store) = store();
    for name in ["p", "p-1", "p/a", "p/b/1", "p/b/2", "p/c", "p0", "q"] {
        put(&store, name, "old");
    }
    let expected = ["p", "p/a", "p/b/1", "p/b/2", "p/c"];
    let under = crate::support::prefix("p");
    let first = store.list(&List::all(under.clone()).limit(2)).unwrap();
    assert_eq!((first.revision, first.remaining), (8, 3));
    put(&store, "p/a", "new");
    put(&store, "p/b/0", "new");
    store.write(Write::delete(key("p/b/1"))).wait().unwrap();
    put(&store, "p/b/1", "new");
    store.write(Write::delete(key("p/c"))).wait().unwrap();
    let mut seen: Vec<Arc<_>> = first.objects;
    loop {
        let next = List::all(under.clone()).limit(2).at(8).after(seen.last().unwrap().key.clone());
        let page = store.list(&next).unwrap();
        assert_eq!(page.revision, 8);
        assert_eq!(page.remaining, expected.len() - seen.len() - page.objects.len());
        assert_eq!(
            page.next.as_ref(),
            page.objects.last().map(|object| &object.key).filter(|_| page.remaining > 0)
        );
        seen.extend(page.objects);
        if page.next.is_none() {
            break;
        }
    }
    assert_eq!(seen.iter().map(|object| object.key.as_str()).collect::<Vec<_>>(), expected);
    assert!(seen.iter().all(|object| text(object) == "old"));
    assert_eq!(text(&store.get_at(&key("p/b/1"), 8).unwrap().unwrap()), "old");
    assert_eq!(store.get_at(&key("p/b/1"), 11).unwrap(), None);
    assert_eq!(store.get_at(&key("p/c"), 13).unwrap(), None);
}

#[test]
fn a_page_of_matching_objects_is_full_if_enough_objects_match() {
    let (_directory, store) = store();
    for n in 0..10 {
        put(&store, &format!("k/{n}"), if n % 3 == 0 { "wanted" } else { "other" });
    }
    let list = List::all(Prefix::everything()).limit(3);
    let page = store.list_where(&list, |object| text(object) == "wanted").unwrap();
    let names = |page: &Page| page.objects.iter().map(|object| object.key.to_string()).collect::<Vec<_>>();
    assert_eq!((names(&page), page.remaining), (vec!["k/0".into(), "k/3".into(), "k/6".into()], 3));
    let rest =
        store.list_where(&list.clone().after(page.next.unwrap()), |object| text(object) == "wanted").unwrap();
    assert_eq!((names(&rest), rest.next, rest.remaining), (vec!["k/9".into()], None, 0));
    let none = store.list_where(&list, |_| false).unwrap();
    assert_eq!((names(&none), none.next, none.remaining), (vec![], None, 0));
}

#[test]
fn revisions_before_the_history_and_in_the_future_are_errors() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = small();
    options.history = 2_000;
    let store = Store::open(directory.path(), options).unwrap();
    for n in 0..20 {
        put(&store, "a", &n.to_string());
    }
    let oldest = store.stats().oldest;
    assert!(oldest > 10 && oldest < 20, "{oldest}");
    assert!(store.stats().history_bytes <= 2_000);
    assert!(store.get_at(&key("a"), oldest).is_ok());
    let missing = RevisionError::Compacted { asked: oldest - 1, oldest };
    assert_eq!(store.get_at(&key("a"), oldest - 1).unwrap_err(), missing);
    assert_eq!(store.list(&List::all(Prefix::everything()).at(oldest - 1)).unwrap_err(), missing);
    let future = RevisionError::Future { asked: 21, current: 20 };
    assert_eq!(store.get_at(&key("a"), 21).unwrap_err(), future);
}

#[test]
fn a_ticket_can_be_awaited() {
    let (_directory, store) = store();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let writers: Vec<_> = (0..64)
        .map(|n| {
            let store = store.clone();
            runtime.spawn(async move {
                store.write(Write::create(key(&format!("k/{n}")), "x")).await.unwrap().revision
            })
        })
        .collect();
    let mut revisions: Vec<_> = runtime.block_on(async {
        let mut all = vec![];
        for writer in writers {
            all.push(writer.await.unwrap());
        }
        all
    });
    revisions.sort_unstable();
    assert_eq!(revisions, (1..=64).collect::<Vec<_>>());
}

#[test]
fn a_snapshot_lists_the_changes_since_a_revision_in_order() {
    let (_directory, store) = store();
    put(&store, "p/a", "1");
    put(&store, "q/a", "1");
    let seen = store.revision();
    put(&store, "p/b", "1");
    put(&store, "q/b", "1");
    store.write(Write::delete(key("p/a"))).wait().unwrap();
    let snapshot = store.snapshot();
    put(&store, "p/c", "later");
    let filter = plumb_store::EventFilter::prefix(crate::support::prefix("p"));
    let changed = |after| -> Vec<(u64, String)> {
        let changes = snapshot.changes(&filter, after).unwrap();
        changes.map(|event| (event.revision, event.key().to_string())).collect()
    };
    assert_eq!(changed(seen), [(3, "p/b".to_owned()), (5, "p/a".to_owned())]);
    assert_eq!(changed(5), []);
    assert!(matches!(snapshot.changes(&filter, 6).map(drop), Err(RevisionError::Future { .. })));
}

#[test]
fn a_task_of_a_runtime_can_wait_for_any_number_of_writes() {
    // Tokio lets a task poll 128 times before it must yield, which a task that blocks does not do.
    const WRITES: usize = 300;
    let (_directory, store) = store();
    let (done, finished) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let task = runtime.spawn(async move {
            for number in 0..WRITES {
                store.write(Write::put(key("a"), value(number.to_string()))).wait().unwrap();
            }
            store.revision()
        });
        done.send(runtime.block_on(task).unwrap()).unwrap();
    });
    assert_eq!(finished.recv_timeout(std::time::Duration::from_mins(1)), Ok(WRITES as u64));
}
