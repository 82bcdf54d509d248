//! The memory of request heads that are not complete yet.
//!
//! A client can send a part of a head and then nothing, so all large heads that are incomplete share a budget. Which heads
//! are large depends on the protocol:
//!
//! | protocol | a head counts once |
//! |---|---|
//! | HTTP/1.1 | more than [`FREE`] bytes of it have arrived |
//! | HTTP/2 | it continues after its first frame of at most 16 KiB ([`Frames`]) |
//!
//! It then counts as the largest head, [`MAX_HEAD`], whatever has arrived of it: HPACK encodes a large head in few bytes.
//! Usual heads are smaller, and get through when other clients have used up the budget.
//!
//! Clients without credentials share one budget by source address, and authenticated clients another one by user: no
//! source or user has more than three quarters of a budget, and none can use up the other one.

mod frames;

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use parking_lot::Mutex;

use self::frames::Frames;
use super::source::source;
use crate::{
    authn::Peer,
    fair_share::{Held, Pool},
};

/// The largest head: selectors in a query can be long. Clients without credentials can make the server buffer that much.
pub(super) const MAX_HEAD: usize = 64 << 10;

/// The bytes of a head that do not count: hyper's initial buffer, which every HTTP/1.1 connection has.
const FREE: usize = 8 << 10;

/// How many times the free part of a budget one source or user may hold.
const FACTOR: usize = 3;

/// Received bytes after an upgrade, which are of no head.
const UPGRADED: usize = usize::MAX;

/// The large heads that may be incomplete at a time.
#[derive(Debug)]
pub(super) struct Heads {
    of_unauthenticated: Arc<Pool>,
    of_users: Arc<Pool>,
}

impl Heads {
    /// Two budgets of that many bytes.
    pub(super) fn new(bytes: usize) -> Arc<Self> {
        let budget = || Pool::new(bytes.div_ceil(MAX_HEAD), FACTOR);
        Arc::new(Self { of_unauthenticated: budget(), of_users: budget() })
    }

    /// The share of a large head of a client; `None` if the budget does not suffice.
    fn take(&self, peer: &Peer) -> Option<Held> {
        let held = match peer.user() {
            Some(user) => self.of_users.try_take(user.name(), 1),
            None => self.of_unauthenticated.try_take(&source(peer.remote().ip()).to_string(), 1),
        };
        held.ok()
    }
}

/// The head that an HTTP/1.1 connection receives. Only the task of the connection changes it; it is atomic to be shared
/// with the service of that task.
#[derive(Debug)]
pub(super) struct Http1Head {
    heads: Arc<Heads>,
    received: AtomicUsize,
    /// Its share of the budget, once it is large. Usual heads do not take the lock.
    held: Mutex<Option<Held>>,
}

impl Http1Head {
    pub(super) fn new(heads: Arc<Heads>) -> Self {
        Self { heads, received: AtomicUsize::new(0), held: Mutex::default() }
    }

    /// Counts bytes; false if the budget does not suffice for the head that they belong to.
    pub(super) fn receive(&self, bytes: usize, peer: &Peer) -> bool {
        let before = self.received.load(Relaxed);
        let received = before.saturating_add(bytes);
        self.received.store(received, Relaxed);
        // A head that was large before has its share: without one the connection is closed.
        if received <= FREE || before > FREE {
            return true;
        }
        let held = self.heads.take(peer);
        let is_held = held.is_some();
        *self.held.lock() = held;
        is_held
    }

    /// The head is complete: the next one begins.
    pub(super) fn complete(&self) {
        let received = self.received.load(Relaxed);
        if received == 0 || received == UPGRADED {
            return;
        }
        self.received.store(0, Relaxed);
        if received > FREE {
            self.held.lock().take();
        }
    }

    /// No head follows: the connection is upgraded.
    pub(super) fn upgrade(&self) {
        self.complete();
        self.received.store(UPGRADED, Relaxed);
    }
}

/// The head that an HTTP/2 connection receives. It counts also while the responses to other requests are in flight.
#[derive(Debug)]
pub(super) struct Http2Head {
    heads: Arc<Heads>,
    frames: Frames,
    held: Option<Held>,
}

impl Http2Head {
    pub(super) fn new(heads: Arc<Heads>) -> Self {
        Self { heads, frames: Frames::new(), held: None }
    }

    /// Reads received bytes; false if the budget does not suffice for the head that they belong to.
    pub(super) fn receive(&mut self, bytes: &[u8], peer: &Peer) -> bool {
        if !self.frames.receive(bytes) {
            self.held = None;
            return true;
        }
        if self.held.is_none() {
            self.held = self.heads.take(peer);
        }
        self.held.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::user::User;

    fn peer(address: &str, user: Option<&str>) -> Peer {
        let peer = Peer::new((address.parse::<std::net::IpAddr>().unwrap(), 1).into(), None);
        if let Some(user) = user {
            peer.set_authenticated(&Arc::new(User::new(user, "", Vec::<String>::new())));
        }
        peer
    }

    /// How many large heads a client may begin.
    fn large_heads(heads: &Arc<Heads>, peer: &Peer) -> Vec<Http1Head> {
        let begin = || {
            let head = Http1Head::new(Arc::clone(heads));
            head.receive(FREE + 1, peer).then_some(head)
        };
        std::iter::from_fn(begin).collect()
    }

    #[test]
    fn small_heads_are_received_when_large_ones_have_used_up_the_budget() {
        let heads = Heads::new(MAX_HEAD);
        let peer = peer("10.0.0.1", None);
        let large = Http1Head::new(Arc::clone(&heads));
        assert!(large.receive(FREE, &peer) && large.receive(4, &peer) && large.receive(MAX_HEAD, &peer));
        let other = Http1Head::new(Arc::clone(&heads));
        assert!(other.receive(FREE, &peer));
        assert!(!other.receive(1, &peer), "the budget is used up");
        large.complete();
        other.complete();
        assert!(other.receive(FREE + 1, &peer));
        drop(other);
        assert_eq!(heads.of_unauthenticated.taken(), 0);
    }

    #[test]
    fn a_user_on_many_connections_has_one_share_and_so_has_a_source_without_credentials() {
        let heads = Heads::new(8 * MAX_HEAD);
        let tenant = large_heads(&heads, &peer("10.0.0.1", Some("tenant")));
        assert_eq!(tenant.len(), 6);
        let other = large_heads(&heads, &peer("10.0.0.1", Some("other")));
        assert!(!other.is_empty());
        let unauthenticated = large_heads(&heads, &peer("10.0.0.1", None));
        assert_eq!(unauthenticated.len(), 6);
        assert!(!large_heads(&heads, &peer("10.0.0.2", None)).is_empty());
    }

    #[test]
    fn bytes_after_an_upgrade_are_of_no_head() {
        let heads = Heads::new(MAX_HEAD);
        let peer = peer("10.0.0.1", Some("u"));
        let head = Http1Head::new(Arc::clone(&heads));
        assert!(head.receive(FREE + 1, &peer));
        head.upgrade();
        for _ in 0..3 {
            assert!(head.receive(FREE + 1, &peer));
        }
        assert_eq!(heads.of_users.taken(), 0);
    }

    #[test]
    fn a_head_of_several_http2_frames_counts_until_its_last_byte() {
        let heads = Heads::new(MAX_HEAD);
        let peer = peer("10.0.0.1", Some("u"));
        let mut head = Http2Head::new(Arc::clone(&heads));
        assert!(head.receive(&frames::tests::begin(), &peer));
        assert_eq!(heads.of_users.taken(), 1);
        let mut other = Http2Head::new(Arc::clone(&heads));
        assert!(!other.receive(&frames::tests::begin(), &peer), "the budget is used up");
        let end = frames::tests::end();
        assert!(head.receive(&end[..end.len() - 1], &peer));
        assert_eq!(heads.of_users.taken(), 1);
        assert!(head.receive(&end[end.len() - 1..], &peer));
        assert_eq!(heads.of_users.taken(), 0);
    }
}
