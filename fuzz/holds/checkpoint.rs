//! Any bytes may be tried as the status of a checkpoint, and as its annotation. One that is refused changes nothing; one that is restored can
//! be written, reads back to itself, and leaves a recommender that goes on working.

use plumb_recommender::model::cluster::{PodUpdate, Restored, SelectorUpdate, VpaUpdate};
use plumb_recommender::{
    CheckpointStatus, Cluster, ClusterSettings, CountedKills, Sample, Time, VpaKey, VpaSettings,
};
use plumb_resize::resource::Resource;
use plumb_vpa_api::VerticalPodAutoscalerCheckpointStatus;

/// Fails where it does not hold.
pub(crate) fn holds(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        let kills = CountedKills::from_annotation(text);
        let written = kills.to_annotation().unwrap_or_default();
        assert_eq!(CountedKills::from_annotation(&written), kills, "{text}");
    }
    let Ok(read) = serde_json::from_slice::<VerticalPodAutoscalerCheckpointStatus>(bytes) else { return };
    let Ok(status) = CheckpointStatus::from_api(&read) else { return };
    let now = Time::from_unix_seconds(1_767_225_600);
    let (mut cluster, key) = cluster(now);
    let before = cluster.checkpoints(&key);
    if let Ok(restored) = cluster.restore_checkpoint(&key, "app", &status) {
        assert_eq!(restored, Restored::Restored);
    } else {
        let after = cluster.checkpoints(&key);
        assert!(after.is_empty() || after == before, "a refused checkpoint counts");
    }
    use_on(&mut cluster, &key, now);

    // What is written is read, and written again as it was.
    for written in cluster.checkpoints(&key) {
        let api = written.status.to_api(now);
        let text = serde_json::to_vec(&api).expect("what is written is of the API's form");
        let read = serde_json::from_slice(&text).expect("what was written can be read");
        let again = CheckpointStatus::from_api(&read).expect("what was written can be read");
        assert_eq!(again, written.status);
        let (mut restarted, key) = self::cluster(now);
        // Its times may be too far ahead of a clock that is behind.
        if restarted.restore_checkpoint(&key, "app", &again).is_ok() {
            let checkpoints = restarted.checkpoints(&key);
            let [restored] = &checkpoints[..] else { panic!("one container, one checkpoint") };
            assert_eq!(restored.status.cpu_histogram.bucket_weights, again.cpu_histogram.bucket_weights);
            assert_eq!(
                restored.status.memory_histogram.bucket_weights,
                again.memory_histogram.bucket_weights
            );
        }
    }
}

/// A cluster with a VPA and no sample.
fn cluster(now: Time) -> (Cluster, VpaKey) {
    let mut cluster = Cluster::new(ClusterSettings::default()).expect("the buckets are constants");
    cluster.set_time(now);
    let key = VpaKey::new("ns", "vpa");
    cluster.apply_vpa(VpaUpdate {
        key: key.clone(),
        created: now,
        selector: SelectorUpdate::Known([("app", "x")].into_iter().collect()),
        settings: VpaSettings::default(),
        target_exists: true,
    });
    (cluster, key)
}

/// Adds samples and works out recommendations.
fn use_on(cluster: &mut Cluster, key: &VpaKey, now: Time) {
    let labels = [("app".to_owned(), "x".to_owned())].into();
    let containers = &["app"];
    cluster.apply_pod(PodUpdate { namespace: "ns", name: "p", labels: &labels, containers, active: true });
    for (resource, usage) in [(Resource::Cpu, 100), (Resource::Memory, 1 << 30)] {
        cluster.add_sample("ns", "p", "app", Sample { at: now, resource, usage }).expect("the first sample");
    }
    cluster.recommend();
    let view = cluster.vpa(key).expect("the VPA is there");
    for container in view.recommendation() {
        let lists =
            [&container.target, &container.lower_bound, &container.upper_bound, &container.uncapped_target];
        for quantity in lists.into_iter().flat_map(|list| [list.cpu, list.memory]).flatten() {
            assert!(quantity.is_positive(), "{container:?}");
        }
    }
    assert!(cluster.explain(key).is_some());
    cluster.collect_garbage();
}
