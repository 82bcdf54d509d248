//! Work queues, on a clock that the test moves.

use std::time::Duration;

use plumb_controller_runtime::{Clock, ObjectRef, WorkQueue, WorkResult};
use tokio::time::{Instant, advance};

fn key(name: &str) -> ObjectRef {
    ObjectRef::cluster(name)
}

fn due_in(queue: &WorkQueue) -> Option<Duration> {
    queue.next_due().map(|due| due - Instant::now())
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_added_often_is_got_once_and_by_one() {
    let queue = WorkQueue::default();
    queue.add(key("a"));
    queue.add(key("a"));
    assert_eq!(queue.depth(), 1);
    assert_eq!(queue.get(), Some(key("a")));
    assert_eq!(queue.get(), None);
    queue.add(key("a"));
    assert_eq!(queue.get(), None, "it is being processed");
    queue.done(key("a"), WorkResult::Done);
    assert_eq!(queue.get(), Some(key("a")));
    queue.done(key("a"), WorkResult::Done);
    assert_eq!(queue.get(), None);
}

#[tokio::test(start_paused = true)]
async fn keys_are_served_in_the_order_in_which_they_became_ready() {
    let queue = WorkQueue::default();
    for name in ["b", "a", "c", "a"] {
        queue.add(key(name));
    }
    queue.add_after(key("d"), Duration::from_secs(1));
    let mut served = Vec::new();
    for _ in 0..4 {
        let next = queue.next().await;
        served.push(next.name.clone());
        queue.done(next, WorkResult::Done);
    }
    assert_eq!(served, ["b", "a", "c", "d"]);
}

#[tokio::test(start_paused = true)]
async fn an_item_whose_worker_ended_is_processed_again_once() {
    let queue = WorkQueue::default();
    for name in ["a", "b", "c"] {
        queue.add(key(name));
    }
    assert_eq!([queue.get(), queue.get()], [Some(key("a")), Some(key("b"))]);
    queue.add(key("a"));
    queue.requeue_processing();
    let mut again = [queue.get(), queue.get(), queue.get()];
    again.sort();
    assert_eq!(again, [Some(key("a")), Some(key("b")), Some(key("c"))]);
    assert_eq!(queue.get(), None);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_fails_waits_longer_each_time_until_it_succeeds() {
    let queue = WorkQueue::default();
    queue.add(key("a"));
    let mut waits = Vec::new();
    for failures in 0..16 {
        assert_eq!((queue.failures(&key("a")), queue.get()), (failures, Some(key("a"))));
        queue.done(key("a"), WorkResult::Failed);
        let wait = due_in(&queue).unwrap();
        waits.push(wait.as_millis());
        assert_eq!(queue.get(), None);
        advance(wait).await;
    }
    assert_eq!(waits[..4], [5, 10, 20, 40]);
    assert_eq!(waits[15], 30_000);
    queue.get();
    queue.done(key("a"), WorkResult::Done);
    queue.add(key("a"));
    queue.get();
    queue.done(key("a"), WorkResult::Failed);
    assert_eq!(due_in(&queue), Some(Duration::from_millis(5)));
}

#[tokio::test(start_paused = true)]
async fn a_key_that_took_long_cools_down_while_others_are_served() {
    for (took, again) in
        [(0, 0), (4, 12), (400, 50)].map(|(a, b)| (Duration::from_millis(a), Duration::from_millis(b)))
    {
        let queue = WorkQueue::default();
        queue.add(key("a"));
        assert_eq!(queue.get(), Some(key("a")));
        advance(took).await;
        queue.done(key("a"), WorkResult::Done);
        queue.add(key("a"));
        queue.add(key("b"));
        let wanted = if again.is_zero() { [Some(key("a")), Some(key("b"))] } else { [Some(key("b")), None] };
        assert_eq!([queue.get(), queue.get()], wanted, "{took:?}");
        if !again.is_zero() {
            assert_eq!(due_in(&queue), Some(again));
            advance(again).await;
            assert_eq!(queue.get(), Some(key("a")));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_requested_wait_ends() {
    let queue = WorkQueue::default();
    let (soon, late) = (Duration::from_secs(3), Duration::from_secs(9));
    queue.add_after(key("a"), late);
    assert_eq!((queue.get(), due_in(&queue)), (None, Some(late)));
    advance(late).await;
    assert_eq!(queue.get(), Some(key("a")));
    queue.add_after(key("a"), soon);
    queue.add_after(key("a"), late);
    assert_eq!(due_in(&queue), Some(soon), "the shorter of two waits");
    queue.done(key("a"), WorkResult::Requeue);
    assert_eq!(queue.get(), Some(key("a")));
    assert_eq!(due_in(&queue), None, "the worker decides anew when to requeue it");
    queue.done(key("a"), WorkResult::RequeueAfter(soon));
    assert_eq!(due_in(&queue), Some(soon));
}

/// A wall clock that is set moves no wait; how long it is until a time is read when the key is added.
#[tokio::test(start_paused = true)]
async fn a_wall_clock_that_is_set_moves_no_wait() {
    let manual = plumb_testkit::ManualClock::default();
    let wall = manual.clock();
    let queue: WorkQueue = WorkQueue::new(Clock::with_wall(move || wall.now()));
    let hour = jiff::SignedDuration::from_hours(1);
    let when = queue.clock().now() + hour;
    queue.add_at(key("a"), when);
    let wait = due_in(&queue).unwrap();
    assert!(wait <= Duration::from_hours(1) && wait > Duration::from_mins(59), "{wait:?}");
    manual.advance(Duration::from_hours(2));
    assert_eq!(queue.get(), None);
    queue.add_at(key("b"), when);
    assert_eq!(queue.get(), Some(key("b")), "a time that has passed");
    advance(wait).await;
    assert_eq!(queue.get(), Some(key("a")));
}

/// Any number of workers may wait for keys, and no key waits for a worker that sleeps.
#[tokio::test(start_paused = true)]
async fn many_workers_share_a_queue() {
    let queue: std::sync::Arc<WorkQueue> = std::sync::Arc::default();
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let queue = queue.clone();
        workers.spawn(async move {
            let key = queue.next().await;
            // All four are processed at a time.
            queue.clock();
            key.name
        });
    }
    tokio::task::yield_now().await;
    for name in ["a", "b", "c", "d"] {
        queue.add(key(name));
    }
    let mut served = workers.join_all().await;
    served.sort();
    assert_eq!(served, ["a", "b", "c", "d"]);
}
