//! The audit events of requests. Policies and the log itself have their tests in `plumb-audit`.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use parking_lot::Mutex;
use plumb_apiserver::Body;
use plumb_apiserver::authn::{InProcess, Peer, User};
use plumb_apiserver::usage::{NodeUsage, PodUsage, UsageSource};
use plumb_audit::{Auditor, Backend, Metrics, Policy};
use serde_json::{Value, json};

use super::test_api_server::{NOW, TestApiServer, admin, pod};

const PODS: &str = "/api/v1/namespaces/default/pods";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1";

/// The recorded events.
#[derive(Default)]
struct Log(Mutex<Vec<Value>>);

impl Backend for Log {
    fn process(&self, line: &[u8]) {
        self.0.lock().push(serde_json::from_slice(line).unwrap());
    }

    fn close(&self) {}
}

impl Log {
    /// The events since the last call.
    fn take(&self) -> Vec<Value> {
        std::mem::take(&mut self.0.lock())
    }

    /// The last event, after which the others are forgotten.
    #[track_caller]
    fn last(&self) -> Value {
        self.take().pop().expect("an event")
    }

    /// The annotations of the last event.
    #[track_caller]
    fn annotations(&self) -> Value {
        self.last()["annotations"].clone()
    }
}

/// A server whose policy has these rules, and its log.
fn audited(rules: &str) -> (TestApiServer, Arc<Log>) {
    measured(rules, None)
}

fn measured(rules: &str, usage: Option<Arc<dyn UsageSource>>) -> (TestApiServer, Arc<Log>) {
    let policy = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{rules}]");
    let policy = Policy::parse(&policy, Path::new("policy")).unwrap();
    let log = Arc::new(Log::default());
    let metrics = Arc::new(Metrics::default());
    let server = TestApiServer::audited(Arc::new(Auditor::new(policy, vec![log.clone()], metrics)), usage);
    log.take();
    (server, log)
}

fn user(name: &str) -> InProcess {
    InProcess(Arc::new(User::new(name, "", ["dev"])))
}

async fn send(server: &TestApiServer, request: http::request::Builder, body: &str) -> Response<Body> {
    server.server.handle(request.body(Full::new(Bytes::from(body.to_owned()))).unwrap()).await
}

fn map(name: &str, value: &str) -> Value {
    json!({ "metadata": { "name": name }, "data": { "key": value } })
}

fn stages(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["stage"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_request_has_an_event_when_it_is_received_and_when_its_response_is_complete() {
    let (server, log) = audited("{ level: Metadata }");
    let remote = Peer::new("192.0.2.7:1".parse().unwrap(), None);
    let request = Request::get(format!("{PODS}/web?pretty"))
        .header("audit-id", "mine")
        .header("user-agent", "kubectl")
        .extension(admin())
        .extension(remote);
    let response = send(&server, request, "").await;
    assert_eq!(response.headers()["audit-id"], "mine");
    let events = log.take();
    assert_eq!(stages(&events), ["RequestReceived", "ResponseComplete"]);
    let at = NOW.replace('Z', ".000000Z");
    let mut expected = json!({
        "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "auditID": "mine",
        "stage": "RequestReceived", "requestURI": format!("{PODS}/web?pretty"), "verb": "get",
        "user": { "username": "kubernetes-admin", "groups": ["system:masters", "system:authenticated"] },
        "sourceIPs": ["192.0.2.7"], "userAgent": "kubectl",
        "objectRef": { "resource": "pods", "namespace": "default", "name": "web", "apiVersion": "v1" },
        "requestReceivedTimestamp": at, "stageTimestamp": at,
    });
    assert_eq!(events[0], expected);
    expected["stage"] = json!("ResponseComplete");
    expected["annotations"] =
        json!({ "authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": "" });
    expected["responseStatus"] = json!({
        "metadata": {}, "status": "Failure", "message": "pods \"web\" not found", "reason": "NotFound",
        "details": { "name": "web", "kind": "pods" }, "code": 404,
    });
    assert_eq!(events[1], expected);
}

#[tokio::test]
async fn every_response_has_an_id_and_requests_that_no_rule_matches_have_no_events() {
    let (server, log) = audited("{ level: None, users: [kubernetes-admin] }, { level: Metadata }");
    let response = send(&server, Request::get(PODS).extension(admin()), "").await;
    let id = response.headers()["audit-id"].to_str().unwrap().to_owned();
    assert_eq!(id.len(), 36);
    assert_eq!(log.take(), [json!(null); 0]);
    let other = send(&server, Request::get("/version").extension(user("alice")), "").await;
    assert_ne!(other.headers()["audit-id"], id.as_str());
    let event = log.last();
    assert_eq!((&event["requestURI"], &event["verb"]), (&json!("/version"), &json!("get")));
    assert_eq!((&event["objectRef"], &event["responseStatus"]["code"]), (&Value::Null, &json!(200)));
}

#[tokio::test]
async fn without_a_policy_a_response_has_no_id() {
    let server = TestApiServer::open(plumb_resize::rules::Rules::kep());
    let response = send(&server, Request::get(PODS).extension(admin()), "").await;
    assert!(!response.headers().contains_key("audit-id"));
}

#[tokio::test]
async fn at_level_metadata_an_event_names_a_new_secret_and_has_none_of_its_data() {
    let (server, log) = audited("{ level: Metadata }");
    let secret = json!({ "metadata": { "name": "s", "annotations": { "a": "hunter2" } }, "stringData": { "k": "hunter2" } });
    server.post(SECRETS, &secret).await.ok();
    let merged =
        server.merge(&format!("{SECRETS}/s"), &json!({ "stringData": { "k": "hunter2b" } })).await.ok();
    server.get(SECRETS).await.ok();
    server.put(&format!("{SECRETS}/s"), &merged).await.ok();
    server
        .delete(&format!("{SECRETS}/s"), &json!({ "preconditions": { "uid": merged["metadata"]["uid"] } }))
        .await
        .ok();
    let events = log.take();
    assert_eq!(events.len(), 10);
    assert_eq!(events[1]["objectRef"]["name"], "s");
    assert_eq!(events[7]["objectRef"]["uid"], merged["metadata"]["uid"]);
    assert_eq!(events[7]["objectRef"]["resourceVersion"], merged["metadata"]["resourceVersion"]);
    for event in events {
        assert_eq!((event.get("requestObject"), event.get("responseObject")), (None, None));
        assert!(!event.to_string().contains("hunter2"), "{event}");
    }
}

#[tokio::test]
async fn objects_are_recorded_as_the_level_asks() {
    let (server, log) = audited(
        "{ level: Request, verbs: [create], omitStages: [RequestReceived] }, { level: RequestResponse }",
    );
    let yaml = "metadata: { name: a }\ndata: { key: one }\n";
    server.request(Method::POST, MAPS, "application/yaml", yaml).await.ok();
    let events = log.take();
    assert_eq!(stages(&events), ["ResponseComplete"]);
    assert_eq!(events[0]["requestObject"], map("a", "one"));
    assert_eq!(events[0].get("responseObject"), None);

    let patch = json!({ "data": { "key": "two" } });
    let patched = server.merge(&format!("{MAPS}/a"), &patch).await.ok();
    let events = log.take();
    assert_eq!((events[0].get("requestObject"), events[0].get("responseObject")), (None, None));
    assert_eq!((&events[1]["requestObject"], &events[1]["responseObject"]), (&patch, &patched));

    let list = server.get(MAPS).await.ok();
    let event = log.last();
    assert_eq!((event.get("requestObject"), &event["responseObject"]), (None, &list));

    let table = server.table(&format!("{MAPS}/a")).await.ok();
    assert_eq!(log.last()["responseObject"], table);

    let request = Request::get(format!("{MAPS}/a")).header("accept", "application/yaml").extension(admin());
    let response = send(&server, request, "").await;
    assert_eq!(response.headers()["content-type"], "application/yaml");
    assert_eq!(log.last()["responseObject"], patched);

    let options = json!({ "kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0 });
    let deleted = server.delete(&format!("{MAPS}/a"), &options).await.ok();
    let event = log.last();
    assert_eq!((&event["requestObject"], &event["responseObject"]), (&options, &deleted));
    assert_eq!(event["responseStatus"]["status"], "Success");
}

#[tokio::test]
async fn managed_fields_are_omitted_if_a_rule_says_so() {
    let (server, log) = audited("{ level: RequestResponse, omitManagedFields: true }");
    let mut created = server.post(MAPS, &map("a", "one")).await.ok();
    assert!(created["metadata"]["managedFields"].is_array());
    created["metadata"].as_object_mut().unwrap().remove("managedFields");
    assert_eq!(log.last()["responseObject"], created);
}

#[tokio::test]
async fn a_watch_has_an_event_when_it_begins_and_when_it_ends() {
    let (server, log) = audited("{ level: RequestResponse }");
    let request = Request::get(format!("{MAPS}?watch=1")).extension(admin());
    let mut response = send(&server, request, "").await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(stages(&log.take()), ["RequestReceived", "ResponseStarted"]);
    server.post(MAPS, &map("a", "one")).await.ok();
    log.take();
    assert!(response.body_mut().frame().await.is_some());
    assert_eq!(stages(&log.take()), [""; 0]);
    drop(response);
    let events = log.take();
    assert_eq!(stages(&events), ["ResponseComplete"]);
    assert_eq!((&events[0]["verb"], &events[0]["responseStatus"]["code"]), (&json!("watch"), &json!(200)));

    // A watch that fails has the same stages.
    server.get(&format!("{MAPS}?watch=1&timeoutSeconds=x")).await.rejected();
    let events = log.take();
    assert_eq!(stages(&events), ["RequestReceived", "ResponseStarted", "ResponseComplete"]);
    assert_eq!(events[1]["responseStatus"]["code"], 400);
}

#[tokio::test]
async fn a_request_that_authorization_refuses_says_so() {
    let (server, log) = audited("{ level: RequestResponse }");
    let (code, _, message) = server
        .request_as(user("alice"), Method::POST, MAPS, "application/json", map("a", "b").to_string())
        .await
        .rejected();
    let event = log.last();
    assert_eq!(code, 403);
    assert_eq!(
        event["annotations"],
        json!({ "authorization.k8s.io/decision": "forbid", "authorization.k8s.io/reason": "" })
    );
    assert_eq!(
        (&event["responseStatus"]["message"], &event["responseStatus"]["code"]),
        (&json!(message), &json!(403))
    );
    // Its body was never read.
    assert_eq!(event.get("requestObject"), None);
}

#[tokio::test]
async fn the_reason_of_authorization_names_the_binding() {
    let (server, log) = audited("{ level: Metadata }");
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let rule = json!({ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"] });
    let role = json!({ "metadata": { "name": "maps" }, "rules": [rule] });
    server.post(&format!("{rbac}/clusterroles"), &role).await.ok();
    let binding = json!({ "metadata": { "name": "maps" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "maps" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice" }] });
    server.post(&format!("{rbac}/clusterrolebindings"), &binding).await.ok();
    server.request_as(user("alice"), Method::GET, MAPS, "", "").await.ok();
    let reason = r#"RBAC: allowed by ClusterRoleBinding "maps" of ClusterRole "maps" to User "alice""#;
    assert_eq!(log.annotations()["authorization.k8s.io/reason"], reason);
}

#[tokio::test]
async fn a_request_without_valid_credentials_has_one_event_and_no_token_in_it() {
    let (server, log) = audited("{ level: RequestResponse }");
    let request = Request::get(MAPS).header("authorization", "Bearer hunter2");
    let response = send(&server, request, "").await;
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    assert!(response.headers().contains_key("audit-id"));
    let events = log.take();
    assert_eq!(stages(&events), ["ResponseStarted"]);
    let event = &events[0];
    assert_eq!((&event["user"], &event["responseStatus"]["code"]), (&json!({}), &json!(401)));
    assert!(!event.to_string().contains("hunter2"), "{event}");
}

#[tokio::test]
async fn an_impersonated_user_is_recorded_beside_the_authenticated_one() {
    let (server, log) = audited("{ level: Metadata, users: [kubernetes-admin] }");
    let request = Request::get(MAPS).header("impersonate-user", "bob").extension(admin());
    let response = send(&server, request, "").await;
    assert_eq!(response.status(), StatusCode::FORBIDDEN);
    let event = log.last();
    assert_eq!(event["user"]["username"], "kubernetes-admin");
    assert_eq!(event["impersonatedUser"], json!({ "username": "bob", "groups": ["system:authenticated"] }));
    assert_eq!(event["annotations"]["authorization.k8s.io/decision"], "forbid");
}

/// What fails to measure anything.
struct Broken;

impl UsageSource for Broken {
    fn node(&self, _: &str) -> Option<NodeUsage> {
        panic!("out of order")
    }

    fn pod(&self, _: &str, _: &str, _: &str) -> Option<PodUsage> {
        None
    }
}

#[tokio::test]
async fn a_panic_is_the_last_stage() {
    let (server, log) = measured("{ level: Metadata }", Some(Arc::new(Broken)));
    server.post("/api/v1/nodes", &json!({ "metadata": { "name": "n1" } })).await.ok();
    log.take();
    let (code, ..) = server.get("/apis/metrics.k8s.io/v1beta1/nodes/n1").await.rejected();
    assert_eq!(code, 500);
    let events = log.take();
    assert_eq!(stages(&events), ["RequestReceived", "Panic"]);
    let expected = json!({
        "metadata": {}, "status": "Failure", "message": "APIServer panic'd: out of order", "reason": "InternalError",
        "code": 500,
    });
    assert_eq!(events[1]["responseStatus"], expected);
}

#[tokio::test]
async fn a_request_whose_client_disconnects_has_a_last_event() {
    let (server, log) = audited("{ level: Metadata }");
    // The body never arrives.
    let body = http_body_util::StreamBody::new(futures_util::stream::pending::<
        Result<http_body::Frame<Bytes>, std::io::Error>,
    >());
    let request = Request::post(MAPS).extension(admin()).body(body).unwrap();
    let mut handling = Box::pin(server.server.handle(request));
    assert!(futures_util::FutureExt::now_or_never(&mut handling).is_none());
    assert_eq!(stages(&log.take()), ["RequestReceived"]);
    drop(handling);
    let events = log.take();
    assert_eq!(stages(&events), ["ResponseComplete"]);
    assert_eq!(events[0]["responseStatus"]["message"], "Connection closed early");
}

#[tokio::test]
async fn the_plugin_pod_security_annotates_what_it_enforces_and_what_violates_the_audit_level() {
    let (server, log) = audited("{ level: Metadata }");
    let labels = json!({ "pod-security.kubernetes.io/audit": "baseline" });
    server
        .post("/api/v1/namespaces", &json!({ "metadata": { "name": "shop", "labels": labels } }))
        .await
        .ok();
    let mut privileged = pod("web", "1", "1Gi");
    privileged["spec"]["containers"][0]["securityContext"] = json!({ "privileged": true });
    server.post("/api/v1/namespaces/shop/pods", &privileged).await.ok();
    let annotations = log.annotations();
    assert_eq!(annotations["pod-security.kubernetes.io/enforce-policy"], "privileged:latest");
    let violations = "would violate PodSecurity \"baseline:latest\": privileged (container \"main\" must not set \
                      securityContext.privileged=true)";
    assert_eq!(annotations["pod-security.kubernetes.io/audit-violations"], violations);
}

#[tokio::test]
async fn a_policy_annotates_the_rule_that_a_write_violates_and_its_own_annotations() {
    let (server, log) = audited("{ level: Metadata }");
    let policy = json!({ "metadata": { "name": "p" }, "spec": {
        "matchConstraints": { "resourceRules": [{
            "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"],
        }] },
        "validations": [{ "expression": "true" }, { "expression": "false", "message": "never" }],
        "auditAnnotations": [
            { "key": "name", "valueExpression": "' the ' + object.metadata.name" },
            { "key": "none", "valueExpression": "null" },
        ],
    } });
    server.post(&format!("{POLICIES}/validatingadmissionpolicies"), &policy).await.ok();
    let binding = json!({ "metadata": { "name": "b" }, "spec": {
        "policyName": "p", "validationActions": ["Audit"],
    } });
    server.post(&format!("{POLICIES}/validatingadmissionpolicybindings"), &binding).await.ok();
    server.post(MAPS, &map("a", "one")).await.ok();
    let annotations = log.annotations();
    let failure = r#"[{"message":"never","policy":"p","binding":"b","expressionIndex":1,"validationActions":["Audit"]}]"#;
    assert_eq!(annotations["validation.policy.admission.k8s.io/validation_failure"], failure);
    assert_eq!((&annotations["p/name"], annotations.get("p/none")), (&json!("the a"), None));
}

#[tokio::test]
async fn a_webhook_that_is_passed_over_is_annotated() {
    let (server, log) = audited("{ level: Metadata }");
    for (kind, phase) in [("validating", "validating"), ("mutating", "mutation")] {
        // Nothing listens on this port.
        let hook = json!({
            "name": format!("{kind}.example.com"), "failurePolicy": "Ignore", "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "clientConfig": { "url": "https://127.0.0.1:1/" },
            "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"] }],
        });
        let configuration = json!({ "metadata": { "name": "c" }, "webhooks": [hook] });
        let path = format!("{POLICIES}/{kind}webhookconfigurations");
        server.post(&path, &configuration).await.ok();
        server.post(MAPS, &map(kind, "one")).await.ok();
        let annotations = log.annotations();
        let key = format!("failed-open.{phase}.webhook.admission.k8s.io/round_0_index_0");
        assert_eq!(annotations[key], format!("{kind}.example.com"), "{annotations}");
        if kind == "mutating" {
            let mutation = r#"{"configuration":"c","webhook":"mutating.example.com","mutated":false}"#;
            assert_eq!(annotations["mutation.webhook.admission.k8s.io/round_0_index_0"], mutation);
        }
    }
}

#[tokio::test]
async fn requests_and_events_are_counted_under_the_names_of_kubernetes() {
    let (server, log) = audited("{ level: Metadata, verbs: [create] }");
    server.post(MAPS, &map("a", "one")).await.ok();
    server.get(MAPS).await.ok();
    assert_eq!(log.take().len(), 2);
    let text = server.get("/metrics").await.ok();
    let text = text.as_str().unwrap();
    for sample in [
        "apiserver_audit_event_total 2\n",
        "apiserver_audit_error_total{plugin=\"log\"} 0\n",
        "apiserver_audit_level_total{level=\"Metadata\"} 1\n",
        "apiserver_audit_level_total{level=\"None\"} 2\n",
        "apiserver_audit_requests_rejected_total 0\n",
    ] {
        assert!(text.contains(sample), "{sample} is not in {text}");
    }
}
