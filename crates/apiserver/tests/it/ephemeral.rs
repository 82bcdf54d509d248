//! The subresource `/ephemeralcontainers`.

use http::Method;
use plumb_resize::rules::Rules;
use serde_json::{Value, json};

use super::test_api_server::{TestApiServer, pod};

const PODS: &str = "/api/v1/namespaces/default/pods";
const EPHEMERAL_CONTAINERS: &str = "/api/v1/namespaces/default/pods/web/ephemeralcontainers";

async fn with_pod() -> TestApiServer {
    let apiserver = TestApiServer::open(Rules::kep());
    apiserver.post(PODS, &pod("web", "1", "1Gi")).await.ok();
    apiserver
}

fn shell(name: &str) -> Value {
    json!({ "name": name, "image": "busybox:1", "targetContainerName": "main", "stdin": true })
}

#[tokio::test]
async fn an_ephemeral_container_is_added_to_a_running_pod() {
    let apiserver = with_pod().await;
    let before = apiserver.get(EPHEMERAL_CONTAINERS).await.ok();
    assert_eq!(before["kind"], "Pod");
    // As `kubectl debug` does it.
    let patch = json!({ "spec": { "ephemeralContainers": [shell("debugger-1")] } });
    let patched = apiserver.strategic(EPHEMERAL_CONTAINERS, &patch).await.ok();
    let added = &patched["spec"]["ephemeralContainers"][0];
    assert_eq!(added["name"], "debugger-1");
    assert_eq!(
        (&added["terminationMessagePath"], &added["imagePullPolicy"]),
        (&json!("/dev/termination-log"), &json!("IfNotPresent"))
    );
    assert_eq!(patched["metadata"]["generation"], 2);
    let mut whole = patched.clone();
    whole["spec"]["ephemeralContainers"].as_array_mut().unwrap().push(shell("debugger-2"));
    whole["spec"]["containers"][0]["image"] = json!("another");
    whole["metadata"]["labels"] = json!({ "a": "b" });
    whole["status"] = json!({ "phase": "Failed" });
    let updated = apiserver.put(EPHEMERAL_CONTAINERS, &whole).await.ok();
    assert_eq!(updated["spec"]["ephemeralContainers"].as_array().unwrap().len(), 2);
    assert_eq!(updated["spec"]["containers"], before["spec"]["containers"]);
    assert_eq!(updated["status"], before["status"]);
    assert!(updated["metadata"].get("labels").is_none());
}

#[tokio::test]
async fn existing_ephemeral_containers_are_immutable_and_new_ones_are_validated() {
    let apiserver = with_pod().await;
    apiserver
        .strategic(EPHEMERAL_CONTAINERS, &json!({ "spec": { "ephemeralContainers": [shell("one")] } }))
        .await
        .ok();
    let with = |containers: Value| json!({ "spec": { "ephemeralContainers": containers } });
    let mut other_image = shell("one");
    other_image["image"] = json!("busybox:2");
    let mut resources = shell("two");
    resources["resources"] = json!({ "limits": { "cpu": "1" } });
    let mut nowhere = shell("two");
    nowhere["targetContainerName"] = json!("nope");
    let table = [
        (
            with(json!([])),
            "spec.ephemeralContainers: Forbidden: existing ephemeral containers \"one\" may not be removed\n",
        ),
        (
            with(json!([other_image])),
            "spec.ephemeralContainers: Forbidden: existing ephemeral containers \"one\" may not be changed\nchanged:\n  image\n",
        ),
        (
            with(json!([shell("one"), resources])),
            "spec.ephemeralContainers[1].resources: Forbidden: cannot be set for an Ephemeral Container",
        ),
        (
            with(json!([shell("one"), shell("main")])),
            "spec.ephemeralContainers[1].name: Duplicate value: \"main\"",
        ),
        (
            with(json!([shell("one"), nowhere])),
            "spec.ephemeralContainers[1].targetContainerName: Not found: \"nope\"",
        ),
    ];
    for (body, message) in table {
        let (code, reason, text) = apiserver
            .request(Method::PATCH, EPHEMERAL_CONTAINERS, "application/merge-patch+json", body.to_string())
            .await
            .rejected();
        assert_eq!((code, reason.as_str()), (422, "Invalid"), "{text}");
        assert!(text.contains(message), "{text:?} does not say {message:?}");
    }
    // A pod update cannot add them.
    let (code, _, _) =
        apiserver.merge(&format!("{PODS}/web"), &with(json!([shell("one"), shell("two")]))).await.rejected();
    assert_eq!(code, 422);
}
