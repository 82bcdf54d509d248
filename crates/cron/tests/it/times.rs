//! Tests of the times at which schedules are due.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use plumb_cron::Schedule;
use proptest::prelude::*;

fn runs(schedule: &str, after: &str, zone: &TimeZone, count: usize) -> Vec<String> {
    let schedule = Schedule::parse(schedule).unwrap();
    let mut at: Timestamp = after.parse().unwrap();
    let mut runs = Vec::new();
    for _ in 0..count {
        let Some(next) = schedule.next(at, zone) else { break };
        runs.push(next.to_string());
        at = next;
    }
    runs
}

#[test]
fn a_schedule_is_due_when_its_fields_match() {
    for (schedule, after, wanted) in [
        ("* * * * *", "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"),
        ("* * * * *", "2026-01-01T00:00:59.5Z", "2026-01-01T00:01:00Z"),
        ("*/15 * * * *", "2026-01-01T00:46:00Z", "2026-01-01T01:00:00Z"),
        ("5/20 * * * *", "2026-01-01T00:06:00Z", "2026-01-01T00:25:00Z"),
        ("30 9-17 * * MON-fri", "2026-01-02T17:30:00Z", "2026-01-05T09:30:00Z"),
        ("0 0 29 2 *", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z"),
        // The 13th or a Friday: either is enough where neither field is `*`.
        ("0 0 13 * 5", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"),
        ("0 0 13 * *", "2026-01-01T00:00:00Z", "2026-01-13T00:00:00Z"),
        ("0 0 */2 * 1", "2026-01-01T00:00:00Z", "2026-01-03T00:00:00Z"),
        ("0 0 1,15 jan,dec ?", "2026-01-15T00:00:00Z", "2026-12-01T00:00:00Z"),
        ("@hourly", "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"),
        ("@weekly", "2026-01-01T00:00:00Z", "2026-01-04T00:00:00Z"),
        ("@yearly", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"),
        ("@every 1h30m", "2026-01-01T00:00:00.25Z", "2026-01-01T01:30:00Z"),
        ("@every 10ms", "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"),
    ] {
        assert_eq!(runs(schedule, after, &TimeZone::UTC, 1), [wanted], "{schedule}");
    }
    assert_eq!(runs("0 0 31 2 *", "2026-01-01T00:00:00Z", &TimeZone::UTC, 1), [""; 0]);
}

#[test]
fn a_repeated_local_time_is_due_twice_and_a_skipped_one_is_not_due() {
    // One hour forward on the second Sunday of March at 2, and back on the first of November at 2.
    let zone = TimeZone::posix("EST5EDT,M3.2.0,M11.1.0").unwrap();
    assert_eq!(
        runs("30 2 * * *", "2026-03-07T00:00:00Z", &zone, 2),
        ["2026-03-07T07:30:00Z", "2026-03-09T06:30:00Z"]
    );
    assert_eq!(
        runs("30 1 * * *", "2026-11-01T00:00:00Z", &zone, 3),
        ["2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z", "2026-11-02T06:30:00Z"]
    );
}

#[test]
fn an_interval_below_a_second_is_one_second() {
    for schedule in ["@every 10ms", "@every 0", "@every -1s", "@every -2562047h47m16s"] {
        let every_second = ["2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z"];
        assert_eq!(runs(schedule, "2026-01-01T00:00:00Z", &TimeZone::UTC, 2), every_second, "{schedule}");
    }
    let whole_seconds = ["2026-01-01T00:00:01Z"];
    assert_eq!(runs("@every 1900ms", "2026-01-01T00:00:00Z", &TimeZone::UTC, 1), whole_seconds);
}

#[test]
fn a_schedule_that_matches_nothing_is_never_due() {
    for schedule in [", * * * *", "* , * * *", "* * * , *", "0 0 , * ,", "0 0 30 2 *"] {
        assert_eq!(runs(schedule, "2026-01-01T00:00:00Z", &TimeZone::UTC, 1), [""; 0], "{schedule}");
    }
}

proptest! {
    #[test]
    fn the_last_time_is_the_one_that_a_linear_search_finds(
        schedule in prop::sample::select(&["*/7 * * * *", "5 3 * * *", "0 9-11 * * 1", "@every 7m", "0 0 1 * *"][..]),
        start in 0_i64..4_000_000_000,
        hours in 0_i64..200,
    ) {
        let schedule = Schedule::parse(schedule).unwrap();
        let at = |second| Timestamp::from_second(second).unwrap();
        let first = schedule.next(at(start), &TimeZone::UTC).unwrap();
        let until = at(first.as_second() + hours * 3600);
        let mut walked = first;
        while let Some(next) = schedule.next(walked, &TimeZone::UTC).filter(|next| *next <= until) {
            walked = next;
        }
        prop_assert_eq!(schedule.last(first, until, &TimeZone::UTC), walked);
    }
}
