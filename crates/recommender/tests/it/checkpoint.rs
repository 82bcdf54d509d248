//! The checkpoint of one aggregate.

use plumb_recommender::model::histogram::HistogramCheckpoint;
use plumb_recommender::{CheckpointError, CheckpointStatus, Time};

use super::{DAY, at, config};

fn status() -> CheckpointStatus {
    let histogram = |total_weight: f64| HistogramCheckpoint {
        reference_timestamp: at(0),
        bucket_weights: vec![(0, 10)],
        total_weight,
    };
    CheckpointStatus {
        version: "v3".into(),
        cpu_histogram: histogram(44.0),
        memory_histogram: histogram(33.0),
        first_sample_start: at(-31 * DAY),
        last_sample_start: at(0),
        total_samples_count: 20,
    }
}

#[test]
fn a_checkpoint_restores_an_aggregate() {
    let config = config();
    let aggregate = status().restore(&config).unwrap();
    assert_eq!((aggregate.first_sample(), aggregate.last_sample()), (at(-31 * DAY), at(0)));
    assert_eq!(aggregate.samples(), 20);
    assert!(!aggregate.cpu().is_empty(&config.cpu) && !aggregate.memory().is_empty(&config.memory));
    let mut again = status();
    again.cpu_histogram.bucket_weights = vec![(0, 10_000)];
    again.memory_histogram.bucket_weights = vec![(0, 10_000)];
    assert_eq!(CheckpointStatus::of(&aggregate), again);
}

#[test]
fn fractions_of_a_second_are_not_written() {
    let config = config();
    let mut status = status();
    status.last_sample_start = Time::from_unix_nanos(1_767_225_600_999_999_999);
    let aggregate = status.restore(&config).unwrap();
    assert_eq!(CheckpointStatus::of(&aggregate).last_sample_start, at(0));
}

#[test]
fn a_checkpoint_that_makes_no_sense_is_an_error() {
    type Damage = fn(&mut CheckpointStatus);
    let cases: [(Damage, &str); 7] = [
        (|status| status.version = "v2".into(), "unsupported checkpoint version \"v2\", expected \"v3\""),
        (|status| status.version = "".into(), "unsupported checkpoint version \"\", expected \"v3\""),
        (|status| status.total_samples_count = -1, "total samples count -1 is negative"),
        (
            |status| status.last_sample_start = Time::UNSET,
            "first sample at 2025-12-01T00:00:00Z and last sample at unset do not fit together",
        ),
        (
            |status| status.first_sample_start = at(1),
            "first sample at 2026-01-01T00:00:01Z and last sample at 2026-01-01T00:00:00Z do not fit together",
        ),
        (
            |status| status.cpu_histogram.bucket_weights = vec![(-1, 1)],
            "cpu histogram: bucket -1 is negative",
        ),
        (
            |status| status.memory_histogram.total_weight = -0.5,
            "memory histogram: total weight -0.5 is negative",
        ),
    ];
    for (change, message) in cases {
        let mut status = status();
        change(&mut status);
        assert_eq!(status.restore(&config()).unwrap_err().to_string(), message);
    }
    let unset =
        CheckpointStatus { first_sample_start: Time::UNSET, last_sample_start: Time::UNSET, ..status() };
    assert!(unset.restore(&config()).is_ok(), "a checkpoint of a container without CPU samples");
    assert_eq!(
        CheckpointStatus { version: "v9".into(), ..status() }.restore(&config()),
        Err(CheckpointError::Version("v9".to_owned()))
    );
}

#[test]
fn everything_in_a_checkpoint_is_in_its_digest() {
    let changes: [fn(&mut CheckpointStatus); 7] = [
        |_| {},
        |status| status.total_samples_count += 1,
        |status| status.last_sample_start = at(1),
        |status| status.cpu_histogram.bucket_weights[0].1 += 1,
        |status| status.memory_histogram.bucket_weights[0].1 += 1,
        |status| status.memory_histogram.total_weight += 1e-12,
        |status| status.cpu_histogram.reference_timestamp = at(DAY),
    ];
    let mut digests: Vec<_> = changes
        .into_iter()
        .map(|change| {
            let mut status = status();
            change(&mut status);
            status.digest()
        })
        .collect();
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), 7);
    assert_eq!(status().digest(), status().digest());
}
