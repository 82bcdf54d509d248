//! The metrics of the proxy, under kube-proxy's names.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use jiff::Timestamp;
use plumb_metrics::{Histogram, Text, Unit};

/// Bounds of how long the rules take, in nanoseconds: kube-proxy's begin with a millisecond.
const SYNC: &[u64] = &[
    125_000,
    250_000,
    500_000,
    1_000_000,
    2_000_000,
    4_000_000,
    8_000_000,
    16_000_000,
    32_000_000,
    64_000_000,
    128_000_000,
    256_000_000,
    512_000_000,
    1_024_000_000,
    4_096_000_000,
    16_384_000_000,
];
/// Bounds of how long a change of a pod takes to reach the kernel, in nanoseconds: kube-proxy's begin with 250 milliseconds.
const PROGRAMMING: &[u64] = &[
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_000_000_000,
    5_000_000_000,
    10_000_000_000,
    30_000_000_000,
    60_000_000_000,
    300_000_000_000,
];
const FAMILY: (&str, &str) = ("ip_family", "IPv4");

/// The metrics of a proxy.
pub(crate) struct Metrics {
    whole: Histogram,
    partial: Histogram,
    programming: Histogram,
    failures: AtomicU64,
    deleted_connections: AtomicU64,
    services: AtomicU64,
    addresses: AtomicU64,
    last: AtomicU64,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            whole: Histogram::new(Unit::Time, SYNC),
            partial: Histogram::new(Unit::Time, SYNC),
            programming: Histogram::new(Unit::Time, PROGRAMMING),
            failures: AtomicU64::default(),
            deleted_connections: AtomicU64::default(),
            services: AtomicU64::default(),
            addresses: AtomicU64::default(),
            last: AtomicU64::default(),
        }
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// The rules were applied.
    pub(crate) fn applied(
        &self,
        whole: bool,
        took: Duration,
        now: Timestamp,
        (services, addresses): (usize, usize),
    ) {
        if whole { &self.whole } else { &self.partial }.observe_duration(took);
        self.last.store(u64::try_from(now.as_second()).unwrap_or_default(), Relaxed);
        self.services.store(u64::try_from(services).unwrap_or(u64::MAX), Relaxed);
        self.addresses.store(u64::try_from(addresses).unwrap_or(u64::MAX), Relaxed);
    }

    /// A change of a pod has reached the kernel after this time.
    pub(crate) fn programmed(&self, took: Duration) {
        self.programming.observe_duration(took);
    }

    /// The kernel refused the rules.
    pub(crate) fn failed(&self) {
        self.failures.fetch_add(1, Relaxed);
    }

    /// Stale connections were deleted.
    pub(crate) fn deleted_connections(&self, count: usize) {
        self.deleted_connections.fetch_add(u64::try_from(count).unwrap_or_default(), Relaxed);
    }

    /// Writes all of them.
    pub(crate) fn render(&self, text: &mut Text) {
        let histograms = [
            (
                "kubeproxy_sync_full_proxy_rules_duration_seconds",
                "how long it took to replace the rules of all Services",
                &self.whole,
            ),
            (
                "kubeproxy_sync_partial_proxy_rules_duration_seconds",
                "how long it took to change the rules of some Services",
                &self.partial,
            ),
            (
                "kubeproxy_network_programming_duration_seconds",
                "from when a pod changed until the kernel had the change of its Services",
                &self.programming,
            ),
        ];
        for (name, help, histogram) in histograms {
            text.histogram(name, help);
            histogram.render(text, name, &[FAMILY], |_| true);
        }
        let counters = [
            (
                "kubeproxy_sync_proxy_rules_nftables_sync_failures_total",
                "rules that the kernel refused",
                &self.failures,
            ),
            (
                "kubeproxy_conntrack_reconciler_deleted_entries_total",
                "UDP connections to endpoints that are gone, which were deleted",
                &self.deleted_connections,
            ),
        ];
        for (name, help, counter) in counters {
            text.counter(name, help);
            text.sample(name, &[FAMILY], counter.load(Relaxed));
        }
        let gauges = [
            (
                "kubeproxy_sync_proxy_rules_last_timestamp_seconds",
                "when the rules were last applied",
                &self.last,
            ),
            ("plumb_service_proxy_services", "Services that have rules", &self.services),
            ("plumb_service_proxy_addresses", "addresses and ports that have rules", &self.addresses),
        ];
        for (name, help, gauge) in gauges {
            text.gauge(name, help);
            text.sample(name, &[FAMILY], gauge.load(Relaxed));
        }
    }
}
