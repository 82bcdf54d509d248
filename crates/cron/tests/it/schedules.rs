//! Which texts are schedules.

use plumb_cron::Schedule;
use proptest::prelude::*;

/// The table that the users of this crate test against too: schedules with the message of their refusal, if any.
fn table() -> impl Iterator<Item = (&'static str, Option<&'static str>)> {
    let lines = include_str!("../schedules.txt").lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| match line.split_once("=>") {
        Some((schedule, message)) => (schedule.trim_end(), Some(message.trim())),
        None => (line, None),
    })
}

#[test]
fn schedules_are_accepted_and_refused_as_robfig_cron_does() {
    for (schedule, message) in table() {
        let refusal = Schedule::parse(schedule).err().map(|error| error.to_string());
        assert_eq!(refusal.as_deref(), message, "{schedule}");
    }
    assert_eq!(Schedule::parse("").unwrap_err().to_string(), "empty spec string");
    let no_duration = r#"failed to parse duration @every : time: invalid duration """#;
    assert_eq!(Schedule::parse("@every ").unwrap_err().to_string(), no_duration);
}

#[test]
fn a_schedule_may_name_a_zone_and_is_parsed_all_the_same() {
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
