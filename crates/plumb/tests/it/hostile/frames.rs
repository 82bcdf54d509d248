//! Frames of HTTP/2 that no client library would send.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::client::TlsStream;

use super::super::wire::{Speech, Wire, soon};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// The largest payload that the server accepts.
const MAX_PAYLOAD: usize = 16 << 10;

/// A frame that the server has sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    kind: u8,
    flags: u8,
    pub(crate) stream: u32,
}

impl Frame {
    /// Whether it ends the response of its stream.
    pub(crate) fn ends_response(self) -> bool {
        matches!(self.kind, DATA | HEADERS) && self.flags & END_STREAM != 0
    }

    pub(crate) fn is_reset(self) -> bool {
        self.kind == RST_STREAM
    }

    fn is_pong(self) -> bool {
        self.kind == PING && self.flags == 1
    }
}

fn encode(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// A connection whose frames the test writes.
pub(crate) struct Frames {
    write: tokio::io::WriteHalf<TlsStream<TcpStream>>,
    reader: tokio::task::JoinHandle<()>,
    received: mpsc::UnboundedReceiver<Frame>,
    token: String,
}

impl Frames {
    pub(crate) async fn open(wire: &Wire) -> Self {
        let (mut read, mut write) = tokio::io::split(wire.raw(Speech::Http2).await.unwrap());
        let (sender, received) = mpsc::unbounded_channel();
        // Reads everything, so that the server never has to wait.
        let reader = tokio::spawn(async move {
            let mut head = [0; 9];
            while read.read_exact(&mut head).await.is_ok() {
                let size = u32::from_be_bytes([0, head[0], head[1], head[2]]);
                let mut payload = vec![0; usize::try_from(size).unwrap()];
                if read.read_exact(&mut payload).await.is_err() {
                    break;
                }
                let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
                // The test may not be interested.
                let _ = sender.send(Frame { kind: head[3], flags: head[4], stream });
            }
        });
        write.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        let mut frames = Self { write, reader, received, token: wire.token.clone() };
        frames.send(SETTINGS, 0, 0, &[]).await.unwrap();
        frames
    }

    async fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> std::io::Result<()> {
        self.write(&encode(kind, flags, stream, payload)).await
    }

    async fn write(&mut self, frames: &[u8]) -> std::io::Result<()> {
        soon(self.write.write_all(frames)).await?;
        self.write.flush().await
    }

    /// The fields of a request, none of them by its place in a table.
    fn fields(&self, method: &str, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
        let bearer = format!("Bearer {}", self.token);
        let first = [
            (":method", method),
            (":scheme", "https"),
            (":authority", "localhost"),
            (":path", path),
            ("authorization", &bearer),
        ];
        let mut block = Vec::new();
        for (name, value) in first.iter().chain(more) {
            block.push(0);
            for text in [name, value] {
                push_length(&mut block, text.len());
                block.extend_from_slice(text.as_bytes());
            }
        }
        block
    }

    pub(crate) async fn try_headers(
        &mut self,
        stream: u32,
        method: &str,
        path: &str,
        more: &[(&str, &str)],
        end: bool,
    ) -> std::io::Result<()> {
        let block = self.fields(method, path, more);
        self.send(HEADERS, END_HEADERS | if end { END_STREAM } else { 0 }, stream, &block).await
    }

    pub(crate) async fn headers(
        &mut self,
        stream: u32,
        method: &str,
        path: &str,
        more: &[(&str, &str)],
        end: bool,
    ) {
        self.try_headers(stream, method, path, more, end).await.unwrap();
    }

    /// Sends the heads of many requests, without bodies, in one write: the server receives them at once, however busy the machine
    /// is.
    pub(crate) async fn headers_at_once(
        &mut self,
        streams: impl Iterator<Item = u32>,
        method: &str,
        path: &str,
        more: &[(&str, &str)],
    ) {
        let block = self.fields(method, path, more);
        let frames: Vec<u8> =
            streams.flat_map(|stream| encode(HEADERS, END_HEADERS, stream, &block)).collect();
        self.write(&frames).await.unwrap();
    }

    /// Sends a head of any size in as many frames as it needs, without a body.
    pub(crate) async fn large_headers(&mut self, stream: u32, path: &str, more: &[(&str, &str)]) {
        let block = self.fields("POST", path, more);
        let mut kind = HEADERS;
        let mut parts = block.chunks(MAX_PAYLOAD).peekable();
        while let Some(part) = parts.next() {
            let flags = if parts.peek().is_none() { END_HEADERS } else { 0 };
            self.send(kind, flags, stream, part).await.unwrap();
            kind = CONTINUATION;
        }
    }

    /// The next frame of the server; `None` once it has closed the connection.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        soon(self.received.recv()).await
    }

    /// The frames that the server sends until it answers a ping.
    pub(crate) async fn until_pong(&mut self) -> Vec<Frame> {
        self.send(PING, 0, 0, &[0; 8]).await.unwrap();
        let mut frames = Vec::new();
        while let Some(frame) = self.next().await {
            if frame.is_pong() {
                break;
            }
            frames.push(frame);
        }
        frames
    }

    /// A head that goes on.
    pub(crate) async fn begin_headers(&mut self, stream: u32, method: &str, path: &str) {
        let block = self.fields(method, path, &[]);
        self.send(HEADERS, END_STREAM, stream, &block).await.unwrap();
    }

    pub(crate) async fn try_continuation(&mut self, stream: u32, block: &[u8]) -> std::io::Result<()> {
        self.send(CONTINUATION, 0, stream, block).await
    }

    pub(crate) async fn data(&mut self, stream: u32, bytes: &[u8], end: bool) {
        self.send(DATA, if end { END_STREAM } else { 0 }, stream, bytes).await.unwrap();
    }

    pub(crate) async fn try_reset(&mut self, stream: u32) -> std::io::Result<()> {
        // CANCEL
        self.send(RST_STREAM, 0, stream, &8_u32.to_be_bytes()).await
    }

    /// Waits until the other end has closed.
    pub(crate) async fn closed(mut self) {
        soon(&mut self.reader).await.unwrap();
    }
}

impl Drop for Frames {
    /// Closes the connection, of which the task has the other half.
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// Appends the length of a string of HPACK, with a prefix of 7 bits.
fn push_length(block: &mut Vec<u8>, length: usize) {
    let Some(mut rest) = length.checked_sub(127) else {
        block.push(u8::try_from(length).unwrap());
        return;
    };
    block.push(127);
    while rest >= 128 {
        block.push(u8::try_from(rest % 128).unwrap() | 128);
        rest /= 128;
    }
    block.push(u8::try_from(rest).unwrap());
}
