//! Pods and VPAs as an API server admits them that calls the webhook.

use http::Request;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{LimitRange, Namespace, Node, Pod, ResourceQuota};
use kube::api::{Patch, PatchParams, PostParams};
use plumb_client::Api;
use plumb_testkit::{event, eventually, object, until};
use plumb_vpa::node_groups::NODE_SELECTOR_ANNOTATION;
use plumb_vpa_admission::Options;
use plumb_vpa_admission::metrics::{Object, Status};
use plumb_vpa_api::VerticalPodAutoscaler;
use serde_json::{Value, json};

use super::fixture::{Fixture, Running, annotation, container, options, resources, vpa_body};

/// Two containers with a request of 100m and a limit of 200m each.
fn two(first: &str, second: &str) -> Value {
    let own = json!({ "requests": { "cpu": "100m", "memory": "64Mi" }, "limits": { "cpu": "200m" } });
    json!([container(first, &own), container(second, &own)])
}

fn recommended(first: &str, second: &str) -> Value {
    json!([{ "containerName": first, "target": { "cpu": "150m", "memory": "128Mi" } },
           { "containerName": second, "target": { "cpu": "150m", "memory": "128Mi" } }])
}

/// Creates a workload, its VPA and a pod, and returns the pod.
async fn admitted(
    fixture: &Fixture,
    webhook: &Running,
    name: &str,
    spec: Value,
    containers: [&str; 2],
) -> Pod {
    let [first, second] = containers;
    fixture.workload(name).await;
    fixture.vpa(webhook, name, spec, recommended(first, second)).await;
    fixture.pod(name, &two(first, second)).await.unwrap()
}

#[tokio::test]
async fn every_example_of_aep_7862_does_what_it_says() {
    let fixture = Fixture::start().await;
    let webhook = fixture.webhook(options()).await;
    let boosted = |pod: &Pod| {
        let annotations = pod.metadata.annotations.iter().flatten();
        annotations
            .filter_map(|(name, _)| name.strip_prefix("vpaCpuStartupBoost/").map(str::to_owned))
            .collect::<Vec<_>>()
    };

    let only_boost = json!({ "updatePolicy": { "updateMode": "Off" },
        "startupBoost": { "cpu": { "type": "Factor", "factor": 3, "durationSeconds": 10 } } });
    let pod = admitted(&fixture, &webhook, "only-boost", only_boost, ["a", "b"]).await;
    assert_eq!(resources(&pod), ["300m/600m/64Mi", "300m/600m/64Mi"], "no recommendation, but the boost");
    assert_eq!(boosted(&pod), ["a", "b"]);

    let only_scaled = json!({ "updatePolicy": { "updateMode": "Auto" } });
    let pod = admitted(&fixture, &webhook, "only-scaled", only_scaled, ["a", "b"]).await;
    assert_eq!(resources(&pod), ["150m/300m/128Mi", "150m/300m/128Mi"]);
    assert_eq!(boosted(&pod), [""; 0]);

    let both = json!({ "updatePolicy": { "updateMode": "Auto" },
        "startupBoost": { "cpu": { "type": "Factor", "factor": 3, "durationSeconds": 10 } } });
    let pod = admitted(&fixture, &webhook, "both", both, ["a", "b"]).await;
    assert_eq!(resources(&pod), ["450m/900m/128Mi", "450m/900m/128Mi"]);

    let off_container = json!({ "resourcePolicy": { "containerPolicies": [{ "containerName": "boosted-container-name",
        "mode": "Off", "startupBoost": { "cpu": { "type": "Quantity", "quantity": "2" } } }] } });
    let names = ["boosted-container-name", "other"];
    let pod = admitted(&fixture, &webhook, "off-container", off_container, names).await;
    assert_eq!(resources(&pod), ["2100m/4200m/64Mi", "150m/300m/128Mi"]);
    assert_eq!(boosted(&pod), ["boosted-container-name"]);

    let disabled = json!({ "startupBoost": { "cpu": { "type": "Factor", "factor": 2 } },
        "resourcePolicy": { "containerPolicies": [{ "containerName": "disable-cpu-boost-for-this-container",
            "startupBoost": { "cpu": { "type": "Factor", "factor": 1 } } }] } });
    let names = ["disable-cpu-boost-for-this-container", "other"];
    let pod = admitted(&fixture, &webhook, "disabled", disabled, names).await;
    assert_eq!(resources(&pod), ["150m/300m/128Mi", "300m/600m/128Mi"]);
    assert_eq!(boosted(&pod), ["other"]);

    let beyond_max = json!({ "resourcePolicy": { "containerPolicies": [{ "containerName": "boosted-container-name",
        "minAllowed": { "cpu": "250m", "memory": "100Mi" }, "maxAllowed": { "cpu": "500m", "memory": "600Mi" },
        "startupBoost": { "cpu": { "type": "Quantity", "quantity": "4" } } }] } });
    let names = ["boosted-container-name", "other"];
    let pod = admitted(&fixture, &webhook, "beyond-max", beyond_max, names).await;
    assert_eq!(resources(&pod), ["4250m/8500m/128Mi", "150m/300m/128Mi"]);
    let original = r#"{"requests":{"cpu":"100m","memory":"64Mi"},"limits":{"cpu":"200m"}}"#;
    assert_eq!(annotation(&pod, "vpaCpuStartupBoost/boosted-container-name"), Some(original));
    assert_eq!(annotation(&pod, "vpaObservedContainers"), Some("boosted-container-name, other"));
    assert_eq!(
        annotation(&pod, "vpaUpdates"),
        Some(
            "Pod resources updated by beyond-max: container 0: cpu capped to minAllowed, \
              memory: limit NOT set since originalLimit is nil or 0, cpu request, memory request, cpu limit; \
              container 1: memory: limit NOT set since originalLimit is nil or 0, cpu request, memory request, cpu limit"
        )
    );
    assert_eq!(webhook.metrics.count(Status::Applied, Object::Pod), 6);
    for step in ["read_request", "admit", "build_response", "write_response", "total"] {
        let none = format!("vpa_admission_controller_execution_latency_seconds_count{{step=\"{step}\"}} 0\n");
        let is_timed = async || {
            let mut text = plumb_metrics::Text::default();
            webhook.metrics.render(&mut text);
            let text = text.finish();
            assert!(text.contains(none.trim_end_matches("0\n")), "{step} is not in\n{text}");
            !text.contains(&none)
        };
        // A response is written after the API server has read it.
        eventually(is_timed).await;
    }
}

#[tokio::test]
async fn a_pod_gets_nothing_in_mode_off_and_the_recommendation_in_all_others() {
    let fixture = Fixture::start().await;
    let webhook = fixture.webhook(options()).await;
    for (mode, expected) in [
        ("Off", "100m/200m/64Mi"),
        ("Initial", "150m/300m/128Mi"),
        ("Recreate", "150m/300m/128Mi"),
        ("InPlaceOrRecreate", "150m/300m/128Mi"),
        ("InPlace", "150m/300m/128Mi"),
    ] {
        let spec = json!({ "updatePolicy": { "updateMode": mode } });
        let pod = admitted(&fixture, &webhook, &mode.to_lowercase(), spec, ["a", "b"]).await;
        assert_eq!(resources(&pod)[0], expected, "{mode}");
        assert_eq!(annotation(&pod, "vpaObservedContainers").is_some(), mode != "Off", "{mode}");
    }
    // A pod of no workload, and one of a workload without a VPA.
    let bare: Pod =
        object(json!({ "metadata": { "name": "bare" }, "spec": { "containers": two("a", "b") } }));
    let pods: Api<Pod> = Api::default_namespaced(fixture.client.clone());
    assert_eq!(resources(&pods.create(&PostParams::default(), &bare).await.unwrap())[0], "100m/200m/64Mi");
    fixture.workload("unscaled").await;
    assert_eq!(resources(&fixture.pod("unscaled", &two("a", "b")).await.unwrap())[0], "100m/200m/64Mi");
}

#[tokio::test]
async fn without_the_gate_in_place_an_existing_vpa_is_applied_to_new_pods() {
    let fixture = Fixture::start().await;
    fixture.workload("web").await;
    let in_place = || json!({ "updatePolicy": { "updateMode": "InPlace" } });
    fixture.create_vpa("web", "web", in_place()).await.unwrap();
    let recommendations = json!([{ "containerName": "a", "target": { "cpu": "150m" } }]);
    let status = json!({ "status": { "recommendation": { "containerRecommendations": recommendations } } });
    let vpas: Api<plumb_vpa_api::VerticalPodAutoscaler> = Api::default_namespaced(fixture.client.clone());
    vpas.patch_status("web", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    let mut gated = options();
    gated.gates.in_place = false;
    let webhook = fixture.webhook(gated).await;
    let known = plumb_controller_runtime::ObjectRef::namespaced("default", "web");
    eventually(async || webhook.vpas.get(&known).is_some()).await;
    let pod = fixture.pod("web", &json!([container("a", &json!({}))])).await.unwrap();
    assert_eq!(resources(&pod), ["150m/-/-"]);
    let refused = fixture.create_vpa("new", "web", in_place()).await.unwrap_err().to_string();
    let message = "in order to use UpdateMode InPlace, you must enable feature gate InPlace in the admission-controller args";
    assert!(refused.contains(message), "{refused}");
    // The one that exists may still be edited.
    let label = json!({ "metadata": { "labels": { "edited": "yes" } } });
    vpas.patch("web", &PatchParams::default(), &Patch::Merge(&label)).await.unwrap();
}

#[tokio::test]
async fn no_pod_is_refused_for_its_recommendation_or_its_boost() {
    let fixture = Fixture::start().await;
    let namespace = json!({ "metadata": { "name": "default" } });
    // It may be there already.
    let namespaces: Api<Namespace> = Api::all(fixture.client.clone());
    drop(namespaces.create(&PostParams::default(), &object(namespace)).await);
    let range: LimitRange = object(json!({ "metadata": { "name": "range" }, "spec": { "limits": [
        { "type": "Container", "max": { "cpu": "800m" } }, { "type": "Pod", "max": { "cpu": "1" } },
    ] } }));
    let ranges: Api<LimitRange> = Api::default_namespaced(fixture.client.clone());
    ranges.create(&PostParams::default(), &range).await.unwrap();
    let webhook = fixture.webhook(options()).await;
    let own = json!({ "requests": { "cpu": "100m" }, "limits": { "cpu": "200m" } });
    let boost = |factor: i32| json!({ "startupBoost": { "cpu": { "type": "Factor", "factor": factor } } });

    fixture.workload("one").await;
    fixture.vpa(&webhook, "one", boost(100), json!([])).await;
    let pod = fixture.pod("one", &json!([container("a", &own)])).await.unwrap();
    assert_eq!(resources(&pod), ["400m/800m/-"], "the Max of a container");

    fixture.workload("two").await;
    fixture.vpa(&webhook, "two", boost(100), json!([])).await;
    let pod = fixture.pod("two", &json!([container("a", &own), container("b", &own)])).await.unwrap();
    assert_eq!(resources(&pod), ["250m/500m/-", "250m/500m/-"], "the Max of a pod, in equal parts");

    fixture.workload("forced").await;
    let forced = json!({ "resourcePolicy": { "containerPolicies": [{ "containerName": "a", "minAllowed": { "cpu": "5" } }] } });
    fixture
        .vpa(&webhook, "forced", forced, json!([{ "containerName": "a", "target": { "cpu": "1" } }]))
        .await;
    let pod = fixture.pod("forced", &json!([container("a", &own)])).await.unwrap();
    assert_eq!(resources(&pod), ["100m/200m/-"], "a policy that no limit range allows");
    event(&fixture.client, "forced", "RecommendationRefused", 1).await;

    let quota: ResourceQuota = object(json!({ "metadata": { "name": "quota" },
        "spec": { "hard": { "requests.cpu": "1050m" } } }));
    let quotas: Api<ResourceQuota> = Api::default_namespaced(fixture.client.clone());
    quotas.create(&PostParams::default(), &quota).await.unwrap();
    let status =
        json!({ "status": { "hard": { "requests.cpu": "1050m" }, "used": { "requests.cpu": "1" } } });
    quotas.patch_status("quota", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    fixture.workload("poor").await;
    fixture.vpa(&webhook, "poor", boost(100), json!([])).await;
    let small = json!([container("a", &json!({ "requests": { "cpu": "10m" }, "limits": { "cpu": "20m" } }))]);
    eventually(async || {
        let pod = fixture.pod("poor", &small).await;
        pod.is_ok_and(|pod| resources(&pod) == ["50m/100m/-"])
    })
    .await;
}

#[tokio::test]
async fn the_older_of_two_vpas_controls_a_workload() {
    let fixture = Fixture::start().await;
    let webhook = fixture.webhook(options()).await;
    fixture.workload("web").await;
    fixture
        .vpa(&webhook, "web", json!({}), json!([{ "containerName": "a", "target": { "cpu": "1" } }]))
        .await;
    // The same second, a later name.
    let younger = fixture.create_vpa("younger", "web", json!({})).await.unwrap();
    let known = plumb_controller_runtime::ObjectRef::of(&younger);
    eventually(async || webhook.vpas.get(&known).is_some()).await;
    let pod = fixture.pod("web", &json!([container("a", &json!({}))])).await.unwrap();
    assert_eq!(resources(&pod), ["1/-/-"]);
    let event = event(&fixture.client, "younger", "OverlappingVPA", 1).await;
    let vpas: Api<VerticalPodAutoscaler> = Api::default_namespaced(fixture.client.clone());
    let web = vpas.get("web").await.unwrap();
    let why = if web.metadata.creation_timestamp == younger.metadata.creation_timestamp {
        "was created in the same second, comes first by name"
    } else {
        "is older"
    };
    let message = format!("VPA web {why} and controls the pods of Deployment web: this VPA has no effect");
    assert_eq!(event.message, Some(message));
    assert_eq!(event.source.unwrap().component.as_deref(), Some("vpa-admission-controller"));
}

#[tokio::test]
async fn a_boost_that_cannot_be_given_is_reported() {
    let fixture = Fixture::start().await;
    let webhook = fixture.webhook(options()).await;
    fixture.workload("web").await;
    let boost = json!({ "startupBoost": { "cpu": { "type": "Factor", "factor": 2 } } });
    fixture.vpa(&webhook, "web", boost, json!([])).await;
    let pod = fixture.pod("web", &json!([container("a", &json!({}))])).await.unwrap();
    assert_eq!(resources(&pod), ["-/-/-"]);
    let event = event(&fixture.client, "web", "StartupBoostRefused", 1).await;
    let message =
        "Container a gets no CPU start-up boost: it has neither a CPU recommendation nor a CPU request";
    assert_eq!(event.message.as_deref(), Some(message));
}

#[tokio::test]
async fn vpas_are_validated_defaulted_and_warned_about() {
    let fixture = Fixture::start().await;
    let _webhook = fixture.webhook(options()).await;
    let stored = fixture.create_vpa("plain", "web", json!({})).await.unwrap();
    assert_eq!(stored.spec.update_policy.unwrap().update_mode.unwrap().as_str(), "Recreate");

    let bad = json!({ "updatePolicy": { "updateMode": "Off", "minReplicas": 0 },
        "startupBoost": { "cpu": { "type": "Quantity", "quantity": "500u" } } });
    let Err(kube::Error::Api(status)) = fixture.create_vpa("bad", "web", bad).await else {
        panic!("it is refused")
    };
    assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"));
    assert_eq!(
        status.message,
        "admission webhook \"vpa.k8s.io\" denied the request: VerticalPodAutoscaler.autoscaling.k8s.io \"bad\" is invalid: \
         [spec.updatePolicy.minReplicas: Invalid value: 0: minReplicas has to be positive, \
         spec.startupBoost.cpu.quantity: Invalid value: \"500u\": must be a whole number of milli CPUs]"
    );
    // The API server compares the object with the schema after the webhook, which refuses what is no quantity.
    let format =
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    // It prunes before: a quantity has no fields, so that nothing is left of those of an object.
    for (resource, value, printed) in
        [("requests", json!({ "cpu": "50m" }), "\"{}\""), ("cpu", json!("lots"), "\"lots\"")]
    {
        let policy = json!({ "containerName": "*", "minAllowed": { resource: value } });
        let spec = json!({ "resourcePolicy": { "containerPolicies": [policy] } });
        let Err(kube::Error::Api(status)) = fixture.create_vpa("bad", "web", spec).await else {
            panic!("it is refused")
        };
        assert_eq!(status.code, 422, "{}", status.message);
        assert_eq!(
            status.message,
            format!(
                "admission webhook \"vpa.k8s.io\" denied the request: VerticalPodAutoscaler.autoscaling.k8s.io \"bad\" is \
                 invalid: spec.resourcePolicy.containerPolicies[0].minAllowed[{resource}]: Invalid value: {printed}: {format}"
            )
        );
    }
    // What else the webhook cannot decode is left to the schema, which names the field.
    let unreadable = json!({ "startupBoost": { "cpu": { "type": "Factor", "factor": "500m" } } });
    let refused = fixture.create_vpa("bad", "web", unreadable).await.unwrap_err().to_string();
    assert!(refused.contains("spec.startupBoost.cpu.factor: Invalid value"), "{refused}");

    let auto = vpa_body("auto", "web", json!({ "updatePolicy": { "updateMode": "Auto" } }));
    let path = "/apis/autoscaling.k8s.io/v1/namespaces/default/verticalpodautoscalers";
    let request = Request::post(path).header("content-type", "application/json");
    let request = request.body(kube::client::Body::from(serde_json::to_vec(&auto).unwrap())).unwrap();
    let response = fixture.client.send(request).await.unwrap();
    let warning = response.headers()["warning"].to_str().unwrap();
    assert!(warning.contains("mode is deprecated and will be removed in a future API version"), "{warning}");
}

#[tokio::test]
async fn the_status_lease_says_that_the_webhook_works() {
    let fixture = Fixture::start().await;
    let _webhook = fixture.webhook(options()).await;
    let leases: Api<k8s_openapi::api::coordination::v1::Lease> =
        Api::namespaced(fixture.client.clone(), "kube-system");
    let lease =
        until(leases, "vpa-admission-controller", |lease: &k8s_openapi::api::coordination::v1::Lease| {
            lease.spec.as_ref().is_some_and(|spec| spec.renew_time.is_some())
        })
        .await;
    assert_eq!(lease.spec.unwrap().holder_identity.as_deref(), Some("test"));
}

#[tokio::test]
async fn a_pod_of_a_daemonset_gets_what_the_vpa_of_its_node_recommends() {
    let fixture = Fixture::start().await;
    let webhook = fixture.webhook(Options { node_selectors: true, ..options() }).await;
    let sets: Api<DaemonSet> = Api::default_namespaced(fixture.client.clone());
    let labels = json!({ "app": "agent" });
    let template = json!({ "metadata": { "labels": labels }, "spec": { "containers": [{ "name": "c", "image": "i" }] } });
    let set: DaemonSet = object(json!({ "metadata": { "name": "agent" },
        "spec": { "selector": { "matchLabels": labels }, "template": template } }));
    let set = sets.create(&PostParams::default(), &set).await.unwrap();
    let owner = plumb_controller_runtime::controller_reference(&set);
    let vpas: Api<VerticalPodAutoscaler> = Api::default_namespaced(fixture.client.clone());
    for (name, nodes, cpu) in [("all", None, "200m"), ("large", Some("size=large"), "2")] {
        let annotations = nodes.map_or(json!({}), |nodes| json!({ NODE_SELECTOR_ANNOTATION: nodes }));
        let vpa: VerticalPodAutoscaler = object(json!({
            "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
            "metadata": { "name": name, "annotations": annotations },
            "spec": { "targetRef": { "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent" } },
        }));
        vpas.create(&PostParams::default(), &vpa).await.unwrap();
        let recommended = json!([{ "containerName": "c", "target": { "cpu": cpu, "memory": "128Mi" } }]);
        let status = json!({ "status": { "recommendation": { "containerRecommendations": recommended } } });
        let vpa = vpas.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
        let known = plumb_controller_runtime::ObjectRef::of(&vpa);
        eventually(async || {
            let version = |vpa: &VerticalPodAutoscaler| vpa.metadata.resource_version.clone();
            webhook.vpas.get(&known).is_some_and(|found| version(&found) == version(&vpa))
        })
        .await;
    }
    let nodes: Api<Node> = Api::all(fixture.client.clone());
    let pods: Api<Pod> = Api::default_namespaced(fixture.client.clone());
    for (node, expected) in [("small", "200m/-/128Mi"), ("large", "2/-/128Mi")] {
        // The webhook may not have observed the node yet: the pod is created at once.
        let object_: Node = object(json!({ "metadata": { "name": node, "labels": { "size": node } } }));
        nodes.create(&PostParams::default(), &object_).await.unwrap();
        let name = json!([{ "key": "metadata.name", "operator": "In", "values": [node] }]);
        let affinity = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{ "matchFields": name }] } } });
        let pod: Pod = object(json!({
            "metadata": { "generateName": "agent-", "labels": labels, "ownerReferences": [owner] },
            "spec": { "affinity": affinity, "containers": [{ "name": "c", "image": "i" }] },
        }));
        let pod = pods.create(&PostParams::default(), &pod).await.unwrap();
        assert_eq!(resources(&pod), [expected], "on node {node}");
    }
}
