//! Which request is dispatched next.

use std::time::Duration;

use plumb_flowcontrol::queue_set::{
    Arrival, Cancellation, QueueSet, Queuing, Rejection, RequestId, Started, WhenFull,
};
use plumb_flowcontrol::work::WorkEstimate;

type Level = QueueSet<u32, ()>;

const QUEUES: Queuing = Queuing::Queue { queues: 64, hand_size: 4, queue_length_limit: 10 };

fn at(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn arrival(flow: u64, seats: u32) -> Arrival<()> {
    let work = WorkEstimate { initial_seats: seats, ..WorkEstimate::ONE_SEAT };
    Arrival { flow_hash: flow, work, when_full: WhenFull::Reject, details: () }
}

fn start(level: &mut Level, arrival: Arrival<()>, now: Duration) -> Started {
    let mut woken = Vec::new();
    let started = level.start(arrival, now, &mut woken);
    assert!(woken.is_empty());
    started
}

/// Starts a request, which is queued with this ticket.
fn queued(level: &mut Level, arrival: Arrival<()>, ticket: u32, now: Duration) -> RequestId {
    match start(level, arrival, now) {
        Started::Queued(id) => {
            level.add_ticket(id, ticket);
            id
        }
        other => panic!("{other:?}"),
    }
}

fn dispatched(started: Started) -> RequestId {
    match started {
        Started::Dispatched(id) => id,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_flow_that_floods_its_level_delays_another_one_by_no_more_than_its_turn() {
    let mut level = Level::new(QUEUES, 1, at(0));
    let mut executing = dispatched(start(&mut level, arrival(0, 1), at(0)));
    // The elephant fills its queues, then the mouse comes, from another hand.
    let mut waiting = Vec::new();
    for ticket in 0..30 {
        waiting.push((ticket, queued(&mut level, arrival(0, 1), ticket, at(1))));
    }
    waiting.push((99, queued(&mut level, arrival(0x1234_5678_9abc, 1), 99, at(2))));
    let mut order = Vec::new();
    for step in 0..31 {
        let mut woken = Vec::new();
        level.finish(executing, at(10 + 3 * step), &mut woken);
        let [ticket] = woken[..] else { panic!("{woken:?}") };
        order.push(ticket);
        executing = waiting.iter().find(|(waiting, _)| *waiting == ticket).unwrap().1;
    }
    let place = order.iter().position(|ticket| *ticket == 99).unwrap();
    assert!(place <= 4, "one of each queue of the elephant at most goes before: {order:?}");
}

#[test]
fn a_full_queue_rejects_and_a_level_without_queues_has_only_its_seats() {
    let one = Queuing::Queue { queues: 1, hand_size: 1, queue_length_limit: 2 };
    let mut level = Level::new(one, 1, at(0));
    dispatched(start(&mut level, arrival(1, 1), at(0)));
    queued(&mut level, arrival(1, 1), 1, at(0));
    queued(&mut level, arrival(1, 1), 2, at(0));
    assert_eq!(start(&mut level, arrival(1, 1), at(0)), Started::Rejected(Rejection::QueueFull));
    // A component of the server waits nevertheless.
    queued(&mut level, Arrival { when_full: WhenFull::Wait, ..arrival(1, 1) }, 3, at(0));
    // A request that had a seat before gets one beyond the limit.
    dispatched(start(&mut level, Arrival { when_full: WhenFull::Dispatch, ..arrival(1, 1) }, at(0)));
    assert_eq!(level.occupancy().seats_in_use, 2);

    let mut level = Level::new(Queuing::Reject, 1, at(0));
    dispatched(start(&mut level, arrival(1, 1), at(0)));
    assert_eq!(start(&mut level, arrival(2, 1), at(0)), Started::Rejected(Rejection::ConcurrencyLimit));
    assert_eq!(level.occupancy().totals.rejected, 1);
    let mut level = Level::new(Queuing::Exempt, 0, at(0));
    for _ in 0..100 {
        dispatched(start(&mut level, arrival(1, 10), at(0)));
    }
}

#[test]
fn a_wide_request_waits_for_its_seats_and_one_wider_than_the_level_for_all_others() {
    let mut level = Level::new(QUEUES, 4, at(0));
    let first = dispatched(start(&mut level, arrival(1, 3), at(0)));
    let wide = queued(&mut level, arrival(1, 2), 1, at(0));
    let mut woken = Vec::new();
    level.finish(first, at(5), &mut woken);
    assert_eq!(woken, [1]);
    let wider = queued(&mut level, arrival(1, 9), 2, at(6));
    woken.clear();
    level.finish(wide, at(7), &mut woken);
    assert_eq!(woken, [2]);
    assert_eq!(level.occupancy().seats_in_use, 9);
    level.finish(wider, at(8), &mut woken);
    assert!(level.is_idle());
    assert_eq!(level.dump_queues().count(), 0, "queues without requests are gone");
}

#[test]
fn a_cancelled_request_that_was_too_wide_does_not_keep_others_waiting() {
    let mut level = Level::new(QUEUES, 4, at(0));
    dispatched(start(&mut level, arrival(1, 3), at(0)));
    let wide = queued(&mut level, arrival(2, 4), 1, at(0));
    // From a later arrival in another flow.
    queued(&mut level, arrival(0x1234_5678_9abc, 1), 2, at(100));
    let mut woken = Vec::new();
    assert!(level.cancel(wide, Cancellation::TimedOut, at(200), &mut woken));
    assert_eq!(woken, [2]);
    let totals = level.occupancy().totals;
    assert_eq!((totals.rejected, totals.timed_out, totals.cancelled), (1, 1, 0));
}

#[test]
fn a_request_that_was_dispatched_before_it_is_cancelled_is_executing() {
    let mut level = Level::new(QUEUES, 1, at(0));
    let first = dispatched(start(&mut level, arrival(1, 1), at(0)));
    let second = queued(&mut level, arrival(1, 1), 1, at(0));
    let mut woken = Vec::new();
    level.finish(first, at(1), &mut woken);
    assert_eq!(woken, [1]);
    assert!(!level.cancel(second, Cancellation::Disconnected, at(2), &mut woken));
    level.finish(second, at(2), &mut woken);
    assert!(level.is_idle());
    assert_eq!(level.occupancy().seats_in_use, 0);
    // A finished request cannot be finished again.
    assert_eq!(level.finish(second, at(2), &mut woken), None);
}

#[test]
fn the_seats_of_a_write_stay_occupied_while_its_event_is_sent() {
    let mut level = Level::new(QUEUES, 4, at(0));
    let work = WorkEstimate { initial_seats: 1, final_seats: 8, additional_latency: at(5) };
    // It waits first, so that its final seats are fitted to the level.
    let first = dispatched(start(&mut level, arrival(1, 4), at(0)));
    let write = queued(&mut level, Arrival { work, ..arrival(1, 1) }, 1, at(0));
    let mut woken = Vec::new();
    level.finish(first, at(1), &mut woken);
    assert_eq!(level.occupancy().seats_in_use, 4);
    assert_eq!(level.finish(write, at(2), &mut woken), Some(at(10)), "twice as long on half the seats");
    assert_eq!((level.occupancy().executing, level.occupancy().seats_in_use), (0, 4));
    queued(&mut level, arrival(2, 1), 2, at(3));
    woken.clear();
    level.release(write, at(12), &mut woken);
    assert_eq!(woken, [2]);
    assert_eq!(level.occupancy().seats_in_use, 1);
}

#[test]
fn a_higher_limit_dispatches_and_a_changed_configuration_drains_the_old_queues() {
    let mut level = Level::new(QUEUES, 0, at(0));
    let ids: Vec<RequestId> = (0..4).map(|ticket| queued(&mut level, arrival(1, 1), ticket, at(0))).collect();
    let mut woken = Vec::new();
    level.configure(QUEUES, 2, at(1), &mut woken);
    assert_eq!(woken.len(), 2);
    level.configure(Queuing::Reject, 2, at(2), &mut woken);
    assert_eq!(start(&mut level, arrival(1, 1), at(2)), Started::Rejected(Rejection::ConcurrencyLimit));
    for id in &ids {
        level.finish(*id, at(3), &mut woken);
    }
    woken.sort_unstable();
    assert_eq!(woken, [0, 1, 2, 3]);
    for id in &ids {
        level.finish(*id, at(4), &mut woken);
    }
    assert!(level.is_idle());
    assert_eq!(level.dump_queues().count(), 0);
}

#[test]
fn dumps_show_where_requests_are() {
    let mut level = QueueSet::<u32, &str>::new(QUEUES, 1, at(0));
    let request = |details| Arrival {
        flow_hash: 7,
        work: WorkEstimate::ONE_SEAT,
        when_full: WhenFull::Reject,
        details,
    };
    level.start(request("first"), at(1), &mut Vec::new());
    level.start(request("second"), at(2), &mut Vec::new());
    let dump: Vec<_> = level
        .dump_requests()
        .map(|dump| (*dump.details, dump.position, dump.arrived, dump.started))
        .collect();
    assert_eq!(dump, [("second", Some(0), at(2), None), ("first", None, at(1), Some(at(1)))]);
    let demand = level.take_demand(at(11));
    assert!((demand.high_watermark - 2.0).abs() < 1e-9);
    assert!(demand.average > 1.7 && demand.average < 2.0, "{demand:?}");
    let progress = level.occupancy().r.to_string();
    assert!(progress.ends_with("ss") && !progress.starts_with('-'), "{progress}");
}
