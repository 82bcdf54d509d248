//! Tests of the parser.

use plumb_cron::Schedule;
use proptest::prelude::*;

/// Schedules with their error messages, if any. Users of this crate test against this table too.
fn table() -> impl Iterator<Item = (&'static str, Option<&'static str>)> {
    let lines = include_str!("../schedules.txt").lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| match line.split_once("=>") {
        Some((schedule, message)) => (schedule.trim_end(), Some(message.trim())),
        None => (line, None),
    })
}

#[test]
fn schedules_are_accepted_and_rejected_like_in_robfig_cron() {
    for (schedule, message) in table() {
        let error = Schedule::parse(schedule).err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), message, "{schedule}");
    }
    assert_eq!(Schedule::parse("").unwrap_err().to_string(), "empty spec string");
    let invalid_duration = r#"failed to parse duration @every : time: invalid duration """#;
    assert_eq!(Schedule::parse("@every ").unwrap_err().to_string(), invalid_duration);
}

#[test]
fn the_time_zone_in_a_schedule_is_split_off() {
    for (text, zone, same) in [
        ("TZ=Europe/Zurich 0 9 * * *", "Europe/Zurich", "0 9 * * *"),
        ("CRON_TZ=UTC   @daily ", "UTC", "@daily"),
        ("TZ=Nowhere @every 1h", "Nowhere", "@every 1h"),
    ] {
        let schedule = Schedule::parse(text).unwrap();
        assert_eq!(schedule.zone(), Some(zone));
        let after = "2026-01-01T00:00:00Z".parse().unwrap();
        let utc = jiff::tz::TimeZone::UTC;
        assert_eq!(schedule.next(after, &utc), Schedule::parse(same).unwrap().next(after, &utc));
    }
    assert_eq!(Schedule::parse("@daily").unwrap().zone(), None);
    for (text, message) in [
        ("TZ=UTC", "expected exactly 5 fields, found 0: []"),
        ("TZ=UTC x * * * *", r#"failed to parse int from x: strconv.Atoi: parsing "x": invalid syntax"#),
    ] {
        assert_eq!(Schedule::parse(text).unwrap_err().to_string(), message);
    }
}

proptest! {
    #[test]
    fn no_text_panics(text in "(TZ=|CRON_TZ=|@every |)[-0-9*/,? a-z@=.]{0,40}|.*") {
        if let Ok(schedule) = Schedule::parse(&text) {
            let after = jiff::Timestamp::from_second(1_800_000_000).unwrap();
            if let Some(next) = schedule.next(after, &jiff::tz::TimeZone::UTC) {
                prop_assert!(next > after);
            }
        }
    }
}
