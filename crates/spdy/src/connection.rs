//! A connection: its streams share one byte stream.

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

/// Streams that are open at once; more are refused.
const STREAMS: usize = 1024;
/// Streams that were opened by the other side and not accepted yet; more are refused.
const WAITING: usize = 64;
/// Pieces of a stream that were received and not read yet. Then the whole connection waits: SPDY as Kubernetes speaks it has no
/// flow control by stream.
const PIECES: usize = 8;
/// Frames that wait to be sent.
const FRAMES: usize = 8;
/// How much is read at once.
const READ: usize = 32 << 10;

/// Which side of a connection this is. Each opens streams with its own ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The one that connected: odd ids.
    Client,
    /// The other one: even ids.
    Server,
}

/// The streams that the other side opens.
pub type Incoming = mpsc::Receiver<Stream>;

/// What is known of a stream.
#[derive(Debug)]
struct Entry {
    /// Where its data goes, until the other side has closed its half.
    pieces: Option<mpsc::Sender<Bytes>>,
    /// Whether this side has closed its half.
    finished: bool,
    /// Whether this side has dropped the stream, and its reset is not sent yet.
    resetting: bool,
}

/// What a connection and its streams share.
#[derive(Debug)]
pub(crate) struct Shared {
    streams: Mutex<HashMap<u32, Entry>>,
    /// Streams to be reset. Dropping a stream cannot wait, and need not: a stream counts as one of [`STREAMS`] until its reset
    /// is sent, so there is space for each.
    resets: mpsc::Sender<u32>,
}

impl Shared {
    /// Whether a stream has not been reset.
    pub(crate) fn is_open(&self, id: u32) -> bool {
        self.streams.lock().get(&id).is_some_and(|entry| !entry.resetting)
    }

    /// This side has closed its half.
    pub(crate) fn finished_here(&self, id: u32) {
        let mut streams = self.streams.lock();
        if let Some(entry) = streams.get_mut(&id) {
            entry.finished = true;
            if entry.pieces.is_none() {
                streams.remove(&id);
            }
        }
    }

    /// The other side has closed its half.
    fn finished_there(&self, id: u32) {
        let mut streams = self.streams.lock();
        if let Some(entry) = streams.get_mut(&id) {
            entry.pieces = None;
            if entry.finished {
                streams.remove(&id);
            }
        }
    }

    /// The other side has reset a stream.
    fn reset_there(&self, id: u32) {
        let mut streams = self.streams.lock();
        if streams.get(&id).is_some_and(|entry| !entry.resetting) {
            streams.remove(&id);
        }
    }

    /// Resets a stream that this side has dropped before it closed its half.
    pub(crate) fn reset(&self, id: u32) {
        if let Some(entry) = self.streams.lock().get_mut(&id) {
            (entry.pieces, entry.resetting) = (None, true);
            // Without a connection there is none to reset it on.
            let _ = self.resets.try_send(id);
        }
    }

    /// The reset of a stream is about to be sent.
    fn take_reset(&self, id: u32) -> Frame {
        self.streams.lock().remove(&id);
        Frame::RstStream { id, status: CANCEL }
    }

    /// Adds a stream, unless there are too many.
    fn add(&self, id: u32, finished_there: bool) -> Option<Reader> {
        let (sender, receiver) = mpsc::channel(PIECES);
        let mut streams = self.streams.lock();
        if streams.len() >= STREAMS || streams.contains_key(&id) {
            return None;
        }
        let pieces = (!finished_there).then_some(sender);
        streams.insert(id, Entry { pieces, finished: false, resetting: false });
        Some(Reader::new(receiver))
    }
}

/// Opens streams on a connection. Clones share it.
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
        // Reserved first, so that streams are opened in the order of their ids.
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

/// Begins a connection over a byte stream. The future runs it: it ends when the other side has closed the byte stream, and with an
/// error if that breaks or what comes is not SPDY. When it ends or is dropped, all streams end. Streams that nothing accepts any
/// more, since the receiver was dropped, are refused.
pub fn connect<I>(io: I, side: Side) -> (Handle, Incoming, impl Future<Output = io::Result<()>> + Send)
where
    I: AsyncRead + AsyncWrite + Send,
{
    let (resets, resets_receiver) = mpsc::channel(STREAMS);
    let (frames, frames_receiver) = mpsc::channel(FRAMES);
    let (incoming, incoming_receiver) = mpsc::channel(WAITING);
    let shared = Arc::new(Shared { streams: Mutex::default(), resets });
    let next = match side {
        Side::Client => 1,
        Side::Server => 2,
    };
    let handle = Handle { shared: shared.clone(), frames: frames.clone(), next: Arc::new(Mutex::new(next)) };
    let reading = Reading { side, shared: shared.clone(), frames, incoming, last: 0 };
    let ended = Ended(shared.clone());
    let run = async move {
        let _ended = ended;
        let (from, to) = tokio::io::split(io);
        tokio::select! {
            read = reading.run(from) => read,
            written = write(to, frames_receiver, resets_receiver, &shared) => written,
        }
    };
    (handle, incoming_receiver, run)
}

/// Ends all streams when the connection is dropped.
struct Ended(Arc<Shared>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.streams.lock().clear();
    }
}

/// Sends frames as they come.
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
        // The reading half has a sender of each for as long as the connection lives.
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
        // All resets there are, so that their queue does not grow beside a full queue of frames. There are no more than
        // `STREAMS`, since each stream counts until `take_reset`.
        while let Ok(id) = resets.try_recv() {
            dropped.push(id);
        }
        // Senders refill the queue meanwhile: what does not fit now is sent next time. What was queued before a stream was
        // dropped is sent before its reset.
        for _ in 0..FRAMES {
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

/// Reads frames, and does what they say.
struct Reading {
    side: Side,
    shared: Arc<Shared>,
    frames: mpsc::Sender<Frame>,
    incoming: mpsc::Sender<Stream>,
    /// The last stream that the other side opened.
    last: u32,
}

impl Reading {
    async fn run(mut self, mut from: impl AsyncRead + Unpin) -> io::Result<()> {
        let mut decoder = Decoder::default();
        let mut bytes = BytesMut::new();
        loop {
            let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
            while let Some(frame) = decoder.read(&mut bytes).map_err(invalid)? {
                self.take(frame).await?;
            }
            bytes.reserve(READ);
            if from.read_buf(&mut bytes).await? == 0 {
                return Ok(());
            }
        }
    }

    async fn take(&mut self, frame: Frame) -> io::Result<()> {
        match frame {
            Frame::SynStream { id, headers, fin } => {
                let answer = self.accept(id, headers, fin);
                self.send(answer).await?;
            }
            Frame::SynReply { id, fin, .. } | Frame::Headers { id, fin, .. } => {
                if fin {
                    self.shared.finished_there(id);
                }
            }
            Frame::RstStream { id, .. } => self.shared.reset_there(id),
            // The other side counts its pings as it counts its streams; the others answer ours, of which there are none.
            Frame::Ping(id) => {
                if self.opens(id) {
                    self.send(Frame::Ping(id)).await?;
                }
            }
            Frame::Data { id, data, fin } => {
                let pieces = self.shared.streams.lock().get(&id).and_then(|entry| entry.pieces.clone());
                if let Some(pieces) = pieces.filter(|_| !data.is_empty()) {
                    // Data that is not read any more is dropped.
                    let _ = pieces.send(data).await;
                }
                if fin {
                    self.shared.finished_there(id);
                }
            }
            Frame::GoAway { .. } | Frame::Other(_) => {}
        }
        Ok(())
    }

    /// Accepts a stream, or refuses it.
    fn accept(&mut self, id: u32, headers: Headers, fin: bool) -> Frame {
        if !self.opens(id) || id <= self.last {
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

    /// Whether the other side may have chosen this number.
    fn opens(&self, id: u32) -> bool {
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
    fn a_dropped_stream_counts_until_its_reset_is_sent_whatever_the_other_side_does() {
        let (resets, mut queued) = mpsc::channel(STREAMS);
        let shared = Shared { streams: Mutex::default(), resets };
        let ids: Vec<u32> = (0..).step_by(2).take(STREAMS).collect();
        for id in &ids {
            assert!(shared.add(*id, false).is_some());
            shared.reset(*id);
            shared.reset_there(*id);
            shared.finished_there(*id);
            assert!(!shared.is_open(*id));
        }
        assert!(shared.add(1, false).is_none(), "no queue without a bound");
        for id in &ids {
            assert_eq!(queued.try_recv(), Ok(*id));
            assert_eq!(shared.take_reset(*id), Frame::RstStream { id: *id, status: CANCEL });
        }
        assert!(shared.add(1, false).is_some());
    }
}
