//! How many replicas a metric asks for.

use plumb_controllers::horizontal_pod_autoscaler::Settings;
use plumb_controllers::horizontal_pod_autoscaler::calculator::{Calculator, Proposal, Samples, Tolerances};
use plumb_controllers::horizontal_pod_autoscaler::requests::{RequestOf, milli_request};
use serde_json::{Value, json};

use super::{Pod, pod, samples, wall};

const CPU: RequestOf<'_> = RequestOf { resource: "cpu", container: None };

fn calculator(pods: &[Pod]) -> Calculator<'_> {
    let replicas = i32::try_from(pods.len()).unwrap();
    Calculator {
        pods,
        replicas,
        status_replicas: replicas,
        tolerances: Tolerances { down: 0.1, up: 0.1 },
        initialization: Settings::default().initialization,
        now: wall(),
    }
}

/// A pod with some fields changed.
fn changed(pod: &Pod, change: Value) -> Pod {
    let mut object = serde_json::to_value(pod).unwrap();
    merge(&mut object, change);
    serde_json::from_value(object).unwrap()
}

fn merge(into: &mut Value, change: Value) {
    match (into, change) {
        (Value::Object(into), Value::Object(change)) => {
            for (field, value) in change {
                merge(into.entry(field).or_insert(Value::Null), value);
            }
        }
        (into, change) => *into = change,
    }
}

fn utilization(pods: &[Pod], used: &Samples, target: i32) -> Result<Proposal, String> {
    calculator(pods).by_utilization(used, CPU, target).map_err(|error| error.to_string())
}

#[test]
fn utilization_is_what_pods_use_of_their_requests() {
    let pods = [pod("a", "100m"), pod("b", "100m"), pod("c", "200m")];
    for (used, target, replicas, percent) in [
        // Within the tolerance of a tenth nothing changes.
        ([55, 55, 110], 50, 3, 55),
        ([45, 45, 90], 50, 3, 45),
        ([56, 56, 112], 50, 4, 56),
        ([44, 44, 88], 50, 3, 44),
        ([100, 100, 200], 50, 6, 100),
        ([0, 0, 0], 50, 0, 0),
        // The percentage is rounded down before it is compared.
        ([50, 50, 123], 50, 3, 55),
        ([300, 300, 600], 80, 12, 300),
    ] {
        let used = samples(&[("a", used[0]), ("b", used[1]), ("c", used[2])]);
        let proposal = utilization(&pods, &used, target).unwrap();
        assert_eq!((proposal.replicas, proposal.utilization), (replicas, Some(percent)), "{used:?}");
    }
}

/// kubernetes/kubernetes issue 142155: upstream divides by the requests in the spec while a resize is under way.
#[test]
fn utilization_counts_what_pods_have_and_not_what_a_resize_asks_for() {
    let used = samples(&[("a", 100), ("b", 100)]);
    let before = [pod("a", "100m"), pod("b", "100m")];
    assert_eq!(utilization(&before, &used, 50).unwrap().replicas, 4);

    // Both ask for four times as much, and get nothing yet: they still use all of what they have.
    let asks = json!([{ "name": "main", "resources": { "requests": { "cpu": "400m" } } }]);
    let has = |cpu: &str| {
        json!([{ "name": "main", "image": "", "imageID": "", "ready": true, "restartCount": 0,
            "allocatedResources": { "cpu": cpu } }])
    };
    let resized = |pod: &Pod, allocated: Value| {
        let spec = json!({ "spec": { "containers": asks }, "status": { "containerStatuses": allocated } });
        changed(pod, spec)
    };
    let deferred = before.each_ref().map(|pod| resized(pod, has("100m")));
    let proposal = utilization(&deferred, &used, 50).unwrap();
    assert_eq!((proposal.replicas, proposal.utilization), (4, Some(100)));

    // What upstream computes of the same pods: a quarter is used, and one of two replicas is removed.
    let by_spec = before.each_ref().map(|pod| resized(pod, json!([])));
    let proposal = utilization(&by_spec, &used, 50).unwrap();
    assert_eq!((proposal.replicas, proposal.utilization), (1, Some(25)));

    // Once the node has allocated the new resources, both say the same.
    let applied = before.each_ref().map(|pod| resized(pod, has("400m")));
    assert_eq!(utilization(&applied, &used, 50).unwrap(), proposal);
}

#[test]
fn pod_level_requests_count_instead_of_those_of_containers() {
    let plain = pod("a", "100m");
    let request = |pod: &Pod, of: RequestOf<'_>| milli_request(pod, of).map_err(|error| error.to_string());
    let whole = changed(&plain, json!({ "spec": { "resources": { "requests": { "cpu": "1" } } } }));
    assert_eq!(request(&whole, CPU), Ok(1000));
    // A container is asked for by its name: its own request counts.
    let of_main = RequestOf { resource: "cpu", container: Some("main") };
    assert_eq!(request(&whole, of_main), Ok(100));
    let allocated = changed(&whole, json!({ "status": { "allocatedResources": { "cpu": "500m" } } }));
    assert_eq!(request(&allocated, CPU), Ok(500));
    // What it leaves out is that of its containers, and the overhead is added.
    let memory = changed(
        &plain,
        json!({ "spec": { "resources": { "requests": { "memory": "1Gi" } }, "overhead": { "cpu": "10m" } } }),
    );
    assert_eq!(request(&memory, CPU), Ok(110));
    let of_gpu = RequestOf { resource: "gpu", container: None };
    assert_eq!(request(&memory, of_gpu), Err("missing pod-level request for gpu in Pod a".to_owned()));
    assert_eq!(
        request(&plain, RequestOf { resource: "memory", container: None }),
        Err("missing request for memory in container main of Pod a".to_owned())
    );
    let of_other = RequestOf { resource: "cpu", container: Some("other") };
    assert_eq!(request(&plain, of_other), Err("container other not found in Pod a".to_owned()));
    let sidecar = json!([
        { "name": "proxy", "restartPolicy": "Always", "resources": { "requests": { "cpu": "30m" } } },
        { "name": "setup", "resources": { "requests": { "cpu": "900m" } } },
    ]);
    let with_sidecar = changed(&plain, json!({ "spec": { "initContainers": sidecar } }));
    assert_eq!(request(&with_sidecar, CPU), Ok(130));
}

#[test]
fn pods_without_samples_count_against_the_direction() {
    let pods = [pod("a", "100m"), pod("b", "100m"), pod("c", "100m"), pod("d", "100m")];
    // Two use twice the target: the two others count as idle, and the sum is what it should be.
    assert_eq!(utilization(&pods, &samples(&[("a", 100), ("b", 100)]), 50).unwrap().replicas, 4);
    // Two use nothing: the others count for all of their requests.
    assert_eq!(utilization(&pods, &samples(&[("a", 0), ("b", 0)]), 50).unwrap().replicas, 4);
    assert_eq!(utilization(&pods, &samples(&[("a", 0), ("b", 0), ("c", 0)]), 50).unwrap().replicas, 2);
    // For a target above all of the requests they count for that.
    assert_eq!(utilization(&pods, &samples(&[("a", 0), ("b", 0), ("c", 0)]), 200).unwrap().replicas, 1);
    let none = utilization(&pods, &Samples::new(), 50);
    assert_eq!(none, Err("did not receive metrics for targeted pods (pods might be unready)".to_owned()));
    assert_eq!(
        utilization(&[], &Samples::new(), 50),
        Err("no pods returned by selector while calculating replica count".to_owned())
    );
}

#[test]
fn pods_that_are_not_ready_count_as_idle_when_scaling_up_and_not_at_all_when_scaling_down() {
    let ready = pod("a", "100m");
    let condition =
        |status: &str, at: &str| json!([{ "type": "Ready", "status": status, "lastTransitionTime": at }]);
    let starting = |name: &str, conditions: Value, started: &str| {
        let of_pod = json!({ "metadata": { "name": name }, "status": { "startTime": started, "conditions": conditions } });
        changed(&ready, of_pod)
    };
    let minutes_ago = "2026-01-01T11:57:00Z";
    let not_ready = starting("b", condition("False", minutes_ago), minutes_ago);
    let used = samples(&[("a", 200), ("b", 500)]);
    // 200 of 100 and 0 of 100 at a target of 50 %: four replicas, and not eight.
    assert_eq!(utilization(&[ready.clone(), not_ready.clone()], &used, 50).unwrap().replicas, 4);
    let idle = samples(&[("a", 20), ("b", 500)]);
    assert_eq!(utilization(&[ready.clone(), not_ready], &idle, 50).unwrap().replicas, 1);
    // A sample from before the pod became ready is that of its start, within five minutes of that.
    let seconds_ago = "2026-01-01T11:59:50Z";
    let just_ready = starting("b", condition("True", seconds_ago), minutes_ago);
    assert_eq!(utilization(&[ready.clone(), just_ready], &used, 50).unwrap().replicas, 4);
    let long_ready = starting("b", condition("True", minutes_ago), minutes_ago);
    assert_eq!(utilization(&[ready.clone(), long_ready], &used, 50).unwrap().replicas, 14);
    // Later only a pod that was never ready is left out.
    let hours_ago = "2026-01-01T10:00:00Z";
    let then = "2026-01-01T10:00:20Z";
    let never = starting("b", condition("False", then), hours_ago);
    assert_eq!(utilization(&[ready.clone(), never], &used, 50).unwrap().replicas, 4);
    let once = starting("b", condition("False", "2026-01-01T11:00:00Z"), hours_ago);
    assert_eq!(utilization(&[ready, once], &used, 50).unwrap().replicas, 14);
}

#[test]
fn values_are_shared_by_replicas() {
    let pods = [pod("a", "1"), pod("b", "1")];
    let calculator = calculator(&pods);
    for (value, target, replicas) in
        [(1_000, 1_000, 2), (1_100, 1_000, 2), (1_500, 1_000, 3), (400, 1_000, 1)]
    {
        assert_eq!(calculator.by_value(value, target).unwrap().replicas, replicas, "{value}");
    }
    let from_zero = Calculator { replicas: 0, ..calculator };
    assert_eq!(from_zero.by_value(1_500, 1_000).unwrap().replicas, 2);
    assert_eq!(from_zero.by_value(0, 1_000).unwrap().replicas, 0);
    // Each of two replicas has its share; the average is rounded up.
    for (value, replicas, milli) in [(2_100, 2, 1_050), (3_001, 4, 1_501), (900, 1, 450), (0, 0, 0)] {
        let proposal = calculator.by_value_per_pod(value, 1_000);
        assert_eq!((proposal.replicas, proposal.milli), (replicas, milli), "{value}");
    }
    let none = Calculator { status_replicas: 0, ..calculator };
    assert_eq!(
        none.by_value_per_pod(2_500, 1_000),
        Proposal { replicas: 3, utilization: None, milli: 2_500 }
    );
    // No number is too large.
    assert_eq!(calculator.by_value(i64::MAX, 1).unwrap().replicas, i32::MAX);
}
