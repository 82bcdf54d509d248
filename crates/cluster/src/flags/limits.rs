//! How much clients may ask of the API server at once.

use clap::Args;
use plumb_apiserver::{Limits, serve};
use plumb_store::Quota;

/// The limits of requests and connections of the API server.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Limits of the API server")]
pub(crate) struct ServerLimits {
    /// The maximum number of read requests in flight; the server rejects further ones with 429. One user gets at most
    /// three quarters of them.
    #[arg(long = "max-requests-inflight", default_value = "400", value_name = "N", value_parser = at_least_one())]
    pub(crate) requests_inflight: u32,
    /// The maximum number of mutating requests in flight; the server rejects further ones with 429. One user gets at most
    /// three quarters of them.
    #[arg(long = "max-mutating-requests-inflight", default_value = "200", value_name = "N", value_parser = at_least_one())]
    pub(crate) mutating_requests_inflight: u32,
    /// The maximum number of open connections, if there are enough file descriptors; nodes and administrators with a
    /// client certificate have further ones of their own.
    #[arg(long = "max-connections", default_value = "10000", value_name = "N", value_parser = at_least_one())]
    pub(crate) connections: u32,
    /// The most bytes that all objects may have in memory and on disk, as etcd's flag; 0 is unlimited. Beyond it the server
    /// accepts only deletions, updates of status and updates that make no object larger. [default: 2 GiB, or a quarter of the
    /// machine's memory if that is less]
    #[arg(long, value_name = "BYTES")]
    pub(crate) quota_backend_bytes: Option<u64>,
    /// The most bytes that the objects of one namespace may have; 0 is unlimited. [default: half of --quota-backend-bytes]
    #[arg(long, value_name = "BYTES")]
    pub(crate) namespace_quota_bytes: Option<u64>,
}

/// As etcd's default.
const USUAL_QUOTA: u64 = 2 << 30;
/// Objects are in memory, and so is their recent history: this part of the memory leaves enough for everything else.
const PART_OF_MEMORY: u64 = 4;

fn at_least_one() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..)
}

fn number(of: u32) -> usize {
    usize::try_from(of).unwrap_or(usize::MAX)
}

impl ServerLimits {
    /// The limits of requests. A log or a command has a connection to a node, so there are no more of them than leave
    /// file descriptors for everything else.
    pub(crate) fn of_requests(self, descriptors: usize) -> Limits {
        let usual = Limits::default();
        Limits {
            reading: number(self.requests_inflight),
            writing: number(self.mutating_requests_inflight),
            receiving: number(self.mutating_requests_inflight).saturating_mul(2),
            streams: usual.streams.min(descriptors / 16).max(2),
            ..usual
        }
    }

    /// The most bytes of objects, on a machine with so much memory.
    pub(crate) fn of_objects(self, memory: Option<u64>) -> Quota {
        let usual = memory.map_or(USUAL_QUOTA, |memory| USUAL_QUOTA.min(memory / PART_OF_MEMORY));
        let given = |bytes| if bytes == 0 { u64::MAX } else { bytes };
        let bytes = given(self.quota_backend_bytes.unwrap_or(usual));
        let half = if bytes == u64::MAX { bytes } else { bytes / 2 };
        Quota { bytes, namespace_bytes: self.namespace_quota_bytes.map_or(half, given) }
    }

    /// The limits of connections.
    pub(crate) fn of_connections(self, descriptors: usize) -> serve::Limits {
        serve::Limits::within(descriptors, number(self.connections))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_have_a_bound_by_default_that_fits_into_memory() {
        let limits = |quota_backend_bytes, namespace_quota_bytes| ServerLimits {
            requests_inflight: 1,
            mutating_requests_inflight: 1,
            connections: 1,
            quota_backend_bytes,
            namespace_quota_bytes,
        };
        let gib = |count: u64| count << 30;
        let table = [
            (limits(None, None), None, gib(2), gib(1)),
            (limits(None, None), Some(gib(64)), gib(2), gib(1)),
            (limits(None, None), Some(gib(4)), gib(1), gib(1) / 2),
            (limits(Some(gib(8)), None), Some(gib(4)), gib(8), gib(4)),
            (limits(Some(gib(8)), Some(100)), None, gib(8), 100),
            (limits(Some(0), None), None, u64::MAX, u64::MAX),
            (limits(Some(gib(1)), Some(0)), None, gib(1), u64::MAX),
        ];
        for (limits, memory, bytes, namespace_bytes) in table {
            assert_eq!(limits.of_objects(memory), Quota { bytes, namespace_bytes }, "{limits:?} {memory:?}");
        }
    }
}
