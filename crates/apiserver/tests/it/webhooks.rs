//! Webhooks: real servers that patch, deny, hang, return invalid responses, or are down.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use plumb_apiserver::authn::{InProcess, User};
use plumb_apiserver::serve::install_crypto;
use plumb_resize::rules::Rules;
use plumb_store::{Key, Write};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpSocket};
use tokio_rustls::TlsAcceptor;

use super::custom::{DEFINITIONS, definition, version};
use super::test_api_server::{TestApiServer, pod};

const PODS: &str = "/api/v1/namespaces/default/pods";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// What a webhook does with a review.
#[derive(Clone)]
pub(super) enum Does {
    /// Answers with this, as the response to the request.
    Answers(fn(&Value) -> Value),
    /// Answers with these bytes.
    Says(u16, &'static str),
    /// Answers with what this returns, which may do something first.
    Runs(Arc<dyn Fn(&Value) -> Value + Send + Sync>),
    /// Answers a review with this.
    Reviews(Arc<dyn Fn(&Value) -> Value + Send + Sync>),
    /// Never answers.
    Hangs,
}

/// A webhook on this machine, with an authority of its own.
pub(super) struct Webhook {
    port: u16,
    bundle: String,
    seen: Arc<Mutex<Vec<Value>>>,
}

impl Webhook {
    pub(super) async fn start(does: Does) -> Self {
        install_crypto();
        let key = rcgen::KeyPair::generate().unwrap();
        let mut authority = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
        authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let certificate = authority.self_signed(&key).unwrap();
        let issuer = rcgen::Issuer::new(authority, key);
        let own_key = rcgen::KeyPair::generate().unwrap();
        let names = ["127.0.0.1".to_owned(), "hook.default.svc".to_owned()];
        let own = rcgen::CertificateParams::new(names).unwrap().signed_by(&own_key, &issuer).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(own_key.serialize_der()));
        let config = rustls::ServerConfig::builder().with_no_client_auth();
        let config = config.with_single_cert(vec![own.der().clone()], key).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = seen.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, does, log) = (acceptor.clone(), does.clone(), log.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(move |request| answer(request, does.clone(), log.clone()));
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Self { port, bundle: STANDARD.encode(certificate.pem()), seen }
    }

    /// How to reach it.
    pub(super) fn client(&self) -> Value {
        json!({ "url": format!("https://127.0.0.1:{}/hook", self.port), "caBundle": self.bundle })
    }

    /// How to reach it behind a service, which is made, at an address of this machine.
    pub(super) async fn behind_service(&self, apiserver: &TestApiServer, address: &str) -> Value {
        let ports = json!([{ "port": 443, "targetPort": self.port }]);
        let service = json!({ "metadata": { "name": "hook" }, "spec": { "ports": ports } });
        apiserver.post("/api/v1/namespaces/default/services", &service).await.ok();
        let slice = json!({
            "metadata": { "name": "hook-1", "labels": { "kubernetes.io/service-name": "hook" } },
            "addressType": "IPv4", "ports": [{ "name": "", "port": self.port }],
            "endpoints": [{ "addresses": [address], "conditions": { "ready": true } }],
        });
        apiserver.post("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", &slice).await.ok();
        json!({
            "service": { "namespace": "default", "name": "hook", "path": "/hook" }, "caBundle": self.bundle,
        })
    }

    pub(super) fn seen(&self) -> Vec<Value> {
        self.seen.lock().clone()
    }
}

/// An address of this machine that is not of its loopback. The test is skipped if there is none.
pub(super) fn own_address() -> Option<String> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    // Sends nothing: it chooses the interface.
    let address = socket.connect("192.0.2.1:9").and_then(|()| socket.local_addr());
    let address = address.ok().filter(|address| !address.ip().is_loopback());
    if address.is_none() {
        plumb_testkit::skip(plumb_testkit::MACHINE, "this machine has a loopback address only");
    }
    address.map(|address| address.ip().to_string())
}

async fn answer(
    request: Request<Incoming>,
    does: Does,
    log: Arc<Mutex<Vec<Value>>>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let body = request.into_body().collect().await?.to_bytes();
    let review: Value = serde_json::from_slice(&body).unwrap();
    log.lock().push(review["request"].clone());
    let body = match does {
        Does::Hangs => std::future::pending().await,
        Does::Says(code, text) => {
            let mut response = Response::new(Full::from(text));
            *response.status_mut() = code.try_into().unwrap();
            return Ok(response);
        }
        Does::Reviews(answer) => answer(&review),
        Does::Answers(_) | Does::Runs(_) => {
            let mut response = match does {
                Does::Runs(answer) => answer(&review["request"]),
                Does::Answers(answer) => answer(&review["request"]),
                Does::Says(..) | Does::Reviews(_) | Does::Hangs => unreachable!("they have no answer"),
            };
            response["uid"] = review["request"]["uid"].clone();
            json!({ "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response })
        }
    };
    Ok(Response::new(Full::from(body.to_string())))
}

pub(super) fn patch(operations: Value) -> Value {
    json!({ "allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(operations.to_string()) })
}

fn label(name: &str) -> Value {
    patch(json!([{ "op": "add", "path": "/metadata/labels", "value": { name: "yes" } }]))
}

/// A webhook's entry in a configuration, for writes of a resource.
pub(super) fn entry(client: Value, operations: Value, resource: &str) -> Value {
    json!({
        "name": "x.example.com", "clientConfig": client, "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "rules": [{ "operations": operations, "apiGroups": [""], "apiVersions": ["v1"], "resources": [resource] }],
    })
}

pub(super) async fn configure(apiserver: &TestApiServer, kind: &str, name: &str, webhooks: Value) {
    let path = format!("/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations");
    apiserver.post(&path, &json!({ "metadata": { "name": name }, "webhooks": webhooks })).await.ok();
}

fn map(name: &str) -> Value {
    json!({ "metadata": { "name": name } })
}

#[tokio::test]
async fn a_webhook_cannot_rename_an_applied_object() {
    let hook = Webhook::start(Does::Answers(|_| {
        patch(json!([{ "op": "add", "path": "/metadata/name", "value": "renamed" }]))
    }))
    .await;
    let apiserver = TestApiServer::open(Rules::kep());
    let webhook = entry(hook.client(), json!(["CREATE"]), "configmaps");
    configure(&apiserver, "mutating", "renames", json!([webhook])).await;
    let applied = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" } }).to_string();
    let path = format!("{MAPS}/a?fieldManager=one");
    let refused =
        apiserver.request(Method::PATCH, &path, "application/apply-patch+yaml", applied).await.rejected();
    assert_eq!(refused.2, "the name of the object (renamed) does not match the name on the URL (a)");
    assert_eq!(apiserver.get(&format!("{MAPS}/renamed")).await.rejected().0, 404);
}

#[tokio::test]
async fn a_mutating_webhook_receives_the_write_and_patches_it() {
    let hook = Webhook::start(Does::Answers(|request| {
        let mut answer = label("patched");
        answer["warnings"] = json!([format!("seen {}", request["name"].as_str().unwrap())]);
        answer
    }))
    .await;
    let apiserver = TestApiServer::open(Rules::v1_36());
    configure(&apiserver, "mutating", "m", json!([entry(hook.client(), json!(["CREATE"]), "configmaps")]))
        .await;
    let answer = apiserver.post(MAPS, &map("a")).await;
    assert_eq!(answer.warnings, ["299 - \"seen a\""]);
    assert_eq!(answer.ok()["metadata"]["labels"], json!({ "patched": "yes" }));
    assert_eq!(
        apiserver.get(&format!("{MAPS}/a")).await.ok()["metadata"]["labels"],
        json!({ "patched": "yes" })
    );
    // Another operation and another kind do not match.
    apiserver.merge(&format!("{MAPS}/a"), &json!({ "data": { "k": "v" } })).await.ok();
    apiserver.post("/api/v1/namespaces/default/secrets", &map("a")).await.ok();
    let seen = hook.seen();
    assert_eq!(seen.len(), 1);
    let request = &seen[0];
    assert_eq!(request["kind"], json!({ "group": "", "version": "v1", "kind": "ConfigMap" }));
    assert_eq!(request["resource"], json!({ "group": "", "version": "v1", "resource": "configmaps" }));
    assert_eq!((&request["operation"], &request["namespace"]), (&json!("CREATE"), &json!("default")));
    assert_eq!((&request["oldObject"], &request["dryRun"]), (&Value::Null, &json!(false)));
    assert_eq!(request["options"]["kind"], "CreateOptions");
    assert_eq!(request["userInfo"]["username"], "kubernetes-admin");
    assert_eq!(request["object"]["metadata"]["name"], "a");
}

#[tokio::test]
async fn a_webhook_receives_the_user_with_groups_and_extra() {
    let hook = Webhook::start(Does::Answers(|_| json!({ "allowed": true }))).await;
    let apiserver = TestApiServer::open(Rules::v1_36());
    let mut hook_entry = entry(hook.client(), json!(["CREATE"]), "configmaps");
    let condition = "'b' in request.userInfo.extra['example.com/scopes']";
    hook_entry["matchConditions"] = json!([{ "name": "scoped", "expression": condition }]);
    configure(&apiserver, "validating", "v", json!([hook_entry])).await;
    for (name, scopes) in [("a", ["a", "b"]), ("b", ["a", "c"])] {
        let extra = [("example.com/scopes".to_owned(), scopes.map(str::to_owned).to_vec())];
        let jane = User::new("jane", "7", ["system:masters"]).with_extra(extra.into());
        let body = map(name).to_string();
        let who = InProcess(Arc::new(jane));
        apiserver.request_as(who, Method::POST, MAPS, "application/json", body).await.ok();
    }
    let seen = hook.seen();
    assert_eq!(seen.len(), 1, "the other has no such scope");
    assert_eq!(
        seen[0]["userInfo"],
        json!({
            "username": "jane", "uid": "7", "groups": ["system:masters", "system:authenticated"],
            "extra": { "example.com/scopes": ["a", "b"] },
        })
    );
}

#[tokio::test]
async fn webhooks_receive_a_resize_as_the_resize_subresource() {
    let hook = Webhook::start(Does::Answers(|_| json!({ "allowed": true }))).await;
    let apiserver = TestApiServer::open(Rules::kep());
    configure(&apiserver, "validating", "v", json!([entry(hook.client(), json!(["UPDATE"]), "pods/resize")]))
        .await;
    apiserver.post(PODS, &pod("web", "100m", "10Mi")).await.ok();
    let amounts = json!({ "cpu": "200m" });
    let resize = json!({ "spec": { "containers": [{ "name": "main", "resources": { "requests": amounts, "limits": amounts } }] } });
    apiserver.strategic(&format!("{PODS}/web/resize"), &resize).await.ok();
    apiserver.merge(&format!("{PODS}/web"), &json!({ "metadata": { "labels": { "a": "b" } } })).await.ok();
    let seen = hook.seen();
    assert_eq!(seen.len(), 1);
    assert_eq!((&seen[0]["subResource"], &seen[0]["kind"]["kind"]), (&json!("resize"), &json!("Pod")));
    let cpu = |object: &Value| object["spec"]["containers"][0]["resources"]["requests"]["cpu"].clone();
    assert_eq!((cpu(&seen[0]["oldObject"]), cpu(&seen[0]["object"])), (json!("100m"), json!("200m")));
}

#[tokio::test]
async fn a_denial_has_the_message_of_the_webhook() {
    let hook = Webhook::start(Does::Answers(
        |_| json!({ "allowed": false, "status": { "code": 418, "reason": "Teapot", "message": "not here" } }),
    ))
    .await;
    let apiserver = TestApiServer::open(Rules::v1_36());
    configure(&apiserver, "validating", "v", json!([entry(hook.client(), json!(["*"]), "configmaps")])).await;
    let answer = apiserver.post(MAPS, &map("a")).await;
    assert_eq!(answer.status, 418);
    assert_eq!(answer.rejected().2, "admission webhook \"x.example.com\" denied the request: not here");
    assert_eq!(apiserver.get(&format!("{MAPS}/a")).await.status, 404);
}

#[tokio::test]
async fn a_webhook_can_deny_deletions() {
    let hook = Webhook::start(Does::Answers(|_| json!({ "allowed": false }))).await;
    let apiserver = TestApiServer::open(Rules::v1_36());
    apiserver.post(MAPS, &map("a")).await.ok();
    configure(&apiserver, "validating", "v", json!([entry(hook.client(), json!(["DELETE"]), "configmaps")]))
        .await;
    for path in [format!("{MAPS}/a"), MAPS.to_owned()] {
        assert_eq!(
            apiserver.delete(&path, &Value::Null).await.rejected().2,
            "admission webhook \"x.example.com\" denied the request without explanation"
        );
    }
    let seen = hook.seen();
    assert_eq!((&seen[0]["object"], &seen[0]["oldObject"]["metadata"]["name"]), (&Value::Null, &json!("a")));
    // As upstream, a request for a collection names no object.
    assert_eq!((&seen[0]["name"], &seen[1]["name"]), (&json!("a"), &Value::Null));
    assert_eq!(seen[0]["options"]["kind"], "DeleteOptions");
}

#[tokio::test]
async fn a_webhook_that_cannot_be_called_rejects_the_write_or_is_ignored() {
    let garbage = Webhook::start(Does::Says(200, "what?")).await;
    let broken = Webhook::start(Does::Says(500, "on fire")).await;
    let other = Webhook::start(Does::Says(200, "{\"response\":{\"uid\":\"other\"}}")).await;
    let hangs = Webhook::start(Does::Hangs).await;
    // A socket that is bound and does not listen: its port refuses connections and is not given to another test.
    let reserved = TcpSocket::new_v4().unwrap();
    reserved.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let gone = reserved.local_addr().unwrap().port();
    let strange =
        json!({ "url": format!("https://127.0.0.1:{}/hook", garbage.port), "caBundle": broken.bundle });
    let gone_client = json!({ "url": format!("https://127.0.0.1:{gone}/"), "caBundle": broken.bundle });
    let service =
        json!({ "service": { "namespace": "default", "name": "missing" }, "caBundle": broken.bundle });
    // The one that hangs times out after a second; a loaded machine has the longest timeout there is for the others.
    let post = |port: u16, path: &str, timeout: u64| {
        format!("Post \"https://127.0.0.1:{port}{path}?timeout={timeout}s\": ")
    };
    let table = [
        (30, garbage.client(), "couldn't get version/kind; json parse error".to_owned()),
        (
            30,
            broken.client(),
            "an error on the server (\"on fire\") has prevented the request from succeeding".to_owned(),
        ),
        (30, other.client(), "received invalid webhook response: expected response.uid=".to_owned()),
        (1, hangs.client(), format!("{}context deadline exceeded", post(hangs.port, "/hook", 1))),
        (
            30,
            gone_client,
            format!("{}dial tcp 127.0.0.1:{gone}: connect: connection refused", post(gone, "/", 30)),
        ),
        (
            30,
            strange,
            format!(
                "{}tls: failed to verify certificate: x509: certificate signed by unknown authority",
                post(garbage.port, "/hook", 30)
            ),
        ),
        (
            30,
            service,
            "Post \"https://missing.default.svc:443/?timeout=30s\": service \"missing\" not found".to_owned(),
        ),
    ];
    for kind in ["mutating", "validating"] {
        for (timeout, client, why) in &table {
            let apiserver = TestApiServer::open(Rules::v1_36());
            let mut webhook = entry(client.clone(), json!(["CREATE"]), "configmaps");
            webhook["timeoutSeconds"] = json!(timeout);
            configure(&apiserver, kind, "c", json!([webhook.clone()])).await;
            let (code, reason, message) = apiserver.post(MAPS, &map("a")).await.rejected();
            assert_eq!((code, reason.as_str()), (500, "InternalError"), "{message}");
            let start = "Internal error occurred: failed calling webhook \"x.example.com\": ";
            assert!(message.starts_with(start) && message.contains(why.as_str()), "{kind}: {message}");
            webhook["failurePolicy"] = json!("Ignore");
            let path = format!("/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations/c");
            apiserver.merge(&path, &json!({ "webhooks": [webhook] })).await.ok();
            assert_eq!(apiserver.post(MAPS, &map("a")).await.status, 201, "{kind}: {why}");
        }
    }
}

#[tokio::test]
async fn selectors_decide_which_webhooks_are_called() {
    let hook = Webhook::start(Does::Answers(|_| json!({ "allowed": true }))).await;
    let apiserver = TestApiServer::open(Rules::v1_36());
    let mut webhook = entry(hook.client(), json!(["CREATE"]), "configmaps");
    webhook["namespaceSelector"] = json!({ "matchLabels": { "watched": "yes" } });
    webhook["objectSelector"] =
        json!({ "matchExpressions": [{ "key": "quiet", "operator": "DoesNotExist" }] });
    configure(&apiserver, "validating", "v", json!([webhook])).await;
    let namespace = json!({ "metadata": { "name": "seen", "labels": { "watched": "yes" } } });
    apiserver.post("/api/v1/namespaces", &namespace).await.ok();
    apiserver.post(MAPS, &map("a")).await.ok();
    let seen = "/api/v1/namespaces/seen/configmaps";
    apiserver.post(seen, &map("b")).await.ok();
    apiserver.post(seen, &json!({ "metadata": { "name": "c", "labels": { "quiet": "please" } } })).await.ok();
    let names: Vec<Value> = hook.seen().iter().map(|request| request["name"].clone()).collect();
    assert_eq!(names, [json!("b")]);
}

#[tokio::test]
async fn match_conditions_decide_which_webhooks_are_called() {
    let hook = Webhook::start(Does::Answers(|_| json!({ "allowed": true }))).await;
    let apiserver = TestApiServer::open(Rules::v1_36());
    let mut webhook = entry(hook.client(), json!(["CREATE", "UPDATE"]), "configmaps");
    webhook["matchConditions"] = json!([
        { "name": "mine", "expression": "object.metadata.name.startsWith('my-')" },
        { "name": "changed", "expression": "request.operation == 'CREATE' || object.data.k != oldObject.data.k" },
    ]);
    configure(&apiserver, "validating", "v", json!([webhook])).await;
    apiserver.post(MAPS, &map("other")).await.ok();
    apiserver.post(MAPS, &map("my-map")).await.ok();
    let labels = json!({ "metadata": { "labels": { "a": "b" } } });
    // No data on either side: the condition fails, and so does the write.
    let (code, _, message) = apiserver.merge(&format!("{MAPS}/my-map"), &labels).await.rejected();
    assert_eq!(code, 403);
    assert!(message.contains("resulted in error: no such key: data"), "{message}");
    assert_eq!(hook.seen().len(), 1);
}

#[tokio::test]
async fn a_webhook_is_reinvoked_if_the_object_changed_after_its_call() {
    let first = Webhook::start(Does::Answers(|_| json!({ "allowed": true }))).await;
    let never = Webhook::start(Does::Answers(|_| json!({ "allowed": true }))).await;
    let second = Webhook::start(Does::Answers(|_| label("changed"))).await;
    let apiserver = TestApiServer::open(Rules::v1_36());
    let mut again = entry(first.client(), json!(["CREATE"]), "configmaps");
    again["reinvocationPolicy"] = json!("IfNeeded");
    let mut once = entry(never.client(), json!(["CREATE"]), "configmaps");
    once["name"] = json!("once.example.com");
    configure(&apiserver, "mutating", "a", json!([again, once])).await;
    configure(&apiserver, "mutating", "b", json!([entry(second.client(), json!(["CREATE"]), "configmaps")]))
        .await;
    apiserver.post(MAPS, &map("a")).await.ok();
    assert_eq!((first.seen().len(), never.seen().len(), second.seen().len()), (2, 1, 1));
    assert_eq!(first.seen()[1]["object"]["metadata"]["labels"], json!({ "changed": "yes" }));
}

#[tokio::test]
async fn a_dry_run_calls_only_webhooks_without_side_effects() {
    let hook = Webhook::start(Does::Answers(|_| json!({ "allowed": true }))).await;
    let apiserver = TestApiServer::open(Rules::v1_36());
    configure(&apiserver, "validating", "v", json!([entry(hook.client(), json!(["CREATE"]), "configmaps")]))
        .await;
    apiserver.post(&format!("{MAPS}?dryRun=All"), &map("a")).await.ok();
    assert_eq!(hook.seen()[0]["dryRun"], true);
    assert_eq!(hook.seen()[0]["options"]["dryRun"], json!(["All"]));
}

#[tokio::test]
async fn a_webhook_behind_a_service_is_found_by_its_endpoints() {
    let Some(address) = own_address() else { return };
    let hook = Webhook::start(Does::Answers(|_| label("served"))).await;
    let apiserver = TestApiServer::open(Rules::v1_36());
    let client = hook.behind_service(&apiserver, &address).await;
    configure(&apiserver, "mutating", "m", json!([entry(client, json!(["CREATE"]), "configmaps")])).await;
    assert_eq!(apiserver.post(MAPS, &map("a")).await.ok()["metadata"]["labels"], json!({ "served": "yes" }));
}

#[tokio::test]
async fn a_service_does_not_lead_a_webhook_to_the_loopback_of_the_api_server() {
    let hook = Webhook::start(Does::Answers(|_| label("served"))).await;
    let apiserver = TestApiServer::open(Rules::v1_36());
    let slice = json!({
        "metadata": { "name": "loopback" }, "addressType": "IPv4", "ports": [],
        "endpoints": [{ "addresses": ["127.0.0.1"] }],
    });
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    let (code, _, message) = apiserver.post(slices, &slice).await.rejected();
    assert!(code == 422 && message.contains("may not be in the loopback range"), "{code}: {message}");
    // An address that validation accepts, as upstream's.
    let client = hook.behind_service(&apiserver, "224.1.2.3").await;
    configure(&apiserver, "mutating", "m", json!([entry(client, json!(["CREATE"]), "configmaps")])).await;
    let refused = async || apiserver.post(MAPS, &map("a")).await.rejected();
    let (code, _, message) = refused().await;
    assert!(code == 500 && message.ends_with(": address not allowed"), "{code}: {message}");
    // A name is checked once it is resolved.
    let service = json!({
        "metadata": { "name": "named" },
        "spec": { "type": "ExternalName", "externalName": "localhost", "ports": [{ "port": hook.port }] },
    });
    apiserver.post("/api/v1/namespaces/default/services", &service).await.ok();
    let client = json!({
        "service": { "namespace": "default", "name": "named", "path": "/hook", "port": hook.port },
        "caBundle": hook.bundle,
    });
    let webhooks = json!({ "webhooks": [entry(client, json!(["CREATE"]), "configmaps")] });
    let path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/m";
    apiserver.merge(path, &webhooks).await.ok();
    let (code, _, message) = refused().await;
    assert!(code == 500 && message.ends_with(": address not allowed"), "{code}: {message}");
    assert!(hook.seen().is_empty());
}

#[tokio::test]
async fn a_patch_can_neither_change_the_identity_of_an_object_nor_skip_validation() {
    let hook = Webhook::start(Does::Answers(|request| {
        patch(match request["operation"].as_str() {
            Some("UPDATE") => json!([
                { "op": "replace", "path": "/metadata/uid", "value": "mine" },
                { "op": "add", "path": "/data", "value": { "not a key": "x" } },
            ]),
            _ => json!([{ "op": "remove", "path": "/no/such/place" }]),
        })
    }))
    .await;
    let apiserver = TestApiServer::open(Rules::v1_36());
    apiserver.post(MAPS, &map("a")).await.ok();
    configure(&apiserver, "mutating", "m", json!([entry(hook.client(), json!(["*"]), "configmaps")])).await;
    let labels = json!({ "metadata": { "labels": { "a": "b" } } });
    assert_eq!(apiserver.merge(&format!("{MAPS}/a"), &labels).await.rejected().0, 422);
    assert_eq!(apiserver.post(MAPS, &map("b")).await.rejected().0, 500);
}

const AUTOSCALERS: &str = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";

fn autoscaler(name: &str) -> Value {
    json!({
        "apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": { "name": name },
        "spec": {
            "scaleTargetRef": { "kind": "Deployment", "name": "web", "apiVersion": "apps/v1" },
            "maxReplicas": 3, "targetCPUUtilizationPercentage": 80,
        },
    })
}

/// An entry for autoscalers of a version.
fn of_autoscalers(hook: &Webhook, version: &str, policy: &str) -> Value {
    let mut entry = entry(hook.client(), json!(["CREATE", "UPDATE"]), "horizontalpodautoscalers");
    entry["rules"][0]["apiGroups"] = json!(["autoscaling"]);
    entry["rules"][0]["apiVersions"] = json!([version]);
    entry["matchPolicy"] = json!(policy);
    entry
}

#[tokio::test]
async fn a_webhook_gets_an_object_in_the_version_of_the_request_or_in_the_one_of_its_rule() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let allows = || Webhook::start(Does::Answers(|_| json!({ "allowed": true })));
    let (first, second, never) = (allows().await, allows().await, allows().await);
    let webhooks = [
        ("first", of_autoscalers(&first, "v1", "Exact")),
        ("second", of_autoscalers(&second, "v2", "Equivalent")),
        ("never", of_autoscalers(&never, "v2", "Exact")),
    ];
    for (name, webhook) in webhooks {
        configure(&apiserver, "validating", name, json!([webhook])).await;
    }
    apiserver.post(AUTOSCALERS, &autoscaler("a")).await.ok();
    let change = json!({ "spec": { "maxReplicas": 4 } });
    apiserver.merge(&format!("{AUTOSCALERS}/a"), &change).await.ok();
    assert!(never.seen().is_empty(), "the request is in v1");
    let of = |version: &str| json!({ "group": "autoscaling", "version": version, "kind": "HorizontalPodAutoscaler" });
    for (hook, version) in [(&first, "v1"), (&second, "v2")] {
        let seen = hook.seen();
        assert_eq!(seen.len(), 2, "{version}");
        for request in &seen {
            assert_eq!((&request["kind"], &request["requestKind"]), (&of(version), &of("v1")));
            assert_eq!(request["resource"]["version"], version);
            assert_eq!(request["requestResource"]["version"], "v1");
            for object in
                [&request["object"], &request["oldObject"]].into_iter().filter(|own| own.is_object())
            {
                assert_eq!(object["apiVersion"], format!("autoscaling/{version}"));
                let in_v1 = object["spec"].get("targetCPUUtilizationPercentage").is_some();
                assert_eq!(in_v1, version == "v1", "{object}");
                assert_eq!(object["spec"].get("metrics").is_some(), version == "v2", "{object}");
            }
        }
    }
}

#[tokio::test]
async fn a_patch_of_a_webhook_is_one_of_the_version_that_it_got() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let hook = Webhook::start(Does::Answers(|_| {
        patch(json!([{ "op": "replace", "path": "/spec/targetCPUUtilizationPercentage", "value": 50 }]))
    }))
    .await;
    configure(&apiserver, "mutating", "m", json!([of_autoscalers(&hook, "v1", "Equivalent")])).await;
    let made = apiserver.post(AUTOSCALERS, &autoscaler("a")).await.ok();
    assert_eq!(made["spec"]["targetCPUUtilizationPercentage"], 50);
    // A request in the other version gets the patch too, in the version of the rule.
    let path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/a";
    let stored = apiserver.merge(path, &json!({ "spec": { "maxReplicas": 4 } })).await.ok();
    assert_eq!(stored["apiVersion"], "autoscaling/v2");
    assert_eq!(stored["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 50);
}

#[tokio::test]
async fn a_webhook_is_called_a_few_times_for_a_write_that_always_conflicts() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    apiserver.post(MAPS, &map("a")).await.ok();
    let (store, key) = (apiserver.store().clone(), Key::new("core/configmaps/default/a").unwrap());
    // Whenever it is called, another writer is faster.
    let hook = Webhook::start(Does::Runs(Arc::new(move |_| {
        let stored = store.get(&key).unwrap();
        let mut object: Value = serde_json::from_slice(&stored.value).unwrap();
        let value = plumb_store::Value::stamped(move |revision| {
            object["metadata"]["resourceVersion"] = json!(revision.to_string());
            Bytes::from(object.to_string())
        });
        store.write(Write::put(key.clone(), value)).wait().unwrap();
        json!({ "allowed": true })
    })))
    .await;
    configure(&apiserver, "mutating", "m", json!([entry(hook.client(), json!(["UPDATE"]), "configmaps")]))
        .await;
    let path = format!("{MAPS}/a");
    let (code, reason, _) = apiserver.merge(&path, &json!({ "data": { "k": "v" } })).await.rejected();
    assert_eq!((code, reason.as_str()), (409, "Conflict"));
    assert_eq!(hook.seen().len(), 5);
}

#[tokio::test]
async fn definitions_are_written_while_a_webhook_is_called_for_another() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let hook = Webhook::start(Does::Hangs).await;
    let mut webhook = entry(hook.client(), json!(["CREATE"]), "customresourcedefinitions");
    webhook["rules"][0]["apiGroups"] = json!(["apiextensions.k8s.io"]);
    webhook["objectSelector"] = json!({ "matchLabels": { "slow": "yes" } });
    webhook["timeoutSeconds"] = json!(30);
    configure(&apiserver, "validating", "v", json!([webhook])).await;
    let spec = json!({ "type": "object" });
    let mut slow = definition("slows", "Slow", json!([version("v1", spec.clone())]));
    slow["metadata"]["labels"] = json!({ "slow": "yes" });
    let others = async {
        while hook.seen().is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        let things = definition("things", "Thing", json!([version("v1", spec)]));
        apiserver.post(DEFINITIONS, &things).await.ok();
        apiserver.get("/apis/example.com/v1/things").await.ok();
        apiserver.get("/apis/example.com").await.ok();
        apiserver.delete(&format!("{DEFINITIONS}/things.example.com"), &Value::Null).await.ok();
    };
    tokio::select! {
        biased;
        () = others => {}
        answer = apiserver.post(DEFINITIONS, &slow) => panic!("the others waited for the webhook: {answer:?}"),
    }
}
