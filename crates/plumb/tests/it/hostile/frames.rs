//! Frames of HTTP/2 as one likes them, for what no client library would send.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::super::wire::{Speech, Wire, soon};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// A connection of which only this end's frames are minded.
pub(super) struct Frames {
    write: tokio::io::WriteHalf<TlsStream<TcpStream>>,
    reader: tokio::task::JoinHandle<()>,
    token: String,
}

impl Frames {
    pub(super) async fn open(wire: &Wire) -> Self {
        let (mut read, mut write) = tokio::io::split(wire.raw(Speech::Http2).await.unwrap());
        // Whatever comes is read and let go, so that the other end never has to wait.
        let reader = tokio::spawn(async move {
            let mut sink = vec![0; 16 << 10];
            while matches!(read.read(&mut sink).await, Ok(some) if some > 0) {}
        });
        write.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        let mut frames = Self { write, reader, token: wire.token.clone() };
        frames.send(SETTINGS, 0, 0, &[]).await.unwrap();
        frames
    }

    async fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> std::io::Result<()> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, flags];
        frame.extend_from_slice(&stream.to_be_bytes());
        frame.extend_from_slice(payload);
        soon(self.write.write_all(&frame)).await?;
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
                // Lengths up to 126 are one byte.
                assert!(text.len() < 127, "{text}");
                block.push(u8::try_from(text.len()).unwrap());
                block.extend_from_slice(text.as_bytes());
            }
        }
        block
    }

    pub(super) async fn try_headers(
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

    pub(super) async fn headers(
        &mut self,
        stream: u32,
        method: &str,
        path: &str,
        more: &[(&str, &str)],
        end: bool,
    ) {
        self.try_headers(stream, method, path, more, end).await.unwrap();
    }

    /// A head that goes on.
    pub(super) async fn begin_headers(&mut self, stream: u32, method: &str, path: &str) {
        let block = self.fields(method, path, &[]);
        self.send(HEADERS, END_STREAM, stream, &block).await.unwrap();
    }

    pub(super) async fn try_continuation(&mut self, stream: u32, block: &[u8]) -> std::io::Result<()> {
        self.send(CONTINUATION, 0, stream, block).await
    }

    pub(super) async fn data(&mut self, stream: u32, bytes: &[u8], end: bool) {
        self.send(DATA, if end { END_STREAM } else { 0 }, stream, bytes).await.unwrap();
    }

    pub(super) async fn try_reset(&mut self, stream: u32) -> std::io::Result<()> {
        // CANCEL
        self.send(RST_STREAM, 0, stream, &8_u32.to_be_bytes()).await
    }

    /// Waits until the other end has closed.
    pub(super) async fn closed(self) {
        soon(self.reader).await.unwrap();
    }
}
