//! A store without a disk: everything that is written is there before the write returns.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::thread;

use plumb_store::{Edit, Store, Write, WriteError};

use crate::support::{Follower, all, key, prefix, put, small, text, value};

/// What a future has to say without being waited for.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    let mut context = Context::from_waker(Waker::noop());
    let Poll::Ready(said) = pin!(future).poll(&mut context) else { panic!("it has to be waited for") };
    said
}

#[test]
fn a_write_in_memory_is_acknowledged_visible_and_dispatched_at_once() {
    let store = Store::in_memory(&small());
    let mut watch = store.watch(all(), 0).unwrap();
    assert_eq!(at_once(store.write(Write::put(key("a"), value("1")))).unwrap().revision, 1);
    assert_eq!(text(&store.get(&key("a")).unwrap()), "1");
    assert_eq!(at_once(watch.next()).unwrap().revision, 1);
    let refused = at_once(store.write(Write::create(key("a"), value("2"))));
    assert!(matches!(refused, Err(WriteError::Conflict(_))));
}

#[test]
fn many_writers_of_a_store_in_memory_are_all_counted_and_dispatched_in_order() {
    let store = Store::in_memory(&small());
    let mut follower = Follower::list(&store, &prefix(""));
    let mut watch = store.watch(all(), 0).unwrap();
    let writers = 8;
    let each = 200;
    thread::scope(|scope| {
        for _ in 0..writers {
            scope.spawn(|| {
                for _ in 0..each {
                    let updated = store.update(&key("counter"), |old| {
                        let count: u64 = old.map_or(0, |object| text(object).parse().unwrap());
                        Ok::<_, ()>(Some(Edit::put(value((count + 1).to_string()))))
                    });
                    updated.wait().unwrap();
                }
            });
        }
    });
    for _ in 0..writers * each {
        follower.follow(&watch.wait_next().unwrap());
    }
    assert_eq!(text(&follower.objects[&key("counter")]), (writers * each).to_string());
}

#[test]
fn a_closed_store_in_memory_rejects_writes_and_ends_its_watches() {
    let store = Store::in_memory(&small());
    put(&store, "a", "1");
    let mut watch = store.watch(all(), 1).unwrap();
    store.close();
    assert!(matches!(store.write(Write::delete(key("a"))).wait(), Err(WriteError::Closed)));
    assert!(watch.wait_next().is_err());
    assert!(store.get(&key("a")).is_some());
}
