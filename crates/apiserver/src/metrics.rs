//! Metrics for Prometheus, under kube-apiserver's names.
//!
//! Counting must cost hardly anything at fifty thousand reads a second, so that no request takes a lock or formats a
//! label: a request looks up its series once, in a map that is only replaced as a whole, and adds to it with a few
//! relaxed operations. There are as many series as kinds, verbs and scopes in use; a request for an unknown path adds
//! none.

mod process;
mod request;
mod series;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use plumb_metrics::Text;
use plumb_store::{Prefix, Store};

pub(crate) use plumb_metrics::CONTENT_TYPE;
pub(crate) use series::{Labels, Running, Series, Watched};

use crate::in_flight::InFlight;
use crate::kinds::Kinds;
use crate::serve::ConnectionMetrics;
use series::Table;

/// For how long the counts of objects are cached: counting scans all keys. Upstream has the same interval.
const COUNT_EVERY: Duration = Duration::from_mins(1);

/// The metrics of a server.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    requests: Table<Labels<'static>, Series>,
    watched: Table<Labels<'static>, Watched>,
    connections: Arc<ConnectionMetrics>,
    counts: Mutex<Option<Counts>>,
    others: Mutex<Vec<Figures>>,
}

/// The metrics of another component in this process.
struct Figures(Box<dyn Fn(&mut Text) + Send>);

impl std::fmt::Debug for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Figures").finish_non_exhaustive()
    }
}

/// The counts of objects of each kind at some time.
#[derive(Debug)]
struct Counts {
    at: Instant,
    of: Vec<(String, String, usize)>,
}

/// What is measured besides requests.
pub(crate) struct Present<'a> {
    pub(crate) store: &'a Store,
    pub(crate) kinds: &'a Kinds,
    pub(crate) in_flight: &'a InFlight,
}

impl Metrics {
    /// The series of a request.
    pub(crate) fn series(&self, labels: &Labels<'_>) -> Arc<Series> {
        self.requests.get(labels, || Series::new(labels.to_static()))
    }

    /// The series of watch events of a kind.
    pub(crate) fn watched(&self, group: &str, version: &str, resource: &str) -> Arc<Watched> {
        let labels = Labels::of_kind(group, version, resource);
        self.watched.get(&labels, || Watched::new(labels.to_static()))
    }

    /// The metrics of connections.
    pub(crate) fn connections(&self) -> Arc<ConnectionMetrics> {
        Arc::clone(&self.connections)
    }

    /// All metrics in Prometheus' text format.
    pub(crate) fn render(&self, present: &Present<'_>) -> String {
        let mut text = Text::default();
        self.requests(&mut text);
        self.watches(&mut text);
        present.in_flight.render(&mut text);
        connections(&mut text, &self.connections);
        self.objects(&mut text, present);
        store(&mut text, present.store);
        build(&mut text);
        process::render(&mut text);
        for Figures(others) in &*self.others.lock() {
            others(&mut text);
        }
        text.finish()
    }

    /// Adds the metrics of another component in this process.
    pub(crate) fn also_show(&self, figures: impl Fn(&mut Text) + Send + 'static) {
        self.others.lock().push(Figures(Box::new(figures)));
    }

    fn requests(&self, text: &mut Text) {
        let all = self.requests.all();
        let name = "apiserver_request_total";
        text.counter(name, "requests by verb, kind, scope and status code");
        for series in &all {
            for (code, count) in series.codes.counted() {
                let code = code.to_string();
                let mut labels = series.labels.with_dry_run().to_vec();
                labels.push(("code", &code));
                text.sample(name, &labels, count);
            }
        }
        let name = "apiserver_request_duration_seconds";
        text.histogram(name, "seconds that requests took, watches and other streams until their end");
        for series in &all {
            series.duration.render(text, name, &series.labels.with_dry_run(), |_| true);
        }
        let name = "apiserver_request_sli_duration_seconds";
        text.histogram(name, "seconds that requests took which change or read objects");
        for series in all.iter().filter(|series| series.labels.dry_run.is_empty()) {
            series.duration.render(text, name, &series.labels.without_dry_run(), series::is_sli_bound);
        }
        let name = "apiserver_response_sizes";
        text.histogram(name, "bytes that reads were answered with");
        for series in all.iter().filter(|series| series.sizes.count() > 0) {
            series.sizes.render(text, name, &series.labels.without_dry_run(), |_| true);
        }
        let name = "apiserver_longrunning_requests";
        text.gauge(name, "streams under way");
        for series in all.iter().filter(|series| series.is_long_running()) {
            text.sample(name, &series.labels.without_dry_run(), series.running.load(Relaxed));
        }
    }

    fn watches(&self, text: &mut Text) {
        let all = self.watched.all();
        let name = "apiserver_watch_events_total";
        text.counter(name, "events that watchers were sent");
        for watched in &all {
            text.sample(name, &watched.labels.kind(), watched.sizes.count());
        }
        let name = "apiserver_terminated_watchers_total";
        text.counter(name, "watches that were closed because the client read too slowly");
        for watched in &all {
            text.sample(name, &watched.labels.kind(), watched.terminated.load(Relaxed));
        }
        let name = "apiserver_watch_events_sizes";
        text.histogram(name, "bytes of the events that watchers were sent");
        for watched in &all {
            watched.sizes.render(text, name, &watched.labels.kind(), |_| true);
        }
    }

    fn objects(&self, text: &mut Text, present: &Present<'_>) {
        let mut counts = self.counts.lock();
        let counts = match counts.take().filter(|counts| counts.at.elapsed() < COUNT_EVERY) {
            Some(fresh) => counts.insert(fresh),
            None => counts.insert(Counts { at: Instant::now(), of: count(present) }),
        };
        let name = "apiserver_resource_objects";
        text.gauge(name, "objects of each kind, counted at most once a minute");
        for (group, resource, count) in &counts.of {
            text.sample(name, &[("group", group), ("resource", resource)], *count);
        }
        let name = "apiserver_storage_objects";
        text.gauge(name, "objects of each kind, under the name from before Kubernetes 1.34");
        for (group, resource, count) in &counts.of {
            let qualified = if group.is_empty() { resource.clone() } else { format!("{resource}.{group}") };
            text.sample(name, &[("resource", &qualified)], *count);
        }
    }
}

fn count(present: &Present<'_>) -> Vec<(String, String, usize)> {
    let snapshot = present.store.snapshot();
    let mut counts: Vec<(String, String, usize)> = Vec::new();
    for row in present.kinds.iter().filter(|row| row.stored_as.is_none() && row.resource.allows("watch")) {
        let known =
            |(group, plural, _): &(String, String, usize)| group == row.group() && plural == row.plural();
        if counts.iter().any(known) {
            continue;
        }
        let number = row.prefix(None).map_or(0, |prefix: Prefix| snapshot.count(&prefix));
        counts.push((row.group().to_owned(), row.plural().to_owned(), number));
    }
    counts
}

fn connections(text: &mut Text, metrics: &ConnectionMetrics) {
    let name = "plumb_apiserver_open_connections";
    text.gauge(name, "connections that are open, those in the TLS handshake included");
    text.sample(name, &[], metrics.open.load(Relaxed));
    for (name, help, value) in [
        ("apiserver_tls_handshake_errors_total", "TLS handshakes that failed", &metrics.failed_handshakes),
        (
            "plumb_apiserver_rejected_connections_total",
            "connections that were refused because too many were open",
            &metrics.rejected,
        ),
        (
            "plumb_apiserver_evicted_connections_total",
            "unused connections that were closed for new ones, because too many were open",
            &metrics.evicted,
        ),
        (
            "plumb_apiserver_stalled_connections_total",
            "connections that were closed because the client did not read a response",
            &metrics.stalled,
        ),
        (
            "plumb_apiserver_accept_errors_total",
            "times that no connection could be accepted, such as for want of file descriptors",
            &metrics.accept_errors,
        ),
    ] {
        text.counter(name, help);
        text.sample(name, &[], value.load(Relaxed));
    }
}

fn store(text: &mut Text, store: &Store) {
    let stats = store.stats();
    for (name, help, value) in [
        ("plumb_store_revision", "the revision of the last write", stats.revision),
        ("plumb_store_oldest_revision", "the oldest revision that can be watched from", stats.oldest),
        ("plumb_store_objects", "objects of all kinds", stats.objects as u64),
        ("plumb_store_history_events", "events that are remembered", stats.history_events as u64),
        ("plumb_store_history_bytes", "what the remembered events cost", stats.history_bytes as u64),
        ("plumb_store_watches", "watches under way", stats.watches as u64),
        ("plumb_store_journal_bytes", "bytes that a start would replay", stats.journal_bytes),
        ("plumb_store_bytes", "bytes of all objects, as the quota counts them", stats.usage.bytes),
        ("plumb_store_quota_bytes", "the most bytes of all objects", stats.usage.quota.bytes),
        (
            "plumb_store_namespace_quota_bytes",
            "the most bytes of the objects of one namespace",
            stats.usage.quota.namespace_bytes,
        ),
        (
            "plumb_store_quota_alarm",
            "1 if the store is so full that writes are rejected, as etcd's alarm NOSPACE",
            u64::from(stats.usage.alarm()),
        ),
    ] {
        text.gauge(name, help);
        text.sample(name, &[], value);
    }
    text.counter("plumb_store_batches_total", "batches of writes that were made durable with one sync each");
    text.sample("plumb_store_batches_total", &[], stats.batches);
    let rejected = "plumb_store_quota_rejections_total";
    text.counter(rejected, "writes that were rejected because the store or a namespace was full");
    text.sample(rejected, &[], stats.quota_rejections);
}

fn build(text: &mut Text) {
    let platform = format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH);
    text.gauge("kubernetes_build_info", "which version this is");
    let labels = [
        ("build_date", ""),
        ("compiler", "rustc"),
        ("git_commit", ""),
        ("git_tree_state", "clean"),
        ("git_version", crate::version::VERSION),
        ("go_version", ""),
        ("major", "1"),
        ("minor", "36"),
        ("platform", &platform),
    ];
    text.sample("kubernetes_build_info", &labels, 1);
}
