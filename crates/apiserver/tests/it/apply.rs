//! Server-side apply, compared with the responses of kube-apiserver 1.36.4 to the same requests.
//!
//! `apply/kubernetes.jsonl` has a scenario in each line: requests by several managers, and what the real one answered.
//! It was written by the lane that runs the same scenarios against the real one, and is compared by it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use plumb_apischema::patch;
use plumb_apiserver::authn::{Authenticator, Tokens, User};
use plumb_apiserver::pki::SystemClock;
use plumb_apiserver::{ApiServer, Config, Limits};
use plumb_kinds::api_server;
use plumb_resize::rules::Rules;
use plumb_store::{Options, Store};
use serde_json::{Value, json};

use super::custom::{DEFINITIONS, definition, version};
use super::test_api_server::{NOW, TestApiServer, admin, pod};

const SCENARIOS: &str = include_str!("apply/kubernetes.jsonl");

/// The same of a kind that a CRD defines.
const CUSTOM: &str = include_str!("apply/custom.jsonl");

/// The defaults of kube-apiserver that do not affect managed fields.
const FILLED_IN: [&str; 9] = [
    "/spec/clusterIPs",
    "/spec/ipFamilies",
    "/spec/ipFamilyPolicy",
    "/spec/serviceAccount",
    "/spec/serviceAccountName",
    "/spec/tolerations",
    "/spec/priority",
    "/spec/preemptionPolicy",
    "/status",
];

/// A server with a manual clock.
struct ScenarioRunner {
    server: ApiServer,
    seconds: Arc<AtomicI64>,
    _folder: tempfile::TempDir,
}

impl ScenarioRunner {
    fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().join("objects"), Options::default()).unwrap();
        let begin: Timestamp = NOW.parse().unwrap();
        let seconds = Arc::new(AtomicI64::new(0));
        let passed = seconds.clone();
        let tokens = Tokens::default();
        let config = Config {
            store,
            rules: Rules::v1_36(),
            clock: Arc::new(move || begin + SignedDuration::from_secs(passed.load(Ordering::Relaxed))),
            limits: Limits::default(),
            authenticator: Authenticator::new(tokens, Arc::new(SystemClock)),
            nodes: None,
            plugins: plumb_kinds::admission_plugins("", "ServiceAccount").unwrap(),
            usage: None,
            audit: None,
        };
        Self { server: api_server(config).unwrap(), seconds, _folder: folder }
    }

    async fn request(&self, method: &str, uri: &str, media: &str, agent: &str, body: Bytes) -> (u16, Value) {
        let request = Request::builder()
            .method(Method::from_bytes(method.as_bytes()).unwrap())
            .uri(uri)
            .header("content-type", media)
            .header("user-agent", agent)
            .extension(admin())
            .body(Full::new(body))
            .unwrap();
        let (head, body) = self.server.handle(request).await.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        (head.status.as_u16(), serde_json::from_slice(&body).unwrap())
    }

    /// Does what a step says.
    async fn act(&self, step: &Value) -> (u16, Value) {
        let text = |field: &str| step[field].as_str().unwrap_or_default();
        let (path, agent) = (text("path"), text("agent"));
        let body = match step.get("change") {
            Some(change) => {
                let (_, current) = self.request("GET", path, "", agent, Bytes::new()).await;
                patch::merge(current, change.clone()).to_string()
            }
            None => match &step["body"] {
                Value::Null => String::new(),
                Value::String(text) => text.clone(),
                body => body.to_string(),
            },
        };
        let uri =
            if text("query").is_empty() { path.to_owned() } else { format!("{path}?{}", text("query")) };
        self.request(text("method"), &uri, text("media"), agent, body.into()).await
    }
}

/// What of an answer is compared: everything but what is new in each run.
fn compared(mut answer: Value, last: &mut String, in_order: bool) -> Value {
    let list = answer.pointer_mut("/details/causes").and_then(Value::as_array_mut);
    if let Some(causes) = list {
        // Upstream lists them in the order of a Go map.
        causes.sort_by_key(ToString::to_string);
    }
    if answer["kind"] == "Status" {
        return answer;
    }
    for pointer in FILLED_IN {
        let (owner, field) = pointer.rsplit_once('/').unwrap();
        let kept = pointer == "/status" && matches!(answer["kind"].as_str(), Some("Deployment" | "Scale"));
        if let Some(owner) = answer.pointer_mut(owner).and_then(Value::as_object_mut)
            && !kept
        {
            owner.remove(field);
        }
    }
    let Some(metadata) = answer["metadata"].as_object_mut() else { return answer };
    for field in ["uid", "creationTimestamp"] {
        metadata.remove(field);
    }
    if let Some(revision) = metadata.remove("resourceVersion") {
        let revision = revision.as_str().unwrap_or_default();
        metadata.insert("moved".to_owned(), json!(revision != last));
        revision.clone_into(last);
    }
    let managers = metadata.get_mut("managedFields").and_then(Value::as_array_mut);
    for entry in managers.into_iter().flatten() {
        if !entry["time"].is_boolean() {
            entry["time"] = json!(entry.get("time").is_some());
        }
    }
    if let Some(managers) = metadata.get_mut("managedFields").and_then(Value::as_array_mut)
        && !in_order
    {
        managers.sort_by_key(|entry| {
            ["operation", "manager", "apiVersion", "subresource", "time"]
                .map(|field| entry[field].to_string())
        });
    }
    answer
}

#[tokio::test]
async fn every_response_is_that_of_kube_apiserver() {
    run_scenarios(SCENARIOS, |_| true).await;
}

#[tokio::test]
async fn a_custom_kind_is_applied_as_kube_apiserver_does() {
    // The definition itself is the subject of other tests.
    run_scenarios(CUSTOM, |step| step["method"] != "POST").await;
}

/// Runs scenarios, and compares the responses to the steps for which `matters` is true.
async fn run_scenarios(scenarios: &str, matters: impl Fn(&Value) -> bool) {
    let runner = ScenarioRunner::open();
    let namespace = json!({ "metadata": { "name": "ssa" } }).to_string().into();
    runner.request("POST", "/api/v1/namespaces", "application/json", "test", namespace).await;
    let (mut steps, mut wrong) = (0, Vec::new());
    for scenario in scenarios.lines() {
        let scenario: Value = serde_json::from_str(scenario).unwrap();
        let in_order = scenario["slow"] == true;
        let (mut ours, mut theirs) = (String::new(), String::new());
        for (place, step) in scenario["steps"].as_array().unwrap().iter().enumerate() {
            if in_order {
                runner.seconds.fetch_add(1, Ordering::Relaxed);
            }
            let (code, answer) = runner.act(step).await;
            let answer = json!({ "code": code, "body": compared(answer, &mut ours, in_order) });
            let mut expected = step["answer"].clone();
            expected["body"] = compared(expected["body"].take(), &mut theirs, in_order);
            steps += 1;
            if matters(step) && answer != expected {
                let scenario = scenario["name"].as_str().unwrap();
                wrong
                    .push(format!("{scenario}, step {place}: {}", super::difference(&answer, &expected, "")));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {steps} responses:\n{}", wrong.len(), wrong.join("\n"));
}

#[tokio::test]
async fn kube_applies() {
    let apiserver = TestApiServer::open(Rules::kep());
    let client = Client::new(
        apiserver.server.inside(User::new("kubernetes-admin", "", ["system:masters"])),
        "default",
    );
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let applied_object = |value: &str| {
        let data = json!({ "x": value });
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" }, "data": data })
    };
    let made = maps.patch("a", &PatchParams::apply("one"), &Patch::Apply(applied_object("1"))).await.unwrap();
    let managers = made.metadata.managed_fields.unwrap();
    assert_eq!(managers[0].manager.as_deref(), Some("one"));
    let refused =
        maps.patch("a", &PatchParams::apply("two"), &Patch::Apply(applied_object("2"))).await.unwrap_err();
    let kube::Error::Api(refused) = refused else { panic!("{refused}") };
    assert_eq!((refused.code, refused.reason.as_str()), (409, "Conflict"));
    let forced = PatchParams::apply("two").force();
    let taken = maps.patch("a", &forced, &Patch::Apply(applied_object("2"))).await.unwrap();
    assert_eq!(taken.data.unwrap()["x"], "2");
}

#[tokio::test]
async fn a_resize_that_changes_nothing_leaves_no_trace() {
    for rules in [Rules::kep(), Rules::v1_36()] {
        let pod_update_resizes = rules.copy_back;
        let apiserver = TestApiServer::open(rules);
        let pods = "/api/v1/namespaces/default/pods";
        apiserver.post(pods, &pod("a", "500m", "500Mi")).await.ok();
        let amounts = json!({ "cpu": "650m" });
        let patch = json!({ "spec": { "containers": [
            { "name": "main", "resources": { "requests": amounts, "limits": amounts } }] } });
        let (main, resize) = (format!("{pods}/a"), format!("{pods}/a/resize"));
        let first = apiserver.strategic(if pod_update_resizes { &main } else { &resize }, &patch).await.ok();
        let again = apiserver.strategic(&resize, &patch).await.ok();
        let difference = super::difference(&again, &first, "");
        assert_eq!(difference, "");
        // A manager that labels a pod manages the label, and no other field.
        let label = json!({ "metadata": { "labels": { "a": "1" } } });
        let path = format!("{main}?fieldManager=labeller");
        let labelled = apiserver.merge(&path, &label).await.ok();
        let managers = labelled["metadata"]["managedFields"].as_array().unwrap();
        let own = managers.iter().find(|entry| entry["manager"] == "labeller").unwrap();
        assert_eq!(own["fieldsV1"], json!({ "f:metadata": { "f:labels": { ".": {}, "f:a": {} } } }));
    }
}

#[tokio::test]
async fn managed_fields_are_tracked_per_version() {
    let apiserver = TestApiServer::open(Rules::kep());
    let integers = |names: &[&str]| {
        let fields = names.iter().map(|name| ((*name).to_owned(), json!({ "type": "integer" })));
        json!({ "type": "object", "properties": Value::Object(fields.collect()) })
    };
    let mut newer = version("v2", integers(&["a", "x"]));
    newer["storage"] = json!(false);
    let both = json!([version("v1", integers(&["a", "y"])), newer]);
    apiserver.post(DEFINITIONS, &definition("things", "Thing", both)).await.ok();
    let apply = async |version: &str, manager: &str, spec: Value| {
        let path = format!("/apis/example.com/{version}/namespaces/default/things/t?fieldManager={manager}");
        let applied_object = json!({
            "apiVersion": format!("example.com/{version}"), "kind": "Thing", "metadata": { "name": "t" },
            "spec": spec,
        });
        apiserver
            .request(Method::PATCH, &path, "application/apply-patch+yaml", applied_object.to_string())
            .await
    };
    apply("v1", "one", json!({ "a": 1, "y": 1 })).await.ok();
    let applied = apply("v2", "two", json!({ "a": 1, "x": 1 })).await.ok();
    assert_eq!(applied["spec"], json!({ "a": 1, "x": 1 }));
    let managers = applied["metadata"]["managedFields"].as_array().unwrap();
    let of = |name: &str| managers.iter().find(|entry| entry["manager"] == name).unwrap();
    assert_eq!(of("one")["fieldsV1"], json!({ "f:spec": { "f:a": {}, "f:y": {} } }));
    assert_eq!(of("two")["fieldsV1"], json!({ "f:spec": { "f:a": {}, "f:x": {} } }));
    let refused = apply("v2", "two", json!({ "a": 2, "x": 2 })).await.rejected();
    assert_eq!(refused.2, "Apply failed with 1 conflict: conflict with \"one\": .spec.a");
}
