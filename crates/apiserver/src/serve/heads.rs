//! The memory of request heads that are not complete yet.
//!
//! A client needs no credentials to send half a head, so the bytes of all such heads share one budget. The first
//! [`FREE`] bytes of each head do not count: usual heads are smaller, and get through when other clients have used up the
//! budget.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

/// The bytes of a head that do not count: hyper's initial buffer, which every HTTP/1.1 connection has.
const FREE: usize = 8 << 10;

/// The bytes of heads that all connections may buffer besides.
#[derive(Debug)]
pub(super) struct Heads {
    free: AtomicUsize,
}

impl Heads {
    pub(super) fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Self { free: AtomicUsize::new(bytes) })
    }

    /// Takes bytes from the budget; false if it has less.
    fn take(&self, bytes: usize) -> bool {
        self.free.fetch_update(Relaxed, Relaxed, |free| free.checked_sub(bytes)).is_ok()
    }
}

/// The head that a connection receives. Only the task of the connection changes it; it is atomic to be shared with the
/// service of that task.
#[derive(Debug)]
pub(super) struct Head {
    heads: Arc<Heads>,
    received: AtomicUsize,
    /// How much of the budget it has.
    held: AtomicUsize,
}

impl Head {
    pub(super) fn new(heads: Arc<Heads>) -> Self {
        Self { heads, received: AtomicUsize::new(0), held: AtomicUsize::new(0) }
    }

    /// Counts bytes; false if the budget does not suffice for them.
    pub(super) fn receive(&self, bytes: usize) -> bool {
        let received = self.received.load(Relaxed).saturating_add(bytes);
        self.received.store(received, Relaxed);
        let held = self.held.load(Relaxed);
        let missing = received.saturating_sub(FREE).saturating_sub(held);
        if missing == 0 {
            return true;
        }
        let taken = self.heads.take(missing);
        if taken {
            self.held.store(held + missing, Relaxed);
        }
        taken
    }

    /// The head is complete: the next one begins.
    pub(super) fn complete(&self) {
        self.received.store(0, Relaxed);
        if self.held.load(Relaxed) > 0 {
            self.heads.free.fetch_add(self.held.swap(0, Relaxed), Relaxed);
        }
    }
}

impl Drop for Head {
    fn drop(&mut self) {
        self.complete();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_heads_are_received_when_large_ones_have_used_up_the_budget() {
        let heads = Heads::new(10);
        let large = Head::new(Arc::clone(&heads));
        assert!(large.receive(FREE) && large.receive(4) && large.receive(6));
        let other = Head::new(Arc::clone(&heads));
        assert!(other.receive(FREE));
        assert!(!other.receive(1), "the budget is used up");
        large.complete();
        assert!(other.receive(9), "the byte that failed counts as received");
        drop(other);
        assert_eq!(heads.free.load(Relaxed), 10);
    }
}
