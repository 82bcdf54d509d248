//! The limit on open connections.

use std::time::Duration;

use futures_util::future::join_all;
use plumb_apiserver::serve::Limits;
use serde_json::Value;

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

#[tokio::test]
async fn nodes_and_administrators_get_in_when_all_others_are_refused_with_429() {
    let server = Server::with(few());
    let mut first = server.client().http1().await.unwrap();
    first.get("/who").await.unwrap();
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
    let mut first = server.client().http1().await.unwrap();
    first.get("/who").await.unwrap();
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
