//! The series of requests.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use http::StatusCode;
use parking_lot::Mutex;

use plumb_metrics::{Histogram, Unit};

const MS: u64 = 1_000_000;

/// Upstream's buckets of request durations.
const DURATIONS: &[u64] = &[
    5 * MS,
    25 * MS,
    50 * MS,
    100 * MS,
    200 * MS,
    400 * MS,
    600 * MS,
    800 * MS,
    1_000 * MS,
    1_250 * MS,
    1_500 * MS,
    2_000 * MS,
    3_000 * MS,
    4_000 * MS,
    5_000 * MS,
    6_000 * MS,
    8_000 * MS,
    10_000 * MS,
    15_000 * MS,
    20_000 * MS,
    30_000 * MS,
    45_000 * MS,
    60_000 * MS,
];

/// Upstream's buckets of response sizes and of watch events.
const SIZES: &[u64] = &[1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000];
const EVENT_SIZES: &[u64] = &[1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10];

/// Whether the histogram of the SLI durations has this bucket.
pub(super) fn is_sli_bound(bound: u64) -> bool {
    bound >= 50 * MS
}

/// The labels of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Labels<'a> {
    pub(crate) verb: Cow<'a, str>,
    pub(crate) dry_run: Cow<'a, str>,
    pub(crate) group: Cow<'a, str>,
    pub(crate) version: Cow<'a, str>,
    pub(crate) resource: Cow<'a, str>,
    pub(crate) subresource: Cow<'a, str>,
    pub(crate) scope: Cow<'a, str>,
    pub(crate) component: Cow<'a, str>,
}

impl<'a> Labels<'a> {
    pub(super) fn of_kind(group: &'a str, version: &'a str, resource: &'a str) -> Self {
        Self { group: group.into(), version: version.into(), resource: resource.into(), ..Self::default() }
    }

    pub(super) fn to_static(&self) -> Labels<'static> {
        let own = |text: &Cow<'_, str>| Cow::Owned(text.clone().into_owned());
        Labels {
            verb: own(&self.verb),
            dry_run: own(&self.dry_run),
            group: own(&self.group),
            version: own(&self.version),
            resource: own(&self.resource),
            subresource: own(&self.subresource),
            scope: own(&self.scope),
            component: own(&self.component),
        }
    }

    pub(super) fn kind(&self) -> [(&str, &str); 3] {
        [("group", &self.group), ("resource", &self.resource), ("version", &self.version)]
    }

    pub(super) fn without_dry_run(&self) -> [(&str, &str); 7] {
        [
            ("component", &self.component),
            ("group", &self.group),
            ("resource", &self.resource),
            ("scope", &self.scope),
            ("subresource", &self.subresource),
            ("verb", &self.verb),
            ("version", &self.version),
        ]
    }

    pub(super) fn with_dry_run(&self) -> [(&str, &str); 8] {
        let [component, rest @ ..] = self.without_dry_run();
        let [group, resource, scope, subresource, verb, version] = rest;
        [component, ("dry_run", &self.dry_run), group, resource, scope, subresource, verb, version]
    }
}

/// Series by their labels. Reads take no lock; adding a series, which is rare, replaces the map.
#[derive(Debug)]
pub(super) struct Table<K, S> {
    map: ArcSwap<HashMap<K, Arc<S>>>,
}

impl<K, S> Default for Table<K, S> {
    fn default() -> Self {
        Self { map: ArcSwap::from_pointee(HashMap::new()) }
    }
}

impl<S> Table<Labels<'static>, S> {
    pub(super) fn get<'a>(&self, labels: &Labels<'a>, make: impl Fn() -> S) -> Arc<S> {
        // A map of what lives for ever is also one of what lives for `'a`.
        let map = self.map.load();
        let known: &HashMap<Labels<'a>, Arc<S>> = &map;
        if let Some(series) = known.get(labels) {
            return Arc::clone(series);
        }
        let new = Arc::new(make());
        let key = labels.to_static();
        self.map.rcu(|map| {
            let mut map = HashMap::clone(map);
            map.entry(key.clone()).or_insert_with(|| Arc::clone(&new));
            map
        });
        self.map.load().get(&key).map_or(new, Arc::clone)
    }

    /// All series, ordered by their labels.
    pub(super) fn all(&self) -> Vec<Arc<S>> {
        let map = self.map.load();
        let mut all: Vec<(&Labels<'static>, &Arc<S>)> = map.iter().collect();
        all.sort_by_key(|(labels, _)| *labels);
        all.into_iter().map(|(_, series)| Arc::clone(series)).collect()
    }
}

/// The requests of one verb about one kind.
#[derive(Debug)]
pub(crate) struct Series {
    pub(super) labels: Labels<'static>,
    pub(super) codes: Codes,
    pub(super) duration: Histogram,
    pub(super) sizes: Histogram,
    pub(super) running: AtomicU64,
}

impl Series {
    pub(super) fn new(labels: Labels<'static>) -> Self {
        Self {
            labels,
            codes: Codes::default(),
            duration: Histogram::new(Unit::Time, DURATIONS),
            sizes: Histogram::new(Unit::Number, SIZES),
            running: AtomicU64::new(0),
        }
    }

    /// Whether the requests are long-running.
    pub(crate) fn is_long_running(&self) -> bool {
        matches!(&*self.labels.verb, "WATCH" | "CONNECT")
    }

    /// Counts a request with its response.
    pub(crate) fn count(&self, code: StatusCode, took: Duration, size: Option<usize>) {
        self.codes.count(code.as_u16());
        self.duration.observe_duration(took);
        if let Some(size) = size.filter(|_| matches!(&*self.labels.verb, "GET" | "LIST")) {
            self.sizes.observe(size as u64);
        }
    }

    /// Counts a long-running request until the returned value is dropped; then as a request with its response.
    pub(crate) fn run(self: Arc<Self>, code: StatusCode, began: Instant) -> Running {
        self.running.fetch_add(1, Relaxed);
        Running { series: self, code, began }
    }
}

/// A long-running request.
#[derive(Debug)]
pub(crate) struct Running {
    series: Arc<Series>,
    code: StatusCode,
    began: Instant,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.series.running.fetch_sub(1, Relaxed);
        self.series.count(self.code, self.began.elapsed(), None);
    }
}

/// The watch events of a kind.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(super) labels: Labels<'static>,
    pub(super) sizes: Histogram,
    pub(super) terminated: AtomicU64,
}

impl Watched {
    pub(super) fn new(labels: Labels<'static>) -> Self {
        Self { labels, sizes: Histogram::new(Unit::Number, EVENT_SIZES), terminated: AtomicU64::new(0) }
    }

    /// Counts a watch that was closed because the client was too slow.
    pub(crate) fn terminated(&self) {
        self.terminated.fetch_add(1, Relaxed);
    }

    /// Counts an event that is sent to a watcher.
    pub(crate) fn sent(&self, bytes: usize) {
        self.sizes.observe(bytes as u64);
    }
}

/// The codes that are counted without a lock: all that this server responds with.
const KNOWN: [u16; 20] =
    [200, 201, 404, 409, 422, 202, 204, 304, 400, 401, 403, 405, 406, 410, 413, 415, 429, 500, 503, 504];

/// The counts by status code.
#[derive(Debug, Default)]
pub(super) struct Codes {
    known: [AtomicU64; KNOWN.len()],
    /// A forwarded response may have any code.
    others: Mutex<BTreeMap<u16, u64>>,
}

impl Codes {
    fn count(&self, code: u16) {
        match KNOWN.iter().position(|known| *known == code) {
            Some(place) => {
                self.known[place].fetch_add(1, Relaxed);
            }
            None => *self.others.lock().entry(code).or_default() += 1,
        }
    }

    pub(super) fn counted(&self) -> Vec<(u16, u64)> {
        let known = KNOWN.into_iter().zip(self.known.iter().map(|count| count.load(Relaxed)));
        let others = self.others.lock();
        let mut all: Vec<(u16, u64)> =
            known.chain(others.iter().map(|(code, count)| (*code, *count))).collect();
        all.retain(|(_, count)| *count > 0);
        all
    }
}
