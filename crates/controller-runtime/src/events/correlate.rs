//! Which events are written, and as what: as client-go's `EventCorrelator` decides.

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::Emitted;
use super::recent::Recent;

/// How much is remembered of each kind.
const REMEMBERED: usize = 4096;
/// After this many similar events, further ones share one object.
const SIMILAR: usize = 10;
/// Events are similar only if no more time than this is between them.
const SIMILAR_FOR: Duration = Duration::from_mins(10);
/// The prefix of the message of a shared event.
const COMBINED: &str = "(combined from similar events): ";
/// How many events an object may cause at once, and how long it takes until it may cause one more.
const BURST: f64 = 25.0;
const REFILL: Duration = Duration::from_mins(5);
/// How long the name of an object may be.
const LONGEST_NAME: usize = 253;

/// The hash of the fields by which events are equal: the fields would be as long as the events, and there are many.
type Key = u64;

/// The events that were emitted before.
pub struct Correlator {
    hash: RandomState,
    /// Events by what makes them equal.
    observed: Recent<Key, Observation>,
    /// Messages of similar events, by what makes events similar.
    similar: Recent<Key, Similar>,
    /// The rate limits of objects.
    buckets: Recent<Key, Bucket>,
    /// Objects whose namespace terminates, by uid.
    terminating: Recent<Key, ()>,
    /// The last number that was part of a name.
    last: i64,
}

#[derive(Debug)]
struct Observation {
    /// The suffix of its name.
    number: i64,
    first: Timestamp,
    count: i32,
}

#[derive(Debug)]
struct Similar {
    /// The first message; most events have no other.
    message: Key,
    others: Vec<Key>,
    last: Instant,
}

#[derive(Debug)]
struct Bucket {
    tokens: f64,
    since: Instant,
}

/// An event as it is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// The name of the event's object.
    pub name: String,
    /// How often it happened.
    pub count: i32,
    /// When it happened first.
    pub first: Timestamp,
    /// Its message.
    pub message: String,
}

/// The decision about an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Write a new object.
    Create(Observed),
    /// Write the count, the time and the message of an object that exists.
    Patch(Observed),
    /// Write nothing: its object causes too many events, or its namespace is terminating.
    Filter,
}

impl Default for Correlator {
    fn default() -> Self {
        Self {
            hash: RandomState::new(),
            observed: Recent::new(REMEMBERED),
            similar: Recent::new(REMEMBERED),
            buckets: Recent::new(REMEMBERED),
            terminating: Recent::new(REMEMBERED),
            last: 0,
        }
    }
}

impl fmt::Debug for Correlator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Correlator").finish_non_exhaustive()
    }
}

impl Correlator {
    /// Decides about an event, from those that were emitted before. All events of one correlator are of one source.
    /// `now` is monotonic, so that a jump of the wall clock neither mutes a component nor lets it flood the API
    /// server.
    pub fn correlate(&mut self, emitted: &Emitted, now: Instant) -> Action {
        let Emitted { regarding, event, .. } = emitted;
        if regarding.uid.as_deref().is_some_and(|uid| self.terminating.contains(self.hash.hash_one(uid))) {
            return Action::Filter;
        }
        let object =
            (&regarding.api_version, &regarding.kind, &regarding.namespace, &regarding.name, &regarding.uid);
        let related = event.related.as_ref().map(|related| &related.uid);
        let kind = (&object, event.type_, &event.reason, &event.action, &related);
        let is_combined = self.is_combined(self.hash.hash_one(("similar", &kind)), &event.message, now);
        let (key, message) = if is_combined {
            (self.hash.hash_one(("combined", &kind)), format!("{COMBINED}{}", event.message))
        } else {
            let key = self.hash.hash_one(("one", &kind, &regarding.field_path, &event.message));
            (key, event.message.clone())
        };
        // An event that is filtered counts, too: the next one that is written has the right count.
        let observed = self.observe(key, emitted, message);
        if !self.takes_token(self.hash.hash_one(object), now) {
            return Action::Filter;
        }
        if observed.count == 1 { Action::Create(observed) } else { Action::Patch(observed) }
    }

    /// Notes that the API refused an event because the namespace of its object terminates: no other event about the object will
    /// be accepted. An object of the same name in a later namespace of the same name has another uid.
    pub fn namespace_terminates(&mut self, uid: &str) {
        self.terminating.get_or_insert_with(self.hash.hash_one(uid), || ());
    }

    /// Whether an event shares one with those that are similar.
    fn is_combined(&mut self, key: Key, message: &str, now: Instant) -> bool {
        let message = self.hash.hash_one(message);
        let new = || Similar { message, others: Vec::new(), last: now };
        let similar = self.similar.get_or_insert_with(key, new);
        if now.saturating_duration_since(similar.last) > SIMILAR_FOR {
            *similar = new();
        }
        similar.last = now;
        if message == similar.message || similar.others.contains(&message) {
            return false;
        }
        // With the first one and this one.
        if similar.others.len() + 2 >= SIMILAR {
            return true;
        }
        similar.others.push(message);
        false
    }

    /// Counts an event that is equal to all others with the key.
    fn observe(&mut self, key: Key, emitted: &Emitted, message: String) -> Observed {
        let (last, at) = (&mut self.last, emitted.at);
        let observation = self.observed.get_or_insert_with(key, || {
            // Several events may have the same time.
            let nanosecond = i64::try_from(at.as_nanosecond()).unwrap_or_default();
            *last = nanosecond.max(last.saturating_add(1));
            Observation { number: *last, first: at, count: 0 }
        });
        observation.count = observation.count.saturating_add(1);
        let Observation { number, first, count } = *observation;
        Observed { name: name(emitted, number), count, first, message }
    }

    /// Whether an object may cause one more event.
    fn takes_token(&mut self, object: Key, now: Instant) -> bool {
        let new = || Bucket { tokens: BURST, since: now };
        let bucket = self.buckets.get_or_insert_with(object, new);
        let passed = now.saturating_duration_since(bucket.since).as_secs_f64();
        bucket.tokens = (bucket.tokens + passed / REFILL.as_secs_f64()).min(BURST);
        bucket.since = now;
        if bucket.tokens < 1.0 {
            return false;
        }
        bucket.tokens -= 1.0;
        true
    }
}

/// A name for the object of an event: that of the object that it is about, with a number.
fn name(emitted: &Emitted, number: i64) -> String {
    let regarding = &emitted.regarding;
    let name = format!("{}.{number:x}", regarding.name.as_deref().unwrap_or_default());
    if name.len() <= LONGEST_NAME {
        return name;
    }
    format!("{}.{number:x}", regarding.uid.as_deref().unwrap_or("event"))
}
