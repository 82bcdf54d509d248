//! Hostile requests, over HTTP/1.1 and HTTP/2: each gets a response with the error, none leaves anything behind, and
//! no other client has to wait.

mod bodies;
pub(super) mod frames;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use self::frames::Frames;
use super::cluster::{Cluster, admin_token, token_file};
use super::wire::{Connection, Speech, soon};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const JSON: &str = "application/json";
/// The token of another administrator, whose half requests must not delay the first one's.
const TENANT_TOKEN: &str = "token-of-the-tenant";
const BOTH: [Speech; 2] = [Speech::Http1, Speech::Http2];

/// A cluster that bad things are done to.
struct Victim {
    cluster: Cluster,
    _folder: tempfile::TempDir,
}

impl Victim {
    /// Starts one with a config map in it that patches go to.
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let administrator = admin_token(&data);
        let tokens = format!(
            "{administrator},kubernetes-admin,,system:masters\n{TENANT_TOKEN},tenant,,system:masters\n"
        );
        std::fs::write(token_file(&data), tokens).unwrap();
        let victim = Self { cluster: Cluster::start_alone(&data), _folder: folder };
        let body = json!({ "metadata": { "name": "target" }, "data": { "k": "v".repeat(1_000) } });
        let connection = victim.cluster.wire().connect(Speech::Http2).await;
        assert_eq!(connection.ask(Method::POST, MAPS, JSON, body.to_string()).await.unwrap().0, 201);
        victim
    }

    async fn connect(&self, speech: Speech) -> Connection {
        self.cluster.wire().connect(speech).await
    }

    /// The config maps and their versions, which every write of one changes. The API server itself writes other objects after its
    /// start.
    async fn versions(&self) -> Vec<(String, String)> {
        let connection = self.connect(Speech::Http1).await;
        let (status, list) = soon(connection.ask(Method::GET, MAPS, "", "")).await.unwrap();
        assert_eq!(status, 200, "{list}");
        let text = |map: &Value, field: &str| map["metadata"][field].as_str().unwrap().to_owned();
        let maps = list["items"].as_array().unwrap().iter();
        maps.map(|map| (text(map, "name"), text(map, "resourceVersion"))).collect()
    }

    /// Others read and write as ever, and nothing inside broke.
    async fn serves_others(&self) {
        let connection = self.connect(Speech::Http2).await;
        let body = json!({ "metadata": { "generateName": "other-" } }).to_string();
        let (status, answer) = soon(connection.ask(Method::POST, MAPS, JSON, body)).await.unwrap();
        assert_eq!(status, 201, "{answer}");
        let said = self.cluster.said();
        assert!(!said.contains("panicked"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_requests_are_refused_with_a_message_and_store_nothing() {
    let victim = Victim::start().await;
    let before = victim.versions().await;
    let requests = bodies::requests();
    let mut wrong = Vec::new();
    for speech in BOTH {
        for bad in &requests {
            // One each: an answer to a body that was not read to its end may close the connection.
            let connection = victim.connect(speech).await;
            let mut request = Request::builder().method(bad.method.clone()).uri(&bad.path);
            for (name, value) in &bad.headers {
                request = request.header(*name, *value);
            }
            let response = soon(connection.send(request.body(Full::new(bad.body.clone())).unwrap())).await;
            let what = format!("{speech:?}: {}", bad.what);
            let Ok(response) = response else {
                wrong.push(format!("{what}: no answer"));
                continue;
            };
            let status = response.status().as_u16();
            let bytes = soon(response.into_body().collect()).await.map(http_body_util::Collected::to_bytes);
            let answer: Value = serde_json::from_slice(&bytes.unwrap_or_default()).unwrap_or_default();
            let text = |field: &str| answer[field].as_str().unwrap_or_default();
            let (reason, message) = (text("reason"), text("message"));
            let is_described = answer["kind"] == "Status"
                && answer["status"] == "Failure"
                && answer["code"] == status
                && message.contains(bad.says);
            if (status, reason) != (bad.status, bad.reason) || !is_described {
                let short: String = answer.to_string().chars().take(300).collect();
                wrong.push(format!("{what}: {status} {short}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(victim.versions().await, before, "something was stored");
    victim.serves_others().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn absurd_but_valid_requests_get_a_response() {
    let victim = Victim::start().await;
    let paths = [
        format!("{MAPS}?limit=18446744073709551615"),
        format!("{MAPS}?labelSelector={}", "a%3Db%2C".repeat(2_000)),
        format!("{MAPS}?fieldSelector={}", "metadata.name!%3Db%2C".repeat(1_000)),
        format!("{MAPS}?{}", "x=y&".repeat(5_000)),
        format!("{MAPS}?watch=1&timeoutSeconds=18446744073709551615"),
    ];
    for speech in BOTH {
        let connection = victim.connect(speech).await;
        for path in &paths {
            let request = Request::get(path.as_str()).body(Full::new(Bytes::new())).unwrap();
            let response = soon(connection.send(request)).await.unwrap();
            assert_eq!(response.status(), 200, "{speech:?} {path:.100}");
            if !path.contains("watch") {
                soon(response.into_body().collect()).await.unwrap();
            }
        }
    }
    victim.serves_others().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_a_request_blocks_no_other_client() {
    // More than may be under way at once, were they counted as such.
    const MANY: usize = 250;
    let victim = Victim::start().await;
    let before = victim.versions().await;
    let wire = victim.cluster.wire().with_token(TENANT_TOKEN);
    let token = &wire.token;
    let heads = [
        "POST".to_owned(),
        format!("POST {MAPS} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nContent-T"),
        format!(
            "POST {MAPS} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\
             Content-Type: {JSON}\r\nContent-Length: 1000\r\n\r\n{{\"metadata\": {{"
        ),
        format!(
            "POST {MAPS} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\
             Content-Type: {JSON}\r\nTransfer-Encoding: chunked\r\n\r\nffff\r\n{{\"metadata\": {{"
        ),
    ];
    let mut open = Vec::new();
    for i in 0..MANY {
        let mut stream = wire.raw(Speech::Http1).await.unwrap();
        // Most of them are bodies: heads are counted nowhere.
        let head = &heads[if i < 8 { i % 2 } else { 2 + i % 2 }];
        stream.write_all(head.as_bytes()).await.unwrap();
        open.push(stream);
    }
    let mut frames = Frames::open(&wire).await;
    for i in 0..MANY {
        let stream = u32::try_from(2 * i + 1).unwrap();
        frames.headers(stream, "POST", MAPS, &[("content-type", JSON)], false).await;
        frames.data(stream, b"{\"metadata\": {", false).await;
    }
    assert_eq!(victim.versions().await, before);
    victim.serves_others().await;
    // A request that ends in the middle has no effect.
    drop((open, frames));
    let connection = victim.connect(Speech::Http2).await;
    let (_, list) = soon(connection.ask(Method::GET, MAPS, "", "")).await.unwrap();
    let names = list["items"].as_array().unwrap().iter().map(|map| map["metadata"]["name"].as_str().unwrap());
    assert_eq!(names.filter(|name| !name.starts_with("other-")).collect::<Vec<_>>(), ["target"]);
    victim.serves_others().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_plays_with_frames_is_closed_and_the_others_go_on() {
    let victim = Victim::start().await;
    let before = victim.versions().await;
    let wire = victim.cluster.wire();

    // Streams that are opened and reset faster than they can be answered.
    let mut frames = Frames::open(&wire).await;
    for i in 0..20_000 {
        let stream = 2 * i + 1;
        let sent = frames.try_headers(stream, "GET", MAPS, &[], true).await.is_ok()
            && frames.try_reset(stream).await.is_ok();
        if !sent {
            break;
        }
    }
    frames.closed().await;

    // A head that never ends.
    let mut frames = Frames::open(&wire).await;
    frames.begin_headers(1, "GET", MAPS).await;
    for _ in 0..1_000 {
        if frames.try_continuation(1, &[0x00, 0x01, b'x', 0x01, b'y'].repeat(3_000)).await.is_err() {
            break;
        }
    }
    frames.closed().await;

    // A head that is too large, over HTTP/1.1.
    let mut stream = wire.raw(Speech::Http1).await.unwrap();
    let head = format!("GET {MAPS} HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(4 << 20));
    // It may well be closed before all is written.
    let _ = soon(stream.write_all(head.as_bytes())).await;
    let mut answer = Vec::new();
    let _ = soon(stream.read_to_end(&mut answer)).await;
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");

    // More streams than one connection may have: those beyond are refused, those before are served.
    let mut frames = Frames::open(&wire).await;
    for i in 0..4_000 {
        let watch = format!("{MAPS}?watch=1");
        if frames.try_headers(2 * i + 1, "GET", &watch, &[], true).await.is_err() {
            break;
        }
    }
    assert_eq!(victim.versions().await, before);
    victim.serves_others().await;
    drop(frames);
    victim.serves_others().await;
}
