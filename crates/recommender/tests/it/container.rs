//! Memory windows and OOM kills of one container: upstream's number tables.

use std::time::Duration;

use plumb_recommender::model::histogram::DecayingHistogram;
use plumb_recommender::{
    Aggregate, AggregationConfig, ContainerPolicy, ContainerState, Discarded, MemorySettings, Sample, Time,
};
use proptest::prelude::*;

use super::{DAY, HOUR, at, config, cpu, memory};

const MI: i64 = 1024 * 1024;

struct Container {
    config: AggregationConfig,
    settings: MemorySettings,
    state: ContainerState,
    aggregate: Aggregate,
}

impl Container {
    fn new(policy: &ContainerPolicy) -> Self {
        let config = config();
        Self {
            settings: MemorySettings::new(&config.settings, Some(policy)),
            state: ContainerState::default(),
            aggregate: Aggregate::new(&config),
            config,
        }
    }

    fn add(&mut self, sample: Sample) -> Result<(), Discarded> {
        self.state.add_sample(&self.config, &self.settings, &mut self.aggregate, sample)
    }

    fn oom(&mut self, seconds: i64, requested: i64) -> Result<(), Discarded> {
        self.state.record_oom(&self.config, &self.settings, &mut self.aggregate, at(seconds), requested)
    }

    /// That these peaks are counted and no others: bytes, and when their windows end.
    fn assert_peaks(&self, expected: &[(i64, i64)]) {
        let options = &self.config.memory;
        let mut histogram = DecayingHistogram::new(options);
        for &(bytes, window_end) in expected {
            #[expect(clippy::cast_precision_loss)]
            histogram.add(options, bytes as f64, 1.0, at(window_end));
        }
        let counted = self.aggregate.memory();
        assert_eq!(counted.reference(), histogram.reference());
        let (counted, expected): (Vec<_>, Vec<_>) =
            (counted.histogram().weights().collect(), histogram.histogram().weights().collect());
        // A peak that is replaced leaves its last bits behind.
        let near = |(a, b): (&(u16, f64), &(u16, f64))| a.0 == b.0 && (a.1 - b.1).abs() < 1e-9 * b.1;
        assert!(
            counted.len() == expected.len() && counted.iter().zip(&expected).all(near),
            "{counted:?} {expected:?}"
        );
    }
}

fn container() -> Container {
    Container::new(&ContainerPolicy::new("*"))
}

fn hourly_windows() -> Container {
    let mut policy = ContainerPolicy::new("*");
    policy.memory_interval = Some(Duration::from_hours(1));
    Container::new(&policy)
}

#[test]
fn samples_in_order_count_and_others_do_not() {
    let mut container = container();
    let half = DAY / 2;
    for (time, millicores, bytes) in
        [(0, 3_140, 50 * MI), (half, 6_280, 100 * MI), (2 * half, 1_570, 20 * MI)]
    {
        container.add(cpu(time, millicores)).unwrap();
        container.add(memory(time, bytes)).unwrap();
    }
    // The second is the peak of the first window; the third opens another.
    container.assert_peaks(&[(100 * MI, DAY), (20 * MI, 2 * DAY)]);
    assert_eq!(container.aggregate.samples(), 3);
    assert_eq!(container.aggregate.first_sample(), at(0));
    assert_eq!(container.aggregate.last_sample(), at(DAY));

    for (sample, reason) in [
        (cpu(2 * half, 1_000), Discarded::Duplicate),
        (cpu(half, 1_000), Discarded::OutOfOrder),
        (cpu(4 * half, -1_000), Discarded::Negative),
        (memory(4 * half, -1_000), Discarded::Negative),
        (memory(half, 1_000), Discarded::OutOfOrder),
        (Sample { at: Time::UNSET, ..cpu(0, 1) }, Discarded::NoTime),
    ] {
        assert_eq!(container.add(sample), Err(reason), "{sample:?}");
    }
    assert_eq!(container.aggregate.samples(), 3);
    assert_eq!(
        container.add(memory(2 * half, 10 * MI)),
        Ok(()),
        "a memory sample may have the time of the last"
    );
}

#[test]
fn a_number_that_is_none_is_no_sample() {
    use plumb_resize::resource::Resource::{Cpu, Memory};
    assert_eq!(Sample::from_base_units(at(0), Cpu, f64::NAN), Err(Discarded::NotANumber));
    assert_eq!(Sample::from_base_units(at(0), Memory, -0.5), Err(Discarded::Negative));
    for (cores, millicores) in [
        (0.069_946, 69),
        (0.615_351_12, 615),
        (0.017_207_1, 17),
        (0.004_55, 4),
        (0.012_345_678_9, 12),
        (0.001_234_567_89, 1),
        (1e30, 100_000_000_000_000),
        (f64::INFINITY, 100_000_000_000_000),
    ] {
        assert_eq!(Sample::from_base_units(at(0), Cpu, cores).map(|sample| sample.usage), Ok(millicores));
    }
    for (bytes, whole) in [(69.669, 69), (12.333, 12), (17.357, 17), (4.0, 4), (12.123_456, 12)] {
        assert_eq!(Sample::from_base_units(at(0), Memory, bytes).map(|sample| sample.usage), Ok(whole));
    }
}

#[test]
fn an_oom_kill_raises_memory_by_a_fifth_and_at_least_100_mi() {
    for (requested, needed) in [(1_000 * MI, 1_200 * MI), (MI, 101 * MI), (0, 100 * MI)] {
        let mut container = container();
        container.oom(0, requested).unwrap();
        container.assert_peaks(&[(needed, DAY)]);
    }
}

#[test]
fn further_kills_raise_memory_only_from_a_larger_request() {
    let mut container = container();
    container.oom(0, 1_000 * MI).unwrap();
    container.oom(0, 999 * MI).unwrap();
    container.oom(0, 999 * MI).unwrap();
    container.assert_peaks(&[(1_200 * MI, DAY)]);
    container.oom(0, 2_000 * MI).unwrap();
    container.assert_peaks(&[(2_400 * MI, DAY)]);
}

#[test]
fn usage_above_the_request_is_what_is_raised() {
    let mut container = container();
    container.add(memory(0, 3_000 * MI)).unwrap();
    container.oom(0, 1_000 * MI).unwrap();
    container.assert_peaks(&[(3_600 * MI, DAY)]);
}

#[test]
fn a_kill_in_a_later_window_opens_it() {
    let mut container = container();
    container.add(memory(0, 2_000 * MI)).unwrap();
    container.oom(2 * DAY, 1_000 * MI).unwrap();
    container.assert_peaks(&[(2_000 * MI, DAY), (2_400 * MI, 3 * DAY)]);

    let mut container = hourly_windows();
    container.add(memory(0, 2_000 * MI)).unwrap();
    container.oom(2 * HOUR, 1_000 * MI).unwrap();
    container.assert_peaks(&[(2_000 * MI, HOUR), (2_400 * MI, 3 * HOUR)]);
}

#[test]
fn a_kill_older_than_an_interval_before_the_last_sample_is_too_old() {
    let mut daily = container();
    daily.add(memory(0, 1_000 * MI)).unwrap();
    assert_eq!(daily.oom(-30 * HOUR, 1_000 * MI), Err(Discarded::TooOld));
    assert_eq!(daily.oom(-DAY, 1_000 * MI), Ok(()));

    let mut hourly = hourly_windows();
    hourly.add(memory(0, 1_000 * MI)).unwrap();
    assert_eq!(hourly.oom(-2 * HOUR, 1_000 * MI), Err(Discarded::TooOld));
}

/// kubernetes/autoscaler#8548
#[test]
fn a_kill_just_before_a_window_ends_counts() {
    let mut container = container();
    container.add(memory(0, 100 * MI)).unwrap();
    container.add(memory(DAY, 2_000 * MI)).unwrap();
    container.oom(DAY - 1, 1_000 * MI).unwrap();
    container.assert_peaks(&[(100 * MI, DAY), (2_400 * MI, 2 * DAY)]);
}

#[test]
fn a_policy_sets_window_and_bump_up() {
    let mut hourly = hourly_windows();
    hourly.add(memory(0, 50 * MI)).unwrap();
    hourly.add(memory(HOUR / 2, 100 * MI)).unwrap();
    hourly.assert_peaks(&[(100 * MI, HOUR)]);
    hourly.add(memory(2 * HOUR, 70 * MI)).unwrap();
    hourly.assert_peaks(&[(100 * MI, HOUR), (70 * MI, 3 * HOUR)]);

    let mut policy = ContainerPolicy::new("*");
    policy.oom_bump_up_ratio = Some(2.0);
    policy.oom_min_bump_up_bytes = Some(0.0);
    let mut container = Container::new(&policy);
    container.oom(0, 50 * MI).unwrap();
    container.assert_peaks(&[(100 * MI, DAY)]);
}

#[test]
fn a_window_that_starts_with_nothing_stays_at_nothing() {
    let mut container = container();
    container.add(memory(0, 0)).unwrap();
    container.add(memory(60, 500 * MI)).unwrap();
    container.assert_peaks(&[(0, DAY)]);
    container.add(memory(DAY, 500 * MI)).unwrap();
    container.assert_peaks(&[(0, DAY), (500 * MI, 2 * DAY)]);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever comes, a container has one peak per window, and it is the largest of that window.
    #[test]
    fn a_container_has_one_peak_per_window(
        samples in prop::collection::vec((1..10 * HOUR, 1_i64..1 << 40), 1..40)
    ) {
        let mut container = container();
        let mut time = 0;
        let mut windows: Vec<(i64, i64)> = Vec::new();
        for (step, bytes) in samples {
            time += step;
            container.add(memory(time, bytes)).unwrap();
            match windows.last_mut() {
                Some((peak, end)) if time < *end => *peak = bytes.max(*peak),
                Some(&mut (_, end)) => windows.push((bytes, end + (time - end) / DAY * DAY + DAY)),
                None => windows.push((bytes, time + DAY)),
            }
        }
        prop_assert_eq!(container.state.current_peak(), windows.last().unwrap().0);
        prop_assert_eq!(container.state.window_end(), at(windows.last().unwrap().1));
        container.assert_peaks(&windows);
    }
}
