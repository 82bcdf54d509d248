//! VPAs and the pods that they select.

use kube::core::{Expression, Selector};
use plumb_recommender::model::cluster::SelectorUpdate;
use plumb_recommender::{ContainerPolicy, ResourcePolicy, ScalingMode, VpaKey, VpaSettings};

use super::super::{DAY, HOUR, MINUTE, at, cpu, memory};
use super::{bed, equals, exists, key, vpa};

const APP: &[(&str, &str)] = &[("app", "x")];

#[test]
fn pods_and_vpas_find_each_other_in_either_order() {
    let mut bed = bed();
    bed.vpa("before", APP);
    bed.pod("p", APP);
    bed.vpa("after", APP);
    bed.sample("p", cpu(0, 100)).unwrap();
    for name in ["before", "after"] {
        assert_eq!((bed.pods_of(name), bed.target(name).as_str()), (1, "126m/250Mi"), "{name}");
    }
}

#[test]
fn a_container_without_samples_is_recommended_the_minimum() {
    let mut bed = bed();
    bed.vpa("v", APP);
    assert_eq!(bed.target("v"), "");
    bed.pod("p", APP);
    assert_eq!(bed.target("v"), "25m/250Mi");
}

#[test]
fn pods_are_counted_whatever_their_phase() {
    let mut bed = bed();
    bed.vpa("v", APP);
    bed.pod("running", APP);
    bed.pod_with("failed", APP, &["app"], false);
    bed.pod("other", &[("app", "y")]);
    bed.pod("none", &[]);
    assert_eq!(bed.pods_of("v"), 2);
    bed.pod("failed", &[("app", "y")]);
    assert_eq!(bed.pods_of("v"), 1);
    bed.delete_pod("running");
    assert_eq!(bed.pods_of("v"), 0);
}

#[test]
fn namespaces_do_not_mix() {
    let mut bed = bed();
    let mut elsewhere = vpa("v", equals(APP));
    elsewhere.key = VpaKey::new("elsewhere", "v");
    bed.cluster.apply_vpa(elsewhere);
    bed.vpa("v", APP);
    bed.pod("p", APP);
    assert_eq!(bed.pods_of("v"), 1);
    assert_eq!(bed.cluster.vpa(&VpaKey::new("elsewhere", "v")).unwrap().pods(), 0);
}

#[test]
fn every_kind_of_requirement_selects() {
    let values = |values: &[&str]| values.iter().map(|&value| value.to_owned()).collect();
    let cases: [(&str, Selector, [bool; 3]); 9] = [
        ("all", Selector::default(), [true, true, true]),
        ("equal", equals(&[("app", "x")]), [true, false, false]),
        ("not equal", Expression::NotEqual("app".into(), "x".into()).into(), [false, true, true]),
        ("in", Expression::In("app".into(), values(&["x", "y"])).into(), [true, true, false]),
        ("in nothing", Expression::In("app".into(), values(&[])).into(), [false, false, false]),
        ("not in", Expression::NotIn("app".into(), values(&["y"])).into(), [true, false, true]),
        ("exists", exists("app").into(), [true, true, false]),
        ("absent", Expression::DoesNotExist("app".into()).into(), [false, false, true]),
        ("two", equals(&[("app", "x"), ("tier", "web")]), [true, false, false]),
    ];
    for vpa_first in [true, false] {
        let mut bed = bed();
        let add_pods = |bed: &mut super::Bed| {
            bed.pod("x", &[("app", "x"), ("tier", "web")]);
            bed.pod("y", &[("app", "y"), ("tier", "web")]);
            bed.pod("z", &[("tier", "db")]);
        };
        if !vpa_first {
            add_pods(&mut bed);
        }
        for (name, selector, _) in &cases {
            bed.cluster.apply_vpa(vpa(name, selector.clone()));
        }
        if vpa_first {
            add_pods(&mut bed);
        }
        for (name, _, selected) in &cases {
            let pods = selected.iter().filter(|&&selected| selected).count();
            assert_eq!(bed.pods_of(name), pods, "{name}, VPAs first: {vpa_first}");
        }
        for name in ["x", "y", "z"] {
            bed.delete_pod(name);
        }
        assert!(cases.iter().all(|(name, ..)| bed.pods_of(name) == 0));
    }
}

#[test]
fn a_selector_that_changes_selects_other_pods() {
    let mut bed = bed();
    bed.pod("p", APP);
    bed.sample("p", cpu(0, 100)).unwrap();
    let either = Expression::In("app".to_owned(), ["x".to_owned(), "y".to_owned()].into());
    bed.cluster.apply_vpa(vpa("v", either.into()));
    assert_eq!((bed.pods_of("v"), bed.samples_of("v")), (1, 1));
    bed.vpa("v", &[("app", "y")]);
    assert_eq!((bed.pods_of("v"), bed.samples_of("v")), (0, 0));
    assert_eq!(bed.target("v"), "");
    bed.vpa("v", APP);
    assert_eq!((bed.pods_of("v"), bed.samples_of("v")), (1, 1));
}

#[test]
fn a_selector_that_cannot_be_resolved_changes_nothing() {
    let mut bed = bed();
    bed.vpa("v", APP);
    bed.pod("p", APP);
    bed.sample("p", cpu(0, 100)).unwrap();
    let before = bed.target("v");
    let mut unresolved = vpa("v", Selector::default());
    unresolved.selector = SelectorUpdate::Unknown;
    bed.cluster.apply_vpa(unresolved.clone());
    assert_eq!((bed.pods_of("v"), bed.target("v")), (1, before));

    unresolved.key = key("new");
    bed.cluster.apply_vpa(unresolved);
    assert_eq!((bed.pods_of("new"), bed.cluster.vpa(&key("new")).unwrap().has_selector()), (0, false));
    bed.vpa("new", APP);
    assert_eq!((bed.pods_of("new"), bed.samples_of("new")), (1, 1));
}

#[test]
fn only_vpas_whose_status_differs_are_reported() {
    let mut bed = bed();
    bed.vpa("v", APP);
    bed.vpa("w", &[("app", "y")]);
    bed.pod("p", APP);
    bed.pod("q", &[("app", "y")]);
    let names = |bed: &mut super::Bed| -> Vec<String> {
        bed.cluster.recommend().iter().map(|key| key.name.clone()).collect()
    };
    assert_eq!(names(&mut bed), ["v", "w"]);
    assert_eq!(names(&mut bed), [""; 0]);
    bed.sample("p", cpu(0, 100)).unwrap();
    assert_eq!(names(&mut bed), ["v"]);
    // The same usage for days: the bounds close in on the target, and move less and less.
    let mut written = Vec::new();
    for minute in 1..3 * 24 * 60 {
        bed.seconds = minute * MINUTE;
        bed.cluster.set_time(at(bed.seconds));
        bed.sample("p", cpu(bed.seconds, 100)).unwrap();
        written.extend(bed.cluster.recommend().iter().map(|_| minute));
    }
    let writes_of_day = |day: i64| written.iter().filter(|&&minute| minute / (24 * 60) == day).count();
    assert!(writes_of_day(2) < 60, "{} writes on the third day", writes_of_day(2));
    // What the VPA asks for counts at once.
    let mut update = vpa("v", equals(APP));
    update.settings = off("app");
    bed.cluster.apply_vpa(update.clone());
    assert_eq!(names(&mut bed), ["v"]);
    bed.cluster.apply_vpa(update);
    assert_eq!(names(&mut bed), [""; 0]);
    bed.cluster.delete_vpa(&key("v"));
    assert_eq!(names(&mut bed), [""; 0]);
    assert!(bed.cluster.vpa(&key("v")).is_none());
}

fn off(container: &str) -> VpaSettings {
    let mut policy = ContainerPolicy::new(container);
    policy.mode = ScalingMode::Off;
    VpaSettings { policy: ResourcePolicy { containers: vec![policy] }, ..VpaSettings::default() }
}

#[test]
fn containers_with_little_history_are_named() {
    let mut bed = bed();
    bed.vpa("v", APP);
    bed.pod_with("p", APP, &["app", "sidecar"], true);
    for hour in 0..=25 {
        bed.cluster.set_time(at(hour * HOUR));
        bed.cluster.add_sample("ns", "p", "app", cpu(hour * HOUR, 100)).unwrap();
        if hour > 2 {
            bed.cluster.add_sample("ns", "p", "sidecar", cpu(hour * HOUR, 100)).unwrap();
        }
    }
    bed.cluster.recommend();
    let view = bed.cluster.vpa(&key("v")).unwrap();
    assert_eq!(view.low_confidence().collect::<Vec<_>>(), ["sidecar"]);
}

#[test]
fn containers_of_the_same_name_in_pods_with_other_labels_add_up() {
    let mut bed = bed();
    bed.cluster.apply_vpa(vpa("v", Selector::default()));
    bed.pod_with("p", &[("app", "x")], &["a", "b"], true);
    bed.pod_with("q", &[("app", "y")], &["a", "c"], true);
    for (pod, container, cores) in [("p", "a", 1), ("p", "b", 5), ("q", "a", 3), ("q", "c", 5)] {
        bed.cluster.add_sample("ns", pod, container, cpu(0, cores * 1_000)).unwrap();
        bed.cluster.add_sample("ns", pod, container, memory(0, cores * 1_000_000_000)).unwrap();
    }
    let explained = bed.cluster.explain(&key("v")).unwrap();
    let samples: Vec<_> = explained.iter().map(|of| (of.container.as_str(), of.samples)).collect();
    assert_eq!(samples, [("a", 2), ("b", 1), ("c", 1)]);
    let a = explained[0].resources.cpu.as_ref().unwrap();
    assert_eq!(a.histogram.iter().map(|bucket| bucket.share).collect::<Vec<_>>(), [0.5, 0.5]);
}

#[test]
fn the_oldest_vpa_decides_on_memory_windows() {
    let settings = |ratio: f64| {
        let mut policy = ContainerPolicy::new("*");
        policy.oom_bump_up_ratio = Some(ratio);
        VpaSettings { policy: ResourcePolicy { containers: vec![policy] }, ..VpaSettings::default() }
    };
    let memory_after_oom = |ages: [i64; 2]| {
        let mut bed = bed();
        for (name, ratio, created) in [("a", 2.0, ages[0]), ("b", 3.0, ages[1])] {
            let mut update = vpa(name, equals(APP));
            update.created = at(-created);
            update.settings = settings(ratio);
            bed.cluster.apply_vpa(update);
        }
        bed.pod("p", APP);
        bed.cluster.record_oom("ns", "p", "app", at(0), 1 << 30).unwrap();
        let explained = bed.cluster.explain(&key("a")).unwrap();
        explained[0].resources.memory.as_ref().unwrap().bounds[0].steps.usage / (1 << 30)
    };
    assert_eq!(memory_after_oom([2, 1]), 2);
    assert_eq!(memory_after_oom([1, 2]), 3);
    assert_eq!(memory_after_oom([1, 1]), 2, "of the same age, the first by name");
}

#[test]
fn a_vpa_that_is_created_again_has_its_history() {
    let mut bed = bed();
    bed.vpa("v", APP);
    bed.pod("p", APP);
    bed.sample("p", cpu(0, 100)).unwrap();
    let checkpoint = bed.cluster.checkpoints(&key("v")).remove(0);

    // Another recommender, which starts from the checkpoint.
    let mut bed = super::bed();
    bed.vpa("v", APP);
    bed.cluster.restore_checkpoint(&key("v"), "app", &checkpoint.status).unwrap();
    assert_eq!(bed.samples_of("v"), 1);
    bed.cluster.delete_vpa(&key("v"));
    assert_eq!(bed.cluster.size().parked_histories, 1);
    let mut again = vpa("v", equals(APP));
    again.created = at(60);
    bed.cluster.apply_vpa(again.clone());
    assert_eq!((bed.samples_of("v"), bed.cluster.size().parked_histories), (1, 0));

    // The same object under another name of the same age: replaced between two reports of the watch.
    again.created = at(120);
    bed.cluster.apply_vpa(again);
    assert_eq!(bed.samples_of("v"), 1);

    // With another selector it is another workload's history, until the selector is back.
    bed.vpa("v", &[("app", "y")]);
    assert_eq!(bed.samples_of("v"), 0);
    bed.vpa("v", APP);
    assert_eq!(bed.samples_of("v"), 1);

    bed.cluster.delete_vpa(&key("v"));
    bed.pass(9 * DAY);
    bed.cluster.collect_garbage();
    assert_eq!(bed.cluster.size().parked_histories, 0);
}
