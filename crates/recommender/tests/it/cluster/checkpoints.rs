//! Checkpoints of a cluster: which are written, and what survives a restart.

use std::time::Duration;

use plumb_recommender::model::cluster::{ContainerCheckpoint, Restored, VpaUpdate};
use plumb_recommender::{
    CheckpointError, CheckpointStatus, ContainerPolicy, CountedKills, ResourcePolicy, VpaSettings, WindowPeak,
};
use proptest::prelude::*;

use super::super::{DAY, HOUR, MINUTE, at, cpu, memory};
use super::{Bed, bed, equals, key, vpa};

const APP: &[(&str, &str)] = &[("app", "x")];

/// A VPA with a pod that used some.
fn used() -> Bed {
    let mut bed = bed();
    bed.vpa("v", APP);
    bed.pod("p", APP);
    bed.sample("p", cpu(0, 100)).unwrap();
    bed.sample("p", memory(0, 1 << 30)).unwrap();
    bed
}

fn checkpoint(bed: &mut Bed) -> ContainerCheckpoint {
    let mut checkpoints = bed.cluster.checkpoints(&key("v"));
    assert_eq!(checkpoints.len(), 1);
    checkpoints.remove(0)
}

fn due(bed: &Bed) -> Vec<String> {
    bed.cluster.checkpoints_due().iter().map(|key| key.name.clone()).collect()
}

#[test]
fn the_peak_of_a_window_that_is_not_over_is_left_out() {
    let mut bed = used();
    let now = checkpoint(&mut bed).status;
    assert!(now.memory_histogram.bucket_weights.is_empty());
    assert_eq!(now.memory_histogram.total_weight.to_bits(), 0);
    assert_eq!(now.cpu_histogram.bucket_weights, [(8, 10_000)]);
    bed.pass(DAY);
    assert_eq!(checkpoint(&mut bed).status.memory_histogram.bucket_weights, [(37, 10_000)]);
}

#[test]
fn an_annotation_has_the_peak_of_windows_that_are_not_over() {
    let mut before = used();
    let peak = |bed: &mut Bed| checkpoint(bed).window_peak;
    let first = peak(&mut before).unwrap();
    // The end of its bucket, which is up to five percent larger.
    assert!(first.bytes >= 1 << 30 && first.bytes < (1 << 30) * 21 / 20, "{first:?}");
    assert_eq!(first.until, at(DAY));
    before.pod("other", APP);
    before.pass(HOUR);
    before.sample("other", memory(HOUR, 3 << 30)).unwrap();
    let written = checkpoint(&mut before);
    let higher = written.window_peak.unwrap();
    assert!(higher.bytes >= 3 << 30 && written.has_other_peak, "{written:?}");
    assert_eq!(higher.until, at(25 * HOUR), "the later of both");
    assert!(before.cluster.has_higher_peak(&key("v")));
    before.cluster.annotations_written(&key("v"), &written);
    assert!(!before.cluster.has_higher_peak(&key("v")) && !checkpoint(&mut before).has_other_peak);
    let text = higher.to_annotation().unwrap();
    assert_eq!(WindowPeak::from_annotation(&text), Some(higher), "{text}");

    // Another process counts less at first, and keeps the peak until its window is over.
    let mut after = bed();
    after.vpa("v", APP);
    after.cluster.restore_checkpoint(&key("v"), "app", &written.status).unwrap();
    after.cluster.restore_window_peak(&key("v"), "app", Some(higher));
    after.pass(2 * HOUR);
    after.pod("p", APP);
    after.sample("p", memory(2 * HOUR, 1 << 30)).unwrap();
    let restored = peak(&mut after).unwrap();
    assert_eq!((restored.bytes, restored.until), (higher.bytes, at(26 * HOUR)));
    after.pass(DAY);
    assert_eq!(peak(&mut after), None);
    assert!(higher.counts_at(at(25 * HOUR)), "until the next checkpoint is written");
    assert!(!higher.counts_at(at(26 * HOUR)));
    for text in ["", "null", "{}", r#"{"bytes":1}"#, r#"{"bytes":1,"until":"tomorrow"}"#] {
        assert_eq!(WindowPeak::from_annotation(text), None, "{text}");
    }
}

#[test]
fn the_memory_peak_of_a_deleted_pod_is_kept() {
    let mut bed = used();
    bed.delete_pod("p");
    assert_eq!(checkpoint(&mut bed).status.memory_histogram.bucket_weights, [(37, 10_000)]);
}

#[test]
fn a_checkpoint_is_written_when_it_has_changed() {
    let mut bed = used();
    assert_eq!(due(&bed), ["v"]);
    let first = checkpoint(&mut bed);
    assert_eq!(due(&bed), [""; 0]);
    bed.cluster.checkpoint_failed(&key("v"));
    assert_eq!(due(&bed), ["v"]);
    assert_eq!(checkpoint(&mut bed), first);
    bed.cluster.checkpoint_written(&key("v"), "app", first.digest);

    // Nothing has changed, and then only the peak of a window that is not over, within its bucket and beyond it.
    assert_eq!(bed.cluster.checkpoints(&key("v")), []);
    bed.sample("p", memory(MINUTE, (1 << 30) + 1)).unwrap();
    assert_eq!(due(&bed), ["v"]);
    assert_eq!(bed.cluster.checkpoints(&key("v")), []);
    bed.sample("p", memory(MINUTE, 1 << 31)).unwrap();
    let peak = checkpoint(&mut bed);
    assert_eq!((&peak.status, peak.has_other_peak), (&first.status, true));
    bed.cluster.checkpoint_written(&key("v"), "app", peak.digest);

    bed.sample("p", cpu(MINUTE, 100)).unwrap();
    let second = checkpoint(&mut bed);
    assert_ne!(first.digest, second.digest);
    bed.cluster.checkpoint_written(&key("v"), "app", second.digest);

    // A window that ends without further samples is found within the hour.
    bed.pass(DAY);
    assert_eq!(due(&bed), [""; 0]);
    bed.cluster.collect_garbage();
    assert_eq!(checkpoint(&mut bed).status.memory_histogram.bucket_weights, [(50, 10_000)]);
    assert_eq!(bed.cluster.checkpoints(&key("unknown")), []);
}

#[test]
fn the_vpa_that_has_waited_longest_is_first() {
    let mut bed = bed();
    for name in ["a", "b", "c"] {
        bed.vpa(name, APP);
    }
    bed.pod("p", APP);
    for name in ["a", "c"] {
        bed.pass(MINUTE);
        for checkpoint in bed.cluster.checkpoints(&key(name)) {
            bed.cluster.checkpoint_written(&key(name), &checkpoint.container, checkpoint.digest);
        }
    }
    bed.sample("p", cpu(0, 100)).unwrap();
    assert_eq!(due(&bed), ["b", "a", "c"]);
}

#[test]
fn a_checkpoint_is_restored_whenever_its_vpa_is_there() {
    let status = checkpoint(&mut used()).status;
    let mut bed = bed();
    let restore = |bed: &mut Bed| bed.cluster.restore_checkpoint(&key("v"), "app", &status);
    assert_eq!(restore(&mut bed), Ok(Restored::UnknownVpa));
    bed.pod("p", APP);
    bed.sample("p", cpu(0, 100)).unwrap();
    bed.vpa("v", APP);
    assert_eq!(restore(&mut bed), Ok(Restored::Restored));
    assert_eq!(bed.samples_of("v"), 2);
    assert_eq!(restore(&mut bed), Ok(Restored::Known), "it counts once");
    assert_eq!(bed.samples_of("v"), 2);

    // A container that no pod has any more still has its recommendation.
    let other = bed.cluster.restore_checkpoint(&key("v"), "sidecar", &status);
    assert_eq!(other, Ok(Restored::Restored));
    assert_eq!(bed.targets("v").len(), 2);
}

#[test]
fn a_checkpoint_of_our_own_is_not_counted_again() {
    let mut bed = used();
    let written = checkpoint(&mut bed);
    bed.cluster.checkpoint_written(&key("v"), "app", written.digest);
    let restored = bed.cluster.restore_checkpoint(&key("v"), "app", &written.status);
    assert_eq!((restored, bed.samples_of("v")), (Ok(Restored::Known), 1));
    bed.cluster.delete_vpa(&key("v"));
    bed.vpa("v", APP);
    let restored = bed.cluster.restore_checkpoint(&key("v"), "app", &written.status);
    assert_eq!((restored, bed.samples_of("v")), (Ok(Restored::Known), 1));
}

/// Thirteen pods, of which one was killed 23 hours after its first sample.
fn killed() -> Bed {
    let mut bed = bed();
    bed.vpa("v", APP);
    for pod in 0..13 {
        let name = format!("p{pod}");
        bed.pod(&name, APP);
        bed.sample(&name, cpu(0, 100)).unwrap();
        bed.sample(&name, memory(0, 1 << 28)).unwrap();
    }
    bed.pass(23 * HOUR);
    bed.cluster.record_oom("ns", "p0", "app", at(23 * HOUR), 1 << 31).unwrap();
    bed
}

#[test]
fn a_checkpoint_names_the_oom_kills_that_are_in_it() {
    let mut before = killed();
    assert!(before.cluster.has_counted_kill("ns", "p0", "app", at(23 * HOUR)));
    assert_eq!(checkpoint(&mut before).kills, CountedKills::default(), "its window is not over");
    before.pass(2 * HOUR);
    let target = before.target("v");
    let written = checkpoint(&mut before);
    assert!(written.names_other_kills);
    let text = written.kills.to_annotation().unwrap();
    assert_eq!(text, r#"{"p0":"2026-01-01T23:00:00Z"}"#);
    before.cluster.annotations_written(&key("v"), &written);
    assert!(!checkpoint(&mut before).names_other_kills);

    let mut bed = bed();
    bed.vpa("v", APP);
    bed.pass(25 * HOUR);
    bed.cluster.restore_checkpoint(&key("v"), "app", &written.status).unwrap();
    bed.cluster.restore_kills(&key("v"), "app", CountedKills::from_annotation(&text));
    bed.pod("p0", APP);
    bed.pod("p1", APP);
    let counted = |bed: &Bed, pod: &str, container: &str, seconds| {
        bed.cluster.has_counted_kill("ns", pod, container, at(seconds))
    };
    assert!(counted(&bed, "p0", "app", 23 * HOUR) && counted(&bed, "p0", "app", 22 * HOUR));
    assert!(!counted(&bed, "p0", "app", 24 * HOUR) && !counted(&bed, "p1", "app", 23 * HOUR));
    assert!(!counted(&bed, "p0", "sidecar", 23 * HOUR) && !counted(&bed, "gone", "app", 23 * HOUR));
    assert_eq!(bed.target("v"), target);
    // Counted again, it would be a seventh of all peaks rather than a thirteenth.
    bed.cluster.record_oom("ns", "p0", "app", at(23 * HOUR), 1 << 31).unwrap();
    assert_ne!(bed.target("v"), target);
}

#[test]
fn an_annotation_that_cannot_be_read_names_no_kill() {
    for text in ["", "null", "[]", "{\"p\":1}", "{\"p\":\"yesterday\"}", "{\"p\":\"9999-01-01T00:00:00Z\"}"] {
        assert_eq!(CountedKills::from_annotation(text), CountedKills::default(), "{text}");
    }
}

#[test]
fn a_checkpoint_that_cannot_be_read_yet_is_not_overwritten() {
    let good = checkpoint(&mut used()).status;
    let newer = CheckpointStatus { version: "v4".into(), ..good.clone() };
    let future = CheckpointStatus { last_sample_start: at(10 * DAY), ..good.clone() };
    let mut memory_of_the_future = good.clone();
    memory_of_the_future.memory_histogram.reference_timestamp = at(200 * DAY);
    for status in [newer, future, memory_of_the_future] {
        let mut bed = used();
        let error = bed.cluster.restore_checkpoint(&key("v"), "app", &status).unwrap_err();
        assert!(matches!(error, CheckpointError::Version(_) | CheckpointError::Future(_)), "{error}");
        assert_eq!(bed.cluster.checkpoints(&key("v")), []);
        let view = bed.cluster.vpa(&key("v")).unwrap();
        assert_eq!(view.unreadable_checkpoints().collect::<Vec<_>>(), ["app"]);
        assert_eq!(bed.target("v"), "126m/1238659775", "the recommender goes on without it");

        // Its owner deletes it, or it can be read after all.
        bed.cluster.checkpoint_deleted(&key("v"), "app");
        assert_eq!(due(&bed), ["v"]);
        assert_eq!(bed.cluster.checkpoints(&key("v")).len(), 1);
        bed.cluster.restore_checkpoint(&key("v"), "app", &status).unwrap_err();
        assert_eq!(bed.cluster.restore_checkpoint(&key("v"), "app", &good), Ok(Restored::Restored));
        assert_eq!(bed.cluster.checkpoints(&key("v")).len(), 1);
    }
}

#[test]
fn a_checkpoint_with_long_memory_windows_is_restored() {
    let with_window = |days: u64| {
        let memory_interval = Some(Duration::from_hours(24 * days));
        let policy = ContainerPolicy { memory_interval, ..ContainerPolicy::new("app") };
        let settings =
            VpaSettings { policy: ResourcePolicy { containers: vec![policy] }, ..VpaSettings::default() };
        let mut bed = bed();
        bed.cluster.apply_vpa(VpaUpdate { settings, ..vpa("v", equals(APP)) });
        bed
    };
    // Also if the window is shorter after the restart, or longer than a reference is used for.
    for (before, after) in [(7, 7), (30, 1), (365, 365)] {
        let mut bed = with_window(before);
        bed.pod("p", APP);
        bed.sample("p", cpu(0, 100)).unwrap();
        bed.sample("p", memory(0, 1 << 30)).unwrap();
        let status = checkpoint(&mut bed).status;
        let mut bed = with_window(after);
        let restored = bed.cluster.restore_checkpoint(&key("v"), "app", &status);
        assert_eq!(restored, Ok(Restored::Restored), "{before} days, then {after}");
        assert_eq!(bed.cluster.checkpoints(&key("v")).len(), 1);
    }
}

/// What counts is the CPU histogram, whatever number of samples a checkpoint has.
#[test]
fn a_checkpoint_without_cpu_gives_a_recommendation_for_memory_alone() {
    let mut before = used();
    before.pass(DAY);
    let mut status = checkpoint(&mut before).status;
    drop(std::mem::take(&mut status.cpu_histogram));
    assert_ne!(status.total_samples_count, 0);
    let mut bed = bed();
    bed.vpa("v", APP);
    bed.pod("p", APP);
    assert_eq!(bed.cluster.restore_checkpoint(&key("v"), "app", &status), Ok(Restored::Restored));
    bed.cluster.recommend();
    let recommended = bed.cluster.vpa(&key("v")).unwrap().measured_recommendation();
    let targets: Vec<_> = recommended.iter().map(|of| (of.target.cpu, of.target.memory.is_some())).collect();
    assert_eq!(targets, [(None, true)]);
}

#[test]
fn a_corrupt_checkpoint_is_refused_and_overwritten() {
    let good = checkpoint(&mut used()).status;
    let mut bad = good.clone();
    bad.cpu_histogram.bucket_weights.push((176, 1));
    let mut bed = used();
    assert!(matches!(bed.cluster.restore_checkpoint(&key("v"), "app", &bad), Err(CheckpointError::Cpu(_))));
    assert_eq!((bed.samples_of("v"), bed.cluster.checkpoints(&key("v")).len()), (1, 1));
}

fn usage() -> impl Strategy<Value = Vec<(i64, i64, i64)>> {
    prop::collection::vec((MINUTE..6 * HOUR, 0..20_000_i64, 0..1_i64 << 36), 1..200)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// A restart changes a bound only where the rounding of checkpoints moves a percentile to the next bucket.
    #[test]
    fn a_checkpoint_and_its_restore_give_the_same_recommendation(usage in usage()) {
        let mut bed = bed();
        bed.vpa("v", APP);
        bed.pod("p", APP);
        let mut time = 0;
        for (step, millicores, bytes) in usage {
            time += step;
            bed.cluster.set_time(at(time));
            bed.sample("p", cpu(time, millicores)).unwrap();
            bed.sample("p", memory(time, bytes)).unwrap();
        }
        bed.delete_pod("p");
        let before = bed.cluster.explain(&key("v")).unwrap().remove(0);
        let status = checkpoint(&mut bed).status;

        let mut restarted = super::bed();
        restarted.cluster.set_time(at(time));
        restarted.vpa("v", APP);
        restarted.cluster.restore_checkpoint(&key("v"), "app", &status).unwrap();
        let after = restarted.cluster.explain(&key("v")).unwrap().remove(0);
        prop_assert_eq!((before.samples, before.first_sample, before.last_sample),
            (after.samples, after.first_sample, after.last_sample));
        for (before, after) in [(before.resources.cpu, after.resources.cpu), (before.resources.memory, after.resources.memory)] {
            let (before, after) = (before.unwrap(), after.unwrap());
            prop_assert_eq!(before.confidence.to_bits(), after.confidence.to_bits());
            for (before_bound, after_bound) in before.bounds.iter().zip(&after.bounds) {
                // The value at a percentile that is off by as much as 176 roundings can be.
                let value = |percentile: f64| {
                    let mut sum = 0.0;
                    let reached = |bucket: &&plumb_recommender::model::estimate::BucketWeight| {
                        sum += bucket.share;
                        sum >= percentile
                    };
                    before.histogram.iter().find(reached).or(before.histogram.last()).map_or(0.0, |bucket| bucket.end)
                };
                let percentile = before_bound.steps.percentile;
                let scale = if before_bound.steps.minimum < 1_000_000 { 1_000.0 } else { 1.0 };
                #[expect(clippy::cast_possible_truncation)]
                let [low, high] = [percentile - 0.01, percentile + 0.01].map(|p| (value(p) * scale) as i64);
                prop_assert!((low..=high).contains(&after_bound.steps.usage), "{low} {high} {after_bound:?}");
            }
        }
        // And what was restored is written as it was read.
        prop_assert_eq!(checkpoint(&mut restarted).status, status);
    }
}
