//! Tokens in volumes, as time passes.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::client::Body;
use plumb_node::objects::Objects;
use plumb_node::volumes::{Volumes, VolumesConfig};
use serde_json::{Value, json};

/// A server that issues tokens, one after the other, or is away.
#[derive(Clone, Default)]
struct Issuer {
    given: Arc<AtomicU32>,
    away: Arc<AtomicBool>,
}

impl Issuer {
    fn client(&self) -> Client {
        let issuer = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let issuer = issuer.clone();
            async move { issuer.answer(request).await }
        });
        Client::new(service, "default")
    }

    async fn answer(&self, request: Request<Body>) -> Result<Response<Body>, std::io::Error> {
        if self.away.load(Ordering::SeqCst) {
            return Err(std::io::ErrorKind::ConnectionRefused.into());
        }
        assert_eq!(request.uri().path(), "/api/v1/namespaces/default/serviceaccounts/robot/token");
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let mut asked: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(
            asked["spec"]["boundObjectRef"],
            json!({ "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u" })
        );
        assert_eq!(asked["spec"]["audiences"], json!(["vault"]));
        let number = self.given.fetch_add(1, Ordering::SeqCst);
        let token = format!("token {number}");
        asked["status"] = json!({ "token": token, "expirationTimestamp": "2030-01-01T00:00:00Z" });
        let answer = Response::builder().status(StatusCode::CREATED);
        Ok(answer.body(Body::from(serde_json::to_vec(&asked).unwrap())).unwrap())
    }
}

/// A pod with a token of ten minutes, and where that is.
async fn prepared(issuer: &Issuer, root: PathBuf) -> (Volumes, PathBuf) {
    let (node, local) = ("n1".to_owned(), root.join("local"));
    let objects = Objects::new(issuer.client());
    let kubelet = root.join("kubelet");
    let config = VolumesConfig { node, root, local, kubelet, objects, allocatable: BTreeMap::new() };
    let volumes = Volumes::new(config, issuer.client());
    let token = json!({ "path": "token", "expirationSeconds": 600, "audience": "vault" });
    let pod: Pod = serde_json::from_value(json!({
        "metadata": { "name": "p", "namespace": "default", "uid": "u" },
        "spec": {
            "serviceAccountName": "robot",
            "volumes": [{ "name": "v", "projected": { "sources": [{ "serviceAccountToken": token }] } }],
            "containers": [{ "name": "c", "volumeMounts": [{ "name": "v", "mountPath": "/v" }] }],
        },
    }))
    .unwrap();
    let prepared = volumes.prepare(&pod).await.unwrap();
    let mounts = prepared.mounts(&pod.spec.unwrap().containers[0], 0, &[]).unwrap();
    (volumes, mounts[0].host_path.join("token"))
}

#[tokio::test(start_paused = true)]
async fn a_token_is_renewed_when_four_fifths_of_its_life_are_over() {
    let folder = tempfile::tempdir().unwrap();
    let issuer = Issuer::default();
    let (_volumes, token) = prepared(&issuer, folder.path().to_owned()).await;
    let read = || fs::read_to_string(&token).unwrap();
    assert_eq!(read(), "token 0");
    tokio::time::sleep(Duration::from_secs(440)).await;
    assert_eq!(read(), "token 0");
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(read(), "token 1");
    tokio::time::sleep(Duration::from_secs(500)).await;
    assert_eq!(read(), "token 2");
}

#[tokio::test(start_paused = true)]
async fn an_old_token_stays_while_there_is_no_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let issuer = Issuer::default();
    let (_volumes, token) = prepared(&issuer, folder.path().to_owned()).await;
    issuer.away.store(true, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_mins(15)).await;
    assert_eq!(fs::read_to_string(&token).unwrap(), "token 0");
    issuer.away.store(false, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(fs::read_to_string(&token).unwrap(), "token 1");
}
