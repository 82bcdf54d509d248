//! A connection, which multiplexes streams over one byte stream.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;

use crate::frame::{CANCEL, Decoder, Encoder, Frame, PROTOCOL_ERROR, REFUSED_STREAM};
use crate::headers::Headers;
use crate::stream::{Reader, Stream, Writer};

/// The maximum number of open streams; more are refused.
const MAX_STREAMS: usize = 1024;
/// The maximum number of streams that the peer has opened and this side has not accepted yet; more are refused.
const MAX_INCOMING: usize = 64;
/// The number of received chunks of a stream that are not read yet. If the queue is full, the whole connection waits: SPDY as
/// Kubernetes uses it has no flow control per stream.
const CHUNK_QUEUE: usize = 8;
/// The number of frames that wait to be sent.
const FRAME_QUEUE: usize = 8;
/// The number of bytes that are read at once.
const READ_SIZE: usize = 32 << 10;

/// The side of a connection, which determines the ids of the streams that it opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The client, which uses odd ids.
    Client,
    /// The server, which uses even ids.
    Server,
}

/// The streams that the peer opens.
pub type Incoming = mpsc::Receiver<Stream>;

/// The state of a stream.
#[derive(Debug)]
struct Entry {
    /// The queue of received data; `None` once the peer has closed its half.
    chunks: Option<mpsc::Sender<Bytes>>,
    /// Whether this side has closed its half.
    finished: bool,
    /// Whether this side has dropped the stream and its reset is not sent yet.
    resetting: bool,
}

/// The state that a connection shares with its streams.
#[derive(Debug)]
pub(crate) struct Shared {
    streams: Mutex<HashMap<u32, Entry>>,
    /// The streams to reset. The queue has space for every stream, so dropping a stream never waits: a stream counts towards
    /// [`MAX_STREAMS`] until its reset is sent.
    resets: mpsc::Sender<u32>,
}

impl Shared {
    /// Whether a stream has not been reset.
    pub(crate) fn is_open(&self, id: u32) -> bool {
        self.streams.lock().get(&id).is_some_and(|entry| !entry.resetting)
    }

    /// Records that this side has closed its half.
    pub(crate) fn finish_local(&self, id: u32) {
        let mut streams = self.streams.lock();
        if let Some(entry) = streams.get_mut(&id) {
            entry.finished = true;
            if entry.chunks.is_none() {
                streams.remove(&id);
            }
        }
    }

    /// Records that the peer has closed its half.
    fn finish_remote(&self, id: u32) {
        let mut streams = self.streams.lock();
        if let Some(entry) = streams.get_mut(&id) {
            entry.chunks = None;
            if entry.finished {
                streams.remove(&id);
            }
        }
    }

    /// Records that the peer has reset a stream.
    fn reset_remote(&self, id: u32) {
        let mut streams = self.streams.lock();
        if streams.get(&id).is_some_and(|entry| !entry.resetting) {
            streams.remove(&id);
        }
    }

    /// Resets a stream that this side has dropped before it closed its half.
    pub(crate) fn reset(&self, id: u32) {
        if let Some(entry) = self.streams.lock().get_mut(&id) {
            entry.chunks = None;
            entry.resetting = true;
            // If the connection has ended, there is nothing to reset.
            let _ = self.resets.try_send(id);
        }
    }

    /// Removes a stream, and returns the frame that resets it.
    fn take_reset(&self, id: u32) -> Frame {
        self.streams.lock().remove(&id);
        Frame::RstStream { id, status: CANCEL }
    }

    /// Adds a stream, unless there are too many.
    fn add(&self, id: u32, remote_finished: bool) -> Option<Reader> {
        let (sender, receiver) = mpsc::channel(CHUNK_QUEUE);
        let mut streams = self.streams.lock();
        if streams.len() >= MAX_STREAMS || streams.contains_key(&id) {
            return None;
        }
        let chunks = (!remote_finished).then_some(sender);
        streams.insert(id, Entry { chunks, finished: false, resetting: false });
        Some(Reader::new(receiver))
    }
}

/// Opens streams on a connection. Clones share the connection.
#[derive(Clone, Debug)]
pub struct Handle {
    shared: Arc<Shared>,
    frames: mpsc::Sender<Frame>,
    next: Arc<Mutex<u32>>,
}

impl Handle {
    /// Opens a stream.
    pub async fn open(&self, headers: Headers) -> io::Result<Stream> {
        let broken = || io::Error::from(io::ErrorKind::BrokenPipe);
        // The slot is reserved before the id is assigned, so that streams are opened in the order of their ids.
        let permit = self.frames.reserve().await.map_err(|_| broken())?;
        let mut next = self.next.lock();
        let id = *next;
        let reader = self.shared.add(id, false).ok_or_else(|| io::Error::other("too many streams"))?;
        *next = id.checked_add(2).filter(|id| *id < 1 << 31).ok_or_else(broken)?;
        permit.send(Frame::SynStream { id, headers: headers.clone(), fin: false });
        drop(next);
        Ok(Stream::new(headers, reader, Writer::new(id, self.shared.clone(), self.frames.clone())))
    }
}

/// Creates a connection over a byte stream. The future drives the connection: it completes when the peer closes the byte
/// stream, and fails if the byte stream fails or the peer violates the protocol. All streams end when the future completes
/// or is dropped. If the receiver of incoming streams is dropped, further streams are refused.
pub fn connect<I>(io: I, side: Side) -> (Handle, Incoming, impl Future<Output = io::Result<()>> + Send)
where
    I: AsyncRead + AsyncWrite + Send,
{
    let (resets, resets_receiver) = mpsc::channel(MAX_STREAMS);
    let (frames, frames_receiver) = mpsc::channel(FRAME_QUEUE);
    let (incoming, incoming_receiver) = mpsc::channel(MAX_INCOMING);
    let shared = Arc::new(Shared { streams: Mutex::default(), resets });
    let next = match side {
        Side::Client => 1,
        Side::Server => 2,
    };
    let handle = Handle { shared: shared.clone(), frames: frames.clone(), next: Arc::new(Mutex::new(next)) };
    let frame_reader = FrameReader { side, shared: shared.clone(), frames, incoming, last: 0 };
    let guard = EndOnDrop(shared.clone());
    let run = async move {
        let _guard = guard;
        let (reader, writer) = tokio::io::split(io);
        tokio::select! {
            read = frame_reader.run(reader) => read,
            written = write(writer, frames_receiver, resets_receiver, &shared) => written,
        }
    };
    (handle, incoming_receiver, run)
}

/// Ends all streams when it is dropped with the connection.
struct EndOnDrop(Arc<Shared>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.streams.lock().clear();
    }
}

/// Sends queued frames and resets.
async fn write(
    mut to: impl AsyncWrite + Unpin,
    mut frames: mpsc::Receiver<Frame>,
    mut resets: mpsc::Receiver<u32>,
    shared: &Shared,
) -> io::Result<()> {
    let mut encoder = Encoder::default();
    let mut bytes = BytesMut::new();
    let mut dropped = Vec::new();
    loop {
        // The frame reader keeps a sender of each queue as long as the connection lives.
        tokio::select! {
            frame = frames.recv() => {
                let Some(frame) = frame else { return Ok(()) };
                encoder.write(&frame, &mut bytes);
            }
            id = resets.recv() => {
                let Some(id) = id else { return Ok(()) };
                dropped.push(id);
            }
        }
        // Drains the resets, so that their queue does not grow while the queue of frames is full. There are at most
        // `MAX_STREAMS`, since each stream counts until `take_reset`.
        while let Ok(id) = resets.try_recv() {
            dropped.push(id);
        }
        // The number of frames is bounded, since senders refill the queue meanwhile. Frames that were queued before a
        // stream was dropped are sent before its reset.
        for _ in 0..FRAME_QUEUE {
            let Ok(frame) = frames.try_recv() else { break };
            encoder.write(&frame, &mut bytes);
        }
        for id in dropped.drain(..) {
            encoder.write(&shared.take_reset(id), &mut bytes);
        }
        to.write_all_buf(&mut bytes).await?;
        to.flush().await?;
    }
}

/// Reads and handles the frames of the peer.
struct FrameReader {
    side: Side,
    shared: Arc<Shared>,
    frames: mpsc::Sender<Frame>,
    incoming: mpsc::Sender<Stream>,
    /// The last stream that the peer opened.
    last: u32,
}

impl FrameReader {
    async fn run(mut self, mut from: impl AsyncRead + Unpin) -> io::Result<()> {
        let mut decoder = Decoder::default();
        let mut bytes = BytesMut::new();
        loop {
            let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
            while let Some(frame) = decoder.read(&mut bytes).map_err(invalid)? {
                self.handle(frame).await?;
            }
            bytes.reserve(READ_SIZE);
            if from.read_buf(&mut bytes).await? == 0 {
                return Ok(());
            }
        }
    }

    async fn handle(&mut self, frame: Frame) -> io::Result<()> {
        match frame {
            Frame::SynStream { id, headers, fin } => {
                let reply = self.accept(id, headers, fin);
                self.send(reply).await?;
            }
            Frame::SynReply { id, fin, .. } | Frame::Headers { id, fin, .. } => {
                if fin {
                    self.shared.finish_remote(id);
                }
            }
            Frame::RstStream { id, .. } => self.shared.reset_remote(id),
            // Pings with the ids of the peer are answered. Others would answer pings of this side, which sends none.
            Frame::Ping(id) => {
                if self.is_peer_id(id) {
                    self.send(Frame::Ping(id)).await?;
                }
            }
            Frame::Data { id, data, fin } => {
                let chunks = self.shared.streams.lock().get(&id).and_then(|entry| entry.chunks.clone());
                if let Some(chunks) = chunks.filter(|_| !data.is_empty()) {
                    // The reader may have been dropped; its data is discarded.
                    let _ = chunks.send(data).await;
                }
                if fin {
                    self.shared.finish_remote(id);
                }
            }
            Frame::GoAway { .. } | Frame::Other(_) => {}
        }
        Ok(())
    }

    /// Accepts or refuses a stream. Returns the reply.
    fn accept(&mut self, id: u32, headers: Headers, fin: bool) -> Frame {
        if !self.is_peer_id(id) || id <= self.last {
            return Frame::RstStream { id, status: PROTOCOL_ERROR };
        }
        self.last = id;
        let refused = Frame::RstStream { id, status: REFUSED_STREAM };
        let Ok(permit) = self.incoming.try_reserve() else { return refused };
        let Some(reader) = self.shared.add(id, fin) else { return refused };
        let writer = Writer::new(id, self.shared.clone(), self.frames.clone());
        permit.send(Stream::new(headers, reader, writer));
        Frame::SynReply { id, headers: Headers::default(), fin: false }
    }

    /// Whether an id belongs to the peer.
    fn is_peer_id(&self, id: u32) -> bool {
        match self.side {
            Side::Server => !id.is_multiple_of(2),
            Side::Client => id.is_multiple_of(2),
        }
    }

    async fn send(&self, frame: Frame) -> io::Result<()> {
        self.frames.send(frame).await.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_stream_counts_until_its_reset_is_sent() {
        let (resets, mut queued) = mpsc::channel(MAX_STREAMS);
        let shared = Shared { streams: Mutex::default(), resets };
        let ids: Vec<u32> = (0..).step_by(2).take(MAX_STREAMS).collect();
        for id in &ids {
            assert!(shared.add(*id, false).is_some());
            shared.reset(*id);
            shared.reset_remote(*id);
            shared.finish_remote(*id);
            assert!(!shared.is_open(*id));
        }
        assert!(shared.add(1, false).is_none(), "the queue of resets is bounded");
        for id in &ids {
            assert_eq!(queued.try_recv(), Ok(*id));
            assert_eq!(shared.take_reset(*id), Frame::RstStream { id: *id, status: CANCEL });
        }
        assert!(shared.add(1, false).is_some());
    }
}
