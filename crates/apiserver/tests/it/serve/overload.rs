//! A client that overloads the API server, through real sockets.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use jiff::Timestamp;
use plumb_apiserver::{
    ApiServer, Config, Limits,
    authn::{Authenticator, Tokens},
    pki::Pki,
    serve::{self, Listener, Trigger},
};
use plumb_kinds::{admission_plugins, api_server};
use plumb_resize::rules::Rules;
use plumb_store::{Attributes, Key, Options, Store, Write};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::server::{Client, Connection, rest, soon};
use crate::it::{
    custom::{DEFINITIONS, definition, version},
    pki::Place,
    test_api_server::admin,
    webhooks::{Does, Webhook},
};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// What a client that does not read lets the server send of each response.
const WINDOW: u32 = 16 << 10;

struct Api {
    place: Place,
    pki: Arc<Pki>,
    address: SocketAddr,
    server: ApiServer,
    store: Store,
    _trigger: Trigger,
}

impl Api {
    fn start(limits: Limits) -> Self {
        Self::with(limits, serve::Limits::default())
    }

    fn with(limits: Limits, of_connections: serve::Limits) -> Self {
        serve::install_crypto();
        let place = Place::new();
        let pki = Arc::new(place.open().unwrap());
        let listener = Listener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = listener.address();
        let store = Store::open(place.path("objects"), Options::default()).unwrap();
        let tokens = Tokens::default();
        let server = api_server(Config {
            store: store.clone(),
            rules: Rules::kep(),
            clock: Arc::new(Timestamp::now),
            limits,
            authenticator: Authenticator::new(tokens, pki.clock()),
            nodes: None,
            plugins: admission_plugins("", "ServiceAccount").unwrap(),
            usage: None,
            audit: None,
        })
        .unwrap();
        let (trigger, shutdown) = serve::shutdown();
        let listener = listener.counting(server.connection_metrics());
        tokio::spawn(serve::serve(
            listener,
            serve::tls(&pki).unwrap(),
            of_connections,
            server.clone(),
            shutdown,
        ));
        Self { place, pki, address, server, store, _trigger: trigger }
    }

    /// A client who may do everything, under a name of its own.
    fn client(&self, name: &str) -> Client {
        let client = Client {
            address: self.address,
            trust: Arc::clone(&self.pki),
            clock: Arc::clone(&self.place.clock),
            identity: None,
            alpn: "http/1.1",
            versions: rustls::ALL_VERSIONS,
        };
        client.who_is(self.pki.issue_client(name, &["system:masters"]).unwrap())
    }

    /// A connection whose responses are not read.
    async fn unread(&self, name: &str) -> Connection {
        self.client(name).http2_with_window(WINDOW).await.unwrap()
    }

    /// Makes a config map of about so many bytes.
    async fn fill(&self, name: &str, bytes: usize) {
        let map = json!({ "metadata": { "name": name }, "data": { "k": "v".repeat(bytes) } });
        self.post(MAPS, &map).await;
    }

    /// Makes an object.
    async fn post(&self, path: &str, object: &Value) {
        let request = Request::post(path).header("content-type", "application/json").extension(admin());
        let body = Full::new(Bytes::from(object.to_string()));
        let response = self.server.handle(request.body(body).unwrap()).await;
        assert_eq!(response.status(), 201);
    }

    /// A metric by name and labels, requested without a socket, so that the request does not count itself.
    async fn figure(&self, name: &str) -> usize {
        let request = Request::get("/metrics").extension(admin()).body(Full::<Bytes>::default()).unwrap();
        let response = Box::pin(self.server.handle(request)).await;
        let text = response.into_body().collect().await.unwrap().to_bytes();
        let text = std::str::from_utf8(&text).unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("{name} in {text}")).parse().unwrap()
    }

    /// Waits until a figure is at least so large.
    async fn until_at_least(&self, name: &str, least: usize) {
        let reached = async {
            while self.figure(name).await < least {
                tokio::task::yield_now().await;
            }
        };
        soon(reached).await;
    }

    /// Waits until a figure is as wanted.
    async fn until(&self, name: &str, wanted: usize) {
        let reached = async {
            while self.figure(name).await != wanted {
                tokio::task::yield_now().await;
            }
        };
        soon(reached).await;
    }
}

const READING: &str = "apiserver_current_inflight_requests{request_kind=\"readOnly\"}";

fn rejected(level: &str, schema: &str, reason: &str) -> String {
    format!(
        "apiserver_flowcontrol_rejected_requests_total{{flow_schema=\"{schema}\",priority_level=\"{level}\",reason=\"{reason}\"}}"
    )
}

async fn is_refused(response: Response<Incoming>) {
    assert_eq!(response.status(), 429);
    assert_eq!(response.headers()["retry-after"], "1");
    let status: Value = serde_json::from_str(&rest(response).await.unwrap()).unwrap();
    assert_eq!((&status["kind"], &status["reason"]), (&"Status".into(), &"TooManyRequests".into()));
    assert_eq!(status["details"]["retryAfterSeconds"], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_that_are_not_read_hold_their_slots_and_one_user_cannot_hold_all() {
    let api = Api::start(Limits { reading: 8, ..Limits::default() });
    for i in 0..4 {
        api.fill(&format!("m{i}"), 100_000).await;
    }
    let mut alice = api.unread("alice").await;
    let mut unread = Vec::new();
    for _ in 0..6 {
        let response = alice.send(MAPS).await.unwrap();
        assert_eq!(response.status(), 200);
        unread.push(response);
    }
    assert_eq!(api.figure(READING).await, 6);
    is_refused(alice.send(MAPS).await.unwrap()).await;
    is_refused(alice.send(&format!("{MAPS}/m0")).await.unwrap()).await;
    is_refused(alice.send("/apis").await.unwrap()).await;
    assert_eq!(alice.send("/livez").await.unwrap().status(), 200, "probes are exempt");
    assert_eq!(api.figure(&rejected("readOnly", "users", "user-limit")).await, 3);

    let mut bob = api.client("bob").http1().await.unwrap();
    let list: Value = serde_json::from_str(&bob.get(MAPS).await.unwrap()).unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), 4);

    // A list has its place until it is sent, or not wanted any more.
    let whole = rest(unread.pop().unwrap()).await.unwrap();
    assert_eq!(serde_json::from_str::<Value>(&whole).unwrap()["items"].as_array().unwrap().len(), 4);
    drop(unread);
    api.until(READING, 0).await;
    assert_eq!(alice.send(MAPS).await.unwrap().status(), 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_lists_of_one_user_do_not_keep_another_from_reading() {
    let api = Api::start(Limits::default());
    api.fill("large", 100_000).await;
    // One connection has fewer streams than a user may have requests.
    let mut alice = [api.unread("alice").await, api.unread("alice").await];
    let (mut unread, mut refused) = (Vec::new(), 0);
    for i in 0..1_000 {
        let response = alice[i % 2].send(MAPS).await.unwrap();
        match response.status().as_u16() {
            200 => unread.push(response),
            429 => refused += 1,
            other => panic!("{other}"),
        }
    }
    assert_eq!((unread.len(), refused), (300, 700));
    let mut bob = api.client("bob").http2().await.unwrap();
    for _ in 0..20 {
        assert_eq!(bob.send(&format!("{MAPS}/large")).await.unwrap().status(), 200);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_read_its_responses_loses_its_connection_and_its_slots() {
    // Long enough that a loaded machine sends the second request before the first one has stalled.
    let limits = serve::Limits { progress: Duration::from_secs(5), ..serve::Limits::default() };
    let api = Api::with(Limits::default(), limits);
    api.fill("large", 200_000).await;
    let watches =
        "apiserver_flowcontrol_current_executing_seats{flow_schema=\"all\",priority_level=\"watch\"}";
    let mut alice = api.unread("alice").await;
    let list = alice.send(MAPS).await.unwrap();
    let watch = alice.send(&format!("{MAPS}?watch=1")).await.unwrap();
    assert_eq!((list.status().as_u16(), watch.status().as_u16()), (200, 200));
    alice.closed().await;
    api.until(READING, 0).await;
    api.until(watches, 0).await;
    assert_eq!(api.figure("plumb_apiserver_stalled_connections_total").await, 1);
    drop((list, watch));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn initial_events_are_encoded_as_the_watcher_reads_them_and_not_all_at_once() {
    const MANY: usize = 10_000;
    let api = Api::start(Limits::default());
    let writes = (0..MANY).map(|i| {
        let name = format!("m{i:05}");
        let value = json!({
            "kind": "ConfigMap", "apiVersion": "v1",
            "metadata": { "name": name, "namespace": "default", "resourceVersion": "1", "uid": name },
            "data": { "k": "v".repeat(1_000) },
        });
        let key = Key::new(format!("core/configmaps/default/{name}")).unwrap();
        Write::create(key, Bytes::from(value.to_string())).attributes(Attributes::none())
    });
    api.store.transact(writes.collect()).wait().unwrap();
    let events = "apiserver_watch_events_total{group=\"\",resource=\"configmaps\",version=\"v1\"}";
    let path = format!(
        "{MAPS}?watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    );
    let mut alice = api.unread("alice").await;
    let mut body = alice.send(&path).await.unwrap().into_body();
    let mut read = soon(body.frame()).await.unwrap().unwrap().into_data().unwrap().to_vec();
    // The request of another client, which reads, is served meanwhile.
    let mut bob = api.client("bob").http1().await.unwrap();
    assert_eq!(bob.send(&format!("{MAPS}/m00001")).await.unwrap().status(), 200);
    let encoded = api.figure(events).await;
    assert!((1..1_000).contains(&encoded), "{encoded} events were encoded");

    // A client that reads on gets every one of them, once and in order, and then the bookmark that ends the initial
    // events.
    let holds_end = |read: &[u8]| {
        let tail = read.len().saturating_sub(1_000);
        String::from_utf8_lossy(&read[tail..]).contains("initial-events-end")
    };
    while !holds_end(&read) {
        read.extend(soon(body.frame()).await.unwrap().unwrap().into_data().unwrap());
    }
    let names: Vec<String> = serde_json::Deserializer::from_slice(&read)
        .into_iter::<Value>()
        .map(|event| event.unwrap()["object"]["metadata"]["name"].as_str().unwrap_or("end").to_owned())
        .collect();
    let expected = (0..MANY).map(|i| format!("m{i:05}")).chain(["end".to_owned()]);
    assert!(names.into_iter().eq(expected));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_and_the_lists_they_begin_with_are_limited_by_user() {
    let api = Api::start(Limits { watches: 8, initial_lists: 4, ..Limits::default() });
    let watch = format!("{MAPS}?watch=1");
    api.fill("large", 200_000).await;
    // What is there is not read, so that it is still to be sent.
    let mut alice = api.unread("alice").await;
    let mut unread = Vec::new();
    for _ in 0..3 {
        let response = alice.send(&watch).await.unwrap();
        assert_eq!(response.status(), 200);
        unread.push(response);
    }
    is_refused(alice.send(&watch).await.unwrap()).await;
    assert_eq!(api.figure(&rejected("watch-initial-list", "all", "user-limit")).await, 1);
    // A watch that begins with nothing needs no such place, but one among all watches.
    let from_now = format!("{watch}&resourceVersion={}", api.store.revision());
    unread.push(alice.send(&from_now).await.unwrap());
    assert_eq!(unread[3].status(), 200);
    is_refused(alice.send(&from_now).await.unwrap()).await;
    assert_eq!(api.figure(&rejected("watch", "all", "user-limit")).await, 1);

    let mut bob = api.client("bob").http2().await.unwrap();
    let mut watched = bob.send(&watch).await.unwrap();
    assert_eq!(watched.status(), 200);
    assert!(soon(watched.frame()).await.unwrap().unwrap().is_data());
    drop(unread);
    let watches =
        "apiserver_flowcontrol_current_executing_seats{flow_schema=\"all\",priority_level=\"watch\"}";
    api.until(watches, 1).await;
    assert_eq!(alice.send(&watch).await.unwrap().status(), 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_share_a_large_event_that_is_not_read_until_the_last_of_them_ends() {
    let api = Api::start(Limits { events: 1 << 20, ..Limits::default() });
    api.fill("large", 300_000).await;
    let kibibytes = "apiserver_flowcontrol_current_executing_seats{flow_schema=\"users\",priority_level=\"watch-event-kibibytes\"}";
    let mut alice = api.unread("alice").await;
    let mut unread = Vec::new();
    // Without sharing it, three of them would be beyond the share of a user.
    for _ in 0..10 {
        let response = alice.send(&format!("{MAPS}?watch=1")).await.unwrap();
        assert_eq!(response.status(), 200);
        unread.push(response);
    }
    let mut bob = api.client("bob").http2().await.unwrap();
    let mut body = bob.send(&format!("{MAPS}?watch=1")).await.unwrap().into_body();
    let mut read = Vec::new();
    while !read.ends_with(b"}\n") {
        read.extend(soon(body.frame()).await.unwrap().unwrap().into_data().unwrap());
    }
    let event: Value = serde_json::from_slice(&read).unwrap();
    assert_eq!(event["object"]["metadata"]["name"], "large");
    let held = api.figure(kibibytes).await;
    assert!((293..300).contains(&held), "{held} KiB");
    drop((body, unread, alice));
    api.until(kibibytes, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_bytes_of_lists_are_limited_until_they_are_sent() {
    let api = Api::start(Limits { lists: 1 << 20, ..Limits::default() });
    for i in 0..3 {
        api.fill(&format!("m{i}"), 100_000).await;
    }
    let mut alice = api.unread("alice").await;
    let first = alice.send(MAPS).await.unwrap();
    assert_eq!(first.status(), 200);
    let second = alice.send(MAPS).await.unwrap();
    assert_eq!(second.status(), 200);
    is_refused(alice.send(MAPS).await.unwrap()).await;
    // A page of it fits.
    let mut bob = api.client("bob").http1().await.unwrap();
    assert_eq!(bob.send(&format!("{MAPS}?limit=1")).await.unwrap().status(), 200);
    drop((first, second));
    let bytes = "apiserver_flowcontrol_current_executing_seats{flow_schema=\"all\",priority_level=\"list-kibibytes\"}";
    api.until(bytes, 0).await;
    assert_eq!(alice.send(MAPS).await.unwrap().status(), 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_counts_before_a_webhook_converts_it() {
    let api = Api::start(Limits { lists: 1 << 20, ..Limits::default() });
    let hook = Webhook::start(Does::Hangs).await;
    let text = json!({ "type": "object", "properties": { "text": { "type": "string" } } });
    let mut old = version("v1", text.clone());
    old["storage"] = json!(false);
    let mut plugs = definition("plugs", "Plug", json!([old, version("v2", text)]));
    plugs["spec"]["conversion"] = json!({
        "strategy": "Webhook",
        "webhook": { "clientConfig": hook.client(), "conversionReviewVersions": ["v1"] },
    });
    api.post(DEFINITIONS, &plugs).await;
    let plug = json!({
        "apiVersion": "example.com/v2", "kind": "Plug", "metadata": { "name": "a" },
        "spec": { "text": "t".repeat(100_000) },
    });
    api.post("/apis/example.com/v2/namespaces/default/plugs", &plug).await;
    let list = "/apis/example.com/v1/namespaces/default/plugs";
    let (mut first, mut second) =
        (api.client("alice").http1().await.unwrap(), api.client("alice").http1().await.unwrap());
    let waiting = tokio::spawn(async move { first.send(list).await.map(|response| response.status()) });
    let bytes = "apiserver_flowcontrol_current_executing_seats{flow_schema=\"all\",priority_level=\"list-kibibytes\"}";
    api.until(bytes, 512).await;
    is_refused(second.send(list).await.unwrap()).await;
    assert!(hook.seen().len() <= 1, "the second list is refused before it is converted");
    waiting.abort();
}

/// Sends the head of a POST whose body has this length, and the part of the body that is given.
async fn begin_post(
    api: &Api,
    user: &str,
    length: usize,
    body: &str,
) -> tokio_rustls::client::TlsStream<tokio::net::TcpStream> {
    let mut stream = api.client(user).connect().await.unwrap();
    let head = format!(
        "POST {MAPS} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    // The answer may come before all is written.
    drop(stream.write_all(body.as_bytes()).await);
    stream
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_that_do_not_end_are_limited_by_user() {
    let api = Api::start(Limits { bodies: 1 << 20, ..Limits::default() });
    let map = |bytes: usize| {
        json!({ "metadata": { "generateName": "m-" }, "data": { "k": "v".repeat(bytes) } }).to_string()
    };
    let post = async |name: &str, body: &str, length: usize| begin_post(&api, name, length, body).await;
    let answer = async |mut stream: tokio_rustls::client::TlsStream<tokio::net::TcpStream>| {
        let mut answer = Vec::new();
        drop(soon(stream.read_to_end(&mut answer)).await);
        String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned()
    };
    let large = map(600_000);
    let _half = post("alice", &large, large.len() + 1).await;
    let refused = async {
        loop {
            let body = map(300_000);
            let line = answer(post("alice", &body, body.len()).await).await;
            if line.starts_with("HTTP/1.1 429 ") {
                break;
            }
            assert!(line.starts_with("HTTP/1.1 201 "), "{line}: the first body has not arrived yet");
        }
    };
    soon(refused).await;
    let body = map(100_000);
    assert!(answer(post("bob", &body, body.len()).await).await.starts_with("HTTP/1.1 201 "));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_that_have_not_arrived_have_a_smaller_limit() {
    let api = Api::start(Limits { arriving: 400 << 10, ..Limits::default() });
    let arriving = "apiserver_flowcontrol_current_executing_seats{flow_schema=\"all\",\
                    priority_level=\"request-body-arriving-kibibytes\"}";
    let begin = async |length: usize, body: &str| begin_post(&api, "alice", length, body).await;
    let part = "x".repeat(200 << 10);
    let held = begin(2_000_000, &part).await;
    api.until_at_least(arriving, 200).await;
    // The same user has no more than three quarters, whether the rest of the body comes or not.
    let mut answer = Vec::new();
    drop(soon(begin(2_000_000, &part).await.read_to_end(&mut answer)).await);
    assert!(answer.starts_with(b"HTTP/1.1 429 "), "{}", String::from_utf8_lossy(&answer));
    drop(held);
    api.until(arriving, 0).await;
    // A large body that arrives is accepted, and counts no more then.
    let body = json!({ "metadata": { "name": "m" }, "data": { "k": "v".repeat(250_000) } }).to_string();
    let mut answer = Vec::new();
    drop(soon(begin(body.len(), &body).await.read_to_end(&mut answer)).await);
    assert!(answer.starts_with(b"HTTP/1.1 201 "), "{}", String::from_utf8_lossy(&answer));
    api.until(arriving, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_whose_body_does_not_come_are_limited_by_user() {
    let api = Api::start(Limits { receiving: 4, ..Limits::default() });
    let receiving =
        "apiserver_flowcontrol_current_executing_seats{flow_schema=\"all\",priority_level=\"request-body\"}";
    let begin = async |name: &str| {
        let mut stream = api.client(name).connect().await.unwrap();
        let head = format!(
            "POST {MAPS} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream
    };
    let mut held = Vec::new();
    for i in 1..=3 {
        held.push(begin("alice").await);
        api.until(receiving, i).await;
    }
    let mut answer = Vec::new();
    drop(soon(begin("alice").await.read_to_end(&mut answer)).await);
    assert!(answer.starts_with(b"HTTP/1.1 429 "), "{}", String::from_utf8_lossy(&answer));
    assert_eq!(api.figure(&rejected("request-body", "all", "user-limit")).await, 1);
    held.push(begin("bob").await);
    api.until(receiving, 4).await;
    drop(held);
    api.until(receiving, 0).await;
}
