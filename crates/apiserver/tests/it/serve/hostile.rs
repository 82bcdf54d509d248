//! Misbehaving clients, and many clients.

use std::time::Duration;

use http::Request;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::TokioIo;
use plumb_apiserver::serve::Limits;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::server::{Client, Server, rest, soon};

/// Reads until the other side closes, one way or another.
async fn until_closed(mut stream: impl tokio::io::AsyncRead + Unpin) -> Vec<u8> {
    let mut read = Vec::new();
    // A reset ends a connection as well as a farewell does.
    drop(soon(stream.read_to_end(&mut read)).await);
    read
}

#[tokio::test]
async fn garbage_ends_the_connection_and_not_the_server() {
    let server = Server::start();
    let noise: Vec<u8> =
        (0..4096_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24).to_le_bytes()[0]).collect();
    for garbage in
        [&b"\0"[..], b"\x16\x03\x01\xff\xff", b"\x16\x03\x01\x00\x05hello", b"\x80\x80\x01\x03\x01", &noise]
    {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(garbage).await.unwrap();
        stream.shutdown().await.unwrap();
        until_closed(stream).await;
    }
    for alpn in ["http/1.1", "h2"] {
        for garbage in [&b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"[..], b"\r\n\r\nGET", &noise]
        {
            let mut stream = Client { alpn, ..server.client() }.connect().await.unwrap();
            stream.write_all(garbage).await.unwrap();
            stream.shutdown().await.unwrap();
            until_closed(stream).await;
        }
    }
    server.assert_responds().await;
}

#[tokio::test]
async fn a_plain_http_request_gets_an_error_that_names_https() {
    let server = Server::start();
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(b"GET /api HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    soon(stream.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.0 400 Bad Request\r\n"), "{answer}");
    assert!(answer.contains("https"), "{answer}");
}

#[tokio::test]
async fn a_slow_client_is_disconnected() {
    let short = Duration::from_millis(50);
    let server = Server::with(Limits { handshake: short, ..Limits::default() });
    // No handshake.
    until_closed(TcpStream::connect(server.address).await.unwrap()).await;
    // A plain request that never ends.
    let mut plain = TcpStream::connect(server.address).await.unwrap();
    // The server may be the faster one, here and below.
    drop(plain.write_all(b"GET / HTTP/1.1\r\n").await);
    until_closed(plain).await;
    // Half a handshake.
    let mut half = TcpStream::connect(server.address).await.unwrap();
    drop(half.write_all(b"\x16\x03\x01\x02\x00\x01").await);
    until_closed(half).await;

    let server = Server::with(Limits { request_head: short, farewell: short, ..Limits::default() });
    let heads: [(&str, &[u8]); 5] = [
        ("http/1.1", b""),
        ("http/1.1", b"GET / HTTP/1.1\r\nHost: local"),
        ("h2", b""),
        ("h2", b"PRI * HTTP/2.0\r\n"),
        // The preface and empty settings, and then nothing.
        ("h2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"),
    ];
    for (alpn, head) in heads {
        let mut stream = Client { alpn, ..server.client() }.connect().await.unwrap();
        drop(stream.write_all(head).await);
        until_closed(stream).await;
    }
}

#[tokio::test]
async fn an_idle_connection_is_closed_and_one_with_a_request_in_flight_is_not() {
    // Not so short that a busy machine takes as long for a request.
    let short = Duration::from_secs(2);
    let mut server = Server::with(Limits { request_head: short, ..Limits::default() });
    let mut idle = server.client().http1().await.unwrap();
    assert_eq!(idle.get("/who").await.unwrap(), "anonymous HTTP/1.1");
    for over in ["h1", "h2"] {
        let mut busy = match over {
            "h1" => server.client().http1().await.unwrap(),
            _ => server.client().http2().await.unwrap(),
        };
        let (answer, ()) = tokio::join!(busy.get("/wait"), async {
            soon(server.began.recv()).await.unwrap();
            // Another one comes and is idle meanwhile, for longer than this one may be without a request.
            let mut other = server.client().http2().await.unwrap();
            other.get("/who").await.unwrap();
            other.closed().await;
            server.release.notify_one();
        });
        assert_eq!(answer.unwrap(), "waited", "{over}");
        busy.closed().await;
    }
    idle.closed().await;
}

#[tokio::test]
async fn connections_beyond_the_bound_wait_for_one_to_end() {
    let server = Server::with(Limits { connections: 2, ..Limits::default() });
    // Neither is closed for another one: their clients are authenticated, and watch.
    let developer = server.client().who_is(server.pki.issue_client("jane", &["developers"]).unwrap());
    let mut first = developer.http2().await.unwrap();
    let mut second = developer.http2().await.unwrap();
    let _watch = first.send("/watch").await.unwrap();
    let watch = second.send("/watch").await.unwrap();

    let client = server.client();
    let third = tokio::spawn(async move { client.http1().await.unwrap().get("/who").await.unwrap() });
    for _ in 0..20 {
        first.get("/who").await.unwrap();
        second.get("/who").await.unwrap();
        assert!(!third.is_finished());
    }
    drop((watch, second));
    assert_eq!(soon(third).await.unwrap(), "anonymous HTTP/1.1");
}

#[tokio::test]
async fn an_upgraded_connection_belongs_to_its_handler_and_keeps_its_slot() {
    let server = Server::with(Limits { connections: 1, ..Limits::default() });
    let mut connection = server.client().http1().await.unwrap();
    let request = Request::get("/upgrade")
        .header("host", "localhost")
        .header("connection", "upgrade")
        .header("upgrade", "echo")
        .body(Empty::new())
        .unwrap();
    let response = connection.send_request(request).await.unwrap();
    assert_eq!(response.status(), 101);
    let mut stream = TokioIo::new(soon(hyper::upgrade::on(response)).await.unwrap());

    let client = server.client();
    let next = tokio::spawn(async move { client.http1().await.unwrap().get("/who").await.unwrap() });
    stream.write_all(b"hello").await.unwrap();
    let mut word = [0; 5];
    soon(stream.read_exact(&mut word)).await.unwrap();
    assert_eq!(&word, b"olleh");
    assert!(!next.is_finished());
    drop(stream);
    assert_eq!(soon(next).await.unwrap(), "anonymous HTTP/1.1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_watches_run_on_one_connection_and_a_thousand_on_many() {
    let server = Server::start();
    for connections in [1, 100] {
        let mut watches = Vec::new();
        let mut open = Vec::new();
        for _ in 0..connections {
            let mut connection = server.client().who_is(server.pki.admin()).http2().await.unwrap();
            // One more request fits on each connection.
            let most = usize::try_from(Limits::default().streams).unwrap() - 1;
            for _ in 0..most.min(1_000 / connections) {
                watches.push(connection.send("/watch").await.unwrap());
            }
            open.push(connection);
        }
        for watch in &mut watches {
            let frame = soon(watch.frame()).await.unwrap().unwrap();
            assert_eq!(frame.into_data().unwrap(), "first ");
        }
        // The connections still answer besides.
        for connection in &mut open {
            assert_eq!(connection.get("/who").await.unwrap(), "kubernetes-admin HTTP/2.0");
        }
        if connections == 100 {
            server.trigger.pull();
            for watch in watches {
                assert_eq!(rest(watch).await.unwrap(), "last");
            }
            break;
        }
    }
    assert_eq!(server.ended().await.cut, 0);
}
