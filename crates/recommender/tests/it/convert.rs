//! Objects of the API in and out.

use std::collections::BTreeMap;
use std::time::Duration;

use plumb_recommender::{
    CheckpointError, CheckpointStatus, EstimationSettings, ScalingMode, VpaSettings, Workload,
};
use plumb_vpa_api::{
    RecommendedContainerResources, VerticalPodAutoscalerCheckpointStatus, VerticalPodAutoscalerSpec,
};
use serde_json::{Value, json};

use super::{DAY, at, config, cpu, memory};

fn spec(policies: &Value) -> VerticalPodAutoscalerSpec {
    serde_json::from_value(json!({
        "targetRef": { "kind": "Deployment", "name": "d" },
        "resourcePolicy": { "containerPolicies": policies },
    }))
    .unwrap()
}

#[test]
fn a_spec_is_read_with_upstreams_defaults() {
    let bare: VerticalPodAutoscalerSpec =
        serde_json::from_value(json!({ "targetRef": { "kind": "Deployment", "name": "d" } })).unwrap();
    assert_eq!(VpaSettings::from_api(&bare, &BTreeMap::new(), true), VpaSettings::default());

    let spec = spec(&json!([
        { "containerName": "*", "mode": "Off" },
        {
            "containerName": "app",
            "minAllowed": { "cpu": "100m" },
            "maxAllowed": { "memory": "1Gi", "cpu": 0 },
            "controlledResources": ["memory"],
            "oomBumpUpRatio": "1.5",
            "oomMinBumpUp": "50Mi",
            "memoryAggregationIntervalSeconds": 3600,
            "memoryAggregationIntervalCount": 4,
        },
        { "containerName": "all", "controlledResources": [] },
    ]));
    let annotations =
        BTreeMap::from([("vpa-post-processor.kubernetes.io/app_integerCPU".to_owned(), "true".to_owned())]);
    let settings = VpaSettings::from_api(&spec, &annotations, true);
    assert_eq!(settings.integer_cpu, ["app"]);
    assert!(!settings.policy.scales("other") && settings.policy.scales("app"));
    let app = settings.policy.for_container("app").unwrap();
    assert_eq!(app.mode, ScalingMode::Auto);
    assert_eq!((app.controlled.cpu, app.controlled.memory), (false, true));
    assert_eq!(app.min_allowed.cpu, Some("100m".parse().unwrap()));
    assert_eq!(app.min_allowed.memory, None);
    assert!(app.max_allowed.cpu.unwrap().is_zero());
    assert_eq!((app.oom_bump_up_ratio, app.oom_min_bump_up_bytes), (Some(1.5), Some(52_428_800.0)));
    assert_eq!((app.memory_interval, app.memory_interval_count), (Some(Duration::from_hours(1)), Some(4)));
    let nothing = settings.policy.for_container("all").unwrap().controlled;
    assert!(!nothing.cpu && !nothing.memory);

    let gated = VpaSettings::from_api(&spec, &annotations, false);
    let app = gated.policy.for_container("app").unwrap();
    assert_eq!((app.oom_bump_up_ratio, app.memory_interval), (None, None));
}

#[test]
fn a_recommendation_is_written_as_the_api_carries_it() {
    let config = config();
    let mut workload = Workload::new(&config, VpaSettings::default());
    workload.add_sample("app", cpu(0, 100)).unwrap();
    workload.add_sample("app", memory(0, 100_000_000)).unwrap();
    let recommended = workload.recommend(&EstimationSettings::default());
    let written = serde_json::to_value(RecommendedContainerResources::from(&recommended[0])).unwrap();
    let target = json!({ "cpu": "126m", "memory": "250Mi" });
    assert_eq!(
        written,
        json!({
            "containerName": "app",
            "target": target,
            "lowerBound": { "cpu": "25m", "memory": "250Mi" },
            "upperBound": { "cpu": "100G", "memory": "97656250000Ki" },
            "uncappedTarget": target,
        })
    );
}

fn checkpoint() -> Value {
    json!({
        "lastUpdateTime": "2026-01-02T00:00:00Z",
        "version": "v3",
        "cpuHistogram": {
            "referenceTimestamp": "2026-01-01T00:00:00Z", "bucketWeights": { "8": 10000, "10": 3 }, "totalWeight": 0.1,
        },
        "memoryHistogram": { "referenceTimestamp": null, "totalWeight": 0 },
        "firstSampleStart": "2026-01-01T00:00:00Z",
        "lastSampleStart": "2026-01-02T00:00:00Z",
        "totalSamplesCount": 7,
    })
}

fn read(status: Value) -> Result<CheckpointStatus, CheckpointError> {
    CheckpointStatus::from_api(
        &serde_json::from_value::<VerticalPodAutoscalerCheckpointStatus>(status).unwrap(),
    )
}

#[test]
fn a_checkpoint_is_read_and_written() {
    let status = read(checkpoint()).unwrap();
    assert_eq!(status.cpu_histogram.bucket_weights.len(), 2);
    assert_eq!((status.first_sample_start, status.total_samples_count), (at(0), 7));
    assert!(status.restore(&config()).is_ok());
    let mut written = serde_json::to_value(status.to_api(at(DAY))).unwrap();
    // Absent and null are the same.
    written["memoryHistogram"]["referenceTimestamp"] = Value::Null;
    written["memoryHistogram"]["totalWeight"] = json!(0);
    assert_eq!(written, checkpoint());
    assert_eq!(CheckpointStatus::from_api(&status.to_api(at(0))), Ok(status));
}

#[test]
fn a_checkpoint_that_is_wrong_is_an_error() {
    for (pointer, value, message) in [
        ("/version", json!("v4"), "unsupported checkpoint version \"v4\", expected \"v3\""),
        ("/version", Value::Null, "unsupported checkpoint version \"\", expected \"v3\""),
        ("/cpuHistogram/bucketWeights", json!({ "x": 1 }), "cpu histogram: bucket \"x\" has the weight 1"),
        (
            "/cpuHistogram/referenceTimestamp",
            json!("9999-01-01T00:00:00Z"),
            "cpu histogram: reference time: timestamp 9999-01-01T00:00:00Z is not between the years 1677 and 2262",
        ),
        (
            "/lastSampleStart",
            json!("1500-01-01T00:00:00Z"),
            "time of a sample: timestamp 1500-01-01T00:00:00Z is not between the years 1677 and 2262",
        ),
    ] {
        let mut status = checkpoint();
        *status.pointer_mut(pointer).unwrap() = value;
        assert_eq!(read(status).unwrap_err().to_string(), message, "{pointer}");
    }
    // Another version may mean other things by everything else.
    let mut newer = checkpoint();
    newer["version"] = json!("v4");
    newer["cpuHistogram"]["bucketWeights"] = json!([1, 2, 3]);
    assert!(
        serde_json::from_value::<VerticalPodAutoscalerCheckpointStatus>(newer.clone()).is_err()
            || read(newer).is_err()
    );
}
