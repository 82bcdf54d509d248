use std::io::ErrorKind;

use bytes::BytesMut;
use plumb_spdy::frame::{CANCEL, Decoder, Encoder, Frame, REFUSED_STREAM};
use plumb_spdy::{Handle, Headers, Incoming, Side, connect};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::task::JoinHandle;

fn named(name: &str) -> Headers {
    [("name", name)].into_iter().collect()
}

type Running = JoinHandle<std::io::Result<()>>;

/// Creates both ends of a connection.
fn connected() -> ((Handle, Incoming, Running), (Handle, Incoming, Running)) {
    let (one, other) = tokio::io::duplex(1 << 10);
    let (client, client_incoming, run_client) = connect(one, Side::Client);
    let (server, server_incoming, run_server) = connect(other, Side::Server);
    ((client, client_incoming, tokio::spawn(run_client)), (server, server_incoming, tokio::spawn(run_server)))
}

/// A client that writes frames itself.
struct Raw {
    io: DuplexStream,
    encoder: Encoder,
    decoder: Decoder,
    received: BytesMut,
}

impl Raw {
    fn new() -> (Self, Handle, Incoming, Running) {
        let (io, other) = tokio::io::duplex(1 << 20);
        let (handle, incoming, run) = connect(other, Side::Server);
        let raw =
            Self { io, encoder: Encoder::default(), decoder: Decoder::default(), received: BytesMut::new() };
        (raw, handle, incoming, tokio::spawn(run))
    }

    async fn send(&mut self, frame: Frame) {
        let mut bytes = BytesMut::new();
        self.encoder.write(&frame, &mut bytes);
        self.io.write_all(&bytes).await.unwrap();
    }

    async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.decoder.read(&mut self.received).unwrap() {
                return Some(frame);
            }
            if self.io.read_buf(&mut self.received).await.unwrap() == 0 {
                return None;
            }
        }
    }
}

#[tokio::test]
async fn streams_are_bidirectional_and_their_halves_close_separately() {
    let ((client, ..), (_server, mut incoming, _running)) = connected();
    let echo = tokio::spawn(async move {
        while let Some(stream) = incoming.recv().await {
            tokio::spawn(async move {
                let name = stream.headers().get("name").unwrap().to_owned();
                let (mut reader, mut writer) = stream.split();
                writer.write_all(name.as_bytes()).await.unwrap();
                tokio::io::copy(&mut reader, &mut writer).await.unwrap();
                writer.shutdown().await.unwrap();
            });
        }
    });
    let large: Vec<u8> = (0..1_000_000_u32).map(|number| number.to_le_bytes()[1]).collect();
    let send_and_receive = |name: &'static str| {
        let client = client.clone();
        let large = large.clone();
        async move {
            let (mut reader, mut writer) = client.open(named(name)).await.unwrap().split();
            let send = async {
                writer.write_all(&large).await.unwrap();
                writer.shutdown().await.unwrap();
            };
            let mut received = Vec::new();
            tokio::join!(send, async { reader.read_to_end(&mut received).await.unwrap() });
            assert_eq!(&received[..name.len()], name.as_bytes());
            assert!(received[name.len()..] == large);
        }
    };
    tokio::join!(send_and_receive("one"), send_and_receive("two"), send_and_receive("three"));
    echo.abort();
}

#[tokio::test]
async fn a_stream_that_is_dropped_before_shutdown_is_reset() {
    let (mut raw, _handle, mut incoming, _running) = Raw::new();
    raw.send(Frame::SynStream { id: 1, headers: named("a"), fin: false }).await;
    drop(incoming.recv().await.unwrap());
    assert!(matches!(raw.next().await.unwrap(), Frame::SynReply { id: 1, .. }));
    assert_eq!(raw.next().await.unwrap(), Frame::RstStream { id: 1, status: CANCEL });
}

/// A client that reads slower than it opens streams, so that replies and resets compete for the queue.
#[tokio::test]
async fn the_queue_of_resets_is_bounded_while_a_client_opens_streams() {
    const STREAMS: u32 = 4_000;
    let (io, other) = tokio::io::duplex(64);
    let (_handle, mut incoming, run) = connect(other, Side::Server);
    let _running = tokio::spawn(run);
    tokio::spawn(async move { while incoming.recv().await.is_some() {} });
    let (mut from, mut to) = tokio::io::split(io);
    tokio::spawn(async move {
        let mut encoder = Encoder::default();
        let mut bytes = BytesMut::new();
        for number in 0..STREAMS {
            encoder
                .write(&Frame::SynStream { id: 2 * number + 1, headers: named("a"), fin: false }, &mut bytes);
            to.write_all_buf(&mut bytes).await.unwrap();
        }
        // The connection stays open until everything is read.
        std::future::pending::<()>().await;
    });
    let mut decoder = Decoder::default();
    let mut received = BytesMut::new();
    let mut accepted = 0_u32;
    let mut reset = 0;
    let mut refused = 0;
    let mut max_dropped = 0;
    while reset + refused < STREAMS {
        match decoder.read(&mut received).unwrap() {
            Some(Frame::SynReply { .. }) => accepted += 1,
            Some(Frame::RstStream { status: CANCEL, .. }) => reset += 1,
            Some(Frame::RstStream { status: REFUSED_STREAM, .. }) => refused += 1,
            Some(frame) => panic!("{frame:?}"),
            None => assert_ne!(from.read_buf(&mut received).await.unwrap(), 0),
        }
        max_dropped = max_dropped.max(accepted.saturating_sub(reset));
    }
    assert_eq!(accepted, reset);
    assert!(max_dropped <= 1024, "{max_dropped} streams were dropped and not reset");
}

#[tokio::test]
async fn a_stream_that_the_peer_resets_ends_and_rejects_writes() {
    let (mut raw, _handle, mut incoming, _running) = Raw::new();
    raw.send(Frame::SynStream { id: 1, headers: named("a"), fin: false }).await;
    let mut stream = incoming.recv().await.unwrap();
    raw.send(Frame::RstStream { id: 1, status: CANCEL }).await;
    assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
    assert_eq!(stream.write(b"x").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
}

#[tokio::test]
async fn pings_are_answered_and_streams_without_an_acceptor_are_refused() {
    let (mut raw, _handle, incoming, _running) = Raw::new();
    raw.send(Frame::Ping(1)).await;
    assert_eq!(raw.next().await.unwrap(), Frame::Ping(1));
    // An unsolicited reply to a ping.
    raw.send(Frame::Ping(2)).await;
    drop(incoming);
    raw.send(Frame::SynStream { id: 1, headers: named("a"), fin: false }).await;
    assert_eq!(raw.next().await.unwrap(), Frame::RstStream { id: 1, status: REFUSED_STREAM });
}

#[tokio::test]
async fn an_id_is_used_once_and_by_its_side_only() {
    let (mut raw, _handle, mut incoming, _running) = Raw::new();
    raw.send(Frame::SynStream { id: 3, headers: named("a"), fin: false }).await;
    let _stream = incoming.recv().await.unwrap();
    assert!(matches!(raw.next().await.unwrap(), Frame::SynReply { id: 3, .. }));
    for id in [3, 1, 4] {
        raw.send(Frame::SynStream { id, headers: named("a"), fin: false }).await;
        assert_eq!(raw.next().await.unwrap(), Frame::RstStream { id, status: 1 });
    }
}

#[tokio::test]
async fn streams_end_with_their_connection() {
    let ((client, _incoming, running), (_server, mut accepted, server_running)) = connected();
    let mut local = client.open(named("a")).await.unwrap();
    let mut remote = accepted.recv().await.unwrap();
    running.abort();
    assert_eq!(local.read(&mut [0]).await.unwrap(), 0);
    assert_eq!(remote.read(&mut [0]).await.unwrap(), 0);
    server_running.await.unwrap().unwrap();
    assert_eq!(client.open(named("b")).await.unwrap_err().kind(), ErrorKind::BrokenPipe);
    assert!(accepted.recv().await.is_none());
}
