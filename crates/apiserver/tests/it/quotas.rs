//! Quotas and limit ranges, for resizes by pod update and through `/resize`.

use futures_util::future::join_all;
use plumb_resize::rules::Rules;
use serde_json::{Value, json};

use super::test_api_server::{TestApiServer, pod};

const PODS: &str = "/api/v1/namespaces/default/pods";

fn resources(cpu: &str, memory: &str) -> Value {
    let amounts = json!({ "cpu": cpu, "memory": memory });
    json!({ "spec": { "containers": [{ "name": "main", "resources": { "requests": amounts, "limits": amounts } }] } })
}

/// A quota whose status has zero usage.
async fn quota(apiserver: &TestApiServer, name: &str, spec: Value) {
    let hard = spec["hard"].clone();
    let used: serde_json::Map<String, Value> =
        hard.as_object().unwrap().keys().map(|name| (name.clone(), json!("0"))).collect();
    let quota = json!({ "metadata": { "name": name }, "spec": spec });
    apiserver.post("/api/v1/namespaces/default/resourcequotas", &quota).await.ok();
    let status = json!({ "status": { "hard": hard, "used": used } });
    apiserver.merge(&format!("/api/v1/namespaces/default/resourcequotas/{name}/status"), &status).await.ok();
}

async fn used(apiserver: &TestApiServer, name: &str) -> Value {
    apiserver.get(&format!("/api/v1/namespaces/default/resourcequotas/{name}")).await.ok()["status"]["used"]
        .clone()
}

async fn limit_range(apiserver: &TestApiServer, limits: Value) {
    let range = json!({ "metadata": { "name": "r" }, "spec": { "limits": limits } });
    apiserver.post("/api/v1/namespaces/default/limitranges", &range).await.ok();
}

/// The endpoints that resize a pod, by dialect.
fn resize_endpoints() -> [(&'static str, Rules, &'static str); 3] {
    [("kep", Rules::kep(), ""), ("kep", Rules::kep(), "/resize"), ("v1.36", Rules::v1_36(), "/resize")]
}

#[tokio::test]
async fn a_resize_is_checked_against_the_quota_of_its_namespace() {
    // KEP-1287, "Resource Quota and Limit Ranges": within and beyond, cpu, memory and both.
    let table = [
        ("400m", "300Mi", None),
        ("300m", "400Mi", None),
        ("400m", "400Mi", None),
        ("900m", "300Mi", Some(("requests.cpu=600m", "requests.cpu=300m", "requests.cpu=800m"))),
        ("300m", "900Mi", Some(("requests.memory=600Mi", "requests.memory=300Mi", "requests.memory=800Mi"))),
        (
            "900m",
            "900Mi",
            Some((
                "requests.cpu=600m,requests.memory=600Mi",
                "requests.cpu=300m,requests.memory=300Mi",
                "requests.cpu=800m,requests.memory=800Mi",
            )),
        ),
    ];
    for (dialect, rules, subresource) in resize_endpoints() {
        for (cpu, memory, refused) in table {
            let apiserver = TestApiServer::open(rules.clone());
            let hard = json!({ "requests.cpu": "800m", "requests.memory": "800Mi" });
            quota(&apiserver, "q", json!({ "hard": hard })).await;
            apiserver.post(PODS, &pod("web", "300m", "300Mi")).await.ok();
            let answer =
                apiserver.strategic(&format!("{PODS}/web{subresource}"), &resources(cpu, memory)).await;
            let case = format!("{dialect}{subresource} {cpu} {memory}");
            match refused {
                None => {
                    assert_eq!(answer.status, 200, "{case}: {}", answer.body);
                    let expected = json!({ "requests.cpu": cpu, "requests.memory": memory });
                    assert_eq!(used(&apiserver, "q").await, expected, "{case}");
                }
                Some((requested, had, limited)) => {
                    let expected = format!(
                        "pods \"web\" is forbidden: exceeded quota: q, requested: {requested}, used: {had}, limited: {limited}"
                    );
                    assert_eq!(answer.rejected(), (403, "Forbidden".into(), expected), "{case}");
                    let expected = json!({ "requests.cpu": "300m", "requests.memory": "300Mi" });
                    assert_eq!(used(&apiserver, "q").await, expected, "{case}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_shrink_frees_quota_only_once_it_is_actual() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    quota(&apiserver, "q", json!({ "hard": { "cpu": "1", "pods": "3" } })).await;
    apiserver.post(PODS, &pod("web", "500m", "100Mi")).await.ok();
    assert_eq!(used(&apiserver, "q").await, json!({ "cpu": "500m", "pods": "1" }));
    apiserver.strategic(&format!("{PODS}/web/resize"), &resources("200m", "100Mi")).await.ok();
    assert_eq!(used(&apiserver, "q").await, json!({ "cpu": "500m", "pods": "1" }));
}

#[tokio::test]
async fn a_pod_must_specify_the_resources_that_a_quota_counts() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    quota(&apiserver, "q", json!({ "hard": { "requests.cpu": "1", "limits.memory": "1Gi" } })).await;
    let bare = json!({ "metadata": { "name": "web" }, "spec": { "containers": [
        { "name": "b", "image": "x" }, { "name": "a", "image": "x", "resources": { "requests": { "cpu": "1m" } } },
    ] } });
    assert_eq!(
        apiserver.post(PODS, &bare).await.rejected().2,
        "pods \"web\" is forbidden: failed quota: q: must specify limits.memory for: a,b; requests.cpu for: b"
    );
}

#[tokio::test]
async fn a_quota_with_unknown_usage_rejects_what_it_counts() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let quota = json!({ "metadata": { "name": "q" }, "spec": { "hard": { "configmaps": "1" } } });
    apiserver.post("/api/v1/namespaces/default/resourcequotas", &quota).await.ok();
    let maps = "/api/v1/namespaces/default/configmaps";
    // A quota is not enforced before its status has hard limits.
    apiserver.post(maps, &json!({ "metadata": { "name": "a" } })).await.ok();
    let status = json!({ "status": { "hard": { "configmaps": "1" } } });
    apiserver.merge("/api/v1/namespaces/default/resourcequotas/q/status", &status).await.ok();
    assert_eq!(
        apiserver.post(maps, &json!({ "metadata": { "name": "b" } })).await.rejected().2,
        "configmaps \"b\" is forbidden: status unknown for quota: q, resources: configmaps"
    );
}

#[tokio::test]
async fn scopes_and_object_counts_decide_what_a_quota_counts() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let class = |name: &str, value: i64| json!({ "metadata": { "name": name }, "value": value });
    for (name, value) in [("high", 10), ("low", 1)] {
        apiserver.post("/apis/scheduling.k8s.io/v1/priorityclasses", &class(name, value)).await.ok();
    }
    let selector = json!({ "matchExpressions": [{ "scopeName": "PriorityClass", "operator": "In", "values": ["high"] }] });
    quota(&apiserver, "important", json!({ "hard": { "pods": "1" }, "scopeSelector": selector })).await;
    quota(&apiserver, "modest", json!({ "hard": { "pods": "1" }, "scopes": ["BestEffort"] })).await;
    quota(&apiserver, "sets", json!({ "hard": { "count/replicasets.apps": "1" } })).await;
    let of = |name: &str, class: &str| {
        let mut pod = pod(name, "100m", "100Mi");
        pod["spec"]["priorityClassName"] = json!(class);
        pod
    };
    apiserver.post(PODS, &of("a", "high")).await.ok();
    apiserver.post(PODS, &of("b", "low")).await.ok();
    assert_eq!(
        apiserver.post(PODS, &of("c", "high")).await.rejected().2,
        "pods \"c\" is forbidden: exceeded quota: important, requested: pods=1, used: pods=1, limited: pods=1"
    );
    let mut bare = pod("d", "1", "1");
    bare["spec"]["containers"][0].as_object_mut().unwrap().remove("resources");
    apiserver.post(PODS, &bare).await.ok();
    assert_eq!(used(&apiserver, "modest").await, json!({ "pods": "1" }));
    let set = |name: &str| {
        let labels = json!({ "app": name });
        json!({ "metadata": { "name": name }, "spec": {
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": { "containers": [{ "name": "c", "image": "x" }] } },
        } })
    };
    let sets = "/apis/apps/v1/namespaces/default/replicasets";
    apiserver.post(sets, &set("a")).await.ok();
    assert_eq!(
        apiserver.post(sets, &set("b")).await.rejected().2,
        "replicasets.apps \"b\" is forbidden: exceeded quota: sets, requested: count/replicasets.apps=1, used: \
         count/replicasets.apps=1, limited: count/replicasets.apps=1"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_writers_at_once_do_not_exceed_a_quota() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    quota(&apiserver, "q", json!({ "hard": { "pods": "40", "requests.cpu": "37" } })).await;
    let answers = join_all((0..100).map(|number| {
        let (apiserver, pod) = (&apiserver, pod(&format!("p{number}"), "1", "1Mi"));
        async move { apiserver.post(PODS, &pod).await.status.as_u16() }
    }))
    .await;
    let made = answers.iter().filter(|status| **status == 201).count();
    assert_eq!((made, answers.iter().filter(|status| **status == 403).count()), (37, 63));
    assert_eq!(used(&apiserver, "q").await, json!({ "pods": "37", "requests.cpu": "37" }));
    assert_eq!(apiserver.get(PODS).await.ok()["items"].as_array().unwrap().len(), 37);
}

#[tokio::test]
async fn a_write_that_fails_or_is_only_tried_charges_nothing() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    quota(&apiserver, "q", json!({ "hard": { "pods": "1" } })).await;
    apiserver.post(&format!("{PODS}?dryRun=All"), &pod("web", "1", "1Mi")).await.ok();
    assert_eq!(used(&apiserver, "q").await, json!({ "pods": "0" }));
    apiserver.post(PODS, &pod("web", "1", "1Mi")).await.ok();
    assert_eq!(apiserver.post(PODS, &pod("web", "1", "1Mi")).await.status, 409);
    assert_eq!(
        apiserver.post(&format!("{PODS}?dryRun=All"), &pod("other", "1", "1Mi")).await.rejected().2,
        "pods \"other\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1"
    );
    assert_eq!(used(&apiserver, "q").await, json!({ "pods": "1" }));
}

#[tokio::test]
async fn a_resize_is_validated_by_the_limit_range_of_its_namespace() {
    let limits = json!([{
        "type": "Container", "min": { "cpu": "50m", "memory": "50Mi" }, "max": { "cpu": "500m", "memory": "500Mi" },
    }]);
    let table = [
        ("400m", "400Mi", None),
        ("50m", "50Mi", None),
        ("600m", "300Mi", Some("maximum cpu usage per Container is 500m, but limit is 600m")),
        ("300m", "600Mi", Some("maximum memory usage per Container is 500Mi, but limit is 600Mi")),
        ("10m", "300Mi", Some("minimum cpu usage per Container is 50m, but request is 10m")),
        ("300m", "10Mi", Some("minimum memory usage per Container is 50Mi, but request is 10Mi")),
        (
            "600m",
            "600Mi",
            Some(
                "[maximum cpu usage per Container is 500m, but limit is 600m, maximum memory usage per Container is \
                 500Mi, but limit is 600Mi]",
            ),
        ),
    ];
    for (dialect, rules, subresource) in resize_endpoints() {
        for (cpu, memory, refused) in &table {
            let apiserver = TestApiServer::open(rules.clone());
            limit_range(&apiserver, limits.clone()).await;
            apiserver.post(PODS, &pod("web", "300m", "300Mi")).await.ok();
            let answer =
                apiserver.strategic(&format!("{PODS}/web{subresource}"), &resources(cpu, memory)).await;
            let case = format!("{dialect}{subresource} {cpu} {memory}");
            match refused {
                None => assert_eq!(answer.status, 200, "{case}: {}", answer.body),
                Some(why) => assert_eq!(
                    answer.rejected(),
                    (403, "Forbidden".into(), format!("pods \"web\" is forbidden: {why}")),
                    "{case}"
                ),
            }
        }
    }
}

#[tokio::test]
async fn a_pod_without_resources_gets_the_defaults_of_the_limit_range() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    limit_range(
        &apiserver,
        json!([{ "type": "Container", "default": { "cpu": "200m" }, "defaultRequest": { "cpu": "100m", "memory": "64Mi" } }]),
    )
    .await;
    let bare = json!({ "metadata": { "generateName": "web-" }, "spec": { "containers": [{ "name": "c", "image": "x" }] } });
    let made = apiserver.post(PODS, &bare).await.ok();
    assert_eq!(
        made["spec"]["containers"][0]["resources"],
        json!({ "limits": { "cpu": "200m" }, "requests": { "cpu": "100m", "memory": "64Mi" } })
    );
    assert_eq!(
        made["metadata"]["annotations"]["kubernetes.io/limit-ranger"],
        "LimitRanger plugin set: cpu, memory request for container c; cpu limit for container c"
    );
    assert_eq!(made["status"]["qosClass"], "Burstable");
}

#[tokio::test]
async fn an_update_that_does_not_change_resources_does_not_validate_them() {
    let apiserver = TestApiServer::open(Rules::kep());
    apiserver.post(PODS, &pod("web", "600m", "300Mi")).await.ok();
    limit_range(&apiserver, json!([{ "type": "Container", "max": { "cpu": "500m" } }])).await;
    let labels = json!({ "metadata": { "labels": { "a": "b" } } });
    assert_eq!(apiserver.merge(&format!("{PODS}/web"), &labels).await.status, 200);
    assert_eq!(apiserver.strategic(&format!("{PODS}/web"), &resources("550m", "300Mi")).await.status, 403);
}

#[tokio::test]
async fn a_claim_is_checked_against_limit_range_and_quota() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    limit_range(&apiserver, json!([{ "type": "PersistentVolumeClaim", "min": { "storage": "1Gi" }, "max": { "storage": "3Gi" } }]))
        .await;
    quota(&apiserver, "q", json!({ "hard": { "requests.storage": "3Gi", "gold.storageclass.storage.k8s.io/persistentvolumeclaims": "1" } }))
        .await;
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let claim = |name: &str, size: &str| {
        json!({ "metadata": { "name": name }, "spec": {
            "storageClassName": "gold", "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": size } },
        } })
    };
    assert_eq!(
        apiserver.post(claims, &claim("a", "4Gi")).await.rejected().2,
        "persistentvolumeclaims \"a\" is forbidden: maximum storage usage per PersistentVolumeClaim is 3Gi, but request is 4Gi"
    );
    let made = apiserver.post(claims, &claim("a", "2Gi")).await.ok();
    assert_eq!(made["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
    assert_eq!(
        apiserver.post(claims, &claim("b", "2Gi")).await.rejected().2,
        "persistentvolumeclaims \"b\" is forbidden: exceeded quota: q, requested: \
         gold.storageclass.storage.k8s.io/persistentvolumeclaims=1,requests.storage=2Gi, used: \
         gold.storageclass.storage.k8s.io/persistentvolumeclaims=1,requests.storage=2Gi, limited: \
         gold.storageclass.storage.k8s.io/persistentvolumeclaims=1,requests.storage=3Gi"
    );
}
