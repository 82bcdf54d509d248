//! Objects through every verb.

use http::Method;
use plumb_resize::rules::Rules;
use plumb_store::Options;
use serde_json::{Value, json};

use super::cancelled::gated;
use super::test_api_server::{NOW, TestApiServer, pod};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn map(name: &str, data: &Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": data })
}

#[tokio::test]
async fn a_new_object_gets_the_metadata_of_the_server() {
    let apiserver = TestApiServer::open(Rules::kep());
    let made = apiserver.post(MAPS, &map("a", &json!({ "k": "v" }))).await.ok();
    assert_eq!(made["kind"], "ConfigMap");
    assert_eq!(made["metadata"]["namespace"], "default");
    assert_eq!(made["metadata"]["creationTimestamp"], NOW);
    assert_eq!(made["metadata"]["uid"].as_str().unwrap().len(), 36);
    assert!(made["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap() > 0);
    assert_eq!(apiserver.get(&format!("{MAPS}/a")).await.ok(), made);
}

#[tokio::test]
async fn a_name_is_unique_and_can_be_generated() {
    let apiserver = TestApiServer::open(Rules::kep());
    apiserver.post(MAPS, &map("a", &json!({}))).await.ok();
    let again = apiserver.post(MAPS, &map("a", &json!({}))).await.rejected();
    assert_eq!(again, (409, "AlreadyExists".into(), "configmaps \"a\" already exists".into()));
    let body = json!({ "metadata": { "generateName": "job-" } });
    let name = apiserver.post(MAPS, &body).await.ok()["metadata"]["name"].as_str().unwrap().to_owned();
    assert!(name.starts_with("job-") && name.len() == 9, "{name}");
}

#[tokio::test]
async fn not_found_errors_have_the_messages_of_kubernetes() {
    let apiserver = TestApiServer::open(Rules::kep());
    let table = [
        (format!("{MAPS}/nope"), "configmaps \"nope\" not found"),
        ("/apis/apps/v1/namespaces/default/deployments/web".into(), "deployments.apps \"web\" not found"),
        ("/apis/nope/v1/things".into(), "the server could not find the requested resource"),
    ];
    for (path, message) in table {
        let (code, reason, text) = apiserver.get(&path).await.rejected();
        assert_eq!((code, reason.as_str(), text.as_str()), (404, "NotFound", message), "{path}");
    }
    let (code, _, message) =
        apiserver.post("/api/v1/namespaces/nope/configmaps", &map("a", &json!({}))).await.rejected();
    assert_eq!((code, message.as_str()), (404, "namespaces \"nope\" not found"));
}

#[tokio::test]
async fn a_key_of_a_config_map_or_a_secret_is_not_empty() {
    let apiserver = TestApiServer::open(Rules::kep());
    for kind in ["configmaps", "secrets"] {
        let path = format!("/api/v1/namespaces/default/{kind}");
        let object = json!({ "metadata": { "name": "a" }, "data": { "": "dg==" } });
        let (code, reason, message) = apiserver.post(&path, &object).await.rejected();
        assert_eq!((code, reason.as_str()), (422, "Invalid"));
        assert!(message.contains("a valid config key must consist of alphanumeric characters"), "{message}");
        assert_eq!(apiserver.get(&format!("{path}/a")).await.status, 404);
    }
}

#[tokio::test]
async fn an_update_of_an_old_version_is_a_conflict() {
    let apiserver = TestApiServer::open(Rules::kep());
    let first = apiserver.post(MAPS, &map("a", &json!({ "k": "1" }))).await.ok();
    let mut second = first.clone();
    second["data"]["k"] = json!("2");
    let path = format!("{MAPS}/a");
    let updated = apiserver.put(&path, &second).await.ok();
    assert_ne!(updated["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    assert_eq!(updated["metadata"]["uid"], first["metadata"]["uid"]);
    let (code, reason, message) = apiserver.put(&path, &second).await.rejected();
    assert_eq!((code, reason.as_str()), (409, "Conflict"));
    assert!(
        message
            .starts_with("Operation cannot be fulfilled on configmaps \"a\": the object has been modified")
    );
}

#[tokio::test]
async fn an_update_without_changes_is_not_written() {
    let apiserver = TestApiServer::open(Rules::kep());
    let made = apiserver.post(MAPS, &map("a", &json!({ "k": "1" }))).await.ok();
    let same = apiserver.merge(&format!("{MAPS}/a"), &json!({ "data": { "k": "1" } })).await.ok();
    assert_eq!(same["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"]);
}

#[tokio::test]
async fn every_kind_of_patch_changes_an_object() {
    let apiserver = TestApiServer::open(Rules::kep());
    apiserver.post(MAPS, &map("a", &json!({ "k": "1", "gone": "x" }))).await.ok();
    let path = format!("{MAPS}/a");
    let merged = apiserver.merge(&path, &json!({ "data": { "k": "2", "gone": null } })).await.ok();
    assert_eq!(merged["data"], json!({ "k": "2" }));
    let strategic =
        apiserver.strategic(&path, &json!({ "metadata": { "labels": { "app": "web" } } })).await.ok();
    assert_eq!(strategic["metadata"]["labels"], json!({ "app": "web" }));
    let operations =
        r#"[{"op":"test","path":"/data/k","value":"2"},{"op":"add","path":"/data/n","value":"3"}]"#;
    let patched =
        apiserver.request(Method::PATCH, &path, "application/json-patch+json", operations).await.ok();
    assert_eq!(patched["data"], json!({ "k": "2", "n": "3" }));
    let (code, reason, _) = apiserver.request(Method::PATCH, &path, "text/yaml", "{}").await.rejected();
    assert_eq!((code, reason.as_str()), (415, "UnsupportedMediaType"));
}

#[tokio::test]
async fn a_dry_run_returns_the_object_and_stores_nothing() {
    let apiserver = TestApiServer::open(Rules::kep());
    let made = apiserver.post(&format!("{MAPS}?dryRun=All"), &map("a", &json!({}))).await;
    assert_eq!(made.status, 201);
    assert_eq!(apiserver.get(&format!("{MAPS}/a")).await.status, 404);
}

#[tokio::test]
async fn unknown_fields_are_rejected_warned_about_or_dropped() {
    let apiserver = TestApiServer::open(Rules::kep());
    let body = json!({ "metadata": { "name": "a" }, "dataa": {} });
    let strict = apiserver.post(&format!("{MAPS}?fieldValidation=Strict"), &body).await.rejected();
    assert_eq!(strict.0, 400);
    assert!(strict.2.ends_with("strict decoding error: unknown field \"dataa\""), "{}", strict.2);
    let warned = apiserver.post(MAPS, &body).await;
    assert_eq!(warned.warnings, [r#"299 - "unknown field \"dataa\"""#]);
    assert!(warned.ok().get("dataa").is_none());
}

#[tokio::test]
async fn lists_are_selected_and_paged() {
    let apiserver = TestApiServer::open(Rules::kep());
    for (name, tier) in [("a", "front"), ("b", "back"), ("c", "front")] {
        let mut object = map(name, &json!({}));
        object["metadata"]["labels"] = json!({ "tier": tier });
        apiserver.post(MAPS, &object).await.ok();
    }
    let names = |list: &Value| {
        let items = list["items"].as_array().unwrap().clone();
        items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let all = apiserver.get(MAPS).await.ok();
    assert_eq!(all["kind"], "ConfigMapList");
    assert!(all["items"][0].get("kind").is_none());
    assert_eq!(names(&all), ["a", "b", "c"]);
    let front = apiserver.get(&format!("{MAPS}?labelSelector=tier%3Dfront")).await.ok();
    assert_eq!(names(&front), ["a", "c"]);
    let one = apiserver.get(&format!("{MAPS}?fieldSelector=metadata.name%3Db")).await.ok();
    assert_eq!(names(&one), ["b"]);
    let first = apiserver.get(&format!("{MAPS}?limit=2")).await.ok();
    assert_eq!(
        (names(&first), &first["metadata"]["remainingItemCount"]),
        (vec!["a".into(), "b".into()], &json!(1))
    );
    let token = first["metadata"]["continue"].as_str().unwrap();
    let rest = apiserver.get(&format!("{MAPS}?limit=2&continue={token}")).await.ok();
    assert_eq!(names(&rest), ["c"]);
    assert!(rest["metadata"].get("continue").is_none());
    let everywhere = apiserver.get("/api/v1/configmaps").await.ok();
    assert_eq!(names(&everywhere).len(), 3);
}

#[tokio::test]
async fn finalizers_delay_a_deletion() {
    let apiserver = TestApiServer::open(Rules::kep());
    let mut object = map("a", &json!({}));
    object["metadata"]["finalizers"] = json!(["example.com/hold"]);
    apiserver.post(MAPS, &object).await.ok();
    let path = format!("{MAPS}/a");
    let marked = apiserver.delete(&path, &Value::Null).await.ok();
    assert_eq!(marked["metadata"]["deletionTimestamp"], NOW);
    apiserver.merge(&path, &json!({ "metadata": { "finalizers": null } })).await.ok();
    assert_eq!(apiserver.get(&path).await.status, 404);
}

#[tokio::test]
async fn a_pod_on_a_node_is_deleted_gracefully_and_one_without_a_node_at_once() {
    let apiserver = TestApiServer::open(Rules::kep());
    let pods = "/api/v1/namespaces/default/pods";
    apiserver.post(pods, &pod("waiting", "1", "1Gi")).await.ok();
    apiserver.delete(&format!("{pods}/waiting"), &Value::Null).await.ok();
    assert_eq!(apiserver.get(&format!("{pods}/waiting")).await.status, 404);

    apiserver.post(pods, &pod("bound", "1", "1Gi")).await.ok();
    let binding = json!({ "metadata": { "name": "bound" }, "target": { "kind": "Node", "name": "n1" } });
    assert_eq!(apiserver.post(&format!("{pods}/bound/binding"), &binding).await.status, 201);
    let again = apiserver.post(&format!("{pods}/bound/binding"), &binding).await.rejected();
    assert_eq!(again.0, 409);
    let ending = apiserver.delete(&format!("{pods}/bound"), &Value::Null).await.ok();
    assert_eq!(ending["metadata"]["deletionGracePeriodSeconds"], 30);
    apiserver.delete(&format!("{pods}/bound"), &json!({ "gracePeriodSeconds": 0 })).await.ok();
    assert_eq!(apiserver.get(&format!("{pods}/bound")).await.status, 404);
}

#[tokio::test]
async fn a_shorter_grace_period_is_no_new_generation() {
    let apiserver = TestApiServer::open(Rules::kep());
    let pods = "/api/v1/namespaces/default/pods";
    let mut held = pod("held", "1", "1Gi");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    held["spec"]["nodeName"] = json!("n1");
    apiserver.post(pods, &held).await.ok();
    let path = format!("{pods}/held");
    let first = apiserver.delete(&path, &Value::Null).await.ok();
    assert_eq!(first["metadata"]["generation"], 2);
    let second = apiserver.delete(&path, &json!({ "gracePeriodSeconds": 10 })).await.ok();
    let third = apiserver.delete(&path, &json!({ "gracePeriodSeconds": 0 })).await.ok();
    for (earlier, grace) in [(&second, 10), (&third, 0)] {
        assert_eq!(earlier["metadata"]["deletionGracePeriodSeconds"], grace);
        assert_eq!(earlier["metadata"]["generation"], 2);
    }
    let moments = [&third, &second, &first].map(|pod| pod["metadata"]["deletionTimestamp"].to_string());
    assert!(moments.is_sorted(), "{moments:?}");
}

#[tokio::test]
async fn preconditions_protect_another_object_of_the_same_name() {
    let apiserver = TestApiServer::open(Rules::kep());
    apiserver.post(MAPS, &map("a", &json!({}))).await.ok();
    let options = json!({ "preconditions": { "uid": "another" } });
    let (code, reason, _) = apiserver.delete(&format!("{MAPS}/a"), &options).await.rejected();
    assert_eq!((code, reason.as_str()), (409, "Conflict"));
    assert_eq!(apiserver.get(&format!("{MAPS}/a")).await.status, 200);
}

#[tokio::test]
async fn a_terminating_namespace_rejects_new_objects() {
    let apiserver = TestApiServer::open(Rules::kep());
    apiserver.post("/api/v1/namespaces", &json!({ "metadata": { "name": "team" } })).await.ok();
    let going = apiserver.delete("/api/v1/namespaces/team", &Value::Null).await.ok();
    assert_eq!(going["status"]["phase"], "Terminating");
    assert_eq!(going["metadata"]["deletionGracePeriodSeconds"], Value::Null);
    let (code, _, message) =
        apiserver.post("/api/v1/namespaces/team/configmaps", &map("a", &json!({}))).await.rejected();
    assert_eq!(code, 403);
    assert!(message.contains("because it is being terminated"), "{message}");
    let mut last = apiserver.get("/api/v1/namespaces/team").await.ok();
    last["spec"]["finalizers"] = json!([]);
    apiserver.put("/api/v1/namespaces/team/finalize", &last).await.ok();
    assert_eq!(apiserver.get("/api/v1/namespaces/team").await.status, 404);
}

#[tokio::test]
async fn invalid_request_bodies_change_nothing() {
    let apiserver = TestApiServer::open(Rules::kep());
    let table: [(&str, Vec<u8>, u16); 6] = [
        ("application/json", b"{".to_vec(), 400),
        ("application/json", b"[]".to_vec(), 400),
        ("application/json", b"{\"kind\":\"Pod\",\"apiVersion\":\"v1\"}".to_vec(), 400),
        ("application/json", vec![b'['; 100_000], 400),
        ("application/vnd.kubernetes.protobuf", b"k8s\0\xff\xff".to_vec(), 400),
        ("application/json", vec![b' '; (3 << 20) + 1], 413),
    ];
    for (media, body, code) in table {
        let shown = String::from_utf8_lossy(&body[..body.len().min(40)]).into_owned();
        let answer = apiserver.request(Method::POST, MAPS, media, body).await;
        assert_eq!(answer.status.as_u16(), code, "{shown}: {}", answer.body);
    }
    assert_eq!(apiserver.get(MAPS).await.ok()["items"], json!([]));
}

#[tokio::test]
async fn a_job_gets_a_generated_selector() {
    let apiserver = TestApiServer::open(Rules::kep());
    let job = json!({
        "metadata": { "name": "once" },
        "spec": { "template": { "spec": {
            "restartPolicy": "Never", "containers": [{ "name": "a", "image": "plumb/load" }] } } },
    });
    let made = apiserver.post("/apis/batch/v1/namespaces/default/jobs", &job).await.ok();
    let uid = &made["metadata"]["uid"];
    assert_eq!(&made["spec"]["selector"]["matchLabels"]["batch.kubernetes.io/controller-uid"], uid);
    let labels = &made["spec"]["template"]["metadata"]["labels"];
    assert_eq!((&labels["controller-uid"], &labels["job-name"]), (uid, &json!("once")));
}

#[tokio::test]
async fn a_write_while_too_many_wait_for_the_disk_gets_too_many_requests() {
    let (store, gate) = gated::store_with(Options { pending: 0, ..Options::default() });
    let apiserver = TestApiServer::over(store, Rules::kep());
    gate.close();
    // One may be on its way to the disk, and one may wait for it.
    let bodies: Vec<Value> = ["a", "b", "c", "d"].iter().map(|name| map(name, &json!({}))).collect();
    let posts = futures_util::future::join_all(bodies.iter().map(|body| apiserver.post(MAPS, body)));
    let open = async {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        gate.open();
    };
    let (answers, ()) = tokio::join!(posts, open);
    let (stored, refused): (Vec<_>, Vec<_>) =
        answers.into_iter().partition(|answer| answer.status.is_success());
    assert!(!stored.is_empty() && !refused.is_empty());
    for answer in refused {
        assert_eq!(answer.body["details"]["retryAfterSeconds"], 1);
        assert_eq!(answer.rejected().0, 429);
    }
}

#[tokio::test]
async fn the_scale_of_a_workload_has_its_whole_selector() {
    let apiserver = TestApiServer::open(Rules::kep());
    let labels = json!({ "app": "web", "tier": "api" });
    let deployment = json!({
        "metadata": { "name": "web" },
        "spec": {
            "selector": {
                "matchLabels": { "app": "web" },
                "matchExpressions": [
                    { "key": "tier", "operator": "In", "values": ["db", "api"] },
                    { "key": "canary", "operator": "DoesNotExist" },
                    { "key": "app", "operator": "Exists" },
                    { "key": "zone", "operator": "NotIn", "values": ["z1"] },
                ],
            },
            "template": {
                "metadata": { "labels": labels }, "spec": { "containers": [{ "name": "c", "image": "x" }] },
            },
        },
    });
    let path = "/apis/apps/v1/namespaces/default/deployments";
    apiserver.post(path, &deployment).await.ok();
    let scale = apiserver.get(&format!("{path}/web/scale")).await.ok();
    assert_eq!(scale["status"]["selector"], "app=web,app,!canary,tier in (api,db),zone notin (z1)");
    let controllers = "/api/v1/namespaces/default/replicationcontrollers";
    let controller = json!({
        "metadata": { "name": "old" },
        "spec": { "selector": { "app": "web" }, "template": deployment["spec"]["template"] },
    });
    apiserver.post(controllers, &controller).await.ok();
    let scale = apiserver.get(&format!("{controllers}/old/scale")).await.ok();
    assert_eq!(scale["status"]["selector"], "app=web");
}

#[tokio::test]
async fn a_new_persistent_volume_is_pending_since_its_creation() {
    let apiserver = TestApiServer::open(Rules::kep());
    let volume = json!({ "metadata": { "name": "v" }, "spec": {
        "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "hostPath": { "path": "/tmp/v" },
    } });
    let made = apiserver.post("/api/v1/persistentvolumes", &volume).await.ok();
    assert_eq!(made["status"], json!({ "phase": "Pending", "lastPhaseTransitionTime": NOW }));
    // A change of the phase has the time of the server, unless the client has set one.
    let status = "/api/v1/persistentvolumes/v/status";
    let early = "2001-02-03T04:05:06Z";
    let patch = json!({ "status": { "phase": "Available", "lastPhaseTransitionTime": early } });
    let changed = apiserver.merge(status, &patch).await.ok();
    assert_eq!(changed["status"]["lastPhaseTransitionTime"], early);
    let changed = apiserver.merge(status, &json!({ "status": { "phase": "Bound" } })).await.ok();
    assert_eq!(changed["status"]["lastPhaseTransitionTime"], NOW);
}

#[tokio::test]
async fn an_ip_address_is_named_by_its_canonical_form() {
    let apiserver = TestApiServer::open(Rules::kep());
    let addresses = "/apis/networking.k8s.io/v1/ipaddresses";
    let address = |name: &str| {
        let parent = json!({ "group": "", "resource": "services", "namespace": "default", "name": "web" });
        json!({ "metadata": { "name": name }, "spec": { "parentRef": parent } })
    };
    for name in ["192.168.1.2", "2001:db8::ffff", "::1"] {
        apiserver.post(addresses, &address(name)).await.ok();
        assert_eq!(apiserver.get(&format!("{addresses}/{name}")).await.ok()["metadata"]["name"], name);
    }
    for (name, why) in [
        ("2001:0db8::1", "must be a canonical format IP address"),
        ("web", "ParseAddr(\"web\"): unable to parse IP"),
    ] {
        let (code, _, message) = apiserver.post(addresses, &address(name)).await.rejected();
        assert!(code == 422 && message.contains(why), "{code} {message}");
    }
}

#[tokio::test]
async fn the_range_of_service_addresses_is_an_object() {
    let apiserver = TestApiServer::open(Rules::kep());
    let range = apiserver.get("/apis/networking.k8s.io/v1/servicecidrs/kubernetes").await.ok();
    assert_eq!(range["spec"]["cidrs"], json!(["10.96.0.0/12"]));
    let condition = &range["status"]["conditions"][0];
    assert_eq!((&condition["type"], &condition["status"]), (&json!("Ready"), &json!("True")));
}
