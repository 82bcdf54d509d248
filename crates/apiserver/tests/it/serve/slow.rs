//! Clients that do not read their responses.

use std::time::Duration;

use http_body_util::BodyExt as _;
use plumb_apiserver::serve::Limits;
use tokio::io::AsyncWriteExt as _;

use super::server::{Client, Server, rest, soon};

/// More than the buffers of both sockets hold, and of HTTP between them.
const BUFFERS: usize = 48 << 20;

fn impatient() -> Limits {
    Limits { progress: Duration::from_secs(1), ..Limits::default() }
}

#[tokio::test]
async fn a_client_that_does_not_read_is_cut_over_http1() {
    let mut server = Server::with(impatient());
    let mut stream = server.client().connect().await.unwrap();
    stream.write_all(b"GET /flood HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let (_, bytes) = soon(server.ended_floods.recv()).await.unwrap();
    assert!(bytes < BUFFERS, "{bytes} bytes were made for a client that reads none");
    server.assert_responds().await;
}

#[tokio::test]
async fn a_client_that_does_not_read_a_stream_is_cut_over_http2_though_it_answers_pings() {
    const WINDOW: u32 = 32 << 10;
    let mut server = Server::with(impatient());
    let mut connection = server.client().http2_with_window(WINDOW).await.unwrap();
    let unread = connection.send("/flood").await.unwrap();
    let (_, bytes) = soon(server.ended_floods.recv()).await.unwrap();
    // The window, what is sent at once besides, and a piece that waits for the window.
    assert!(bytes <= WINDOW as usize + (256 << 10), "{bytes} bytes were made for a client that reads none");
    connection.closed().await;
    drop(unread);
    server.assert_responds().await;
}

#[tokio::test]
async fn an_idle_watch_and_a_paused_client_are_not_disconnected() {
    let mut server = Server::with(impatient());
    let mut watching = server.client().http2().await.unwrap();
    let mut watch = watching.send("/watch").await.unwrap();
    assert_eq!(soon(watch.frame()).await.unwrap().unwrap().into_data().unwrap(), "first ");
    let mut pausing = server.client().http1().await.unwrap();
    let paused = pausing.send("/pause").await.unwrap();
    // Others come after them, do not read, and are cut.
    for alpn in ["http/1.1", "h2", "http/1.1"] {
        let client = Client { alpn, ..server.client() };
        let mut connection = match alpn {
            "h2" => client.http2().await.unwrap(),
            _ => client.http1().await.unwrap(),
        };
        let unread = connection.send("/flood").await.unwrap();
        assert_eq!(soon(server.ended_floods.recv()).await.unwrap().0, "/flood");
        drop(unread);
    }
    server.trigger.pull();
    assert_eq!(rest(watch).await.unwrap(), "last");
    drop(paused);
    drop(pausing);
    assert_eq!(soon(server.ended_floods.recv()).await.unwrap().0, "/pause");
}

#[tokio::test]
async fn a_client_that_reads_slowly_gets_the_whole_response() {
    // For twice as long as a client may be without progress it reads a piece now and then.
    const PIECE: usize = 512 << 10;
    const EVERY: Duration = Duration::from_millis(50);
    let limits = impatient();
    let server = Server::with(limits);
    for alpn in ["http/1.1", "h2"] {
        let client = server.client();
        let mut connection = match alpn {
            "h2" => client.http2().await.unwrap(),
            _ => client.http1().await.unwrap(),
        };
        let mut body = connection.send("/flood").await.unwrap().into_body();
        let mut ticks = tokio::time::interval(EVERY);
        let began = ticks.tick().await;
        while began.elapsed() < 2 * limits.progress {
            let mut read = 0;
            while read < PIECE {
                read += soon(body.frame()).await.unwrap().unwrap().into_data().unwrap().len();
            }
            ticks.tick().await;
        }
    }
}
