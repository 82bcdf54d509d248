//! Graceful shutdown.

use std::time::Duration;

use http_body_util::BodyExt as _;
use plumb_apiserver::serve::{Drained, Limits, shutdown};
use tokio::net::TcpStream;

use super::server::{Server, rest, soon};

#[tokio::test]
async fn a_shutdown_closes_idle_connections_and_waits_for_requests_in_flight() {
    let mut server = Server::start();
    let mut idle = [server.client().http1().await.unwrap(), server.client().http2().await.unwrap()];
    for connection in &mut idle {
        connection.get("/who").await.unwrap();
    }
    let unused = server.client().connect().await.unwrap();
    let handshaking = TcpStream::connect(server.address).await.unwrap();
    let mut waiting = Vec::new();
    for mut connection in [server.client().http1().await.unwrap(), server.client().http2().await.unwrap()] {
        waiting.push(tokio::spawn(async move {
            let answer = connection.get("/wait").await.unwrap();
            connection.closed().await;
            answer
        }));
        soon(server.began.recv()).await.unwrap();
    }

    server.trigger.pull();
    for connection in idle {
        connection.closed().await;
    }
    // New connections are refused.
    // Another test may be given the port then; its server has another certificate.
    soon(async { while server.client().connect().await.is_ok() {} }).await;
    assert!(waiting.iter().all(|waiting| !waiting.is_finished()));
    server.release.notify_waiters();
    for waiting in waiting {
        assert_eq!(soon(waiting).await.unwrap(), "waited");
    }
    assert_eq!(server.ended().await, Drained { cut: 0 });
    drop((unused, handshaking));
}

#[tokio::test]
async fn a_watch_ends_by_itself_on_a_shutdown() {
    let server = Server::start();
    let mut connections = [server.client().http1().await.unwrap(), server.client().http2().await.unwrap()];
    let mut watches = Vec::new();
    for connection in &mut connections {
        let mut watch = connection.send("/watch").await.unwrap();
        assert_eq!(soon(watch.frame()).await.unwrap().unwrap().into_data().unwrap(), "first ");
        watches.push(watch);
    }
    server.trigger.pull();
    for watch in watches {
        assert_eq!(rest(watch).await.unwrap(), "last", "the stream ends in order");
    }
    for connection in connections {
        connection.closed().await;
    }
    assert_eq!(server.ended().await, Drained { cut: 0 });
}

#[tokio::test]
async fn a_shutdown_aborts_requests_after_the_drain_timeout() {
    let mut server = Server::with(Limits { drain: Duration::from_millis(50), ..Limits::default() });
    let mut stubborn = Vec::new();
    for mut connection in [server.client().http1().await.unwrap(), server.client().http2().await.unwrap()] {
        stubborn.push(tokio::spawn(async move { connection.get("/wait").await }));
        soon(server.began.recv()).await.unwrap();
    }
    server.trigger.pull();
    assert_eq!(server.ended().await, Drained { cut: 2 });
    for stubborn in stubborn {
        assert!(soon(stubborn).await.unwrap().is_err());
    }
}

#[tokio::test]
async fn a_shutdown_is_observed_by_current_and_later_waiters() {
    let (trigger, shutdown) = shutdown();
    assert!(!shutdown.is_requested());
    let mut waiting = shutdown.clone();
    let waiting = tokio::spawn(async move { waiting.requested().await });
    trigger.pull();
    trigger.pull();
    soon(waiting).await.unwrap();
    assert!(shutdown.is_requested());
    soon(shutdown.clone().requested()).await;
}

#[tokio::test]
async fn a_dropped_shutdown_trigger_starts_the_shutdown() {
    let (trigger, mut shutdown) = shutdown();
    drop(trigger);
    soon(shutdown.requested()).await;
    assert!(shutdown.is_requested());
}
