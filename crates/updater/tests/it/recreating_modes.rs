//! The update modes that may evict, in a cluster: budgets, timeouts, and what never leads to an eviction.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{LimitRange, ResourceQuota};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use plumb_client::Api;
use plumb_resize::rules::Rules;
use plumb_testkit::object;
use plumb_updater::attempt::ANNOTATION;
use plumb_updater::options::AdmissionLease;
use plumb_updater::rate_limit::RateLimit;
use plumb_updater::{Options, decide};
use serde_json::json;

use super::make::amounts;
use super::world::{Answer, MOMENT, World, dialects, options};

const MINUTE: Duration = Duration::from_mins(1);

#[tokio::test(start_paused = true)]
async fn a_resize_that_is_deferred_for_five_minutes_ends_in_an_eviction() {
    for rules in dialects() {
        let world = World::start(rules, "InPlaceOrRecreate").await;
        world.pods_of(2, "1/1Gi").await;
        world.recommend("2/2Gi").await;
        world.pass(MOMENT).await;
        assert_eq!(world.count("/resize"), 2, "in place first");
        world.answer("web-0", Answer::Deferred).await;
        world.answer("web-1", Answer::Applied).await;
        world.pass(4 * MINUTE).await;
        assert_eq!(world.count("/eviction"), 0);
        world.pass(2 * MINUTE).await;
        assert_eq!(world.names().await, ["web-1"]);
        let evicted = world.events("web-0").await["EvictedByVPA"].clone();
        assert!(evicted[0].0.contains("deferred"), "{evicted:?}");
        assert!(world.events("web").await.contains_key("EvictedPod"));
    }
}

/// Upstream keeps the clock by namespace and name and never resets it: the second resize of a pod, or of the next pod of the
/// same name, that is deferred for a second is evicted at once (reference/vpa.md 3.4 b).
#[tokio::test(start_paused = true)]
async fn each_attempt_has_its_own_clock() {
    let world = World::start(Rules::v1_36(), "InPlaceOrRecreate").await;
    world.pods_of(2, "1/1Gi").await;
    world.recommend("2/2Gi").await;
    world.pass(MOMENT).await;
    for pod in ["web-0", "web-1"] {
        world.answer(pod, Answer::Deferred).await;
    }
    world.pass(4 * MINUTE).await;
    for pod in ["web-0", "web-1"] {
        world.answer(pod, Answer::Applied).await;
    }
    world.pass(10 * MINUTE).await;
    world.recommend("3/3Gi").await;
    world.pass(MOMENT).await;
    assert_eq!(world.count("/resize"), 4);
    for pod in ["web-0", "web-1"] {
        world.answer(pod, Answer::Deferred).await;
    }
    world.pass(4 * MINUTE).await;
    assert_eq!(world.count("/eviction"), 0, "the second attempt has its five minutes, too");
    world.pass(2 * MINUTE).await;
    assert_eq!(world.count("/eviction"), 1, "one of two at a time");
    // The next pod of the same name is another pod, whose attempts begin anew.
    let gone = if world.names().await == ["web-0"] { "web-1" } else { "web-0" };
    world.pods().delete(gone, &DeleteParams::default().grace_period(0)).await.unwrap();
    world.pod(gone, "1/1Gi").await;
    world.pass(MOMENT).await;
    world.answer(gone, Answer::Deferred).await;
    world.pass(4 * MINUTE).await;
    assert!(world.names().await.contains(&gone.to_owned()));
}

#[tokio::test(start_paused = true)]
async fn the_clock_of_an_attempt_survives_a_restart_of_the_updater() {
    let mut world = World::start(Rules::v1_36(), "InPlaceOrRecreate").await;
    world.pods_of(2, "1/1Gi").await;
    world.recommend("2/2Gi").await;
    world.pass(MOMENT).await;
    world.answer("web-0", Answer::Deferred).await;
    world.answer("web-1", Answer::Applied).await;
    world.pass(4 * MINUTE).await;
    world.kill_updater().await;
    world.start_updater(options());
    world.pass(90 * Duration::from_secs(1)).await;
    assert_eq!(world.names().await, ["web-1"]);
}

#[tokio::test(start_paused = true)]
async fn infeasible_and_failing_resizes_are_evicted_within_the_budget() {
    for answer in [Answer::Infeasible, Answer::Error] {
        let world = World::start(Rules::kep(), "InPlaceOrRecreate").await;
        world.pods_of(4, "1/1Gi").await;
        world.recommend("2/2Gi").await;
        world.pass(MOMENT).await;
        for number in 0..4 {
            world.answer(&format!("web-{number}"), answer).await;
        }
        world.pass(20 * MINUTE).await;
        assert_eq!(world.names().await.len(), 2, "half of four may be missing");
    }
}

#[tokio::test(start_paused = true)]
async fn recreate_evicts_within_the_budget_and_continues_when_new_pods_are_ready() {
    let world = World::start(Rules::v1_36(), "Recreate").await;
    world.pods_of(4, "1/1Gi").await;
    world.recommend("2/2Gi").await;
    world.pass(MOMENT).await;
    assert_eq!((world.count("/eviction"), world.count("/resize")), (2, 0));
    world.pass(20 * MINUTE).await;
    assert_eq!(world.count("/eviction"), 2);
    world.pod("new-0", "2/2Gi").await;
    world.pass(MOMENT).await;
    assert_eq!(world.count("/eviction"), 3, "one more may be missing now");
    world.pod("new-1", "2/2Gi").await;
    world.pass(MOMENT).await;
    assert_eq!(world.count("/eviction"), 4);
}

#[tokio::test(start_paused = true)]
async fn a_single_replica_is_resized_but_not_evicted() {
    let world = World::start(Rules::v1_36(), "InPlaceOrRecreate").await;
    world.pods_of(1, "1/1Gi").await;
    world.recommend("2/2Gi").await;
    world.pass(MOMENT).await;
    assert_eq!(world.requests("web-0").await, amounts("2/2Gi"));
    world.answer("web-0", Answer::Deferred).await;
    world.pass(60 * MINUTE).await;
    assert_eq!(world.count("/eviction"), 0);
    let condition = world.condition("PodsUpdated").await.unwrap();
    assert!(condition.message.unwrap().contains("BelowMinReplicas: 1"));
}

/// Without the flag upstream counts an error in every loop for a group below minReplicas (reference/vpa.md 3.4 i).
#[tokio::test(start_paused = true)]
async fn a_group_below_min_replicas_waits_where_resizes_cost_budget_and_no_error_is_counted() {
    let mut world = World::new(Rules::v1_36()).await;
    world.vpa("InPlace", json!({})).await;
    let decisions = decide::Settings { skip_budget: false, ..decide::Settings::default() };
    world.start_updater(Options { decisions, ..options() });
    world.pods_of(1, "1/1Gi").await;
    world.recommend("2/2Gi").await;
    world.pass(60 * MINUTE).await;
    assert_eq!(world.writes_to("web-0"), [""; 0]);
    let condition = world.condition("PodsUpdated").await.unwrap();
    assert!(condition.message.unwrap().contains("BelowMinReplicas: 1"));
    let mut text = plumb_metrics::Text::default();
    world.metrics.render(&mut text);
    assert!(!text.finish().contains("InPlaceUpdateError"));
}

/// Evictions that wait for the rate limit were planned when all pods ran.
#[tokio::test(start_paused = true)]
async fn an_eviction_that_waits_for_the_rate_limit_is_decided_about_again() {
    let mut world = World::new(Rules::v1_36()).await;
    world.vpa("Recreate", json!({})).await;
    let rate_limit = RateLimit { per_second: 1.0 / 60.0, burst: 1 };
    world.start_updater(Options { rate_limit, ..options() });
    world.pods_of(10, "1/1Gi").await;
    world.recommend("2/2Gi").await;
    world.pass(MOMENT).await;
    assert_eq!(world.count("/eviction"), 1, "half of them may be missing, one a minute is evicted");
    // Something else costs the workload four pods.
    for number in 6..10 {
        let pending = Patch::Merge(json!({ "status": { "phase": "Pending" } }));
        world.node().patch_status(&format!("web-{number}"), &PatchParams::default(), &pending).await.unwrap();
    }
    world.pass(20 * MINUTE).await;
    let left = world.names().await;
    let running = left.iter().filter(|name| name.as_str() < "web-6").count();
    assert_eq!(running, 5, "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn min_replicas_binds_a_resize_that_restarts_a_container() {
    for mode in ["InPlace", "InPlaceOrRecreate"] {
        for (policy, is_resized) in [(json!({}), false), (json!({ "minReplicas": 1 }), true)] {
            let mut world = World::new(Rules::v1_36()).await;
            world.vpa(mode, policy).await;
            world.start_updater(options());
            let restarts = json!([{ "resourceName": "memory", "restartPolicy": "RestartContainer" }]);
            world
                .pod_with("web-0", "1/1Gi", |pod| pod["spec"]["containers"][0]["resizePolicy"] = restarts)
                .await;
            world.recommend("1/2Gi").await;
            world.pass(MOMENT).await;
            let expected = if is_resized { "1/2Gi" } else { "1/1Gi" };
            assert_eq!(world.requests("web-0").await, amounts(expected), "{mode}");
            let message = world.condition("PodsUpdated").await.unwrap().message.unwrap();
            assert_eq!(message.contains("BelowMinReplicas: 1"), !is_resized, "{mode}: {message}");
            // The CPU is resized without a restart, which costs no budget.
            world.recommend("2/1Gi").await;
            world.pass(MOMENT).await;
            if !is_resized {
                assert_eq!(world.requests("web-0").await, amounts("2/1Gi"), "{mode}");
            }
        }
    }
}

/// Upstream reads no replica count of owners that it does not know and evicts all of their pods at once (3.4 h).
#[tokio::test(start_paused = true)]
async fn pods_of_a_custom_resource_have_a_budget_by_its_scale() {
    let mut world = World::new(Rules::v1_36()).await;
    let crd = json!({
        "metadata": { "name": "clones.example.com" },
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": { "kind": "Clone", "plural": "clones", "singular": "clone" },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
                "subresources": { "scale": {
                    "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
                    "labelSelectorPath": ".status.selector",
                } },
            }],
        },
    });
    let crds: Api<CustomResourceDefinition> = Api::all(world.admin.clone());
    crds.create(&PostParams::default(), &object(crd)).await.unwrap();
    world.pass(MOMENT).await;
    let resource = ApiResource {
        group: "example.com".into(),
        version: "v1".into(),
        api_version: "example.com/v1".into(),
        kind: "Clone".into(),
        plural: "clones".into(),
    };
    let clones: Api<DynamicObject> = Api::namespaced_with(world.admin.clone(), "default", &resource);
    let clone = json!({
        "apiVersion": "example.com/v1", "kind": "Clone", "metadata": { "name": "c" },
        "spec": { "replicas": 10 }, "status": { "replicas": 10, "selector": "app=c" },
    });
    let clone = clones.create(&PostParams::default(), &object(clone)).await.unwrap();
    let vpa = json!({
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", "metadata": { "name": "c" },
        "spec": {
            "targetRef": { "apiVersion": "example.com/v1", "kind": "Clone", "name": "c" },
            "updatePolicy": { "updateMode": "Recreate" },
        },
    });
    world.vpas().create(&PostParams::default(), &object(vpa)).await.unwrap();
    for number in 0..10 {
        world
            .pod_with(&format!("c-{number}"), "1/1Gi", |pod| {
                pod["metadata"]["labels"] = json!({ "app": "c" });
                pod["metadata"]["ownerReferences"] = json!([{
                    "apiVersion": "example.com/v1", "kind": "Clone", "name": "c", "uid": clone.uid(), "controller": true,
                }]);
            })
            .await;
    }
    world.recommend_for("c", "2/2Gi").await;
    // The API does not answer about the owner at first: nothing is evicted, and it is asked again (3.4 f).
    world.intercept(|uri: &mut http::Uri| {
        let is_scale = uri.path().ends_with("/clones/c/scale");
        if is_scale { Err(std::io::Error::other("connection refused")) } else { Ok(()) }
    });
    world.start_updater(options());
    world.pass(MINUTE).await;
    assert_eq!(world.count("/eviction"), 0);
    world.intercept(|_| Ok(()));
    world.pass(2 * MINUTE).await;
    assert_eq!(world.count("/eviction"), 5, "half of ten may be missing");
    world.pass(20 * MINUTE).await;
    assert_eq!(world.count("/eviction"), 5);
}

#[tokio::test(start_paused = true)]
async fn a_quota_never_causes_an_eviction_and_the_update_is_retried_when_it_changes() {
    let world = World::start(Rules::v1_36(), "InPlaceOrRecreate").await;
    let quotas: Api<ResourceQuota> = Api::default_namespaced(world.admin.clone());
    world.pods_of(2, "1/1Gi").await;
    let quota = json!({ "metadata": { "name": "q" }, "spec": { "hard": { "requests.cpu": "2" } } });
    quotas.create(&PostParams::default(), &object(quota)).await.unwrap();
    let full = |hard: &str| {
        json!({ "spec": { "hard": { "requests.cpu": hard } }, "status": {
            "hard": { "requests.cpu": hard }, "used": { "requests.cpu": "2" },
        } })
    };
    let set = async |hard: &str| {
        let (params, patch) = (PatchParams::default(), Patch::Merge(full(hard)));
        quotas.patch("q", &params, &patch).await.unwrap();
        quotas.patch_status("q", &params, &patch).await.unwrap();
    };
    set("2").await;
    world.pass(MOMENT).await;
    world.recommend("2/2Gi").await;
    world.pass(60 * MINUTE).await;
    assert_eq!((world.count("/resize"), world.count("/eviction")), (0, 0), "found before it is sent");
    let waiting = world.events("web-0").await["VPAUpdateWaiting"].clone();
    assert!(waiting[0].0.contains("exceeded quota: q"), "{waiting:?}");
    set("8").await;
    world.pass(MOMENT).await;
    assert_eq!(world.requests("web-0").await, amounts("2/2Gi"));
    assert_eq!(world.count("/eviction"), 0);
}

#[tokio::test(start_paused = true)]
async fn an_update_that_a_quota_or_limit_range_refuses_is_retried_with_a_backoff() {
    let world = World::start(Rules::v1_36(), "InPlace").await;
    let quotas: Api<ResourceQuota> = Api::default_namespaced(world.admin.clone());
    world.pods_of(1, "1/1Gi").await;
    let quota = json!({ "metadata": { "name": "q" }, "spec": { "hard": { "requests.cpu": "1" } } });
    quotas.create(&PostParams::default(), &object(quota)).await.unwrap();
    let status = json!({ "status": { "hard": { "requests.cpu": "1" }, "used": { "requests.cpu": "1" } } });
    quotas.patch_status("q", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    world.recommend("2/2Gi").await;
    world.pass(60 * MINUTE).await;
    let attempts = world.count("/resize");
    assert!((15..30).contains(&attempts), "up to five minutes apart: {attempts}");
    let refused = world.events("web-0").await["VPAUpdateRefused"].clone();
    assert_eq!(refused.len(), 1, "{refused:?}");
    quotas.delete("q", &DeleteParams::default()).await.unwrap();
    world.pass(MOMENT).await;
    assert_eq!(world.requests("web-0").await, amounts("2/2Gi"));
    assert_eq!(world.count("/eviction"), 0);
}

#[tokio::test(start_paused = true)]
async fn the_condition_says_at_once_what_was_refused() {
    for mode in ["InPlace", "Recreate"] {
        let world = World::start(Rules::v1_36(), mode).await;
        world.pods_of(2, "1/1Gi").await;
        let quotas: Api<ResourceQuota> = Api::default_namespaced(world.admin.clone());
        // An eviction under an exceeded quota is not even asked for.
        let cpu = if mode == "InPlace" { "2" } else { "8" };
        let quota = json!({ "metadata": { "name": "q" }, "spec": { "hard": { "requests.cpu": cpu } } });
        quotas.create(&PostParams::default(), &object(quota)).await.unwrap();
        let status =
            json!({ "status": { "hard": { "requests.cpu": cpu }, "used": { "requests.cpu": "2" } } });
        quotas.patch_status("q", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
        let budgets: Api<PodDisruptionBudget> = Api::default_namespaced(world.admin.clone());
        let budget = json!({
            "metadata": { "name": "b" },
            "spec": { "maxUnavailable": 0, "selector": { "matchLabels": { "app": "web" } } },
        });
        budgets.create(&PostParams::default(), &object(budget)).await.unwrap();
        world.pass(MOMENT).await;
        world.recommend("2/2Gi").await;
        world.pass(MOMENT).await;
        let expected = if mode == "InPlace" { "QuotaExceeded: 2" } else { "TooManyRequests: 2" };
        let message = world.condition("PodsUpdated").await.unwrap().message.unwrap();
        assert!(message.contains(expected), "{mode}: {message}");
        assert!(world.count("/resize") + world.count("/eviction") < 10, "with a backoff");
    }
}

/// The admission controller would create the next pod without the recommendation, which would then be evicted, too.
#[tokio::test(start_paused = true)]
async fn a_pod_whose_recommendation_admission_would_leave_out_is_not_evicted() {
    for mode in ["Recreate", "InPlaceOrRecreate"] {
        let world = World::start(Rules::v1_36(), mode).await;
        let ranges: Api<LimitRange> = Api::default_namespaced(world.admin.clone());
        let max =
            |cpu: &str| json!({ "spec": { "limits": [{ "type": "Container", "max": { "cpu": cpu } }] } });
        let mut range = max("1");
        range["metadata"] = json!({ "name": "r" });
        ranges.create(&PostParams::default(), &object(range)).await.unwrap();
        let policies = json!([{ "containerName": "app", "minAllowed": { "cpu": "3" } }]);
        let policy = json!({ "spec": { "resourcePolicy": { "containerPolicies": policies } } });
        world.vpas().patch("web", &PatchParams::default(), &Patch::Merge(policy)).await.unwrap();
        world.pods_of(2, "500m/1Gi").await;
        world.pass(MOMENT).await;
        world.recommend("2/1Gi").await;
        world.pass(60 * MINUTE).await;
        assert_eq!((world.count("/resize"), world.count("/eviction")), (0, 0), "{mode}");
        let message = world.condition("PodsUpdated").await.unwrap().message.unwrap();
        assert!(message.contains("RecommendationRefused: 2"), "{mode}: {message}");
        ranges.patch("r", &PatchParams::default(), &Patch::Merge(max("32"))).await.unwrap();
        world.pass(MOMENT).await;
        assert!(world.count("/resize") + world.count("/eviction") > 0, "{mode}: when the range allows it");
    }
}

/// The same of the resources of the pod as a whole.
#[tokio::test(start_paused = true)]
async fn a_pod_whose_own_resources_do_not_allow_the_recommendation_is_not_evicted() {
    for mode in ["Recreate", "InPlaceOrRecreate"] {
        let world = World::start(Rules::v1_36(), mode).await;
        world.pods_of(0, "1/1Gi").await;
        for pod in ["web-0", "web-1"] {
            let whole = |pod: &mut serde_json::Value| {
                let amounts = json!({ "cpu": "2", "memory": "2Gi" });
                pod["spec"]["resources"] = json!({ "requests": amounts, "limits": amounts });
            };
            world.pod_with(pod, "1/1Gi", whole).await;
        }
        world.pass(MOMENT).await;
        world.recommend("3/1Gi").await;
        world.pass(60 * MINUTE).await;
        assert_eq!((world.count("/resize"), world.count("/eviction")), (0, 0), "{mode}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_range_caps_the_requests_of_an_update() {
    let world = World::start(Rules::v1_36(), "InPlace").await;
    let ranges: Api<LimitRange> = Api::default_namespaced(world.admin.clone());
    world.pods_of(1, "1/1Gi").await;
    let range = json!({
        "metadata": { "name": "r" }, "spec": { "limits": [{ "type": "Container", "min": { "cpu": "3" } }] },
    });
    ranges.create(&PostParams::default(), &object(range)).await.unwrap();
    world.pass(MOMENT).await;
    world.recommend("2/2Gi").await;
    world.pass(MOMENT).await;
    assert_eq!(world.requests("web-0").await, amounts("3/2Gi"));
    world.answer("web-0", Answer::Applied).await;
    ranges.delete("r", &DeleteParams::default()).await.unwrap();
    world.pass(MOMENT).await;
    assert_eq!(world.requests("web-0").await, amounts("2/2Gi"), "at once when the range is gone");
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_qos_class_would_change_is_evicted_within_the_budget() {
    let world = World::new(Rules::v1_36()).await;
    let mut world = world;
    world.vpa("InPlaceOrRecreate", json!({})).await;
    let policy = json!({ "spec": { "resourcePolicy": { "containerPolicies": [
        { "containerName": "*", "controlledValues": "RequestsOnly" },
    ] } } });
    world.vpas().patch("web", &PatchParams::default(), &Patch::Merge(policy)).await.unwrap();
    world.pods_of(0, "1/1Gi").await;
    for number in 0..2 {
        world
            .pod_with(&format!("web-{number}"), "1/1Gi", |pod| {
                pod["spec"]["containers"][0]["resources"]["limits"] = json!({ "cpu": "1", "memory": "1Gi" });
            })
            .await;
    }
    let sets: Api<k8s_openapi::api::apps::v1::ReplicaSet> = Api::default_namespaced(world.admin.clone());
    let two = Patch::Merge(json!({ "spec": { "replicas": 2 } }));
    sets.patch("web", &PatchParams::default(), &two).await.unwrap();
    world.recommend("500m/1Gi").await;
    world.start_updater(options());
    world.pass(10 * MINUTE).await;
    assert_eq!((world.count("/resize"), world.count("/eviction")), (0, 1));
    let evicted = world.events("web").await["EvictedPod"].clone();
    assert!(evicted[0].0.contains("QoS class"), "{evicted:?}");
}

#[tokio::test(start_paused = true)]
async fn a_disruption_budget_is_honoured_and_the_eviction_is_retried() {
    let world = World::start(Rules::v1_36(), "Recreate").await;
    let budgets: Api<PodDisruptionBudget> = Api::default_namespaced(world.admin.clone());
    let budget = json!({
        "metadata": { "name": "b" },
        "spec": { "minAvailable": 2, "selector": { "matchLabels": { "app": "web" } } },
    });
    budgets.create(&PostParams::default(), &object(budget)).await.unwrap();
    let allow = async |allowed: i32| {
        let generation = budgets.get("b").await.unwrap().metadata.generation;
        let status = json!({ "status": {
            "disruptionsAllowed": allowed, "currentHealthy": 2, "desiredHealthy": 2, "expectedPods": 2,
            "observedGeneration": generation,
        } });
        budgets.patch_status("b", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    };
    allow(0).await;
    world.pods_of(2, "1/1Gi").await;
    world.recommend("2/2Gi").await;
    world.pass(10 * MINUTE).await;
    assert_eq!(world.names().await.len(), 2);
    assert!(world.count("/eviction") < 30, "with a backoff");
    allow(1).await;
    world.pass(6 * MINUTE).await;
    assert_eq!(world.names().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn pods_are_evicted_only_while_the_admission_controller_renews_its_lease() {
    let mut world = World::new(Rules::v1_36()).await;
    world.vpa("Recreate", json!({})).await;
    let lease = AdmissionLease { namespace: "default".into(), ..AdmissionLease::default() };
    world.start_updater(Options { admission_lease: Some(lease), ..options() });
    world.pods_of(2, "1/1Gi").await;
    world.recommend("2/2Gi").await;
    world.pass(10 * MINUTE).await;
    assert_eq!(world.count("/eviction"), 0);
    assert!(
        world.condition("PodsUpdated").await.unwrap().message.unwrap().contains("AdmissionControllerDown: 2")
    );
    let leases: Api<Lease> = Api::default_namespaced(world.admin.clone());
    let renewed = format!("{:.6}", world.clock.now());
    let lease =
        json!({ "metadata": { "name": "vpa-admission-controller" }, "spec": { "renewTime": renewed } });
    leases.create(&PostParams::default(), &object(lease)).await.unwrap();
    world.pass(20 * Duration::from_secs(1)).await;
    assert_eq!(world.count("/eviction"), 1);
}

/// Has a replica set of pods with these requests replace what was evicted, for some seconds: as soon as it is evicted.
async fn replace_evicted(
    world: &World,
    numbers: &mut std::ops::RangeFrom<u32>,
    pod: Replacement,
    seconds: u32,
) {
    for _ in 0..seconds {
        let pods = world.pods().list(&ListParams::default()).await.unwrap();
        for evicted in pods.items.iter().filter(|pod| pod.metadata.deletion_timestamp.is_some()) {
            let at_once = DeleteParams::default().grace_period(0);
            world.pods().delete(&evicted.name_any(), &at_once).await.unwrap();
        }
        let live = world.names().await.len();
        for number in numbers.take(3_usize.saturating_sub(live)) {
            let annotate = |object: &mut serde_json::Value| {
                if pod.is_admitted {
                    object["metadata"]["annotations"] =
                        json!({ "vpaUpdates": "Pod resources updated by web" });
                }
            };
            world.pod_with(&format!("new-{number}"), pod.requests, annotate).await;
        }
        world.pass(Duration::from_secs(1)).await;
    }
}

/// A pod that is created in the stead of an evicted one.
#[derive(Clone, Copy)]
struct Replacement {
    requests: &'static str,
    is_admitted: bool,
}

/// The API server does not reach the webhook, whose failure policy is Ignore, though the webhook renews its lease.
#[tokio::test(start_paused = true)]
async fn pods_that_come_back_without_the_recommendation_are_evicted_once_per_interval() {
    let world = World::start(Rules::v1_36(), "Recreate").await;
    world.pods_of(3, "1/1Gi").await;
    world.recommend("2/2Gi").await;
    let mut numbers = 0..;
    let bare = Replacement { requests: "1/1Gi", is_admitted: false };
    replace_evicted(&world, &mut numbers, bare, 45).await;
    assert_eq!(world.count("/eviction"), 1, "one of three replicas may be missing");
    let message = world.condition("PodsUpdated").await.unwrap().message.unwrap();
    assert!(message.contains("ReplacementsNotUpdated: 3"), "{message}");
    let said = world.events("web").await["AdmissionNotReached"].clone();
    assert!(said.len() == 1 && said[0].0.contains("--register-by-url"), "{said:?}");
    // A recommendation that changes is no reason to evict faster.
    world.recommend("3/3Gi").await;
    replace_evicted(&world, &mut numbers, bare, 10).await;
    assert_eq!(world.count("/eviction"), 1);
    replace_evicted(&world, &mut numbers, bare, 10 * 60).await;
    let evictions = world.count("/eviction");
    assert!((9..=11).contains(&evictions), "one in a minute: {evictions}");
    // The webhook is reached again. Pods that came up without it are replaced, and then all is as before.
    let admitted = Replacement { requests: "3/3Gi", is_admitted: true };
    replace_evicted(&world, &mut numbers, admitted, 4 * 60).await;
    assert_eq!(world.condition("PodsUpdated").await.unwrap().reason.as_deref(), Some("AllPodsUpdated"));
    let before = world.count("/eviction");
    world.recommend("2/2Gi").await;
    replace_evicted(&world, &mut numbers, Replacement { requests: "2/2Gi", is_admitted: true }, 15).await;
    assert_eq!(world.count("/eviction"), before + 3, "at the speed of events");
}

/// A webhook that is called later resets what the admission webhook set.
#[tokio::test(start_paused = true)]
async fn pods_whose_recommendation_is_undone_are_evicted_once_per_interval() {
    let world = World::start(Rules::v1_36(), "Recreate").await;
    world.pods_of(3, "1/1Gi").await;
    world.recommend("2/2Gi").await;
    let undone = Replacement { requests: "1/1Gi", is_admitted: true };
    replace_evicted(&world, &mut (0..), undone, 5 * 60).await;
    let evictions = world.count("/eviction");
    assert!((4..=6).contains(&evictions), "one in a minute: {evictions}");
    assert!(!world.events("web").await.contains_key("AdmissionNotReached"), "the webhook is reached");
}

#[tokio::test(start_paused = true)]
async fn a_resize_that_restarts_containers_keeps_to_the_budget() {
    let world = World::start(Rules::v1_36(), "InPlace").await;
    world.pods_of(0, "1/1Gi").await;
    let sets: Api<k8s_openapi::api::apps::v1::ReplicaSet> = Api::default_namespaced(world.admin.clone());
    let four = Patch::Merge(json!({ "spec": { "replicas": 4 } }));
    sets.patch("web", &PatchParams::default(), &four).await.unwrap();
    for number in 0..4 {
        world
            .pod_with(&format!("web-{number}"), "1/1Gi", |pod| {
                pod["spec"]["containers"][0]["resizePolicy"] =
                    json!([{ "resourceName": "memory", "restartPolicy": "RestartContainer" }]);
            })
            .await;
    }
    // Only what changes counts: CPU restarts nothing.
    world.recommend("2/1Gi").await;
    world.pass(MOMENT).await;
    assert_eq!(world.count("/resize"), 4);
    for number in 0..4 {
        world.answer(&format!("web-{number}"), Answer::Applied).await;
    }
    world.recommend("2/2Gi").await;
    world.pass(10 * MINUTE).await;
    assert_eq!(world.count("/resize"), 6, "two of four at once");
    for number in 0..4 {
        world.answer(&format!("web-{number}"), Answer::Applied).await;
    }
    world.pass(MOMENT).await;
    assert_eq!(world.count("/resize"), 8);
    assert_eq!(world.count("/eviction"), 0);
}

#[tokio::test(start_paused = true)]
async fn the_record_of_a_pod_says_when_it_was_resized() {
    let world = World::start(Rules::v1_36(), "InPlaceOrRecreate").await;
    world.pods_of(1, "1/1Gi").await;
    let before = world.clock.now();
    world.recommend("2/2Gi").await;
    world.pass(MOMENT).await;
    let state = world.state("web-0").await;
    let accepted = state.record.accepted.expect("a record");
    assert_eq!(accepted.generation, state.generation);
    assert!(accepted.at >= before && accepted.at <= world.clock.now());
    assert!(world.pods().get("web-0").await.unwrap().metadata.annotations.unwrap().contains_key(ANNOTATION));
}

/// The rate limit delays evictions and resizes; what their VPA said before does not count then.
#[tokio::test(start_paused = true)]
async fn a_pod_is_not_evicted_after_its_vpa_has_changed() {
    changes_no_pod_after_its_vpa_has_changed("Recreate", "/eviction").await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_not_resized_after_its_vpa_has_changed() {
    for mode in ["InPlaceOrRecreate", "InPlace"] {
        changes_no_pod_after_its_vpa_has_changed(mode, "/resize").await;
    }
}

async fn changes_no_pod_after_its_vpa_has_changed(mode: &str, request: &str) {
    let rate_limit = RateLimit { per_second: 0.01, burst: 1 };
    for patch in [json!({ "spec": { "updatePolicy": { "updateMode": "Off" } } }), json!(null)] {
        let mut world = World::new(Rules::v1_36()).await;
        world.vpa(mode, json!({})).await;
        world.start_updater(Options { rate_limit, ..options() });
        world.pods_of(8, "1/1Gi").await;
        world.recommend("2/2Gi").await;
        world.pass(MOMENT).await;
        assert_eq!(world.count(request), 1, "the others wait for the rate limit");
        if patch.is_null() {
            world.recommend("1/1Gi").await;
        } else {
            world.vpas().patch("web", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
        }
        world.pass(30 * MINUTE).await;
        assert_eq!(world.count(request), 1, "{mode} {patch}");
    }
}
