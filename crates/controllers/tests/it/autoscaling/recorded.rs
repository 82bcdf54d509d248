//! Decisions that the functions of kube-controller-manager 1.36.4 made of random cases, recorded in `recorded.jsonl`.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscalerBehavior;
use k8s_openapi::api::core::v1::Pod;
use plumb_controllers::horizontal_pod_autoscaler::Settings;
use plumb_controllers::horizontal_pod_autoscaler::calculator::{
    Calculator, Proposal, Sample, Samples, Tolerances,
};
use plumb_controllers::horizontal_pod_autoscaler::normalize::{Bounds, History, normalize};
use plumb_controllers::horizontal_pod_autoscaler::requests::RequestOf;
use serde::Deserialize;
use serde_json::{Value, json};

use super::wall;

const RECORDED: &str = include_str!("recorded.jsonl");

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Case {
    Calculate(Calculation),
    Normalize(Normalization),
}

/// A metric, with the replicas that it asks for. Times are seconds before the calculation.
#[derive(Deserialize)]
struct Calculation {
    by: String,
    #[serde(default)]
    resource: String,
    container: Option<String>,
    pods: Vec<RecordedPod>,
    #[serde(default)]
    samples: BTreeMap<String, RecordedSample>,
    #[serde(default)]
    values: Vec<i64>,
    current: i32,
    status: i32,
    target: i64,
    down: f64,
    up: f64,
    replicas: i32,
    utilization: Option<i32>,
    milli: i64,
    error: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RecordedPod {
    name: String,
    phase: String,
    #[serde(default)]
    terminating: bool,
    started: Option<i64>,
    ready: Option<String>,
    ready_since: Option<i64>,
    requests: Vec<Option<i64>>,
}

#[derive(Deserialize)]
struct RecordedSample {
    at: i64,
    window: i64,
    milli: i64,
}

/// The replicas that metrics ask for, and what became of them.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Normalization {
    min: i32,
    max: i32,
    current: i32,
    desired: i32,
    behavior: Option<HorizontalPodAutoscalerBehavior>,
    recommendations: Vec<Aged>,
    ups: Vec<Aged>,
    downs: Vec<Aged>,
    replicas: i32,
    conditions: Vec<[String; 3]>,
}

#[derive(Clone, Copy, Deserialize)]
struct Aged {
    replicas: i32,
    age: f64,
}

fn cases() -> impl Iterator<Item = Case> {
    RECORDED.lines().map(|line| serde_json::from_str(line).unwrap())
}

fn ago(seconds: i64) -> Timestamp {
    wall() - SignedDuration::from_secs(seconds)
}

impl RecordedPod {
    fn pod(&self, resource: &str) -> Pod {
        let resource = if resource.is_empty() { "cpu" } else { resource };
        let container = |(number, milli): (usize, &Option<i64>)| {
            let requests = milli.map(|milli| json!({ resource: format!("{milli}m") }));
            let name = ["a", "b"][number];
            json!({ "name": name, "resources": { "requests": requests } })
        };
        let containers: Vec<Value> = self.requests.iter().enumerate().map(container).collect();
        let ready = self.ready.as_ref().map(|status| {
            let since = self.ready_since.map(ago);
            json!([{ "type": "Ready", "status": status, "lastTransitionTime": since }])
        });
        serde_json::from_value(json!({
            "metadata": { "name": self.name, "deletionTimestamp": self.terminating.then(|| ago(1)) },
            "spec": { "containers": containers },
            "status": { "phase": self.phase, "startTime": self.started.map(ago), "conditions": ready },
        }))
        .unwrap()
    }
}

impl Calculation {
    fn repeat(&self) -> Result<Proposal, String> {
        let pods: Vec<Pod> = self.pods.iter().map(|pod| pod.pod(&self.resource)).collect();
        let sample = |sample: &RecordedSample| Sample {
            at: ago(sample.at),
            window: SignedDuration::from_secs(sample.window),
            milli: sample.milli,
        };
        let samples: Samples =
            self.samples.iter().map(|(pod, recorded)| (pod.clone(), sample(recorded))).collect();
        let calculator = Calculator {
            pods: &pods,
            replicas: self.current,
            status_replicas: self.status,
            tolerances: Tolerances { down: self.down, up: self.up },
            initialization: Settings::default().initialization,
            now: wall(),
        };
        let of = RequestOf { resource: &self.resource, container: self.container.as_deref() };
        let value = self.values.iter().sum();
        let proposal = match &*self.by {
            "utilization" => calculator.by_utilization(&samples, of, self.target.try_into().unwrap()),
            "average" => calculator.by_average(&samples, Some(&self.resource), self.target),
            "pods" => calculator.by_average(&samples, None, self.target),
            "object" | "external" => calculator.by_value(value, self.target),
            _ => Ok(calculator.by_value_per_pod(value, self.target)),
        };
        proposal.map_err(|error| error.to_string())
    }
}

#[test]
fn metrics_ask_for_as_many_replicas_as_in_kube_controller_manager() {
    let mut count = 0;
    for (number, case) in cases().enumerate() {
        let Case::Calculate(case) = case else { continue };
        let Calculation { replicas, utilization, milli, .. } = case;
        let expected = match &case.error {
            Some(error) => Err(error.clone()),
            None => Ok(Proposal { replicas, utilization, milli }),
        };
        // Upstream goes over pods in any order, and names the first that lacks a request.
        let unnamed = |error: String| error.split(" Pod ").next().unwrap_or_default().to_owned();
        assert_eq!(case.repeat().map_err(unnamed), expected.map_err(unnamed), "line {}", number + 1);
        count += 1;
    }
    assert!(count > 100);
}

#[test]
fn replicas_are_stabilized_and_bounded_as_in_kube_controller_manager() {
    let now = Duration::from_hours(1);
    let records = |all: &[Aged]| -> Vec<(i32, Duration)> {
        all.iter().map(|one| (one.replicas, now.saturating_sub(Duration::from_secs_f64(one.age)))).collect()
    };
    let mut count = 0;
    for (number, case) in cases().enumerate() {
        let Case::Normalize(case) = case else { continue };
        let mut history =
            History::from_records(records(&case.recommendations), records(&case.ups), records(&case.downs));
        let bounds = Bounds {
            current: case.current,
            min: case.min,
            max: case.max,
            behavior: case.behavior.as_ref(),
            downscale_window: Settings::default().downscale_stabilization,
        };
        let normalized = normalize(case.desired, &bounds, &mut history, now);
        assert_eq!(normalized.replicas, case.replicas, "line {}", number + 1);
        let status = |is_true: bool| if is_true { "True" } else { "False" };
        let conditions = [
            ["AbleToScale", "True", normalized.stabilized.0],
            ["ScalingLimited", status(normalized.is_limited), normalized.limited.0],
        ];
        assert_eq!(case.conditions, conditions, "line {}", number + 1);
        count += 1;
    }
    assert!(count > 100);
}
