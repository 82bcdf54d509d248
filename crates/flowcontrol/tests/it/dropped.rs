use std::time::Duration;

use plumb_flowcontrol::dropped::DroppedRequests;

#[test]
fn the_time_to_the_next_try_doubles_under_overload_and_falls_slowly_after_it() {
    let mut dropped = DroppedRequests::default();
    let mut second = |at: u64, count: usize| {
        let mut last = 0;
        for _ in 0..count {
            last = dropped.record(Duration::from_secs(at));
        }
        last
    };
    assert_eq!(second(100, 3), 1);
    assert_eq!(second(101, 6), 2);
    // It has to pass before it is doubled again.
    assert_eq!(second(102, 6), 2);
    assert_eq!(second(103, 100), 4);
    assert_eq!(second(107, 100), 8);
    assert_eq!(second(115, 100), 16);
    assert_eq!(second(131, 1000), 32);
    assert_eq!(second(163, 1000), 32, "it has a ceiling");
    assert_eq!(second(300, 1), 31);
    assert_eq!(second(301, 1), 30);
}
