//! Times at the edges.

use jiff::Timestamp;
use plumb_recommender::Time;

#[test]
fn the_year_one_is_no_time() {
    let zero: Timestamp = "0001-01-01T00:00:00Z".parse().unwrap();
    assert_eq!(Time::try_from(zero), Ok(Time::UNSET));
    assert_eq!(Time::from_api(None), Ok(Time::UNSET));
    assert_eq!(Time::UNSET.timestamp(), None);
    assert!(Time::UNSET < Time::MIN);
}

#[test]
fn a_time_that_nanoseconds_cannot_count_is_refused() {
    for text in
        ["0001-01-01T00:00:01Z", "1600-01-01T00:00:00Z", "2263-01-01T00:00:00Z", "9999-12-30T00:00:00Z"]
    {
        let timestamp: Timestamp = text.parse().unwrap();
        assert!(Time::try_from(timestamp).is_err(), "{text}");
    }
    let now: Timestamp = "2026-02-03T04:05:06.789Z".parse().unwrap();
    let time = Time::try_from(now).unwrap();
    assert_eq!(time.timestamp(), Some(now));
    assert_eq!(time.truncated_to_seconds().to_string(), "2026-02-03T04:05:06Z");
}
