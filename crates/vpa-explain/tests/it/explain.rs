//! The explanation of a VPA from its checkpoints.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ObjectMeta;
use plumb_recommender::{
    Aggregate, AggregationConfig, AggregationSettings, CheckpointStatus, ContainerRecommendation,
    EstimationSettings, Sample, Time, VpaSettings, WINDOW_PEAK_ANNOTATION, Workload,
};
use plumb_resize::resource::{Declared, Resource};
use plumb_updater::Options;
use plumb_updater::decide::Subject;
use plumb_updater::shrink_first::NodeDecision;
use plumb_updater::state::{PodState, Recommendation};
use plumb_vpa::recommendation::{LimitRanges, PodRecommendation};
use plumb_vpa_api::{
    RecommendedContainerResources, RecommendedPodResources, VerticalPodAutoscaler,
    VerticalPodAutoscalerCheckpoint, VerticalPodAutoscalerCheckpointSpec,
    VerticalPodAutoscalerCheckpointStatus, VerticalPodAutoscalerSpec, VerticalPodAutoscalerStatus,
};
use plumb_vpa_explain::{PodEvents, PodUpdateState, PodView, VpaExplanation, pods};
use serde_json::{Value, json};

const START: i64 = 1_767_225_600;

/// A day of samples of the container `web`, and an hour of the container `log`.
fn workload(config: &AggregationConfig) -> Workload<'_> {
    let mut workload = Workload::new(config, VpaSettings::default());
    for minute in 0..1440 {
        let at = Time::from_unix_seconds(START + minute * 60);
        let mut add = |container, resource, usage| {
            workload.add_sample(container, Sample { at, resource, usage }).unwrap();
        };
        add("web", Resource::Cpu, 50 + (minute * 37) % 900);
        add("web", Resource::Memory, 100_000_000 + ((minute * 7919) % 900) * 1_000_000);
        if minute < 60 {
            add("log", Resource::Cpu, 10);
        }
    }
    workload
}

fn config() -> AggregationConfig {
    AggregationConfig::new(AggregationSettings::default()).unwrap()
}

fn checkpoint(
    name: &str,
    container: &str,
    status: VerticalPodAutoscalerCheckpointStatus,
) -> VerticalPodAutoscalerCheckpoint {
    let spec = VerticalPodAutoscalerCheckpointSpec {
        vpa_object_name: "web".to_owned(),
        container_name: container.to_owned(),
    };
    let metadata =
        ObjectMeta { name: Some(name.to_owned()), namespace: Some("ns".to_owned()), ..ObjectMeta::default() };
    VerticalPodAutoscalerCheckpoint { metadata, spec, status: Some(status) }
}

/// The checkpoints of both containers, written two minutes after the last sample.
fn checkpoints(config: &AggregationConfig) -> Vec<VerticalPodAutoscalerCheckpoint> {
    let written = Time::from_unix_seconds(START + 1442 * 60);
    let of = |(container, aggregate)| {
        let status = CheckpointStatus::of(aggregate).to_api(written);
        checkpoint(&format!("web-{container}"), container, status)
    };
    workload(config).aggregates().map(of).collect()
}

/// The VPA `web` with what is recommended for the samples in its status.
fn vpa(config: &AggregationConfig, policy: Value) -> VerticalPodAutoscaler {
    let spec: VerticalPodAutoscalerSpec = serde_json::from_value(json!({
        "targetRef": { "kind": "Deployment", "name": "web" }, "resourcePolicy": policy,
    }))
    .unwrap();
    let recommended: Vec<ContainerRecommendation> =
        workload(config).recommend(&EstimationSettings::default());
    let mut vpa = VerticalPodAutoscaler::new("web", spec);
    vpa.metadata.namespace = Some("ns".to_owned());
    vpa.status = Some(VerticalPodAutoscalerStatus {
        recommendation: Some(RecommendedPodResources {
            container_recommendations: recommended.iter().map(RecommendedContainerResources::from).collect(),
        }),
        ..VerticalPodAutoscalerStatus::default()
    });
    vpa
}

fn explained(vpa: &VerticalPodAutoscaler, checkpoints: &[VerticalPodAutoscalerCheckpoint]) -> VpaExplanation {
    VpaExplanation::from_checkpoints(&config(), &EstimationSettings::default(), vpa, checkpoints)
}

fn assert_has(text: &str, line: &str) {
    assert!(text.lines().any(|found| found == line), "{line:?} is not in\n{text}");
}

#[test]
fn checkpoints_explain_the_recommendation_of_the_status_step_by_step() {
    let config = config();
    let explanation = explained(&vpa(&config, json!(null)), &checkpoints(&config));
    let text = explanation.text();
    for line in [
        "vpa ns/web, from its checkpoints",
        "container log",
        "  60 cpu samples from 2026-01-01T00:00:00Z to 2026-01-01T00:59:00Z",
        "container web",
        "    target p90   903m, with margin 1.04: 1.04",
        "    lower  p50   511m, with margin 587m, times 0.998 for confidence 585m: 585m",
        "    upper  p95   958m, with margin 1.1, times 2.001 for confidence 2.2: 2.2",
        "            851m - 958m  11.0 % ########################################",
    ] {
        assert_has(&text, line);
    }
    assert!(!text.contains("note:") && !text.contains("the status has"), "{text}");
    let value = explanation.json();
    assert_eq!(value["source"], "checkpoints");
    assert_eq!(value["containers"][1]["cpu"]["bounds"]["upper"]["recommended"], "2202m");
    assert_eq!(value["containers"][1]["checkpointWritten"], "2026-01-02T00:02:00Z");
}

/// The line of a bound of the memory of the container `web`.
fn memory_target(text: &str) -> String {
    let (_, web) = text.split_once("container web").unwrap();
    let (_, memory) = web.split_once("\n  memory: ").unwrap();
    memory.lines().find(|line| line.contains("target")).unwrap().trim().to_owned()
}

#[test]
fn the_peak_of_the_open_window_counts_and_one_that_is_in_the_histogram_does_not() {
    let config = config();
    let vpa = vpa(&config, json!(null));
    let with_peak = |bytes: i64, until: &str| {
        let mut found = checkpoints(&config);
        let peak = json!({ "bytes": bytes, "until": until }).to_string();
        found[1].metadata.annotations = Some([(WINDOW_PEAK_ANNOTATION.to_owned(), peak)].into());
        memory_target(&explained(&vpa, &found).text())
    };
    let without = memory_target(&explained(&vpa, &checkpoints(&config)).text());
    // The checkpoint was written at two minutes past midnight.
    let open = "2026-01-03T00:00:00Z";
    // The start of a bucket is the end of the one before, which the peak is in.
    let end = config.memory.buckets.end(config.memory.buckets.find(4e9)).ceil();
    #[expect(clippy::cast_possible_truncation, reason = "four gigabytes")]
    let end = end as i64;
    let counted = with_peak(end, open);
    assert_ne!(counted, without);
    assert_eq!(counted, with_peak(4_000_000_000, open), "the same bucket");
    assert_eq!(with_peak(end, "2026-01-02T00:00:00Z"), without, "it is in the histogram");
}

#[test]
fn a_resource_without_samples_has_no_lines_of_zeros() {
    let config = config();
    let vpa = vpa(&config, json!(null));
    let mut found = checkpoints(&config);
    let empty = CheckpointStatus::of(&Aggregate::new(&config)).to_api(Time::from_unix_seconds(START));
    found[1].status = Some(empty);
    let text = explained(&vpa, &found).text();
    let (_, web) = text.split_once("container web\n").unwrap();
    assert!(
        web.starts_with(
            "  no cpu samples\n\n  cpu: no samples\n    target at least 12m: 12m; the status has 1.04\n"
        ),
        "{web}"
    );
    for zero in [" 0m", " 0,", "0.0 %", "with margin"] {
        assert!(!web.contains(zero), "{zero:?} is in\n{web}");
    }
}

#[test]
fn buckets_whose_share_reads_as_zero_have_one_line_together() {
    let config = config();
    let mut found = checkpoints(&config);
    let histogram = json!({ "referenceTimestamp": "2026-01-01T00:00:00Z", "totalWeight": 10002.0,
        "bucketWeights": { "1": 1, "2": 1, "8": 10000 } });
    found[1].status.as_mut().unwrap().cpu_histogram = serde_json::from_value(histogram).unwrap();
    let text = explained(&vpa(&config, json!(null)), &found).text();
    assert!(!text.contains(" 0.0 %"), "{text}");
    assert_has(&text, "    ranges with less than 0.05 % each: 2");
}

#[test]
fn each_limit_that_applied_is_named_and_a_container_that_is_off_says_so() {
    let config = config();
    let policy = json!({ "containerPolicies": [
        { "containerName": "web", "maxAllowed": { "cpu": "700m" }, "minAllowed": { "memory": "4Gi" } },
        { "containerName": "log", "mode": "Off" },
    ] });
    let text = explained(&vpa(&config, policy), &checkpoints(&config)).text();
    assert!(
        text.contains("with margin 1.04, capped to maxAllowed 700m: 700m; the status has 1.04"),
        "{text}"
    );
    assert!(text.contains("raised to minAllowed 4Gi: 4Gi"), "{text}");
    assert_has(&text, "  its policy has mode Off: nothing is recommended for it");
}

#[test]
fn a_status_that_differs_is_shown_beside_and_the_reason_is_given() {
    let config = config();
    let mut vpa = vpa(&config, json!(null));
    let recommendation = vpa.status.as_mut().unwrap().recommendation.as_mut().unwrap();
    let target = &mut recommendation.container_recommendations[1].target;
    target.get_mut("cpu").unwrap().0 = "1100m".to_owned();
    let explanation = explained(&vpa, &checkpoints(&config));
    assert_has(&explanation.text(), "    target p90   903m, with margin 1.04: 1.04; the status has 1.1");
    let note = explanation.json()["containers"][1]["note"].as_str().unwrap().to_owned();
    assert!(note.contains("after the checkpoint was written (2026-01-02T00:02:00Z)"), "{note}");
}

#[test]
fn a_checkpoint_that_is_missing_corrupt_or_a_second_one_is_named() {
    let config = config();
    let vpa = vpa(&config, json!(null));
    let none = explained(&vpa, &[]).text();
    assert!(none.contains("note: the VPA has no VerticalPodAutoscalerCheckpoint"), "{none}");
    assert_has(&none, "  there is no checkpoint of it, so its history is not known here");

    let mut found = checkpoints(&config);
    found[0].status.as_mut().unwrap().version = Some("v9".to_owned());
    let second = checkpoint("a-second", "web", VerticalPodAutoscalerCheckpointStatus::default());
    found.insert(0, second);
    let text = explained(&vpa, &found).text();
    assert_has(
        &text,
        "  its checkpoint cannot be read: unsupported checkpoint version \"v9\", expected \"v3\"",
    );
    assert_has(&text, "note: checkpoint a-second is a second one of container web and is not read");
    // The share of the container whose history is not known is not given to the other.
    assert_has(&text, "    target p90   903m, with margin 1.04: 1.04");
    assert!(text.contains("1440 cpu samples"), "{text}");

    found[1].status = None;
    let text = explained(&vpa, &found).text();
    assert!(text.contains("unsupported checkpoint version \"\""), "{text}");
}

#[test]
fn a_vpa_without_a_recommendation_says_why() {
    let condition = |type_: &str, status: &str, message: &str| {
        let (since, reason) = ("2026-01-01T00:00:00Z", "Because");
        json!({ "type": type_, "status": status, "lastTransitionTime": since, "reason": reason, "message": message })
    };
    let no_samples = condition("RecommendationProvided", "False", "No usage has been measured yet for: web");
    let no_pods = condition("NoPodsMatched", "True", "No pods match this VPA object");
    let unsupported = condition("ConfigUnsupported", "True", "Deployment web does not exist");
    let table = [
        (json!([]), "no recommender has written its status; the one named \"default\" is responsible for it"),
        (json!([no_samples]), "No usage has been measured yet for: web. The first sample comes within"),
        (json!([no_samples, no_pods]), "Deployment web has no pod that was started"),
        (json!([no_samples, no_pods, unsupported]), "Deployment web does not exist"),
        (json!([condition("FetchingHistory", "True", "")]), "the recommender is still reading the history"),
    ];
    for (conditions, expected) in table {
        let mut vpa = vpa(&config(), json!({}));
        vpa.status = Some(serde_json::from_value(json!({ "conditions": conditions })).unwrap());
        let explained = explained(&vpa, &[]);
        let text = explained.text();
        assert!(text.contains(&format!("note: there is no recommendation yet: {expected}")), "{text}");
        assert_eq!(explained.notes.len(), 1, "{text}");
        assert_eq!(explained.json()["notes"][0], explained.notes[0]);
    }
}

#[test]
fn checkpoints_of_other_vpas_and_namespaces_do_not_count() {
    let config = config();
    let mut others = checkpoints(&config);
    others[0].spec.vpa_object_name = "other".to_owned();
    others[1].metadata.namespace = Some("elsewhere".to_owned());
    let explanation = explained(&vpa(&config, json!(null)), &others);
    assert!(explanation.containers.iter().all(|container| container.explanation.is_err()));
}

#[test]
fn control_characters_in_objects_do_not_reach_the_terminal() {
    let config = config();
    let mut hostile = checkpoints(&config);
    hostile[0].spec.container_name = "\u{1b}[2J\u{202e}\nroot".to_owned();
    hostile[1].status.as_mut().unwrap().version = Some(format!("\u{1b}]0;x\u{7}{}", "y".repeat(100_000)));
    hostile.push(hostile[0].clone());
    hostile[2].metadata.name = Some("\u{9b}1m".to_owned());
    let text = explained(&vpa(&config, json!(null)), &hostile).text();
    let acts = |character: &char| character.is_control() && *character != '\n' || *character == '\u{202e}';
    assert_eq!(text.chars().find(acts), None, "{text}");
    assert_has(&text, "container \\u{1b}[2J\\u{202e}\\u{a}root");
    assert!(text.len() < 20_000, "{}", text.len());
}

/// A pod of the VPA with a boosted container `app` and a container `side`; 200m are recommended for both.
fn boosted_pod(mode: &str) -> PodView {
    let boost = r#"{"app":{"unboosted":{"request":"100m"},"boosted":{"request":"300m"}}}"#;
    let container =
        |name: &str, cpu: &str| json!({ "name": name, "resources": { "requests": { "cpu": cpu } } });
    let pod: Pod = serde_json::from_value(json!({
        "metadata": { "name": "web-1", "namespace": "ns", "uid": "u", "annotations": {
            "vpaCpuStartupBoost/app": r#"{"requests":{"cpu":"100m"}}"#, "plumb.dev/cpu-startup-boost": boost,
        } },
        "spec": { "nodeName": "n", "containers": [container("app", "300m"), container("side", "50m")] },
        "status": { "phase": "Running" },
    }))
    .unwrap();
    let recommended = |name: &str| json!({ "containerName": name, "target": { "cpu": "200m" } });
    let vpa: VerticalPodAutoscaler = serde_json::from_value(json!({
        "metadata": { "name": "web", "namespace": "ns" },
        "spec": { "targetRef": { "kind": "Deployment", "name": "web" }, "updatePolicy": { "updateMode": mode } },
        "status": { "recommendation": { "containerRecommendations": [recommended("app"), recommended("side")] } },
    }))
    .unwrap();
    let recommendation = PodRecommendation::new(&vpa, pod.spec.as_ref().unwrap(), &LimitRanges::default());
    let subject = Subject {
        recommendation: Some(Arc::new(Recommendation::from(&recommendation))),
        allocatable: Declared::default(),
        observed: Timestamp::UNIX_EPOCH,
        backoff: None,
        arrival: 0,
        oom_hold: None,
        node_decision: NodeDecision::None,
        pod: Arc::new(PodState::of(&pod).unwrap()),
    };
    let events = PodEvents::default();
    pods(&vpa, &[subject], &[pod], &events, &Options::default(), Timestamp::UNIX_EPOCH).remove(0)
}

#[test]
fn a_boosted_pod_shows_what_its_containers_get_back_to_and_which_are_left_alone() {
    // The mode; the CPU after the boost; the state of the container without one.
    let table = [
        ("Off", 100, PodUpdateState::Unmanaged),
        ("Initial", 200, PodUpdateState::Unmanaged),
        ("InPlace", 200, PodUpdateState::Waiting),
    ];
    for (mode, cpu, state) in table {
        let pod = boosted_pod(mode);
        let states: Vec<PodUpdateState> =
            pod.containers.iter().map(|container| pod.state_of(container)).collect();
        assert_eq!(states, [PodUpdateState::Boosted, state], "{mode}");
        assert_eq!(pod.containers[0].target.unwrap().cpu, Some(cpu), "{mode}");
        assert_eq!(pod.containers[1].target.unwrap().cpu, Some(200), "{mode}");
    }
}
