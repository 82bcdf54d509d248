//! Samples, labels and clocks that are wrong: counted, refused, and never the end of a history.

use std::time::Duration;

use kube::core::Selector;
use plumb_recommender::model::cluster::ClockStep;
use plumb_recommender::{Discarded, Sample, Time};
use plumb_resize::resource::Resource;

use super::super::{DAY, HOUR, MINUTE, at, cpu, memory};
use super::{bed, key, vpa};

const APP: &[(&str, &str)] = &[("app", "x")];

#[test]
fn samples_that_do_not_count_are_counted_by_reason() {
    let mut bed = bed();
    bed.vpa("v", APP);
    bed.pod("p", APP);
    bed.pass(HOUR);
    bed.sample("p", cpu(HOUR, 100)).unwrap();
    bed.sample("p", memory(HOUR, 1 << 30)).unwrap();
    let target = bed.target("v");
    for (sample, reason) in [
        (cpu(HOUR, 500), Discarded::Duplicate),
        (cpu(MINUTE, 500), Discarded::OutOfOrder),
        (memory(MINUTE, 1 << 31), Discarded::OutOfOrder),
        (cpu(2 * HOUR, 500), Discarded::Future),
        (memory(100 * DAY, 1 << 31), Discarded::Future),
        (cpu(HOUR + 1, -1), Discarded::Negative),
        (memory(HOUR + 1, i64::MIN), Discarded::Negative),
        (Sample { at: Time::UNSET, ..cpu(0, 1) }, Discarded::NoTime),
        (Sample { at: Time::MAX, ..cpu(0, 1) }, Discarded::Future),
    ] {
        let before = bed.cluster.discarded().of(reason);
        assert_eq!(bed.sample("p", sample), Err(reason), "{sample:?}");
        assert_eq!(bed.cluster.discarded().of(reason), before + 1);
    }
    assert_eq!(bed.sample("other", cpu(HOUR + 1, 1)), Err(Discarded::UnknownPod));
    assert_eq!(bed.cluster.add_sample("elsewhere", "p", "app", cpu(HOUR + 1, 1)), Err(Discarded::UnknownPod));
    assert_eq!(bed.cluster.add_sample("ns", "p", "init", cpu(HOUR + 1, 1)), Err(Discarded::UnknownContainer));
    assert_eq!(bed.cluster.record_oom("ns", "p", "app", at(-DAY), 1), Err(Discarded::TooOld));
    bed.cluster.count_discarded(Discarded::NotANumber);
    assert_eq!(bed.cluster.discarded().iter().map(|(_, count)| count).sum::<u64>(), 14);
    assert_eq!((bed.target("v"), bed.samples_of("v")), (target, 1));
}

#[test]
fn the_clock_of_a_node_may_be_a_little_ahead() {
    let mut bed = bed();
    bed.pod("p", APP);
    bed.sample("p", cpu(5 * MINUTE, 100)).unwrap();
    assert_eq!(bed.sample("p", cpu(5 * MINUTE + 1, 100)), Err(Discarded::Future));
}

#[test]
fn usage_beyond_all_buckets_is_in_the_last() {
    let mut bed = bed();
    bed.vpa("v", APP);
    bed.pod("p", APP);
    for (time, resource) in [(0, Resource::Cpu), (0, Resource::Memory)] {
        bed.sample("p", Sample { at: at(time), resource, usage: i64::MAX }).unwrap();
    }
    bed.cluster.record_oom("ns", "p", "app", at(0), i64::MAX).unwrap();
    bed.cluster.record_oom("ns", "p", "app", at(0), i64::MIN).unwrap();
    assert_eq!(bed.target("v"), "1174275m/1174275820239");
}

#[test]
fn a_clock_that_jumps_ahead_costs_no_history() {
    let mut bed = bed();
    bed.vpa("v", APP);
    bed.pod("p", APP);
    bed.sample("p", cpu(0, 100)).unwrap();
    let target = bed.target("v");
    for days in [400, 800] {
        assert_eq!(bed.cluster.set_time(at(days * DAY)), ClockStep::Forward(Duration::from_hours(400 * 24)));
        assert_eq!(bed.cluster.collect_garbage().aggregates, 0);
        assert_eq!(bed.target("v"), target);
    }
    // From there on it ages as ever.
    bed.seconds = 800 * DAY;
    bed.pass(9 * DAY);
    assert_eq!(bed.cluster.collect_garbage().aggregates, 1);
}

#[test]
fn a_clock_that_is_set_back_does_not_stop_samples() {
    let mut bed = bed();
    bed.vpa("v", APP);
    bed.pod("p", APP);
    bed.sample("p", cpu(0, 4_000)).unwrap();
    bed.sample("p", memory(0, 1 << 34)).unwrap();

    // For an hour the clock is a year ahead.
    bed.cluster.set_time(at(365 * DAY));
    for minute in 0..60 {
        bed.cluster.set_time(at(365 * DAY + minute * MINUTE));
        bed.sample("p", cpu(365 * DAY + minute * MINUTE, 100)).unwrap();
        bed.sample("p", memory(365 * DAY + minute * MINUTE, 1 << 30)).unwrap();
    }
    let year = Duration::from_hours(365 * 24);
    let step = bed.cluster.set_time(at(HOUR));
    assert!(matches!(step, ClockStep::Backward(by) if by + Duration::from_hours(2) > year), "{step:?}");
    assert_eq!(bed.cluster.set_time(at(HOUR)), ClockStep::Regular, "once");

    // Samples of the right time count at once, and outweigh the others soon.
    for minute in 1..4 * 24 * 60 {
        let time = HOUR + minute * MINUTE;
        bed.cluster.set_time(at(time));
        bed.sample("p", cpu(time, 2_000)).unwrap();
        bed.sample("p", memory(time, 1 << 32)).unwrap();
    }
    let cpu = bed.cluster.explain(&key("v")).unwrap()[0].resources.cpu.clone().unwrap();
    assert!((2_000..2_300).contains(&cpu.bounds[0].steps.usage), "{:?}", cpu.bounds[0]);
    assert!((2_000..2_300).contains(&cpu.bounds[1].steps.usage), "{:?}", cpu.bounds[1]);
    assert!(cpu.confidence > 3.9 && cpu.confidence < 4.1);
}

#[test]
fn a_selector_that_matches_everything_and_ten_thousand_containers_of_one_name() {
    let mut bed = bed();
    bed.cluster.apply_vpa(vpa("all", Selector::default()));
    for pod in 0..10_000 {
        let (name, app) = (format!("p{pod}"), format!("app-{}", pod % 100));
        bed.pod(&name, &[("app", &app)]);
        bed.sample(&name, cpu(0, 100 + pod % 7)).unwrap();
        bed.sample(&name, memory(0, 1 << 30)).unwrap();
    }
    assert_eq!((bed.pods_of("all"), bed.samples_of("all")), (10_000, 10_000));
    assert_eq!(bed.cluster.size().aggregates, 100);
    assert_eq!(bed.target("all"), "126m/1238659775");
    let checkpoint = bed.cluster.checkpoints(&key("all")).remove(0);
    assert_eq!(checkpoint.status.total_samples_count, 10_000);
    assert!(checkpoint.status.memory_histogram.bucket_weights.is_empty(), "no window is over");
}

#[test]
fn labels_that_no_api_server_lets_through_do_no_harm() {
    let mut bed = bed();
    bed.vpa("v", APP);
    bed.pod("p", &[("app", "x"), ("", ""), ("a\0b", "c"), ("d", "e\0"), ("pod-template-hash", "\0")]);
    bed.sample("p", cpu(0, 100)).unwrap();
    assert_eq!((bed.pods_of("v"), bed.samples_of("v")), (1, 1));
}
