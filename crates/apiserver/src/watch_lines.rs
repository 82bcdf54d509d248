//! The encoded lines of large events, which watches hold while their clients read them.
//!
//! A watch passes a large line on in chunks that it copies, so that HTTP holds a chunk of a line that is not read, and the line
//! itself can be taken away. Watches of one class that send an object in one form share its line. All lines count against
//! [`Limits::events`](crate::Limits::events), by the user whose watch encoded the line first. A watch that has to encode one
//! beyond the limit waits, and the lines that are unread for longest are dropped, which ends the watches that still send them:
//! kube-apiserver ends a watch with a full buffer, too, and clients list and watch again.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::fair_share::{Held, Pool, UNIT};

/// Lines with at most this many bytes do not count: that is less than what a connection costs.
const SMALL: usize = 16 << 10;
/// What HTTP gets of a large line at once.
const CHUNK: usize = 16 << 10;
/// The time in which a client has to read a line before others need its bytes.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a watch waits for bytes. Then its own client gets the error that it is too slow.
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);
/// How often it looks for lines whose timeout has passed.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// Whether the line of an object of this size may count.
pub(crate) fn is_large(bytes: usize) -> bool {
    bytes > SMALL
}

/// The lines of one class of clients: users, or nodes.
#[derive(Debug)]
pub(crate) struct Lines {
    pool: Arc<Pool>,
    table: Mutex<Table>,
    released: Notify,
}

#[derive(Debug, Default)]
struct Table {
    /// The lines that other watches can send, too.
    shared: HashMap<SharedKey, Weak<Line>>,
    /// All lines that were not dropped, the oldest first.
    all: BTreeMap<u64, Unread>,
    next: u64,
}

/// A line that some watch has not sent to its end.
#[derive(Debug)]
struct Unread {
    line: Weak<Line>,
    user: String,
    since: Instant,
}

/// What makes the lines of two events equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SharedKey {
    /// The address of the stored object, which the line keeps in memory.
    pub(crate) object: usize,
    /// `ADDED`, `MODIFIED`.
    pub(crate) kind: &'static str,
    /// The version and the form of the object.
    pub(crate) view: String,
}

/// One encoded event.
#[derive(Debug)]
pub(crate) struct Line {
    lines: Weak<Lines>,
    number: u64,
    shared: Option<SharedKey>,
    /// `None` once it was dropped for others.
    content: Mutex<Option<Content>>,
}

#[derive(Debug)]
struct Content {
    line: Bytes,
    /// The stored object, so that its address is not that of another one.
    _object: Option<Bytes>,
    _held: Held,
}

impl Lines {
    pub(crate) fn new(pool: Arc<Pool>) -> Arc<Self> {
        Arc::new(Self { pool, table: Mutex::default(), released: Notify::new() })
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// The line of an event, by `encode` or from another watch. `bytes` is about its length. `None` if the event has none.
    /// An error means that the limit is reached, by lines that are being read or by lines of other users.
    pub(crate) async fn line(
        self: &Arc<Self>,
        user: &str,
        bytes: usize,
        shared: Option<(SharedKey, Bytes)>,
        encode: impl FnOnce() -> Option<Bytes>,
    ) -> Result<Option<Outgoing>, TooSlow> {
        if let Some(line) = shared.as_ref().and_then(|(key, _)| self.find(key)) {
            return Ok(Some(Outgoing::Large(Sending { line, sent: 0 })));
        }
        let mut held = self.take(user, bytes).await?;
        let Some(line) = encode() else { return Ok(None) };
        if line.len() <= SMALL {
            return Ok(Some(Outgoing::Small(line)));
        }
        held.shrink(line.len().div_ceil(UNIT));
        let line = self.insert(user, line, held, shared);
        Ok(Some(Outgoing::Large(Sending { line, sent: 0 })))
    }

    fn find(&self, key: &SharedKey) -> Option<Arc<Line>> {
        let line = self.table.lock().shared.get(key)?.upgrade()?;
        let is_there = line.content.lock().is_some();
        is_there.then_some(line)
    }

    fn insert(
        self: &Arc<Self>,
        user: &str,
        line: Bytes,
        held: Held,
        shared: Option<(SharedKey, Bytes)>,
    ) -> Arc<Line> {
        let (key, object) = shared.unzip();
        let mut table = self.table.lock();
        let number = table.next;
        table.next += 1;
        let line = Arc::new(Line {
            lines: Arc::downgrade(self),
            number,
            shared: key.clone(),
            content: Mutex::new(Some(Content { line, _object: object, _held: held })),
        });
        let unread = Unread { line: Arc::downgrade(&line), user: user.to_owned(), since: Instant::now() };
        table.all.insert(number, unread);
        if let Some(key) = key {
            table.shared.insert(key, Arc::downgrade(&line));
        }
        line
    }

    /// Waits until a user may hold so many bytes more. A line that is larger than half of the limit counts as half of it.
    async fn take(&self, user: &str, bytes: usize) -> Result<Held, TooSlow> {
        let units = bytes.div_ceil(UNIT).min(self.pool.all() / 2).max(1);
        let deadline = Instant::now() + WAIT_TIMEOUT;
        loop {
            let released = self.released.notified();
            tokio::pin!(released);
            // Before the attempt, or a release between the two would go unnoticed.
            released.as_mut().enable();
            if let Ok(held) = self.pool.try_take(user, units) {
                // There may be enough for the next one, too.
                self.released.notify_one();
                return Ok(held);
            }
            if self.drop_oldest(user) {
                continue;
            }
            let now = Instant::now();
            if now >= deadline {
                return Err(TooSlow);
            }
            let _ = timeout_at(deadline.min(now + CHECK_EVERY), released).await;
        }
    }

    /// Drops the line that is unread for longest beyond its timeout: of the user, or of all if the user has none.
    fn drop_oldest(&self, user: &str) -> bool {
        let now = Instant::now();
        let line = {
            let mut table = self.table.lock();
            let overdue = || {
                table.all.iter().take_while(|(_, unread)| now.duration_since(unread.since) >= READ_TIMEOUT)
            };
            let oldest = overdue().find(|(_, unread)| unread.user == user);
            let has_none = || table.all.values().all(|unread| unread.user != user);
            let oldest = oldest.or_else(|| overdue().next().filter(|_| has_none()));
            let Some(number) = oldest.map(|(number, _)| *number) else { return false };
            table.all.remove(&number).and_then(|unread| unread.line.upgrade())
        };
        // Without the lock of the table, which a line takes that is dropped.
        if let Some(line) = line {
            line.content.lock().take();
        }
        true
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // The bytes first: who is woken tries to take them.
        drop(self.content.get_mut().take());
        let Some(lines) = self.lines.upgrade() else { return };
        let mut table = lines.table.lock();
        table.all.remove(&self.number);
        if let Some(key) = &self.shared
            && table.shared.get(key).is_some_and(|line| line.strong_count() == 0)
        {
            table.shared.remove(key);
        }
        drop(table);
        lines.released.notify_one();
    }
}

/// The limit of the bytes of lines is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooSlow;

/// A line that a watch sends.
#[derive(Debug)]
pub(crate) enum Outgoing {
    Small(Bytes),
    Large(Sending),
}

impl Outgoing {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Small(line) => line.len(),
            Self::Large(sending) => {
                sending.line.content.lock().as_ref().map_or(0, |content| content.line.len())
            }
        }
    }
}

impl From<Bytes> for Outgoing {
    fn from(line: Bytes) -> Self {
        Self::Small(line)
    }
}

/// A large line, and how much of it was sent.
#[derive(Debug)]
pub(crate) struct Sending {
    line: Arc<Line>,
    sent: usize,
}

impl Sending {
    /// The next chunk; `None` after the last one. An error if the line was dropped.
    pub(crate) fn chunk(&mut self) -> Option<io::Result<Bytes>> {
        let content = self.line.content.lock();
        let Some(Content { line, .. }) = &*content else {
            return Some(Err(io::Error::other("the client reads the events of this watch too slowly")));
        };
        let chunk =
            line.get(self.sent..line.len().min(self.sent + CHUNK)).filter(|chunk| !chunk.is_empty())?;
        self.sent += chunk.len();
        // Not a slice, which would keep the line in memory.
        Some(Ok(Bytes::copy_from_slice(chunk)))
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const LINE: usize = 40 << 10;

    fn lines(all: usize) -> Arc<Lines> {
        Lines::new(Pool::new(all / UNIT, 3))
    }

    fn key(object: &Bytes) -> SharedKey {
        SharedKey { object: object.as_ptr().addr(), kind: "ADDED", view: "v1".to_owned() }
    }

    async fn send(lines: &Arc<Lines>, user: &str) -> Result<Sending, TooSlow> {
        match lines.line(user, LINE, None, || Some(Bytes::from(vec![b'a'; LINE]))).await? {
            Some(Outgoing::Large(sending)) => Ok(sending),
            other => panic!("{other:?}"),
        }
    }

    fn read(mut sending: Sending) -> io::Result<usize> {
        std::iter::from_fn(|| sending.chunk()).try_fold(0, |read, chunk| Ok(read + chunk?.len()))
    }

    #[tokio::test]
    async fn watches_of_one_form_share_the_line_of_an_object_and_small_ones_do_not_count() {
        let lines = lines(1 << 20);
        let object = Bytes::from(vec![b'a'; LINE]);
        let mut encoded = 0;
        let mut sending = Vec::new();
        for _ in 0..100 {
            let shared = Some((key(&object), object.clone()));
            let line = lines.line("alice", LINE, shared, || {
                encoded += 1;
                Some(object.clone())
            });
            match line.await.unwrap() {
                Some(Outgoing::Large(line)) => sending.push(line),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((encoded, lines.pool.taken()), (1, LINE / UNIT));
        assert_eq!(read(sending.pop().unwrap()).unwrap(), LINE);
        drop(sending);
        assert_eq!(lines.pool.taken(), 0);
        {
            let table = lines.table.lock();
            assert!(table.shared.is_empty() && table.all.is_empty());
        }
        let small = lines.line("alice", 10, None, || Some(Bytes::from_static(b"line"))).await.unwrap();
        assert!(matches!(small, Some(Outgoing::Small(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_user_who_does_not_read_loses_the_oldest_line_and_not_one_of_another_user() {
        let lines = lines(10 * LINE);
        let other = send(&lines, "bob").await.unwrap();
        advance(READ_TIMEOUT).await;
        let mut held = Vec::new();
        while lines.pool.try_take("alice", LINE / UNIT).is_ok() {
            held.push(send(&lines, "alice").await.unwrap());
        }
        let mut more = Box::pin(send(&lines, "alice"));
        assert!(timeout_at(Instant::now() + READ_TIMEOUT / 2, &mut more).await.is_err(), "it waits");
        let more = more.await.unwrap();
        let oldest = held.remove(0);
        assert!(read(oldest).is_err());
        for line in held {
            assert_eq!(read(line).unwrap(), LINE);
        }
        assert_eq!((read(more).unwrap(), read(other).unwrap()), (LINE, LINE));
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_gets_the_bytes_that_others_have_read() {
        let lines = lines(4 * LINE);
        let mut held = Vec::new();
        while lines.pool.try_take("alice", LINE / UNIT).is_ok() {
            held.push(send(&lines, "alice").await.unwrap());
        }
        let (more, ()) = tokio::join!(biased; send(&lines, "alice"), async {
            assert_eq!(read(held.remove(0)).unwrap(), LINE);
        });
        assert_eq!(read(more.unwrap()).unwrap(), LINE);
        for line in held {
            assert_eq!(read(line).unwrap(), LINE);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn all_users_together_hold_no_more_than_the_limit() {
        let lines = lines(10 * LINE);
        let mut held = Vec::new();
        for user in 0..40 {
            held.push(send(&lines, &format!("user-{user}")).await.unwrap());
        }
        let read: Vec<_> = held.into_iter().map(read).collect();
        let dropped = read.iter().take_while(|line| line.is_err()).count();
        assert!((30..38).contains(&dropped), "{dropped}");
        assert!(read[dropped..].iter().all(Result::is_ok), "the oldest ones were dropped");
    }
}
