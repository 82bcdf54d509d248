//! Metrics with the names of CoreDNS, so that its dashboards work.
//!
//! Counting a query only increments atomics, since its labels have few values.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use plumb_metrics::{Histogram, Text, Unit};

use crate::message::Code;
use crate::zone::RecordType;

/// The label `server` with the value of CoreDNS on port 53.
const SERVER: (&str, &str) = ("server", "dns://:53");
const VIEW: (&str, &str) = ("view", "");
/// The buckets of CoreDNS in nanoseconds: 0.25 ms, doubled for each bucket.
const TIMES: &[u64] = &[
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
    2_048_000_000,
    4_096_000_000,
    8_192_000_000,
];
const TYPES: [(RecordType, &str); 9] = [
    (RecordType::A, "A"),
    (RecordType::AAAA, "AAAA"),
    (RecordType::CNAME, "CNAME"),
    (RecordType::MX, "MX"),
    (RecordType::NS, "NS"),
    (RecordType::PTR, "PTR"),
    (RecordType::SOA, "SOA"),
    (RecordType::SRV, "SRV"),
    (RecordType::TXT, "TXT"),
];
/// The index of all other types.
const OTHER: usize = TYPES.len();

/// The protocol of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Udp,
    Tcp,
}

/// The source of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The zone of the cluster.
    Cluster,
    /// Another server, or the cache of its responses.
    Forward,
}

#[derive(Debug)]
struct OriginMetrics {
    requests: [[AtomicU64; OTHER + 1]; 2],
    responses: [AtomicU64; Code::ALL.len()],
    duration: Histogram,
}

impl Default for OriginMetrics {
    fn default() -> Self {
        Self {
            requests: Default::default(),
            responses: Default::default(),
            duration: Histogram::new(Unit::Time, TIMES),
        }
    }
}

/// The metrics of a DNS server.
#[derive(Debug)]
pub struct Metrics {
    origins: [OriginMetrics; 2],
    cache_hits: AtomicU64,
    cache_misses: AtomicU64,
    forwarded: AtomicU64,
    forward_failures: AtomicU64,
    forward_duration: Histogram,
    refused: AtomicU64,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            origins: Default::default(),
            cache_hits: AtomicU64::default(),
            cache_misses: AtomicU64::default(),
            forwarded: AtomicU64::default(),
            forward_failures: AtomicU64::default(),
            forward_duration: Histogram::new(Unit::Time, TIMES),
            refused: AtomicU64::default(),
        }
    }
}

impl Metrics {
    /// Counts a query and its response.
    pub(crate) fn answered(
        &self,
        origin: Origin,
        transport: Transport,
        record_type: RecordType,
        code: u16,
        took: Duration,
    ) {
        let origin = &self.origins[usize::from(origin == Origin::Forward)];
        let known = TYPES.iter().position(|(known, _)| *known == record_type).unwrap_or(OTHER);
        origin.requests[usize::from(transport == Transport::Tcp)][known].fetch_add(1, Relaxed);
        if let Some(at) = Code::ALL.iter().position(|known| known.number() == code) {
            origin.responses[at].fetch_add(1, Relaxed);
        }
        origin.duration.observe_duration(took);
    }

    /// Counts a lookup in the cache.
    pub(crate) fn cache(&self, hit: bool) {
        if hit { &self.cache_hits } else { &self.cache_misses }.fetch_add(1, Relaxed);
    }

    /// Counts a question to another server.
    pub(crate) fn forwarded(&self, answered: bool, took: Duration) {
        self.forwarded.fetch_add(1, Relaxed);
        if answered {
            self.forward_duration.observe_duration(took);
        } else {
            self.forward_failures.fetch_add(1, Relaxed);
        }
    }

    /// Counts a query that was refused because too many queries wait for other servers.
    pub(crate) fn refused(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    /// Writes the metrics. `domain` is the domain of the cluster, and `cached` the number of cached responses.
    pub(crate) fn render(&self, text: &mut Text, domain: &str, cached: usize) {
        let zones = [domain, "."];
        let name = "coredns_dns_requests_total";
        text.counter(name, "Counter of DNS requests made per zone, protocol and family.");
        for (zone, origin) in zones.into_iter().zip(&self.origins) {
            for (proto, counts) in ["udp", "tcp"].into_iter().zip(&origin.requests) {
                let types = TYPES.iter().map(|(_, name)| *name).chain(["other"]);
                for (record_type, count) in types.zip(counts).filter(|(_, count)| count.load(Relaxed) > 0) {
                    let labels = [
                        SERVER,
                        ("zone", zone),
                        VIEW,
                        ("proto", proto),
                        ("family", "1"),
                        ("type", record_type),
                    ];
                    text.sample(name, &labels, count.load(Relaxed));
                }
            }
        }
        let name = "coredns_dns_responses_total";
        text.counter(name, "Counter of response status codes.");
        for ((zone, plugin), origin) in zones.into_iter().zip(["kubernetes", "forward"]).zip(&self.origins) {
            for (code, count) in Code::ALL.iter().zip(&origin.responses) {
                if count.load(Relaxed) > 0 {
                    let labels = [SERVER, ("zone", zone), VIEW, ("rcode", code.text()), ("plugin", plugin)];
                    text.sample(name, &labels, count.load(Relaxed));
                }
            }
        }
        let name = "coredns_dns_request_duration_seconds";
        text.histogram(name, "Histogram of the time (in seconds) each request took per zone.");
        for (zone, origin) in zones.into_iter().zip(&self.origins) {
            origin.duration.render(text, name, &[SERVER, ("zone", zone), VIEW], |_| true);
        }
        let cache = [SERVER, ("zones", "."), VIEW];
        text.counter("coredns_cache_hits_total", "The count of cache hits.");
        text.sample("coredns_cache_hits_total", &cache, self.cache_hits.load(Relaxed));
        text.counter("coredns_cache_misses_total", "The count of cache misses.");
        text.sample("coredns_cache_misses_total", &cache, self.cache_misses.load(Relaxed));
        text.gauge("coredns_cache_entries", "The number of elements in the cache.");
        text.sample("coredns_cache_entries", &cache, cached);
        let name = "coredns_forward_max_concurrent_rejects_total";
        text.counter(
            name,
            "Counter of the number of queries rejected because the concurrent queries were at maximum.",
        );
        text.sample(name, &[], self.refused.load(Relaxed));
        let name = "plumb_dns_forward_requests_total";
        text.counter(name, "Questions to the resolvers of the machine, by whether there was a response.");
        let failed = self.forward_failures.load(Relaxed);
        let answered = self.forwarded.load(Relaxed).saturating_sub(failed);
        text.sample(name, &[("result", "success")], answered);
        text.sample(name, &[("result", "error")], failed);
        let name = "plumb_dns_forward_request_duration_seconds";
        text.histogram(name, "The time that the resolvers of the machine took for a response.");
        self.forward_duration.render(text, name, &[], |_| true);
    }
}
