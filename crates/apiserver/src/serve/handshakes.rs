//! The permits for TLS handshakes, which source addresses share.
//!
//! Any client that reaches the port can open connections and send nothing. Each holds a permit until its handshake times out, so
//! without shares one address would take all of them, and all places in the kernel's queue of connections too.
//!
//! The server accepts connections at once, and queues those without a permit by their source. A permit that is released goes
//! to the source that holds the fewest, but no source holds more than three times the free permits: the first connection of
//! another address finds one. Where too many are queued, the newest of the source with the most queued connections is
//! closed.

use std::{
    collections::{HashMap, VecDeque},
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::source::source;

/// How many times the free permits one source may hold.
const FACTOR: usize = 3;

/// The permits for handshakes.
#[derive(Debug)]
pub(super) struct Handshakes {
    all: usize,
    queue: Mutex<Queue<oneshot::Sender<HandshakePermit>>>,
}

impl Handshakes {
    /// So many permits, for which as many connections more may be queued.
    pub(super) fn new(all: usize) -> Arc<Self> {
        Arc::new(Self { all, queue: Mutex::new(Queue::new(all, all)) })
    }

    /// Whether more than half of the permits are in use.
    pub(super) fn is_pressed(&self) -> bool {
        self.queue.lock().free < self.all / 2
    }

    /// Queues a connection for a permit.
    pub(super) fn enter(self: &Arc<Self>, remote: SocketAddr) -> Queued {
        let source = source(remote.ip());
        let (sender, receiver) = oneshot::channel();
        let (entered, closed) = self.queue.lock().enter(source, sender);
        // Its receiver learns that no permit comes.
        drop(closed);
        self.grant(entered.granted);
        Queued { handshakes: Arc::clone(self), source, id: entered.id, receiver }
    }

    /// Sends permits. This is done without the lock: one that no connection waits for any more is released by its drop.
    fn grant(self: &Arc<Self>, granted: Vec<(IpAddr, oneshot::Sender<HandshakePermit>)>) {
        for (source, sender) in granted {
            drop(sender.send(HandshakePermit { handshakes: Arc::clone(self), source }));
        }
    }
}

/// A connection that waits for its permit.
#[derive(Debug)]
pub(super) struct Queued {
    handshakes: Arc<Handshakes>,
    source: IpAddr,
    id: u64,
    receiver: oneshot::Receiver<HandshakePermit>,
}

impl Queued {
    /// Waits for the permit; `None` if too many connections are queued.
    pub(super) async fn permit(mut self) -> Option<HandshakePermit> {
        (&mut self.receiver).await.ok()
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        self.handshakes.queue.lock().leave(self.source, self.id);
    }
}

/// A permit for a handshake.
#[derive(Debug)]
pub(super) struct HandshakePermit {
    handshakes: Arc<Handshakes>,
    source: IpAddr,
}

impl Drop for HandshakePermit {
    fn drop(&mut self) {
        let granted = self.handshakes.queue.lock().release(self.source);
        self.handshakes.grant(granted);
    }
}

/// Who has a permit, and who waits for one.
#[derive(Debug)]
struct Queue<W> {
    free: usize,
    queued: usize,
    most_queued: usize,
    next: u64,
    sources: HashMap<IpAddr, Source<W>>,
}

#[derive(Debug)]
struct Source<W> {
    held: usize,
    queued: VecDeque<(u64, W)>,
}

/// The effects of a new connection.
struct Entered<W> {
    id: u64,
    granted: Vec<(IpAddr, W)>,
}

impl<W> Queue<W> {
    fn new(free: usize, most_queued: usize) -> Self {
        Self { free, queued: 0, most_queued, next: 0, sources: HashMap::new() }
    }

    /// Queues a connection. Returns those that get permits, and one that is to be closed.
    fn enter(&mut self, source: IpAddr, waiter: W) -> (Entered<W>, Option<W>) {
        let id = self.next;
        self.next += 1;
        let entry = self.sources.entry(source).or_insert_with(|| Source { held: 0, queued: VecDeque::new() });
        entry.queued.push_back((id, waiter));
        self.queued += 1;
        let granted = self.grant();
        (Entered { id, granted }, self.shorten())
    }

    /// Removes a connection from the queue, if it is still there.
    fn leave(&mut self, source: IpAddr, id: u64) {
        let Some(entry) = self.sources.get_mut(&source) else { return };
        // Ids ascend.
        if let Ok(at) = entry.queued.binary_search_by_key(&id, |(queued, _)| *queued) {
            entry.queued.remove(at);
            self.queued -= 1;
        }
        self.forget(source);
    }

    /// Takes the permit of a connection back. Returns those that get permits.
    fn release(&mut self, source: IpAddr) -> Vec<(IpAddr, W)> {
        self.free += 1;
        if let Some(entry) = self.sources.get_mut(&source) {
            entry.held = entry.held.saturating_sub(1);
        }
        self.forget(source);
        self.grant()
    }

    fn forget(&mut self, source: IpAddr) {
        if self.sources.get(&source).is_some_and(|entry| entry.held == 0 && entry.queued.is_empty()) {
            self.sources.remove(&source);
        }
    }

    fn grant(&mut self) -> Vec<(IpAddr, W)> {
        let mut granted = Vec::new();
        while self.free > 0 && self.queued > 0 {
            let waiting = self.sources.iter_mut().filter(|(_, source)| !source.queued.is_empty());
            let Some((address, source)) = waiting.min_by_key(|(_, source)| source.held) else { break };
            if source.held >= self.free.saturating_mul(FACTOR) {
                break;
            }
            let Some((_, waiter)) = source.queued.pop_front() else { break };
            source.held += 1;
            self.free -= 1;
            self.queued -= 1;
            granted.push((*address, waiter));
        }
        granted
    }

    /// Removes the newest connection of the source with the most, if too many are queued.
    fn shorten(&mut self) -> Option<W> {
        if self.queued <= self.most_queued {
            return None;
        }
        let longest = self.sources.values_mut().max_by_key(|source| source.queued.len())?;
        let (_, waiter) = longest.queued.pop_back()?;
        self.queued -= 1;
        // A source that has a permit, or another queued connection, is still needed; the address of any other is the new one's,
        // and is forgotten when that leaves.
        Some(waiter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    /// Lets so many connections of a source enter. Returns how many connections get permits, and how many are closed.
    fn enter(queue: &mut Queue<u8>, source: u8, many: usize) -> (usize, usize) {
        let (mut granted, mut closed) = (0, 0);
        for _ in 0..many {
            let (entered, one) = queue.enter(address(source), source);
            granted += entered.granted.len();
            closed += usize::from(one.is_some());
        }
        (granted, closed)
    }

    #[test]
    fn an_address_that_sends_nothing_leaves_permits_for_others() {
        let mut queue = Queue::new(8, 8);
        assert_eq!(enter(&mut queue, 1, 100), (6, 86));
        assert_eq!(enter(&mut queue, 2, 1), (1, 0), "at once");
        assert_eq!(enter(&mut queue, 3, 1), (1, 0));
    }

    #[test]
    fn a_released_permit_is_of_the_source_that_holds_the_fewest() {
        let mut queue = Queue::new(4, 8);
        assert_eq!(enter(&mut queue, 1, 8), (3, 0));
        assert_eq!(enter(&mut queue, 2, 2), (1, 0));
        assert_eq!(queue.release(address(1)), [(address(2), 2)]);
        // The first one holds two, which is less than three times what is free.
        assert_eq!(queue.release(address(2)), [(address(1), 1)]);
        assert_eq!(queue.release(address(1)), [(address(1), 1)]);
    }

    #[test]
    fn the_queue_closes_connections_of_the_source_that_has_the_most() {
        let mut queue = Queue::new(1, 4);
        assert_eq!(enter(&mut queue, 1, 5), (1, 0));
        for other in 2..4 {
            let (entered, closed) = queue.enter(address(other), other);
            assert_eq!((entered.granted, closed), (Vec::new(), Some(1)));
        }
        assert_eq!(queue.release(address(1)).len(), 1);
    }

    #[test]
    fn a_connection_that_leaves_is_forgotten_with_its_source() {
        let mut queue = Queue::new(1, 4);
        let (_, _) = queue.enter(address(1), 1);
        let (waiting, _) = queue.enter(address(2), 2);
        queue.leave(address(2), waiting.id);
        assert_eq!(queue.sources.len(), 1);
        assert!(queue.release(address(1)).is_empty());
        assert_eq!((queue.free, queue.queued, queue.sources.len()), (1, 0, 0));
    }

    #[tokio::test]
    async fn a_permit_that_no_connection_waits_for_any_more_goes_to_the_next_connection() {
        let handshakes = Handshakes::new(2);
        let remote = |last| SocketAddr::new(address(last), 1);
        let first = handshakes.enter(remote(1)).permit().await.unwrap();
        let second = handshakes.enter(remote(2)).permit().await.unwrap();
        let (gone, waiting) = (handshakes.enter(remote(3)), handshakes.enter(remote(4)));
        drop(first);
        assert!(handshakes.is_pressed());
        drop(gone);
        let third = waiting.permit().await.unwrap();
        drop((second, third));
        assert!(!handshakes.is_pressed());
    }
}
