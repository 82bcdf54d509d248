//! How pods are grouped, and what happens when they are replaced.

use plumb_recommender::ClusterSettings;

use super::super::{DAY, HOUR, MINUTE, at, cpu, memory};
use super::{bed, bed_with, equals, exists, key, vpa};

#[test]
fn a_rollout_adds_no_aggregate() {
    let mut bed = bed();
    bed.vpa("v", &[("app", "x")]);
    for revision in 0..50 {
        let hash = format!("{revision:010x}");
        bed.cluster.set_time(at(revision * MINUTE));
        for replica in 0..2 {
            let name = format!("x-{hash}-{replica}");
            bed.pod(&name, &[("app", "x"), ("pod-template-hash", &hash)]);
            bed.sample(&name, cpu(revision * MINUTE, 100)).unwrap();
        }
        if revision > 0 {
            for replica in 0..2 {
                bed.delete_pod(&format!("x-{:010x}-{replica}", revision - 1));
            }
        }
    }
    let size = bed.cluster.size();
    assert_eq!((size.aggregates, size.label_sets, size.pods), (1, 1, 2));
    assert_eq!((bed.pods_of("v"), bed.samples_of("v")), (2, 100));
}

#[test]
fn generated_labels_of_any_controller_add_no_aggregate() {
    let mut bed = bed();
    for pod in 0..10 {
        let (name, index) = (format!("web-{pod}"), pod.to_string());
        bed.pod(
            &name,
            &[
                ("app", "web"),
                ("statefulset.kubernetes.io/pod-name", &name),
                ("apps.kubernetes.io/pod-index", &index),
                ("controller-revision-hash", "web-7d8f"),
            ],
        );
        bed.pod(
            &format!("job-{pod}"),
            &[
                ("app", "backup"),
                ("job-name", &name),
                ("batch.kubernetes.io/job-name", &name),
                ("controller-uid", &index),
                ("batch.kubernetes.io/controller-uid", &index),
                ("batch.kubernetes.io/job-completion-index", &index),
            ],
        );
    }
    assert_eq!(bed.cluster.size().aggregates, 2);
}

#[test]
fn a_selector_that_reads_a_generated_label_divides_the_pods() {
    let mut bed = bed();
    bed.vpa("all", &[("app", "x")]);
    bed.pod("p", &[("app", "x"), ("controller-uid", "1")]);
    bed.pod("q", &[("app", "x"), ("controller-uid", "2")]);
    bed.sample("p", cpu(0, 100)).unwrap();
    bed.sample("q", cpu(0, 100)).unwrap();
    assert_eq!(bed.cluster.size().aggregates, 1);

    // What was counted together stays with those that do not read the label.
    bed.vpa("one", &[("controller-uid", "1")]);
    bed.cluster.apply_vpa(vpa("labelled", exists("controller-uid").into()));
    assert_eq!((bed.pods_of("one"), bed.pods_of("labelled"), bed.pods_of("all")), (1, 2, 2));
    assert_eq!((bed.samples_of("one"), bed.samples_of("labelled"), bed.samples_of("all")), (0, 0, 2));

    bed.sample("p", cpu(MINUTE, 100)).unwrap();
    bed.sample("q", cpu(MINUTE, 100)).unwrap();
    bed.pod("r", &[("app", "x"), ("controller-uid", "1")]);
    bed.sample("r", cpu(MINUTE, 100)).unwrap();
    assert_eq!((bed.samples_of("one"), bed.samples_of("labelled"), bed.samples_of("all")), (2, 3, 5));

    // When no selector reads it any more, new pods are grouped without it again.
    bed.cluster.delete_vpa(&key("one"));
    bed.cluster.delete_vpa(&key("labelled"));
    bed.pod("s", &[("app", "x"), ("controller-uid", "9")]);
    bed.sample("s", cpu(MINUTE, 100)).unwrap();
    assert_eq!((bed.pods_of("all"), bed.samples_of("all")), (4, 6));
}

#[test]
fn a_pod_that_changes_its_labels_takes_its_memory_peak_along() {
    const GI: i64 = 1 << 30;
    let mut bed = bed();
    bed.vpa("x", &[("app", "x")]);
    bed.vpa("y", &[("app", "y")]);
    bed.pod("stays", &[("app", "y")]);
    bed.sample("stays", memory(0, GI)).unwrap();
    bed.pod("moves", &[("app", "x")]);
    bed.sample("moves", memory(0, 4 * GI)).unwrap();
    let peaks = |bed: &super::Bed, vpa: &str| -> Vec<i64> {
        let memory = bed.cluster.explain(&key(vpa)).unwrap()[0].resources.memory.clone().unwrap();
        #[expect(clippy::cast_possible_truncation)]
        memory.histogram.iter().map(|bucket| bucket.end as i64 / GI).collect()
    };
    assert_eq!((peaks(&bed, "x"), peaks(&bed, "y")), (vec![4], vec![1]));

    bed.pod("moves", &[("app", "y")]);
    assert_eq!((bed.pods_of("x"), bed.pods_of("y")), (0, 2));
    assert_eq!((peaks(&bed, "x"), peaks(&bed, "y")), (vec![], vec![1, 4]));
    bed.pass(HOUR);
    bed.sample("moves", memory(HOUR, 8 * GI)).unwrap();
    assert_eq!(peaks(&bed, "y"), [1, 8], "the peak is replaced where it is now");

    // The peak of a window that is over stays where the pod was.
    bed.pass(2 * DAY);
    bed.pod("moves", &[("app", "x")]);
    assert_eq!((peaks(&bed, "x"), peaks(&bed, "y")), (vec![], vec![1, 8]));
}

#[test]
fn a_pod_that_is_replaced_under_its_name_has_one_peak_a_day() {
    let mut bed = bed();
    bed.vpa("v", &[("app", "x")]);
    bed.pod("web-0", &[("app", "x"), ("controller-revision-hash", "1")]);
    bed.sample("web-0", memory(0, 1 << 30)).unwrap();
    bed.cluster.delete_pod("ns", "web-0");
    bed.pod("web-0", &[("app", "x"), ("controller-revision-hash", "2")]);
    bed.cluster.remove_deleted_pods();
    bed.pass(HOUR);
    bed.sample("web-0", memory(HOUR, 1 << 31)).unwrap();
    let explained = bed.cluster.explain(&key("v")).unwrap();
    assert_eq!(explained[0].resources.memory.as_ref().unwrap().histogram.len(), 1);
    assert_eq!(bed.pods_of("v"), 1);
}

#[test]
fn a_deleted_pod_counts_until_it_is_removed() {
    let mut bed = bed();
    bed.vpa("v", &[("app", "x")]);
    bed.pod("p", &[("app", "x")]);
    bed.cluster.delete_pod("ns", "p");
    bed.cluster.delete_pod("ns", "p");
    bed.cluster.record_oom("ns", "p", "app", at(0), 1 << 30).unwrap();
    bed.cluster.remove_deleted_pods();
    assert!(bed.cluster.record_oom("ns", "p", "app", at(0), 1 << 30).is_err());
    assert_eq!(bed.target("v"), "25m/1555165137");
    bed.cluster.delete_pod("ns", "unknown");
    bed.cluster.remove_deleted_pods();
}

#[test]
fn containers_come_and_go_with_updates_of_their_pod() {
    let mut bed = bed();
    bed.vpa("v", &[("app", "x")]);
    bed.pod_with("p", &[("app", "x")], &["app"], true);
    bed.sample("p", cpu(0, 100)).unwrap();
    bed.pod_with("p", &[("app", "x")], &["debugger", "app"], true);
    let names: Vec<_> = bed.targets("v").into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["app", "debugger"]);
    assert!(bed.sample("p", cpu(0, 100)).is_err(), "the container goes on where it was");
    bed.pod_with("p", &[("app", "x")], &["app"], true);
    assert!(bed.cluster.add_sample("ns", "p", "debugger", cpu(0, 1)).is_err());
}

#[test]
fn saving_memory_counts_nothing_for_pods_that_no_vpa_selects() {
    let mut bed = bed_with(ClusterSettings { memory_saver: true, ..ClusterSettings::default() });
    bed.pod("p", &[("app", "x")]);
    bed.sample("p", cpu(0, 100)).unwrap();
    assert_eq!(bed.cluster.size().aggregates, 0);
    bed.vpa("v", &[("app", "x")]);
    assert_eq!((bed.cluster.size().aggregates, bed.target("v").as_str()), (1, "25m/250Mi"));
    bed.sample("p", cpu(MINUTE, 100)).unwrap();
    assert_eq!(bed.samples_of("v"), 1);
}

#[test]
fn no_state_is_left_of_deleted_pods_and_vpas() {
    let mut bed = bed();
    for pod in 0..20 {
        let app = format!("app-{}", pod % 4);
        bed.pod(&format!("p{pod}"), &[("app", &app), ("tier", "web")]);
        bed.cluster.apply_vpa(vpa(&app, equals(&[("app", &app)])));
    }
    bed.cluster.recommend();
    for pod in 0..20 {
        bed.delete_pod(&format!("p{pod}"));
        bed.cluster.delete_vpa(&key(&format!("app-{}", pod % 4)));
    }
    bed.cluster.collect_garbage();
    assert_eq!(bed.cluster.size(), plumb_recommender::model::cluster::ClusterSize::default());
}
