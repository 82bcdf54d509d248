//! API servers in the cluster, to which this one passes requests on: a real one, over TLS.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::{HeaderMap, Method, Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use plumb_apiserver::authn::{InProcess, User};
use plumb_apiserver::pki::{Pki, SystemClock};
use plumb_apiserver::serve::{install_crypto, shutdown};
use plumb_resize::rules::Rules;
use plumb_testkit::eventually;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_rustls::TlsAcceptor;

use super::test_api_server::{TestApiServer, admin};
use super::webhooks::own_address;

const GROUP: &str = "wardle.example.com";
const BASE: &str = "/apis/wardle.example.com/v1alpha1";

type Reply = Response<UnsyncBoxBody<Bytes, Infallible>>;
type Events = Arc<Mutex<Option<UnboundedReceiver<Bytes>>>>;

/// An API server of the group `wardle.example.com`, which takes the word of a front proxy with the right certificate.
struct Remote {
    port: u16,
    bundle: String,
    /// The requests that it got: method, path and headers.
    requests: Arc<Mutex<Vec<(Method, String, HeaderMap)>>>,
    /// What a watch sends.
    events: UnboundedSender<Bytes>,
}

impl Remote {
    async fn start(front_proxy: &str) -> Self {
        install_crypto();
        let key = rcgen::KeyPair::generate().unwrap();
        let names = vec!["api.default.svc".to_owned()];
        let certificate = rcgen::CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
        let mut clients = RootCertStore::empty();
        clients.add(CertificateDer::from_pem_slice(front_proxy.as_bytes()).unwrap()).unwrap();
        let verifier = WebPkiClientVerifier::builder(Arc::new(clients)).build().unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = rustls::ServerConfig::builder().with_client_cert_verifier(verifier);
        let config = config.with_single_cert(vec![certificate.der().clone()], key).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests: Arc<Mutex<Vec<(Method, String, HeaderMap)>>> = Arc::default();
        let (events, received) = unbounded_channel();
        let received: Events = Arc::new(Mutex::new(Some(received)));
        let log = requests.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, log, received) = (acceptor.clone(), log.clone(), received.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(move |request: Request<Incoming>| {
                        let (log, received) = (log.clone(), received.clone());
                        async move { Ok::<_, Infallible>(answer(request, &log, &received).await) }
                    });
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Self { port, bundle: STANDARD.encode(certificate.pem()), requests, events }
    }

    /// The header of the last request to a path.
    fn last(&self, path: &str) -> HeaderMap {
        let requests = self.requests.lock();
        requests.iter().rev().find(|(_, own, _)| own == path).unwrap().2.clone()
    }
}

async fn answer(
    request: Request<Incoming>,
    log: &Mutex<Vec<(Method, String, HeaderMap)>>,
    events: &Events,
) -> Reply {
    let (head, body) = request.into_parts();
    let path = head.uri.path_and_query().unwrap().to_string();
    log.lock().push((head.method.clone(), path.clone(), head.headers));
    let body = body.collect().await.unwrap().to_bytes();
    let text = |code: u16, text: Value| {
        let mut response = Response::new(Full::from(text.to_string()).boxed_unsync());
        *response.status_mut() = code.try_into().unwrap();
        response.headers_mut().insert("content-type", "application/json".parse().unwrap());
        response
    };
    match (&head.method, path.trim_start_matches(BASE)) {
        (&Method::GET, "") => text(
            200,
            json!({
                "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{GROUP}/v1alpha1"),
                "resources": [{ "name": "flunders", "singularName": "flunder", "namespaced": true, "kind": "Flunder", "verbs": ["list"] }],
            }),
        ),
        (&Method::POST, _) => text(201, serde_json::from_slice(&body).unwrap()),
        (_, "/flunders?watch=true") => {
            let events = events.lock().take().unwrap();
            let frames = stream::unfold(events, |mut events| async move {
                let event = events.recv().await?;
                Some((Ok(Frame::data(event)), events))
            });
            Response::new(StreamBody::new(frames).boxed_unsync())
        }
        (_, "/flunders") => text(200, json!({ "kind": "FlunderList", "items": [] })),
        (_, "/openapi/v2") => text(200, openapi_v2()),
        (_, path) if path.starts_with("/openapi/v3") => text(200, json!({ "openapi": "3.0.0" })),
        _ => text(404, json!({ "kind": "Status", "code": 404 })),
    }
}

/// A document with a path of the group, and one of a group that another server serves.
fn openapi_v2() -> Value {
    let reference = |name: &str| json!({ "$ref": format!("#/definitions/{name}") });
    let get = |name: &str| json!({ "get": { "responses": { "200": { "description": "OK", "schema": reference(name) } } } });
    let meta = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
    json!({
        "swagger": "2.0",
        "info": { "title": "wardle", "version": "1" },
        "paths": { format!("{BASE}/flunders"): get("io.wardle.Flunder"), "/api/v1/pods": get("io.wardle.Pod") },
        "definitions": {
            "io.wardle.Flunder": { "type": "object", "properties": { "metadata": reference(meta) } },
            "io.wardle.Pod": { "type": "object" },
            meta: { "type": "object", "description": "another one" },
        },
    })
}

/// A cluster with an `APIService`, whose Service leads to an address.
async fn cluster(remote: &Remote, pki: &Arc<Pki>, address: &str) -> TestApiServer {
    let apiserver = TestApiServer::open(Rules::v1_36());
    apiserver.server.show_as_front_proxy(pki.clone());
    let server = apiserver.server.clone();
    let (trigger, down) = shutdown();
    tokio::spawn(async move {
        let _trigger = trigger;
        server.run_controllers(Duration::from_hours(1), down).await;
    });
    let spec = json!({
        "group": GROUP, "version": "v1alpha1", "groupPriorityMinimum": 2000, "versionPriority": 15,
        "service": { "namespace": "default", "name": "api" }, "caBundle": remote.bundle,
    });
    let api_service = json!({ "metadata": { "name": format!("v1alpha1.{GROUP}") }, "spec": spec });
    apiserver.post("/apis/apiregistration.k8s.io/v1/apiservices", &api_service).await.ok();
    until_reason(&apiserver, "ServiceNotFound").await;
    let ports = json!([{ "port": 443, "targetPort": remote.port }]);
    let service = json!({ "metadata": { "name": "api" }, "spec": { "ports": ports } });
    apiserver.post("/api/v1/namespaces/default/services", &service).await.ok();
    until_reason(&apiserver, "EndpointsNotFound").await;
    let slice = json!({
        "metadata": { "name": "api-1", "labels": { "kubernetes.io/service-name": "api" } },
        "addressType": "IPv4", "ports": [{ "name": "", "port": remote.port }],
        "endpoints": [{ "addresses": [address], "conditions": { "ready": true } }],
    });
    apiserver.post("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", &slice).await.ok();
    apiserver
}

/// Waits for a reason of the condition `Available`, and returns its message.
async fn until_reason(apiserver: &TestApiServer, wanted: &str) -> String {
    let path = format!("/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.{GROUP}");
    let waiting = async {
        loop {
            let condition = apiserver.get(&path).await.ok()["status"]["conditions"][0].clone();
            if condition["reason"] == wanted {
                return condition["message"].as_str().unwrap_or_default().to_owned();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), waiting).await.expect("a condition")
}

fn pki(folder: &tempfile::TempDir) -> Arc<Pki> {
    Arc::new(Pki::open(folder.path().join("pki"), [], Arc::new(SystemClock)).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_of_another_server_is_served_and_discovered() {
    let Some(address) = own_address() else { return };
    let folder = tempfile::tempdir().unwrap();
    let pki = pki(&folder);
    let remote = Remote::start(&pki.front_proxy_authority_pem()).await;
    let apiserver = cluster(&remote, &pki, &address).await;
    assert_eq!(until_reason(&apiserver, "Passed").await, "all checks passed");

    // The user is named by this server, whatever headers the client sends.
    let user = User::new("jane", "7", ["system:masters"]);
    let request = Request::get(format!("{BASE}/flunders"))
        .header("x-remote-user", "root")
        .header("x-remote-group", "all")
        .header("authorization", "Bearer secret")
        .extension(InProcess(Arc::new(user)))
        .body(Full::<Bytes>::default())
        .unwrap();
    let response = apiserver.server.handle(request).await;
    assert_eq!(response.status(), 200);
    let headers = remote.last(&format!("{BASE}/flunders"));
    let all = |name: &str| -> Vec<String> {
        headers.get_all(name).iter().map(|value| value.to_str().unwrap().to_owned()).collect()
    };
    assert_eq!((all("x-remote-user"), all("x-remote-uid")), (vec!["jane".to_owned()], vec!["7".to_owned()]));
    assert_eq!(all("x-remote-group"), ["system:masters", "system:authenticated"]);
    assert_eq!(all("authorization"), [""; 0]);

    // A body is passed on, and so is the response.
    let made =
        apiserver.post(&format!("{BASE}/namespaces/default/flunders"), &json!({ "kind": "Flunder" })).await;
    assert_eq!((made.status.as_u16(), made.body), (201, json!({ "kind": "Flunder" })));
    // This server authorizes first.
    let stranger = InProcess(Arc::new(User::new("stranger", "", [""; 0])));
    let refused = apiserver.request_as(stranger, Method::GET, &format!("{BASE}/flunders"), "", "").await;
    assert_eq!(refused.rejected().0, 403);

    let groups = apiserver.get("/apis").await.ok();
    let names: Vec<&str> =
        groups["groups"].as_array().unwrap().iter().filter_map(|one| one["name"].as_str()).collect();
    assert!(names.contains(&GROUP) && names.contains(&"apps"), "{names:?}");
    let group = apiserver.get(&format!("/apis/{GROUP}")).await.ok();
    assert_eq!(group["preferredVersion"]["version"], "v1alpha1");
    assert_eq!(apiserver.get(BASE).await.ok()["resources"][0]["name"], "flunders");
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let request = Request::get("/apis").header("accept", accept).extension(admin());
    let response = apiserver.server.handle(request.body(Full::<Bytes>::default()).unwrap()).await;
    let document: Value =
        serde_json::from_slice(&response.into_body().collect().await.unwrap().to_bytes()).unwrap();
    let found = document["items"].as_array().unwrap().iter().find(|item| item["metadata"]["name"] == GROUP);
    let version = &found.unwrap()["versions"][0];
    assert_eq!(
        (&version["freshness"], &version["resources"][0]["resource"]),
        (&json!("Current"), &json!("flunders"))
    );
    let index = apiserver.get("/openapi/v3").await.ok();
    assert_eq!(
        index["paths"]["apis/wardle.example.com/v1alpha1"]["serverRelativeURL"],
        "/openapi/v3/apis/wardle.example.com/v1alpha1"
    );

    // The document is read after the condition is written.
    eventually(async || {
        apiserver.get("/openapi/v2").await.ok()["definitions"]["io.wardle.Flunder"].is_object()
    })
    .await;
    let document = apiserver.get("/openapi/v2").await.ok();
    let response = &document["paths"][format!("{BASE}/flunders")]["get"]["responses"]["200"];
    assert_eq!(response["schema"]["$ref"], "#/definitions/io.wardle.Flunder");
    let meta = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
    let definitions = &document["definitions"];
    assert_ne!(definitions[meta]["description"], "another one");
    assert_eq!(definitions[format!("{meta}_v2")]["description"], "another one");
    assert_eq!(
        definitions["io.wardle.Flunder"]["properties"]["metadata"]["$ref"],
        format!("#/definitions/{meta}_v2")
    );
    assert!(definitions.get("io.wardle.Pod").is_none());
    assert_ne!(
        document["paths"]["/api/v1/pods"]["get"]["responses"]["200"]["schema"]["$ref"],
        "#/definitions/io.wardle.Pod"
    );

    let trust = apiserver
        .get("/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication")
        .await
        .ok();
    assert_eq!(trust["data"]["requestheader-client-ca-file"], pki.front_proxy_authority_pem());
    assert_eq!(trust["data"]["requestheader-allowed-names"], "[\"front-proxy-client\"]");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_of_another_server_is_passed_on_as_it_comes() {
    let Some(address) = own_address() else { return };
    let folder = tempfile::tempdir().unwrap();
    let pki = pki(&folder);
    let remote = Remote::start(&pki.front_proxy_authority_pem()).await;
    let apiserver = cluster(&remote, &pki, &address).await;
    until_reason(&apiserver, "Passed").await;
    let request = Request::get(format!("{BASE}/flunders?watch=true")).extension(admin());
    let response = apiserver.server.handle(request.body(Full::<Bytes>::default()).unwrap()).await;
    assert_eq!(response.status(), 200);
    let body = response.into_body();
    let mut frames = Box::pin(stream::unfold(body, |mut body| async move {
        let frame = body.frame().await?.unwrap().into_data().unwrap();
        Some((frame, body))
    }));
    for event in ["one\n", "two\n"] {
        // The second is sent only when the first has arrived.
        remote.events.send(Bytes::from(event)).unwrap();
        assert_eq!(frames.next().await.unwrap(), event);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_cannot_be_used_is_unavailable() {
    let folder = tempfile::tempdir().unwrap();
    let pki = pki(&folder);
    let remote = Remote::start(&pki.front_proxy_authority_pem()).await;
    // Validation accepts this address, and refuses those of the loopback.
    let apiserver = cluster(&remote, &pki, "224.1.2.3").await;
    let message = until_reason(&apiserver, "FailedDiscoveryCheck").await;
    assert!(message.contains("address not allowed"), "{message}");
    let refused = apiserver.get(&format!("{BASE}/flunders")).await;
    assert_eq!((refused.status.as_u16(), refused.body), (503, json!("service unavailable\n")));
    assert!(remote.requests.lock().is_empty());
    // Its group stays in discovery.
    assert_eq!(apiserver.get(&format!("/apis/{GROUP}")).await.ok()["name"], GROUP);
    let ports = json!({ "spec": { "ports": [{ "port": 444 }] } });
    apiserver.merge("/api/v1/namespaces/default/services/api", &ports).await.ok();
    assert_eq!(
        until_reason(&apiserver, "ServicePortError").await,
        "service/api in \"default\" is not listening on port 443"
    );
    apiserver
        .delete(&format!("/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.{GROUP}"), &Value::Null)
        .await
        .ok();
    assert_eq!(apiserver.get(&format!("{BASE}/flunders")).await.rejected().0, 404);
}
