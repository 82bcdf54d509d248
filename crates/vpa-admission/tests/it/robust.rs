//! What goes wrong does not keep a pod from being created.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use plumb_client::Api;
use plumb_testkit::eventually;
use plumb_vpa_admission::metrics::{Object, Status};
use plumb_webhook::server::MAX_BODY;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};

use super::fixture::{Fixture, container, options, resources};

/// Posts something to the webhook as the API server would.
async fn post(client: &Client, port: u16, content_type: &str, body: Vec<u8>) -> (StatusCode, Vec<u8>) {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "kube-system");
    let authority = secrets.get("vpa-webhook-ca").await.unwrap().data.unwrap()["ca.crt"].0.clone();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&authority).unwrap()).unwrap();
    let config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let stream = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = Request::post(format!("https://127.0.0.1:{port}/")).header("content-type", content_type);
    let response = sender.send_request(request.body(Full::new(Bytes::from(body))).unwrap()).await.unwrap();
    let status = response.status();
    (status, response.into_body().collect().await.map(|body| body.to_bytes().to_vec()).unwrap_or_default())
}

fn review(resource: &str, object: &Value) -> Value {
    json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u-1", "resource": { "group": "", "version": "v1", "resource": resource }, "operation": "CREATE",
        "namespace": "default", "name": "", "object": object,
    } })
}

#[tokio::test]
async fn every_review_gets_a_response_and_no_pod_is_refused() {
    let fixture = Fixture::start().await;
    let webhook = fixture.webhook(options()).await;
    let ask = async |body: Vec<u8>| post(&fixture.client, webhook.port, "application/json", body).await;
    assert_eq!(ask(vec![b' '; MAX_BODY + 1]).await.0, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(ask(b"{".to_vec()).await.0, StatusCode::BAD_REQUEST);
    assert_eq!(ask(b"{}".to_vec()).await.0, StatusCode::BAD_REQUEST);
    let other = post(&fixture.client, webhook.port, "text/plain", b"{}".to_vec()).await;
    assert_eq!(other.0, StatusCode::UNSUPPORTED_MEDIA_TYPE);

    for (what, body) in [
        ("nothing but a uid", json!({ "request": { "uid": "u-1" } })),
        ("another resource", review("configmaps", &json!({}))),
        ("a pod that is none", review("pods", &json!({ "spec": { "containers": 7 } }))),
        ("a pod that is nothing", review("pods", &Value::Null)),
        ("an empty pod", review("pods", &json!({}))),
    ] {
        let (status, answer) = ask(serde_json::to_vec(&body).unwrap()).await;
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!(
            (status, &answer["response"]),
            (StatusCode::OK, &json!({ "uid": "u-1", "allowed": true })),
            "{what}"
        );
    }
}

#[tokio::test]
async fn pods_are_created_while_the_webhook_is_unavailable() {
    let fixture = Fixture::start().await;
    let webhook = fixture.webhook(options()).await;
    fixture.workload("web").await;
    fixture
        .vpa(&webhook, "web", json!({}), json!([{ "containerName": "a", "target": { "cpu": "1" } }]))
        .await;
    let pod = json!([container("a", &json!({ "requests": { "cpu": "10m" } }))]);
    assert_eq!(resources(&fixture.pod("web", &pod).await.unwrap()), ["1/-/-"]);
    drop(webhook);
    eventually(async || resources(&fixture.pod("web", &pod).await.unwrap()) == ["10m/-/-"]).await;

    let again = fixture.webhook(options()).await;
    assert_eq!(resources(&fixture.pod("web", &pod).await.unwrap()), ["1/-/-"]);
    assert_eq!(again.metrics.count(Status::Applied, Object::Pod), 1);
}

#[tokio::test]
async fn a_boost_that_makes_upstream_panic_is_ignored() {
    // `startupBoost: {}`: a nil pointer there, and no pod of the VPA is patched.
    let fixture = Fixture::start().await;
    let webhook = fixture.webhook(options()).await;
    fixture.workload("web").await;
    let recommended = json!([{ "containerName": "a", "target": { "cpu": "1" } }]);
    fixture.vpa(&webhook, "web", json!({ "startupBoost": {} }), recommended).await;
    let pod =
        fixture.pod("web", &json!([container("a", &json!({})), container("b", &json!({}))])).await.unwrap();
    assert_eq!(resources(&pod), ["1/-/-", "-/-/-"]);
    assert_eq!(webhook.supervisor.panics("vpa-admission/review"), 0);
}

#[tokio::test]
async fn the_webhook_serves_only_once_it_knows_whether_pods_can_be_resized() {
    let fixture = Fixture::start().await;
    let attempts = Arc::new(AtomicUsize::new(0));
    let counted = attempts.clone();
    let client = fixture.cluster.intercepted("webhook", ["system:masters"], move |uri: &mut Uri| {
        if uri.path() == "/api/v1" && counted.fetch_add(1, Ordering::SeqCst) < 3 {
            return Err(std::io::Error::other("the API server is away"));
        }
        Ok(())
    });
    let _webhook = fixture.webhook_with(client, options()).await;
    assert_eq!(attempts.load(Ordering::SeqCst), 4);
}
