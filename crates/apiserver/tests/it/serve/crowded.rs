//! The limit on open connections.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use http::{Request, Response};
use http_body_util::Empty;
use hyper::body::Incoming;
use plumb_apiserver::serve::Limits;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::server::{Client, Connection, Server, rest, soon};

fn few() -> Limits {
    Limits {
        connections: 1,
        reserved_connections: 16,
        handshakes: 8,
        // For so long a further connection waits, too.
        handshake: Duration::from_secs(5),
        ..Limits::default()
    }
}

async fn connect(client: &Client, alpn: &str) -> Connection {
    match alpn {
        "h2" => client.http2().await.unwrap(),
        _ => client.http1().await.unwrap(),
    }
}

fn node(server: &Server, name: &str) -> Client {
    let user = format!("system:node:{name}");
    server.client().who_is(server.pki.issue_client(&user, &["system:nodes"]).unwrap())
}

/// A connection that is not closed for another one: its client is authenticated, and watches.
async fn in_use(server: &Server) -> (Connection, Response<Incoming>) {
    let client = server.client().who_is(server.pki.issue_client("watcher", &["developers"]).unwrap());
    let mut connection = client.http2().await.unwrap();
    let watch = connection.send("/watch").await.unwrap();
    (connection, watch)
}

/// The status of a request with a bearer token.
async fn ask_with_token(server: &Server, connection: &mut Connection) -> u16 {
    let bearer = format!("Bearer {}", server.admin_token.reveal());
    let request = Request::get("/api").header("host", "localhost").header("authorization", bearer);
    let response = connection.send_request(request.body(Empty::new()).unwrap()).await.unwrap();
    let status = response.status().as_u16();
    rest(response).await.unwrap();
    status
}

#[tokio::test]
async fn connections_without_credentials_are_closed_for_clients_with_a_token() {
    const MOST: usize = 8;
    let server = Server::with(Limits { connections: MOST, ..few() });
    let mut controller = server.client().http1().await.unwrap();
    assert_eq!(ask_with_token(&server, &mut controller).await, 200);
    let mut idle = Vec::new();
    // Some send nothing, some half a head, and some a request without credentials.
    for i in 0..4 * MOST {
        let mut stream = server.client().connect().await.unwrap();
        match i % 3 {
            0 => {}
            1 => stream.write_all(b"GET /api HT").await.unwrap(),
            _ => stream.write_all(b"GET /api HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap(),
        }
        idle.push(stream);
    }
    for alpn in ["http/1.1", "h2"] {
        let mut newcomer = connect(&server.client(), alpn).await;
        assert_eq!(ask_with_token(&server, &mut newcomer).await, 200, "{alpn}");
    }
    // The server had the choice, and did not close the connection of this one, which was idle for longest.
    assert_eq!(ask_with_token(&server, &mut controller).await, 200);
    // The first connection without credentials was closed.
    let mut answer = Vec::new();
    drop(soon(idle[0].read_to_end(&mut answer)).await);
    assert!(answer.is_empty());
}

#[tokio::test]
async fn a_client_without_credentials_has_a_short_time_to_send_a_request() {
    // Not so short that a busy machine takes as long for a request.
    let limits = Limits { unauthenticated_head: Duration::from_secs(3), ..Limits::default() };
    let server = Server::with(limits);
    let developer = server.client().who_is(server.pki.issue_client("jane", &["developers"]).unwrap());
    let mut known = developer.http1().await.unwrap();
    let mut with_token = server.client().http1().await.unwrap();
    assert_eq!(ask_with_token(&server, &mut with_token).await, 200);
    let heads = [("http/1.1", ""), ("http/1.1", "GET /who HTTP/1.1\r\nHost: "), ("h2", "")];
    let closed = heads.map(|(alpn, head)| {
        let client = Client { alpn, ..server.client() };
        async move {
            let mut stream = client.connect().await.unwrap();
            stream.write_all(head.as_bytes()).await.unwrap();
            // The end of the stream, or an error, after the settings of HTTP/2.
            drop(soon(stream.read_to_end(&mut Vec::new())).await);
        }
    });
    join_all(closed).await;
    let mut anonymous = server.client().http1().await.unwrap();
    anonymous.get("/who").await.unwrap();
    anonymous.closed().await;
    assert_eq!(known.get("/who").await.unwrap(), "jane HTTP/1.1");
    assert_eq!(ask_with_token(&server, &mut with_token).await, 200);
}

#[tokio::test]
async fn large_heads_share_a_budget_that_small_ones_do_not_need() {
    const HEAD: usize = 60 << 10;
    let server = Server::with(Limits { heads: HEAD, ..Limits::default() });
    let half = format!("GET /who HTTP/1.1\r\nHost: localhost\r\nX: {}", "x".repeat(HEAD - 50));
    let mut heads = FuturesUnordered::new();
    for _ in 0..3 {
        let mut stream = server.client().connect().await.unwrap();
        let half = half.clone();
        heads.push(async move {
            // The server may close before everything is written.
            drop(stream.write_all(half.as_bytes()).await);
            drop(stream.read(&mut [0]).await);
        });
    }
    // One of them fits.
    for _ in 0..2 {
        soon(heads.next()).await.unwrap();
    }
    server.assert_responds().await;
    drop(heads);
    // Its bytes are free again.
    let whole = format!("{half}\r\nConnection: close\r\n\r\n");
    let answered = async {
        loop {
            let mut stream = server.client().connect().await.unwrap();
            let mut answer = Vec::new();
            if stream.write_all(whole.as_bytes()).await.is_ok() {
                drop(stream.read_to_end(&mut answer).await);
            }
            if answer.starts_with(b"HTTP/1.1 200 ") {
                break;
            }
        }
    };
    soon(answered).await;
}

#[tokio::test]
async fn a_head_over_http1_is_refused_when_it_is_larger_than_64_kib() {
    let server = Server::start();
    let mut stream = server.client().connect().await.unwrap();
    let head = format!("GET /who HTTP/1.1\r\nHost: localhost\r\nX: {}", "x".repeat(100 << 10));
    let (mut read, mut write) = tokio::io::split(&mut stream);
    let mut answer = Vec::new();
    // The server may close before everything is written.
    let (_, _) = tokio::join!(write.write_all(head.as_bytes()), soon(read.read_to_end(&mut answer)));
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");
    server.assert_responds().await;
}

#[tokio::test]
async fn nodes_and_administrators_get_in_when_all_others_are_refused_with_429() {
    let server = Server::with(few());
    let (mut first, _watch) = in_use(&server).await;
    // A certificate alone does not help.
    let other = server.client().who_is(server.pki.issue_client("jane", &["developers"]).unwrap());
    let refused = [("http/1.1", server.client()), ("h2", server.client()), ("http/1.1", other)];
    let refused = refused.map(|(alpn, client)| async move {
        let mut refused = connect(&client, alpn).await;
        let response = refused.send("/who").await.unwrap();
        assert_eq!(response.status(), 429, "{alpn}");
        assert_eq!(response.headers()["retry-after"], "1", "{alpn}");
        let status: Value = serde_json::from_str(&rest(response).await.unwrap()).unwrap();
        assert_eq!((&status["kind"], &status["reason"]), (&"Status".into(), &"TooManyRequests".into()));
        assert_eq!(status["details"]["retryAfterSeconds"], 1);
        refused.closed().await;
    });
    // Each waits for its time: all of them at once.
    join_all(refused).await;
    for alpn in ["http/1.1", "h2"] {
        let mut admin = connect(&server.client().who_is(server.pki.admin()), alpn).await;
        assert!(admin.get("/who").await.unwrap().starts_with("kubernetes-admin "), "{alpn}");
        let mut node = connect(&node(&server, "a"), alpn).await;
        assert!(node.get("/who").await.unwrap().starts_with("system:node:a "), "{alpn}");
    }
    first.get("/who").await.unwrap();
}

#[tokio::test]
async fn one_node_does_not_take_all_connections_that_are_reserved() {
    let server = Server::with(few());
    let _first = in_use(&server).await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut connection = node(&server, "a").http2().await.unwrap();
        connection.get("/who").await.unwrap();
        held.push(connection);
    }
    let mut third = node(&server, "a").http1().await.unwrap();
    assert_eq!(third.send("/who").await.unwrap().status(), 429);
    let mut other = node(&server, "b").http1().await.unwrap();
    assert_eq!(other.get("/who").await.unwrap(), "system:node:b HTTP/1.1");
    // What it gives back it may have again.
    drop(held);
    let again = async {
        loop {
            let mut connection = node(&server, "a").http1().await.unwrap();
            if connection.send("/who").await.unwrap().status() == 200 {
                break;
            }
        }
    };
    soon(again).await;
}
