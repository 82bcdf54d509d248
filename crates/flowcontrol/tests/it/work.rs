use std::time::Duration;

use plumb_flowcontrol::work::{ObjectStats, WorkEstimate};

#[test]
fn a_list_occupies_a_seat_for_each_100_kb() {
    let stats = |count, average_bytes| ObjectStats { count, average_bytes };
    let table = [
        ("an empty kind", stats(0, 0), false, None, None, 1),
        ("few objects", stats(10, 1_000), false, None, Some(10), 1),
        ("many objects", stats(1_000, 500), false, None, Some(10), 5),
        ("a list is sent in pieces", stats(1_000_000, 5_000), false, None, None, 10),
        ("the most of the level", stats(1_000_000, 5_000), false, None, Some(4), 4),
        ("a level has one seat at least", stats(1_000_000, 5_000), false, None, Some(0), 1),
        ("a page", stats(1_000_000, 1_000), false, Some(250), Some(10), 3),
        ("no page", stats(1_000, 500), false, Some(0), Some(10), 5),
        ("one object by its name", stats(1_000_000, 5_000), true, None, Some(10), 1),
    ];
    for (what, stats, is_single, limit, most, seats) in table {
        let estimate = WorkEstimate::of_list(stats, is_single, limit, most);
        assert_eq!((estimate.initial_seats, estimate.max_seats()), (seats, seats), "{what}");
        assert!(estimate.additional_latency.is_zero(), "{what}");
    }
}

#[test]
fn a_write_occupies_seats_while_its_event_is_sent_to_many_watches() {
    let table = [
        (0, None, 0, 0),
        (9, Some(10), 0, 0),
        (10, Some(10), 1, 5),
        (25, Some(10), 3, 5),
        (100, Some(10), 10, 5),
        // The same work on fewer seats takes longer.
        (1_000, Some(10), 10, 50),
        (100, Some(2), 2, 25),
    ];
    for (watches, most, final_seats, milliseconds) in table {
        let estimate = WorkEstimate::of_write(watches, most);
        assert_eq!(estimate.initial_seats, 1);
        assert_eq!(estimate.final_seats, final_seats, "{watches} watches");
        assert_eq!(estimate.additional_latency, Duration::from_millis(milliseconds), "{watches} watches");
    }
}
