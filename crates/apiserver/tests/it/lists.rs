//! Lists: revisions and pages.

use plumb_resize::rules::Rules;
use serde_json::{Value, json};

use super::test_api_server::TestApiServer;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";

/// Makes some config maps.
async fn maps(apiserver: &TestApiServer, names: &[&str]) {
    for name in names {
        let map = json!({ "metadata": { "name": name }, "data": { "k": "x".repeat(8 << 10) } });
        apiserver.post(MAPS, &map).await.ok();
    }
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().unwrap();
    items.iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

fn next(answer: &Value) -> String {
    answer["metadata"]["continue"].as_str().expect("there is more").to_owned()
}

#[tokio::test]
async fn a_list_continues_whatever_is_written_to_other_kinds() {
    let (_, apiserver) = TestApiServer::forgetful(64 << 10);
    maps(&apiserver, &["a", "b", "c"]).await;
    let first = apiserver.get(&format!("{MAPS}?limit=2")).await.ok();
    assert_eq!(names(&first), ["a", "b"]);
    let secret = json!({ "metadata": { "name": "s" }, "stringData": { "k": "x".repeat(8 << 10) } });
    apiserver.post(SECRETS, &secret).await.ok();
    for n in 0..32 {
        apiserver.merge(&format!("{SECRETS}/s"), &json!({ "stringData": { "n": n.to_string() } })).await.ok();
    }
    let rest = apiserver.get(&format!("{MAPS}?limit=2&continue={}", next(&first))).await.ok();
    assert_eq!(names(&rest), ["c"]);
    assert_eq!(rest["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
}

#[tokio::test]
async fn a_list_whose_revision_is_compacted_can_continue_at_the_current_one() {
    let (_, apiserver) = TestApiServer::forgetful(64 << 10);
    maps(&apiserver, &["a", "b", "c"]).await;
    let first = apiserver.get(&format!("{MAPS}?limit=2")).await.ok();
    for n in 0..32 {
        apiserver.merge(&format!("{MAPS}/a"), &json!({ "data": { "n": n.to_string() } })).await.ok();
    }
    maps(&apiserver, &["d"]).await;
    let expired = apiserver.get(&format!("{MAPS}?limit=2&continue={}", next(&first))).await;
    assert_eq!(expired.status.as_u16(), 410);
    assert_eq!(expired.body["reason"], "Expired");
    assert!(expired.body["message"].as_str().unwrap().contains("use the continue token in this response"));
    let rest = apiserver.get(&format!("{MAPS}?limit=1&continue={}", next(&expired.body))).await.ok();
    assert_eq!(names(&rest), ["c"]);
    let rest = apiserver.get(&format!("{MAPS}?limit=2&continue={}", next(&rest))).await.ok();
    assert_eq!(names(&rest), ["d"]);
    let revision = first["metadata"]["resourceVersion"].as_str().unwrap();
    let path = format!("{MAPS}?resourceVersion={revision}&resourceVersionMatch=Exact");
    let (code, _, message) = apiserver.get(&path).await.rejected();
    assert_eq!((code, message.as_str()), (410, "The resourceVersion for the provided list is too old."));
}

#[tokio::test]
async fn a_revision_is_exact_if_the_client_says_so_or_asks_for_a_page() {
    let apiserver = TestApiServer::open(Rules::kep());
    maps(&apiserver, &["a", "b"]).await;
    let revision = apiserver.get(MAPS).await.ok()["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    maps(&apiserver, &["c"]).await;
    for (options, expected) in [
        (format!("resourceVersion={revision}"), 3),
        (format!("resourceVersion={revision}&resourceVersionMatch=NotOlderThan"), 3),
        (format!("resourceVersion={revision}&limit=9&resourceVersionMatch=NotOlderThan"), 3),
        (format!("resourceVersion={revision}&resourceVersionMatch=Exact"), 2),
        (format!("resourceVersion={revision}&limit=9"), 2),
        ("resourceVersion=0&limit=9".to_owned(), 3),
        ("resourceVersion=&resourceVersionMatch=&continue=&limit=9".to_owned(), 3),
    ] {
        let list = apiserver.get(&format!("{MAPS}?{options}")).await.ok();
        assert_eq!(names(&list).len(), expected, "{options}");
    }
}

#[tokio::test]
async fn contradictory_list_options_are_rejected_as_upstream_does() {
    let apiserver = TestApiServer::open(Rules::kep());
    maps(&apiserver, &["a", "b"]).await;
    let token = next(&apiserver.get(&format!("{MAPS}?limit=1")).await.ok());
    let invalid = |why: &str| (422, format!("ListOptions.meta.k8s.io \"\" is invalid: {why}"));
    let table = [
        (
            "resourceVersionMatch=Exact".to_owned(),
            invalid("resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"),
        ),
        (
            format!("resourceVersion=1&resourceVersionMatch=Exact&continue={token}"),
            invalid("resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided"),
        ),
        (
            "resourceVersion=1&resourceVersionMatch=Newest".to_owned(),
            invalid("resourceVersionMatch: Unsupported value: \"Newest\": supported values: \"Exact\", \"NotOlderThan\", \"\""),
        ),
        (
            "resourceVersion=0&resourceVersionMatch=Exact".to_owned(),
            invalid("resourceVersionMatch: Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""),
        ),
        (
            "sendInitialEvents=true".to_owned(),
            invalid("sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"),
        ),
        (
            "watch=1&sendInitialEvents=true".to_owned(),
            invalid("resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"),
        ),
        (
            "watch=1&resourceVersionMatch=NotOlderThan".to_owned(),
            invalid("resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"),
        ),
        (
            format!("resourceVersion=1&continue={token}"),
            (400, "specifying resource version is not allowed when using continue".to_owned()),
        ),
        (
            "continue=e30".to_owned(),
            (400, "invalid continue token: continue key is not valid: missing field `v` at line 1 column 2".to_owned()),
        ),
        (
            "continue=%25".to_owned(),
            (400, "invalid continue token: continue key is not valid: illegal base64 data at input byte 0".to_owned()),
        ),
        (
            "resourceVersion=x".to_owned(),
            (400, "invalid resource version: resourceVersion: Invalid value: \"x\": strconv.ParseUint: parsing \"x\": \
                   invalid syntax".to_owned()),
        ),
    ];
    for (options, expected) in table {
        let (code, _, message) = apiserver.get(&format!("{MAPS}?{options}")).await.rejected();
        assert_eq!((code, message), expected, "{options}");
    }
    for path in [format!("{MAPS}?resourceVersion=99999"), format!("{MAPS}/a?resourceVersion=99999")] {
        let (code, reason, _) = apiserver.get(&path).await.rejected();
        assert_eq!((code, reason.as_str()), (504, "Timeout"), "{path}");
    }
}

#[tokio::test]
async fn field_labels_are_those_of_the_kind() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let table = [
        ("/api/v1/pods", "spec.host=n1", None),
        ("/api/v1/pods", "spec.hostIP=n1", Some("field label not supported: spec.hostIP")),
        ("/api/v1/services", "spec.clusterIP=None,spec.type=ClusterIP", None),
        ("/api/v1/services", "spec.ports=1", Some("field label not supported: spec.ports")),
        ("/api/v1/nodes", "metadata.namespace=a", Some("field label not supported: metadata.namespace")),
        ("/api/v1/namespaces", "metadata.namespace=a", Some("field label not supported: metadata.namespace")),
        ("/api/v1/persistentvolumes", "metadata.namespace=a", None),
        ("/api/v1/events", "source=x,reportingComponent=y", None),
        ("/apis/events.k8s.io/v1/events", "reportingController=y", None),
        (
            "/apis/batch/v1/jobs",
            "status.failed=1",
            Some("field label \"status.failed\" not supported for Job"),
        ),
        (
            "/apis/apps/v1/replicasets",
            "status.replicas=0",
            Some(
                "\"status.replicas\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
            ),
        ),
    ];
    for (path, selector, refusal) in table {
        let selector = selector.replace('=', "%3D");
        let answer = apiserver.get(&format!("{path}?fieldSelector={selector}")).await;
        match refusal {
            None => _ = answer.ok(),
            Some(why) => {
                let (code, _, message) = answer.rejected();
                assert_eq!((code, message.as_str()), (400, why), "{path}");
            }
        }
    }
}

#[tokio::test]
async fn events_are_selected_by_their_source_or_else_their_reporting_controller() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let events = "/api/v1/namespaces/default/events";
    for (name, source, reporting) in [("a", "kubelet", "other"), ("b", "", "kubelet"), ("c", "other", "")] {
        let event = json!({
            "metadata": { "name": name }, "involvedObject": { "kind": "Pod", "namespace": "default", "name": "p" },
            "source": { "component": source }, "reportingComponent": reporting, "type": "Normal", "reason": "R",
        });
        apiserver.post(events, &event).await.ok();
    }
    for (path, selector, expected) in [
        (events, "source%3Dkubelet", vec!["a", "b"]),
        (events, "reportingComponent%3Dkubelet", vec!["b"]),
        ("/apis/events.k8s.io/v1/namespaces/default/events", "reportingController%3Dother", vec!["a"]),
    ] {
        let list = apiserver.get(&format!("{path}?fieldSelector={selector}")).await.ok();
        assert_eq!(names(&list), expected, "{selector}");
    }
}
