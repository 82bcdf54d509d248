//! How much clients may ask of the API server at once.

use clap::Args;
use plumb_apiserver::{Limits, serve};

/// The limits of requests and connections of the API server.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Limits of the API server")]
pub(crate) struct ServerLimits {
    /// The maximum number of read requests in flight; the server rejects further ones with 429. One user gets at most
    /// three quarters of them.
    #[arg(long = "max-requests-inflight", default_value = "400", value_name = "N", value_parser = at_least_one())]
    pub(crate) requests_inflight: u32,
    /// The same for mutating requests.
    #[arg(long = "max-mutating-requests-inflight", default_value = "200", value_name = "N", value_parser = at_least_one())]
    pub(crate) mutating_requests_inflight: u32,
    /// The maximum number of open connections, if there are enough file descriptors; nodes and administrators with a
    /// client certificate have further ones of their own.
    #[arg(long = "max-connections", default_value = "10000", value_name = "N", value_parser = at_least_one())]
    pub(crate) connections: u32,
}

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
            streams: usual.streams.min(descriptors / 16).max(2),
            ..usual
        }
    }

    /// The limits of connections.
    pub(crate) fn of_connections(self, descriptors: usize) -> serve::Limits {
        serve::Limits::within(descriptors, number(self.connections))
    }
}
