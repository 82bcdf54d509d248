//! The connections that are closed first when too many are open.
//!
//! A client without credentials can open connections and send nothing, so the limit of connections must not keep out clients
//! that have credentials. When no permit is free the server closes, in this order:
//!
//! 1. connections of clients that are not authenticated, without a request in flight,
//! 2. connections of clients that are not authenticated,
//! 3. connections of authenticated clients without a request in flight: clients expect that idle connections are closed.
//!
//! Of several, those of the source address with the most connections of the same kind, and of these the ones that are idle for longest. So a
//! client that connects and sends a request at once is authenticated before its turn to be closed comes. Addresses alone do
//! not suffice: the pods of a node share the address of its proxy.

use std::{cmp::Reverse, collections::HashMap, net::IpAddr, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::{activity::Activity, source::source};
use crate::authn::Peer;

/// The connections that may be closed.
#[derive(Debug)]
pub(super) struct Candidates(Arc<Mutex<Entries>>);

#[derive(Debug, Default)]
struct Entries {
    next: u64,
    all: HashMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    peer: Peer,
    activity: Activity,
    close: oneshot::Sender<()>,
}

/// A connection that may be closed, until it is dropped.
#[derive(Debug)]
pub(super) struct Candidate {
    entries: Arc<Mutex<Entries>>,
    id: u64,
    peer: Peer,
    closed: oneshot::Receiver<()>,
}

impl Candidate {
    /// Returns when the connection is to be closed, and whether its client is authenticated.
    pub(super) async fn evicted(&mut self) -> bool {
        // Without a sender the entry was removed, which only an eviction does before this is dropped.
        drop((&mut self.closed).await);
        self.peer.is_authenticated()
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        self.entries.lock().all.remove(&self.id);
    }
}

/// When a connection is closed; the least is closed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    authenticated: bool,
    in_use: bool,
    of_address: Reverse<usize>,
    idle_since: u64,
}

impl Candidates {
    pub(super) fn new() -> Self {
        Self(Arc::default())
    }

    pub(super) fn add(&self, peer: Peer, activity: Activity) -> Candidate {
        let (close, closed) = oneshot::channel();
        let mut entries = self.0.lock();
        let id = entries.next;
        entries.next += 1;
        entries.all.insert(id, Entry { peer: peer.clone(), activity, close });
        Candidate { entries: Arc::clone(&self.0), id, peer, closed }
    }

    /// Closes up to `most` connections of clients that are not authenticated, or one if all are, and returns how many.
    pub(super) fn evict(&self, most: usize) -> u64 {
        let mut entries = self.0.lock();
        // Those of authenticated clients count apart: many of them at an address, such as that of a proxy, must not make it the
        // first to lose connections of clients that have not sent a request yet.
        let mut of_address: HashMap<(IpAddr, bool), usize> = HashMap::new();
        let class = |entry: &Entry| (source(entry.peer.remote().ip()), entry.peer.is_authenticated());
        for entry in entries.all.values() {
            *of_address.entry(class(entry)).or_default() += 1;
        }
        let ranked = entries.all.iter().map(|(id, entry)| {
            let class = class(entry);
            let rank = Rank {
                authenticated: class.1,
                in_use: !entry.activity.is_idle(),
                of_address: Reverse(of_address.get(&class).copied().unwrap_or(0)),
                idle_since: entry.activity.idle_since(),
            };
            (rank, *id)
        });
        let closable = |(rank, _): &(Rank, u64)| !(rank.authenticated && rank.in_use);
        let mut ranked: Vec<(Rank, u64)> = ranked.filter(closable).collect();
        if ranked.len() > most {
            ranked.select_nth_unstable(most);
            ranked.truncate(most);
        }
        ranked.sort_unstable();
        let unauthenticated = ranked.iter().take_while(|(rank, _)| !rank.authenticated).count();
        ranked.truncate(unauthenticated.max(1));
        let mut evicted = 0;
        for (_, id) in ranked {
            if let Some(entry) = entries.all.remove(&id) {
                // An error means that the connection has just ended.
                evicted += u64::from(entry.close.send(()).is_ok());
            }
        }
        evicted
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::*;
    use crate::serve::heads::Heads;

    struct Fixture {
        candidates: Candidates,
        admissions: Arc<AtomicU64>,
    }

    impl Fixture {
        fn new() -> Self {
            Self { candidates: Candidates::new(), admissions: Arc::default() }
        }

        /// A connection from an address, and its activity.
        fn open(&self, address: &str, authenticated: bool) -> (Candidate, Activity) {
            let peer = Peer::new((address.parse::<IpAddr>().unwrap(), 1).into(), None);
            if authenticated {
                peer.set_authenticated(&Arc::new(crate::user::User::anonymous()));
            }
            self.admissions.fetch_add(1, Relaxed);
            let activity = Activity::new(Heads::new(0), Arc::clone(&self.admissions));
            (self.candidates.add(peer, activity.clone()), activity)
        }
    }

    fn is_evicted((candidate, _): &mut (Candidate, Activity)) -> bool {
        candidate.closed.try_recv().is_ok()
    }

    #[test]
    fn unauthenticated_connections_are_closed_before_authenticated_ones_and_those_in_use_last() {
        let fixture = Fixture::new();
        let mut token = fixture.open("10.0.0.1", true);
        let mut used_token = fixture.open("10.0.0.1", true);
        let _request = used_token.1.begin();
        let mut used = fixture.open("10.0.0.1", false);
        let _other = used.1.begin();
        let mut idle = fixture.open("10.0.0.1", false);
        for expected in [[true, false, false], [false, true, false], [false, false, true]] {
            assert_eq!(fixture.candidates.evict(1), 1);
            assert_eq!([&mut idle, &mut used, &mut token].map(is_evicted), expected);
        }
        assert_eq!(fixture.candidates.evict(1), 0, "a request is in flight");
        assert!(!is_evicted(&mut used_token));
    }

    #[test]
    fn the_address_with_the_most_connections_loses_those_that_are_idle_for_longest() {
        let fixture = Fixture::new();
        let mut alone = fixture.open("10.0.0.2", false);
        let mut many: Vec<_> = (0..4).map(|_| fixture.open("10.0.0.1", false)).collect();
        // The first one has had a request since.
        fixture.admissions.fetch_add(1, Relaxed);
        drop(many[0].1.begin());
        assert_eq!(fixture.candidates.evict(2), 2);
        assert_eq!(many.iter_mut().map(is_evicted).collect::<Vec<_>>(), [false, true, true, false]);
        assert!(!is_evicted(&mut alone));
        drop(many);
        assert_eq!(fixture.candidates.evict(8), 1, "closed connections do not count");
        assert!(is_evicted(&mut alone));
    }

    #[test]
    fn authenticated_clients_lose_no_more_connections_than_others_need() {
        let fixture = Fixture::new();
        let mut known = [fixture.open("10.0.0.1", true), fixture.open("10.0.0.1", true)];
        let mut unknown = fixture.open("10.0.0.1", false);
        assert_eq!(fixture.candidates.evict(8), 1);
        assert!(is_evicted(&mut unknown));
        assert_eq!(fixture.candidates.evict(8), 1);
        assert_eq!(known.each_mut().map(is_evicted), [true, false]);
    }

    #[test]
    fn an_address_with_many_authenticated_connections_is_not_the_first_to_lose_others() {
        let fixture = Fixture::new();
        let mut proxied = fixture.open("10.0.0.1", false);
        let _authenticated: Vec<_> = (0..4).map(|_| fixture.open("10.0.0.1", true)).collect();
        let mut flood: Vec<_> = (0..2).map(|_| fixture.open("10.0.0.2", false)).collect();
        assert_eq!(fixture.candidates.evict(1), 1);
        assert!(!is_evicted(&mut proxied));
        assert!(flood.iter_mut().any(is_evicted));
    }
}
