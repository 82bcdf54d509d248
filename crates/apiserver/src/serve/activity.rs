//! The responses in flight on a connection, and whether the client reads them.
//!
//! Neither HTTP/1.1 nor HTTP/2 has a timeout for a response that the client does not read: the one waits for the socket, the
//! other for the flow-control window of the stream. So every response has an entry here with whether the server waits for
//! the client, and how many bytes it has written since; [`Activity::stalled`] checks the entries from time to time. The hot
//! path reads no clock and allocates nothing: an entry is a slot of a vector, behind a lock of the connection.

use std::{
    io::IoSlice,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use pin_project_lite::pin_project;
use tokio::time::{Instant, MissedTickBehavior};

use super::heads::{Heads, Http1Head};
use crate::authn::Peer;

/// The largest chunk of a body: that much of a response may be in HTTP's buffers when the client stops reading.
const CHUNK: usize = 64 << 10;
/// The bytes of a response that a client has to read within the timeout.
const LEAST_PROGRESS: usize = 4 << 10;
/// How often the entries are checked within the timeout.
const CHECKS: u32 = 4;

/// The responses in flight on a connection.
#[derive(Clone, Debug)]
pub(super) struct Activity(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// The number of requests in flight.
    running: AtomicUsize,
    /// The number of requests so far.
    begun: AtomicU64,
    /// The head of the next request over HTTP/1.1.
    head: Http1Head,
    /// Counts the connections that the server has admitted: a clock that costs a load.
    admissions: Arc<AtomicU64>,
    /// The reading of that clock when the last request ended.
    idle_since: AtomicU64,
    entries: Mutex<Entries>,
    /// Whether to reset the connection: the client will not read the kernel's buffers.
    reset: AtomicBool,
}

#[derive(Debug, Default)]
struct Entries {
    all: Vec<Entry>,
    free: Vec<usize>,
}

/// A request and its response.
#[derive(Clone, Debug, Default)]
struct Entry {
    /// The body and its frames that are not written yet; without any the entry is free.
    references: usize,
    /// Frames that HTTP has and has not written yet.
    unwritten: usize,
    /// Whether the body has no frame yet for HTTP, which then has written everything.
    awaits_body: bool,
    /// Whether a user may read it, and pause.
    interactive: bool,
    /// Bytes written since the server has waited for the client.
    written: usize,
    /// How many consecutive checks found that the server waits for the client.
    checks: u32,
}

impl Entry {
    /// Whether the server waits for the client.
    fn awaits_client(&self) -> bool {
        self.references > 0 && (self.unwritten > 0 || !self.awaits_body)
    }

    /// Checks the entry; whether the client has read too little for `most` checks.
    fn has_stalled(&mut self, most: u32) -> bool {
        if !self.awaits_client() {
            (self.checks, self.written) = (0, 0);
            return false;
        }
        self.checks += 1;
        if self.checks < most {
            return false;
        }
        let stalled = self.written < LEAST_PROGRESS;
        (self.checks, self.written) = (0, 0);
        stalled
    }
}

impl Activity {
    /// The activity of a connection whose heads count against a budget, and whose idle time is measured in admitted
    /// connections.
    pub(super) fn new(heads: Arc<Heads>, admissions: Arc<AtomicU64>) -> Self {
        Self(Arc::new(Inner {
            running: AtomicUsize::new(0),
            begun: AtomicU64::new(0),
            head: Http1Head::new(heads),
            idle_since: AtomicU64::new(admissions.load(Relaxed)),
            admissions,
            entries: Mutex::default(),
            reset: AtomicBool::new(false),
        }))
    }

    /// A request begins; it is in flight until the last byte of its response is written.
    pub(super) fn begin(&self) -> InFlight {
        let entry = {
            let mut entries = self.0.entries.lock();
            // The server does not wait for the client before there is a response.
            let new = Entry { references: 1, awaits_body: true, ..Entry::default() };
            if let Some(free) = entries.free.pop() {
                entries.all[free] = new;
                free
            } else {
                entries.all.push(new);
                entries.all.len() - 1
            }
        };
        self.0.head.complete();
        self.0.begun.fetch_add(1, Relaxed);
        self.0.running.fetch_add(1, Relaxed);
        InFlight { inner: Arc::clone(&self.0), entry }
    }

    /// Counts bytes that an HTTP/1.1 connection has received. Without a request in flight they are of a head, which is buffered
    /// until it is complete; false if the budget of heads does not suffice.
    pub(super) fn receive(&self, bytes: usize, peer: &Peer) -> bool {
        self.0.running.load(Relaxed) > 0 || self.0.head.receive(bytes, peer)
    }

    /// Whether no request is in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.0.running.load(Relaxed) == 0
    }

    /// How many connections the server had admitted when the last request ended, or when this connection was opened.
    pub(super) fn idle_since(&self) -> u64 {
        self.0.idle_since.load(Relaxed)
    }

    /// Returns once the connection was without a request for `timeout`, or for a little longer, and `is_known` is false. It
    /// does not return any more once that is true. It checks now and then instead of being notified: a notification of each
    /// request took 4 % of the processor time of a GET.
    pub(super) async fn idle_while_unknown(&self, timeout: Duration, is_known: impl Fn() -> bool) {
        let every = (timeout / CHECKS).max(Duration::from_millis(1));
        let mut checks = tokio::time::interval_at(Instant::now() + every, every);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut idle = 0;
        let mut begun = self.0.begun.load(Relaxed);
        loop {
            checks.tick().await;
            if is_known() {
                return std::future::pending().await;
            }
            let requests = self.0.begun.load(Relaxed);
            idle = if self.is_idle() && requests == begun { idle + 1 } else { 0 };
            begun = requests;
            if idle == CHECKS {
                return;
            }
        }
    }

    /// Returns once the connection was without a request for `timeout`, or for a little longer.
    pub(super) async fn idle_for(&self, timeout: Duration) {
        self.idle_while_unknown(timeout, || false).await;
    }

    /// Returns when the client has read hardly any of a response for `progress`, or for `interactive` if a user may read it.
    pub(super) async fn stalled(&self, progress: Duration, interactive: Duration) {
        let every = (progress / CHECKS).max(Duration::from_millis(1));
        let most =
            |time: Duration| u32::try_from(time.as_nanos() / every.as_nanos()).unwrap_or(u32::MAX).max(1);
        let (most, most_interactive) = (most(progress), most(interactive));
        let mut checks = tokio::time::interval_at(Instant::now() + every, every);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            checks.tick().await;
            let mut entries = self.0.entries.lock();
            let stalled = entries.all.iter_mut().any(|entry| {
                let most = if entry.interactive { most_interactive } else { most };
                entry.has_stalled(most)
            });
            if stalled {
                self.0.reset.store(true, Relaxed);
                return;
            }
        }
    }

    /// Whether the kernel's buffers are to be dropped with the connection.
    pub(super) fn is_reset(&self) -> bool {
        self.0.reset.load(Relaxed)
    }
}

/// A request in flight.
#[derive(Debug)]
pub(super) struct InFlight {
    inner: Arc<Inner>,
    entry: usize,
}

impl InFlight {
    /// The response upgrades the connection: what it receives afterwards is of no head.
    pub(super) fn upgrade(&self) {
        self.inner.head.upgrade();
    }

    fn update(&self, change: impl FnOnce(&mut Entry)) {
        change(&mut self.inner.entries.lock().all[self.entry]);
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let is_last = {
            let mut entries = self.inner.entries.lock();
            let references = &mut entries.all[self.entry].references;
            *references -= 1;
            let is_last = *references == 0;
            if is_last {
                entries.free.push(self.entry);
            }
            is_last
        };
        if is_last && self.inner.running.fetch_sub(1, Relaxed) == 1 {
            self.inner.idle_since.store(self.inner.admissions.load(Relaxed), Relaxed);
        }
    }
}

/// A chunk of a response that HTTP has not written yet.
#[derive(Debug)]
pub(super) struct Unwritten {
    bytes: Bytes,
    in_flight: InFlight,
}

impl Unwritten {
    fn new(bytes: Bytes, in_flight: &InFlight) -> Self {
        in_flight.update(|entry| {
            entry.references += 1;
            entry.unwritten += 1;
            entry.awaits_body = false;
        });
        Self { bytes, in_flight: InFlight { inner: Arc::clone(&in_flight.inner), entry: in_flight.entry } }
    }
}

impl Buf for Unwritten {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        self.bytes.chunks_vectored(slices)
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        self.in_flight.update(|entry| entry.written += count);
    }
}

impl Drop for Unwritten {
    fn drop(&mut self) {
        self.in_flight.update(|entry| entry.unwritten -= 1);
    }
}

pin_project! {
    /// The body of a response, in chunks of a bounded size.
    pub(super) struct Tracked<B: Body> {
        #[pin]
        body: B,
        // The rest of the body's last frame.
        rest: Option<B::Data>,
        in_flight: InFlight,
    }
}

impl<B: Body> Tracked<B> {
    pub(super) fn new(body: B, in_flight: InFlight, interactive: bool) -> Self {
        in_flight.update(|entry| {
            entry.awaits_body = false;
            entry.interactive = interactive;
        });
        Self { body, rest: None, in_flight }
    }
}

impl<B: Body> Body for Tracked<B> {
    type Data = Unwritten;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Unwritten>, B::Error>>> {
        let this = self.project();
        let mut data = match this.rest.take() {
            Some(rest) => rest,
            None => match this.body.poll_frame(context) {
                Poll::Pending => {
                    this.in_flight.update(|entry| entry.awaits_body = true);
                    return Poll::Pending;
                }
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => data,
                    Err(frame) => {
                        // No data, hence trailers.
                        let trailers = frame.into_trailers().unwrap_or_default();
                        return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
                    }
                },
            },
        };
        // Of `Bytes` this is a view and no copy.
        let piece = data.copy_to_bytes(data.remaining().min(CHUNK));
        if data.has_remaining() {
            *this.rest = Some(data);
        }
        Poll::Ready(Some(Ok(Frame::data(Unwritten::new(piece, this.in_flight)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.body.size_hint();
        let rest = self.rest.as_ref().map_or(0, Buf::remaining) as u64;
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(hint.lower() + rest);
        hint
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::{BodyExt as _, Full};

    #[test]
    fn only_a_client_that_is_awaited_and_does_not_read_stalls() {
        let awaited = Entry { references: 1, ..Entry::default() };
        let stalls = |mut entry: Entry| (0..CHECKS).any(|_| entry.has_stalled(CHECKS));
        assert!(stalls(awaited.clone()));
        assert!(stalls(Entry { unwritten: 1, awaits_body: true, ..awaited.clone() }));
        assert!(stalls(Entry { written: LEAST_PROGRESS - 1, ..awaited.clone() }));
        assert!(!stalls(Entry { written: LEAST_PROGRESS, ..awaited.clone() }));
        assert!(!stalls(Entry { awaits_body: true, ..awaited }));
        assert!(!stalls(Entry::default()), "a free entry");
    }

    #[test]
    fn progress_counts_for_one_period_only() {
        let mut entry = Entry { references: 1, written: LEAST_PROGRESS, ..Entry::default() };
        assert!(!(0..CHECKS).any(|_| entry.has_stalled(CHECKS)));
        assert!((0..CHECKS).any(|_| entry.has_stalled(CHECKS)));
    }

    #[tokio::test]
    async fn a_large_body_is_sent_in_pieces_and_is_in_flight_until_the_last_is_dropped() {
        let activity = Activity::new(Heads::new(0), Arc::default());
        let whole = Bytes::from(vec![b'x'; 2 * CHUNK + 1]);
        let mut body = Tracked::new(Full::new(whole.clone()), activity.begin(), false);
        assert_eq!(body.size_hint().exact(), Some(whole.len() as u64));
        let mut pieces = Vec::new();
        while let Some(frame) = body.frame().await {
            pieces.push(frame.unwrap().into_data().unwrap());
        }
        assert_eq!(pieces.iter().map(Buf::remaining).collect::<Vec<_>>(), [CHUNK, CHUNK, 1]);
        assert_eq!(pieces[1].chunk().as_ptr(), whole[CHUNK..].as_ptr(), "nothing is copied");
        drop(body);
        assert_eq!(activity.0.running.load(Relaxed), 1);
        assert!(!activity.is_idle());
        drop(pieces);
        assert!(activity.is_idle());
        assert_eq!(activity.0.entries.lock().free, [0]);
    }
}
