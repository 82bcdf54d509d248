//! Logs and the node proxy.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, Empty, StreamBody};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use plumb_apiserver::KubeletClient;
use plumb_apiserver::pki::{NODE_CLIENT_USER, Pki, SystemClock};
use plumb_apiserver::serve::install_crypto;
use plumb_resize::rules::Rules;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde_json::{Value, json};
use std::convert::Infallible;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

use super::test_api_server::{TestApiServer, admin, pod};
use super::webhooks::{Does, Webhook, configure, entry, patch};

const PODS: &str = "/api/v1/namespaces/default/pods";

/// The requests to a node agent: the path with its query, and the user.
type Requests = Arc<Mutex<Vec<(String, String)>>>;
type NodeBody = StreamBody<mpsc_stream::Lines>;

mod mpsc_stream {
    //! Lines as they come.
    use super::{Bytes, Frame, Infallible, mpsc};
    use std::pin::Pin;
    use std::task::{Context, Poll};

    pub(super) struct Lines(pub(super) mpsc::UnboundedReceiver<Bytes>);

    impl futures_util::Stream for Lines {
        type Item = Result<Frame<Bytes>, Infallible>;

        fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
            self.0.poll_recv(context).map(|line| line.map(|line| Ok(Frame::data(line))))
        }
    }
}

/// A node's agent: it has the log of one container, and sends the lines of a test to clients that follow.
struct Agent {
    address: SocketAddr,
    requests: Requests,
    lines: mpsc::UnboundedSender<Bytes>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Agent {
    /// An agent with a serving certificate of `issuer`, which accepts client certificates of `pki`.
    async fn start(pki: &Pki, issuer: &Pki) -> Self {
        let own = issuer.issue_serving(["127.0.0.1".to_owned()]).unwrap();
        let mut roots = RootCertStore::empty();
        for authority in pki.client_authorities() {
            roots.add(authority).unwrap();
        }
        let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build().unwrap();
        let key = PrivateKeyDer::from_pem_slice(own.key_pem().reveal().as_bytes()).unwrap();
        let chain: Vec<CertificateDer<'static>> = vec![own.certificate().clone()];
        let tls =
            ServerConfig::builder().with_client_cert_verifier(verifier).with_single_cert(chain, key).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Requests::default();
        let (lines, receiver) = mpsc::unbounded_channel();
        let receiver = Arc::new(Mutex::new(Some(receiver)));
        let task = tokio::spawn({
            let requests = requests.clone();
            async move {
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    let Ok(stream) = acceptor.accept(stream).await else { continue };
                    let certificate = &stream.get_ref().1.peer_certificates().unwrap()[0];
                    let user = common_name(certificate);
                    let (requests, receiver) = (requests.clone(), receiver.clone());
                    let serve = service_fn(move |request: Request<Incoming>| {
                        requests.lock().push((request.uri().to_string(), user.clone()));
                        let response = respond(&request, &receiver);
                        async move { Ok::<_, Infallible>(response) }
                    });
                    tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), serve));
                }
            }
        });
        Self { address, requests, lines, task }
    }
}

fn common_name(certificate: &[u8]) -> String {
    use x509_parser::prelude::FromDer as _;
    let (_, certificate) = x509_parser::certificate::X509Certificate::from_der(certificate).unwrap();
    certificate.subject().iter_common_name().next().unwrap().as_str().unwrap().to_owned()
}

fn respond(
    request: &Request<Incoming>,
    receiver: &Mutex<Option<mpsc::UnboundedReceiver<Bytes>>>,
) -> Response<NodeBody> {
    let whole = |code: u16, text: &'static str| {
        let (sender, receiver) = mpsc::unbounded_channel();
        sender.send(Bytes::from_static(text.as_bytes())).unwrap();
        let mut response = Response::new(StreamBody::new(mpsc_stream::Lines(receiver)));
        *response.status_mut() = StatusCode::from_u16(code).unwrap();
        response
    };
    let follows = request.uri().query().is_some_and(|query| query.contains("follow=true"));
    match request.uri().path() {
        "/containerLogs/default/web/main" if follows => {
            Response::new(StreamBody::new(mpsc_stream::Lines(receiver.lock().take().unwrap())))
        }
        "/containerLogs/default/web/main" => whole(200, "line 1\nline 2\n"),
        "/containerLogs/default/web/waiting" => {
            whole(400, "container \"waiting\" in pod \"web\" is waiting to start: ContainerCreating")
        }
        "/containerLogs/default/web/lost" => whole(404, "page not found"),
        "/containerLogs/default/web/broken" => whole(500, "no log file"),
        "/stats/summary" => whole(200, "{\"node\":{}}"),
        _ => whole(418, "what?"),
    }
}

/// A cluster with a pod on a node whose agent answers.
struct Scene {
    apiserver: TestApiServer,
    agent: Agent,
    _folders: [tempfile::TempDir; 2],
}

impl Scene {
    async fn set(trusted: bool) -> Self {
        install_crypto();
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let [pki, other] = [0, 1]
            .map(|i: usize| Pki::open(folders[i].path().join("pki"), [], Arc::new(SystemClock)).unwrap());
        let agent = Agent::start(&pki, if trusted { &pki } else { &other }).await;
        let apiserver = TestApiServer::with_nodes(Rules::kep(), Some(KubeletClient::new(&pki).unwrap()));
        let node = json!({ "metadata": { "name": "n1" } });
        apiserver.post("/api/v1/nodes", &node).await.ok();
        let status = json!({ "status": {
            "addresses": [{ "type": "InternalIP", "address": "127.0.0.1" }],
            "daemonEndpoints": { "kubeletEndpoint": { "Port": agent.address.port() } },
        }});
        apiserver.merge("/api/v1/nodes/n1/status", &status).await.ok();
        let mut web = pod("web", "1", "1Gi");
        web["spec"]["nodeName"] = json!("n1");
        apiserver.post(PODS, &web).await.ok();
        Self { apiserver, agent, _folders: folders }
    }

    async fn log(&self, query: &str) -> (u16, String) {
        let path = format!("{PODS}/web/log?{query}");
        let (status, _, bytes) = self.apiserver.request_with_headers(Method::GET, &path, &[], "").await;
        (status.as_u16(), String::from_utf8(bytes.to_vec()).unwrap())
    }
}

fn message(text: &str) -> String {
    let refusal: Value = serde_json::from_str(text).unwrap();
    refusal["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_log_comes_from_the_node_that_runs_the_pod() {
    let scene = Scene::set(true).await;
    let (status, headers, bytes) =
        scene.apiserver.request_with_headers(Method::GET, &format!("{PODS}/web/log"), &[], "").await;
    assert_eq!((status.as_u16(), &bytes[..]), (200, &b"line 1\nline 2\n"[..]));
    assert_eq!(headers["content-type"], "text/plain");
    scene.log("container=main&tailLines=5&timestamps=true&limitBytes=100&sinceSeconds=9&previous=1").await;
    let requests = scene.agent.requests.lock().clone();
    let by = NODE_CLIENT_USER.to_owned();
    assert_eq!(
        requests,
        [
            ("/containerLogs/default/web/main".to_owned(), by.clone()),
            (
                "/containerLogs/default/web/main?limitBytes=100&previous=true&sinceSeconds=9&tailLines=5&timestamps=true"
                    .to_owned(),
                by
            ),
        ]
    );
}

#[tokio::test]
async fn a_log_that_is_followed_comes_line_by_line() {
    let scene = Scene::set(true).await;
    let request = Request::get(format!("{PODS}/web/log?follow=true"))
        .extension(admin())
        .body(Empty::<Bytes>::new())
        .unwrap();
    let mut body = scene.apiserver.server.handle(request).await.into_body();
    for line in ["one\n", "two\n"] {
        scene.agent.lines.send(Bytes::from_static(line.as_bytes())).unwrap();
        let got = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(got, line);
    }
    let (_, _, bytes) = scene.apiserver.request_with_headers(Method::GET, "/metrics", &[], "").await;
    let running = "apiserver_longrunning_requests{component=\"apiserver\",group=\"\",resource=\"pods\",scope=\"resource\",subresource=\"log\",verb=\"CONNECT\",version=\"v1\"} 1";
    assert!(String::from_utf8_lossy(&bytes).contains(running));
}

#[tokio::test]
async fn a_log_that_is_not_available_has_upstreams_error() {
    let scene = Scene::set(true).await;
    let table = [
        ("container=nope", 400, "container nope is not valid for pod web"),
        (
            "tailLines=-1",
            422,
            "PodLogOptions \"web\" is invalid: tailLines: Invalid value: -1: must be greater than or equal to 0",
        ),
    ];
    for (query, code, expected) in table {
        let (status, text) = scene.log(query).await;
        assert_eq!((status, message(&text).as_str()), (code, expected), "{query}");
    }
    let mut many = pod("many", "1", "1Gi");
    let container = |name: &str| json!({ "name": name, "image": "i" });
    many["spec"]["containers"] = json!([container("a"), container("b")]);
    scene.apiserver.post(PODS, &many).await.ok();
    let (code, _, text) = scene.apiserver.get(&format!("{PODS}/many/log")).await.rejected();
    assert_eq!(
        (code, text.as_str()),
        (400, "a container name must be specified for pod many, choose one of: [a b]")
    );
    let nothing = scene.apiserver.get(&format!("{PODS}/many/log?container=a")).await;
    assert_eq!((nothing.status.as_u16(), nothing.body), (204, json!("")));
    let (code, _, text) = scene.apiserver.get(&format!("{PODS}/gone/log")).await.rejected();
    assert_eq!((code, text.as_str()), (404, "pods \"gone\" not found"));
}

#[tokio::test]
async fn an_error_of_a_node_is_returned_to_the_client() {
    let scene = Scene::set(true).await;
    let table = [
        (
            "waiting",
            400,
            "BadRequest",
            "container \"waiting\" in pod \"web\" is waiting to start: ContainerCreating",
        ),
        ("lost", 404, "NotFound", "the server could not find the requested resource ( pods/log web)"),
        ("broken", 500, "InternalError", "Internal error occurred: no log file"),
    ];
    let containers: Vec<Value> =
        table.iter().map(|(name, ..)| json!({ "name": name, "image": "i" })).collect();
    scene.apiserver.delete(&format!("{PODS}/web"), &json!({ "gracePeriodSeconds": 0 })).await.ok();
    let mut web = pod("web", "1", "1Gi");
    web["spec"]["nodeName"] = json!("n1");
    web["spec"]["containers"] = json!(containers);
    scene.apiserver.post(PODS, &web).await.ok();
    for (container, code, reason, expected) in table {
        let refused = scene.apiserver.get(&format!("{PODS}/web/log?container={container}")).await.rejected();
        assert_eq!(refused, (code, reason.to_owned(), expected.to_owned()), "{container}");
    }
}

#[tokio::test]
async fn a_node_with_an_unknown_serving_certificate_is_rejected_unless_verification_is_off() {
    let scene = Scene::set(false).await;
    let (status, text) = scene.log("").await;
    assert_eq!(status, 500);
    let text = message(&text);
    assert!(text.starts_with("Get \"https://127.0.0.1:") && text.contains("certificate"), "{text}");
    assert!(scene.agent.requests.lock().is_empty());
    assert_eq!(scene.log("insecureSkipTLSVerifyBackend=true").await, (200, "line 1\nline 2\n".to_owned()));
}

#[tokio::test]
async fn the_endpoints_of_a_node_agent_are_reachable_through_the_node_proxy() {
    let scene = Scene::set(true).await;
    let apiserver = &scene.apiserver;
    let summary = apiserver.get("/api/v1/nodes/n1/proxy/stats/summary?only_cpu_and_memory=true").await;
    assert_eq!((summary.status.as_u16(), summary.body), (200, json!({ "node": {} })));
    let requests = scene.agent.requests.lock().clone();
    assert_eq!(requests[0].0, "/stats/summary?only_cpu_and_memory=true");
    let port = scene.agent.address.port();
    assert_eq!(apiserver.get(&format!("/api/v1/nodes/n1:{port}/proxy/stats/summary")).await.status, 200);
    assert_eq!(apiserver.get("/api/v1/nodes/n1/proxy/else").await.status, 418);
    assert_eq!(apiserver.get("/api/v1/nodes/n1:22/proxy/").await.status, 400);
    assert_eq!(apiserver.get("/api/v1/nodes/n2/proxy/stats/summary").await.status, 404);
}

#[tokio::test]
async fn webhooks_receive_connections_to_a_node() {
    let scene = Scene::set(true).await;
    let apiserver = &scene.apiserver;
    let connects = |hook: &Webhook| json!([entry(hook.client(), json!(["CONNECT"]), "nodes/proxy")]);
    let guide = Webhook::start(Does::Answers(|request| {
        let elsewhere = json!([{ "op": "replace", "path": "/path", "value": "/stats/summary" }]);
        if request["object"]["path"] == "/stats" { patch(elsewhere) } else { json!({ "allowed": true }) }
    }))
    .await;
    configure(apiserver, "mutating", "m", connects(&guide)).await;
    let guard = Webhook::start(Does::Answers(
        |request| json!({ "allowed": request["object"]["path"] == "/stats/summary" }),
    ))
    .await;
    configure(apiserver, "validating", "v", connects(&guard)).await;

    assert_eq!(apiserver.get("/api/v1/nodes/n1/proxy/stats?dryRun=theirs").await.status, 200);
    assert_eq!(scene.agent.requests.lock()[0].0, "/stats/summary?dryRun=theirs");
    assert_eq!(
        apiserver.get("/api/v1/nodes/n1/proxy/secrets").await.rejected().2,
        "admission webhook \"x.example.com\" denied the request without explanation"
    );
    assert_eq!(scene.agent.requests.lock().len(), 1, "the node agent received no other request");
    let seen = &guard.seen()[0];
    assert_eq!(seen["operation"], "CONNECT");
    assert_eq!(seen["kind"], json!({ "group": "", "version": "v1", "kind": "NodeProxyOptions" }));
    assert_eq!(seen["resource"]["resource"], "nodes");
    assert_eq!((&seen["subResource"], &seen["name"]), (&json!("proxy"), &json!("n1")));
    assert_eq!((&seen["options"], &seen["oldObject"]), (&Value::Null, &Value::Null));
    // A log is read, not connected to.
    assert_eq!(scene.log("").await.0, 200);
    assert_eq!(guard.seen().len(), 2);
}

#[tokio::test]
async fn attaching_to_a_pod_can_be_denied() {
    let scene = Scene::set(true).await;
    let guard = Webhook::start(Does::Answers(
        |_| json!({ "allowed": false, "status": { "message": "attaching to pods is not allowed" } }),
    ))
    .await;
    let apiserver = &scene.apiserver;
    configure(
        apiserver,
        "validating",
        "v",
        json!([entry(guard.client(), json!(["CONNECT"]), "pods/attach")]),
    )
    .await;
    let attach = format!("{PODS}/web/attach?container=main&stdin=true");
    assert_eq!(
        apiserver.post(&attach, &Value::Null).await.rejected().2,
        "admission webhook \"x.example.com\" denied the request: attaching to pods is not allowed"
    );
    let seen = &guard.seen()[0];
    assert_eq!((&seen["operation"], &seen["subResource"]), (&json!("CONNECT"), &json!("attach")));
    assert_eq!(seen["kind"]["kind"], "PodAttachOptions");
    assert!(scene.agent.requests.lock().is_empty(), "the node agent received no request");
}
