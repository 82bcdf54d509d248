//! Histograms: upstream's number tables, and laws.

#![expect(clippy::excessive_precision, reason = "the digits are those that upstream prints")]

use std::time::Duration;

use plumb_recommender::Time;
use plumb_recommender::model::histogram::{
    DecayingHistogram, DecayingHistogramOptions, Histogram, HistogramCheckpoint, HistogramCheckpointError,
    HistogramOptions, HistogramOptionsError,
};
use proptest::prelude::*;

use super::{HOUR, at, config, ten_buckets};

const EPSILON: f64 = 1e-15;

fn linear() -> HistogramOptions {
    HistogramOptions::linear(10.0, 1.0, EPSILON).unwrap()
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= EPSILON * b.abs()
}

#[test]
fn linear_buckets_have_one_size() {
    let options = HistogramOptions::linear(5.0, 0.3, 0.001).unwrap();
    assert_eq!(options.bucket_count(), 18);
    assert!(close(options.start(17), 5.1));
    for (value, bucket) in [(-1.0, 0), (0.0, 0), (1.3, 4), (100.0, 17), (f64::NAN, 0), (f64::INFINITY, 17)] {
        assert_eq!(options.find(value), bucket, "{value}");
    }
}

#[test]
fn exponential_buckets_grow() {
    let options = HistogramOptions::exponential(500.0, 40.0, 1.5, 0.001).unwrap();
    let starts: Vec<_> = (0..6).map(|bucket| options.start(bucket)).collect();
    assert_eq!((options.bucket_count(), starts), (6, vec![0.0, 40.0, 100.0, 190.0, 325.0, 527.5]));
    for (value, bucket) in [(-1.0, 0), (39.99, 0), (40.0, 1), (100.0, 2), (900.0, 5), (f64::INFINITY, 5)] {
        assert_eq!(options.find(value), bucket, "{value}");
    }
}

#[test]
fn buckets_that_make_no_sense_are_refused() {
    let refused = Err(HistogramOptionsError::NotPositive);
    assert_eq!(HistogramOptions::linear(0.0, 1.0, 1.0), refused);
    assert_eq!(HistogramOptions::linear(f64::NAN, 1.0, 1.0), refused);
    assert_eq!(HistogramOptions::exponential(10.0, 1.0, 1.0, 1.0), refused);
    assert!(matches!(HistogramOptions::linear(1e9, 1.0, 1.0), Err(HistogramOptionsError::TooManyBuckets(_))));
    assert!(HistogramOptions::exponential(f64::INFINITY, 1.0, 1.5, 1.0).is_err());
}

/// Where buckets start and values fall with the settings of the recommender, to the last bit.
#[test]
fn usage_buckets_are_upstreams() {
    let config = config();
    let (cpu, memory) = (&config.cpu.buckets, &config.memory.buckets);
    assert_eq!((cpu.bucket_count(), memory.bucket_count()), (176, 176));
    for (bucket, start) in [
        (1, 0.01),
        (2, 0.020_499_999_999_999_987),
        (3, 0.031_524_999_999_999_997),
        (10, 0.125_778_925_355_488_21),
        (50, 2.093_479_957_150_735),
        (100, 26.100_251_569_260_699),
        (150, 301.395_499_210_608_19),
        (174, 972.475_627_528_437_94),
        (175, 1_021.109_408_904_860_1),
    ] {
        assert_eq!(cpu.start(bucket).to_bits(), f64::to_bits(start), "{bucket}");
    }
    assert_eq!(memory.start(1).to_bits(), 1e7_f64.to_bits());
    for (cores, bucket) in [
        (0.005, 0),
        (0.01, 1),
        (0.0205, 1),
        (0.1, 8),
        (0.25, 16),
        (0.5, 25),
        (1.0, 36),
        (2.0, 49),
        (10.0, 80),
        (1_000.0, 174),
        (5_000.0, 175),
    ] {
        assert_eq!(cpu.find(cores), bucket, "{cores}");
    }
    for (bytes, bucket) in [
        (5e6, 0),
        (1e7, 1),
        (2.05e7, 1),
        (1e8, 8),
        (5e8, 25),
        (1e9, 36),
        (1_073_741_824.0, 37),
        (1e10, 80),
        (1e12, 174),
    ] {
        assert_eq!(memory.find(bytes), bucket, "{bytes}");
    }
}

#[test]
fn percentiles_are_the_ends_of_buckets() {
    let options = linear();
    let mut histogram = Histogram::new(&options);
    for value in 1..=4 {
        histogram.add(&options, value.into(), value.into());
    }
    let ladder =
        [(0.0, 2.0), (0.1, 2.0), (0.2, 3.0), (0.3, 3.0), (0.4, 4.0), (0.6, 4.0), (0.7, 5.0), (1.0, 5.0)];
    for (percentile, end) in ladder {
        assert!(close(histogram.percentile(&options, percentile), end), "{percentile}");
    }
}

#[test]
fn percentiles_out_of_range_are_the_first_and_the_last() {
    let options = HistogramOptions::linear(1.0, 0.1, EPSILON).unwrap();
    let mut histogram = Histogram::new(&options);
    histogram.add(&options, 0.1, 0.1);
    histogram.add(&options, 0.2, 0.2);
    assert!(close(histogram.percentile(&options, -0.1), 0.2));
    assert!(close(histogram.percentile(&options, 1.1), 0.3));
    histogram.add(&options, 0.0, 0.1);
    histogram.add(&options, 1.0, 0.2);
    assert!(close(histogram.percentile(&options, -0.1), 0.1));
    assert!(close(histogram.percentile(&options, 1.1), 1.0));
}

#[test]
fn an_empty_histogram_has_percentile_zero() {
    let options = ten_buckets(Duration::from_hours(1));
    let histogram = DecayingHistogram::new(&options);
    for percentile in [-0.5, 0.0, 0.5, 1.0, 1.5] {
        assert_eq!(histogram.percentile(&options, percentile).to_bits(), 0, "{percentile}");
    }
}

#[test]
fn less_weight_than_epsilon_is_none() {
    let options = HistogramOptions::linear(1.0, 0.1, EPSILON).unwrap();
    let mut histogram = Histogram::new(&options);
    assert!(histogram.is_empty(&options));
    histogram.add(&options, 0.1, EPSILON * 2.5);
    assert!(!histogram.is_empty(&options));
    histogram.subtract(&options, 0.1, EPSILON);
    assert!(!histogram.is_empty(&options));
    histogram.subtract(&options, 0.1, EPSILON);
    assert!(histogram.is_empty(&options));

    let mut histogram = Histogram::new(&options);
    for (value, weight) in [(9.9, 3.0), (0.1, 0.3), (999.9, 0.3)] {
        histogram.add(&options, value, weight * EPSILON);
        assert!(!histogram.is_empty(&options), "{value}");
    }
}

#[test]
fn samples_without_a_real_weight_are_ignored() {
    let options = linear();
    let mut histogram = Histogram::new(&options);
    histogram.add(&options, 1.0, -1.0);
    histogram.add(&options, 1.0, f64::NAN);
    histogram.subtract(&options, 1.0, f64::NAN);
    assert_eq!(histogram, Histogram::new(&options));
}

#[test]
fn merging_adds_up() {
    let options = linear();
    let of = |values: &[f64]| {
        let mut histogram = Histogram::new(&options);
        for &value in values {
            histogram.add(&options, value, 1.0);
        }
        histogram
    };
    let mut merged = of(&[1.0, 2.0]);
    merged.merge(&of(&[2.0, 3.0]));
    assert_eq!(merged, of(&[1.0, 2.0, 2.0, 3.0]));
}

/// 2009-02-13T23:31:30Z and whole hours from there.
fn hour(hours: i64) -> Time {
    Time::from_unix_seconds(1_234_567_890 + hours * HOUR)
}

#[test]
fn old_samples_count_for_less() {
    let options = ten_buckets(Duration::from_hours(1));
    let mut histogram = DecayingHistogram::new(&options);
    for value in 1..=4 {
        histogram.add(&options, value.into(), value.into(), hour(value.into()));
    }
    let ladder =
        [(0.0, 2.0), (0.02, 2.0), (0.03, 3.0), (0.1, 3.0), (0.11, 4.0), (0.34, 4.0), (0.35, 5.0), (1.0, 5.0)];
    for (percentile, end) in ladder {
        assert!(close(histogram.percentile(&options, percentile), end), "{percentile}");
    }
}

#[test]
fn twenty_half_lives_leave_next_to_nothing_and_a_hundred_nothing() {
    let options = ten_buckets(Duration::from_hours(1));
    let mut histogram = DecayingHistogram::new(&options);
    histogram.add(&options, 2.0, 1_000.0, hour(0));
    histogram.add(&options, 1.0, 1.0, hour(20));
    assert!(close(histogram.percentile(&options, 0.999), 2.0));
    assert!(close(histogram.percentile(&options, 1.0), 3.0));

    let mut histogram = DecayingHistogram::new(&options);
    histogram.add(&options, 2.0, 1.0, hour(0));
    histogram.add(&options, 1.0, 1.0, hour(101));
    assert!(close(histogram.percentile(&options, 1.0), 2.0));
}

#[test]
fn merging_aligns_references() {
    let options = ten_buckets(Duration::from_hours(1));
    let of = |samples: &[(f64, i64)]| {
        let mut histogram = DecayingHistogram::new(&options);
        for &(value, hours) in samples {
            histogram.add(&options, value, 1.0, hour(hours));
        }
        histogram
    };
    let (older, younger) = (of(&[(1.0, 0), (2.0, 1)]), of(&[(2.0, 2), (3.0, 1)]));
    let all = of(&[(2.0, 2), (2.0, 1), (3.0, 1), (1.0, 0)]);
    for (a, b) in [(&older, &younger), (&younger, &older)] {
        let mut merged = a.clone();
        merged.merge(&options, b);
        assert_eq!(merged.reference(), all.reference());
        for (got, expected) in merged.histogram().weights().zip(all.histogram().weights()) {
            assert!(got.0 == expected.0 && close(got.1, expected.1), "{got:?} {expected:?}");
        }
    }
}

#[test]
fn references_are_multiples_of_the_half_life_since_the_year_one() {
    // The 62135596800 seconds from the year one to 1970 are 17259888 hours, which leave 2 when divided by 7.
    let options = ten_buckets(Duration::from_hours(7));
    for (hour, reference) in [(-6, -9), (-5, -2), (0, -2), (1, -2), (2, 5), (5, 5)] {
        let mut histogram = DecayingHistogram::new(&options);
        histogram.add(&options, 1.0, 1.0, Time::from_unix_seconds(hour * HOUR));
        assert_eq!(histogram.reference(), Time::from_unix_seconds(reference * HOUR), "{hour}");
    }
}

fn checkpoint(total: f64, weights: &[(i64, u32)]) -> HistogramCheckpoint {
    HistogramCheckpoint {
        reference_timestamp: hour(0),
        bucket_weights: weights.to_vec(),
        total_weight: total,
    }
}

fn load(checkpoint: &HistogramCheckpoint) -> Result<DecayingHistogram, HistogramCheckpointError> {
    DecayingHistogram::from_checkpoint(&ten_buckets(Duration::from_hours(1)), checkpoint)
}

#[test]
fn checkpoints_have_weights_up_to_ten_thousand() {
    let options = ten_buckets(Duration::from_hours(1));
    let saved = |samples: &[(f64, f64)]| {
        let mut histogram = DecayingHistogram::new(&options);
        // A time that is its own reference, so that no weight changes.
        for &(value, weight) in samples {
            histogram.add(&options, value, weight, at(0));
        }
        let saved = histogram.to_checkpoint();
        (saved.total_weight, saved.bucket_weights)
    };
    assert_eq!(saved(&[]), (0.0, vec![]));
    assert_eq!(saved(&[(1.0, 1.0)]), (1.0, vec![(1, 10_000)]));
    assert_eq!(saved(&[(1.0, 1.0), (2.0, 100_000.0)]), (100_001.0, vec![(2, 10_000)]));
    let three = [(1.0, 1.0), (2.0, 10_000.0), (3.0, 50.0)];
    assert_eq!(saved(&three), (10_051.0, vec![(1, 1), (2, 10_000), (3, 50)]));
}

#[test]
fn a_checkpoint_restores_weights_by_their_share_of_the_total() {
    let restored = load(&checkpoint(6.0, &[(0, 1), (1, 2)])).unwrap();
    assert_eq!(restored.histogram().weights().collect::<Vec<_>>(), [(0, 2.0), (1, 4.0)]);
    assert_eq!((restored.histogram().total_weight(), restored.reference()), (6.0, hour(0)));
    let nothing = load(&checkpoint(5.0, &[(3, 0)])).unwrap();
    assert_eq!(nothing.histogram().total_weight().to_bits(), 0);
}

#[test]
fn a_checkpoint_that_is_corrupt_is_an_error() {
    for (total, weights, error) in [
        (1.0, [(-1, 1)], HistogramCheckpointError::NegativeBucket(-1)),
        (1.0, [(99, 1)], HistogramCheckpointError::BucketOutOfRange { bucket: 99, count: 11 }),
        (1.0, [(i64::MAX, 1)], HistogramCheckpointError::BucketOutOfRange { bucket: i64::MAX, count: 11 }),
        (-1.0, [(1, 1)], HistogramCheckpointError::NegativeTotal(-1.0)),
        (f64::INFINITY, [(1, 1)], HistogramCheckpointError::NotFinite(f64::INFINITY)),
    ] {
        assert_eq!(load(&checkpoint(total, &weights)), Err(error));
    }
}

/// kubernetes/autoscaler#7726
#[test]
fn weights_next_to_epsilon_do_not_empty_a_restored_histogram() {
    let options = ten_buckets(Duration::from_hours(1));
    let mut histogram = DecayingHistogram::new(&options);
    histogram.add(&options, 1.0, EPSILON, at(0));
    histogram.add(&options, 2.0, 10_000.0 * EPSILON - EPSILON, at(0));
    assert!(!load(&histogram.to_checkpoint()).unwrap().is_empty(&options));
}

/// A plain array of weights with upstream's rules, to hold the packed one against.
#[derive(Clone)]
struct Plain {
    weights: Vec<f64>,
    total: f64,
}

impl Plain {
    fn percentile(&self, options: &HistogramOptions, percentile: f64) -> f64 {
        let counts = |&(_, weight): &(usize, &f64)| *weight >= options.epsilon();
        let Some((min, _)) = self.weights.iter().enumerate().find(counts) else { return 0.0 };
        let max = self.weights.iter().rposition(|weight| *weight >= options.epsilon()).unwrap();
        let mut sum = 0.0;
        let mut bucket = min;
        while bucket < max {
            sum += self.weights[bucket];
            if sum >= percentile * self.total {
                break;
            }
            bucket += 1;
        }
        options.end(u16::try_from(bucket).unwrap())
    }
}

fn cpu_options() -> DecayingHistogramOptions {
    config().cpu
}

fn samples() -> impl Strategy<Value = Vec<(f64, i64)>> {
    prop::collection::vec((0.0..50.0_f64, 0..5 * super::DAY), 1..60)
}

fn histogram_of(options: &DecayingHistogramOptions, samples: &[(f64, i64)]) -> DecayingHistogram {
    let mut histogram = DecayingHistogram::new(options);
    for &(value, seconds) in samples {
        histogram.add(options, value, 0.1, at(seconds));
    }
    histogram
}

/// Whether two histograms differ by no more than the order of additions explains.
fn same(a: &DecayingHistogram, b: &DecayingHistogram) -> bool {
    let near = |x: f64, y: f64| (x - y).abs() <= 1e-9 * x.abs().max(y.abs());
    let (a_weights, b_weights): (Vec<_>, Vec<_>) =
        (a.histogram().weights().collect(), b.histogram().weights().collect());
    a.reference() == b.reference()
        && near(a.histogram().total_weight(), b.histogram().total_weight())
        && a_weights.len() == b_weights.len()
        && a_weights.iter().zip(&b_weights).all(|(x, y)| x.0 == y.0 && near(x.1, y.1))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn packed_weights_are_those_of_a_plain_array(
        operations in prop::collection::vec((0_u8..4, 0.0..12.0_f64, 0.0..2.0_f64), 1..80),
        percentile in 0.0..1.0_f64,
    ) {
        let options = linear();
        let mut packed = Histogram::new(&options);
        let mut plain = Plain { weights: vec![0.0; options.bucket_count()], total: 0.0 };
        for (operation, value, weight) in operations {
            let bucket = usize::from(options.find(value));
            let floor = |rest: f64| if rest < options.epsilon() { 0.0 } else { rest };
            match operation {
                0 | 1 => {
                    packed.add(&options, value, weight);
                    plain.weights[bucket] += weight;
                    plain.total += weight;
                }
                2 => {
                    packed.subtract(&options, value, weight);
                    plain.weights[bucket] = floor(plain.weights[bucket] - weight);
                    plain.total = floor(plain.total - weight);
                }
                _ => {
                    packed.scale(&options, weight);
                    plain.weights.iter_mut().for_each(|have| *have *= weight);
                    plain.total *= weight;
                }
            }
            prop_assert_eq!(packed.total_weight().to_bits(), plain.total.to_bits());
            let (got, expected) = (packed.percentile(&options, percentile), plain.percentile(&options, percentile));
            prop_assert_eq!(got.to_bits(), expected.to_bits());
        }
    }

    #[test]
    fn the_order_of_samples_does_not_matter(samples in samples(), seed in any::<u64>()) {
        let options = cpu_options();
        let mut shuffled = samples.clone();
        let mut state = seed;
        for at in (1..shuffled.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            shuffled.swap(at, usize::try_from(state >> 33).unwrap() % (at + 1));
        }
        // The first sample sets the reference, which both start with alike.
        let first = samples[0];
        let with_first = |rest: &[(f64, i64)]| {
            let all: Vec<_> = std::iter::once(first).chain(rest.iter().copied()).collect();
            histogram_of(&options, &all)
        };
        prop_assert!(same(&with_first(&samples), &with_first(&shuffled)));
    }

    #[test]
    fn merging_is_associative_and_commutative(a in samples(), b in samples(), c in samples()) {
        let options = cpu_options();
        let [a, b, c] = [a, b, c].map(|samples| histogram_of(&options, &samples));
        let merged = |x: &DecayingHistogram, y: &DecayingHistogram| {
            let mut merged = x.clone();
            merged.merge(&options, y);
            merged
        };
        prop_assert!(same(&merged(&merged(&a, &b), &c), &merged(&a, &merged(&b, &c))));
        prop_assert!(same(&merged(&a, &b), &merged(&b, &a)));
    }

    #[test]
    fn merging_is_adding_the_samples_of_both(a in samples(), b in samples()) {
        let options = cpu_options();
        let mut merged = histogram_of(&options, &a);
        merged.merge(&options, &histogram_of(&options, &b));
        // The reference of a merged histogram is the later of the two.
        let reference = HistogramCheckpoint { reference_timestamp: merged.reference(), ..Default::default() };
        let mut one = DecayingHistogram::from_checkpoint(&options, &reference).unwrap();
        one.merge(&options, &histogram_of(&options, &a.into_iter().chain(b).collect::<Vec<_>>()));
        prop_assert!(same(&merged, &one));
    }
}
