//! Limits of connections.

use std::time::Duration;

/// The most connections that any client may have open, where there are enough file descriptors.
const CONNECTIONS: usize = 10_000;
/// The most connections that are kept for nodes and administrators besides.
const RESERVED: usize = 2_000;
/// The most connections in the TLS handshake.
const HANDSHAKES: usize = 512;
/// The most connections to a node's agent, whose only client is the API server.
const TO_AGENT: usize = 1_024;
/// The bytes of incomplete request heads.
const HEADS: usize = 16 << 20;
/// How long a client of logs, commands and proxies may not read before its connection is closed. The kubelet has the same
/// default (`streamingConnectionIdleTimeout`).
const INTERACTIVE: Duration = Duration::from_hours(4);

/// Limits of connections, in time and in number.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How many connections are open at a time. A further one waits for as long as a handshake may take, and is then
    /// refused with 429.
    pub connections: usize,
    /// How many more may be open for nodes, administrators, the scheduler and the controller manager, who are known by
    /// their client certificate.
    pub reserved_connections: usize,
    /// How many more may be in the TLS handshake, shared by source address. As many further ones are queued.
    pub handshakes: usize,
    /// How long a client may take for the TLS handshake.
    pub handshake: Duration,
    /// How long a connection without a request may take to send the next one, header included. This closes idle
    /// connections, and those of clients that send a header byte by byte.
    pub request_head: Duration,
    /// The same for a client that is not authenticated: it has no certificate, and none of its requests had valid
    /// credentials.
    pub unauthenticated_head: Duration,
    /// Bytes of incomplete request heads that all connections of clients without credentials may buffer, shared by source
    /// address, besides the first 8 KiB of each; and as many of authenticated clients, shared by user.
    pub heads: usize,
    /// How long a client may read hardly any of a response before its connection is closed.
    pub progress: Duration,
    /// The same for logs, commands and proxies, where a user may have paused the output.
    pub interactive_progress: Duration,
    /// The number of concurrent requests, watches included, on one HTTP/2 connection.
    pub streams: u32,
    /// How long an HTTP/2 connection may be silent before the server sends a ping.
    pub ping_after: Duration,
    /// How long the response to the ping may take.
    pub ping_answer: Duration,
    /// How long an idle connection may take to close after the server has asked it to.
    pub farewell: Duration,
    /// How long the server waits for requests after the shutdown was requested.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: CONNECTIONS,
            reserved_connections: RESERVED,
            handshakes: HANDSHAKES,
            handshake: Duration::from_secs(10),
            // Go's clients close an idle connection after the same time, so that mostly they do.
            request_head: Duration::from_secs(90),
            unauthenticated_head: Duration::from_secs(10),
            heads: HEADS,
            progress: Duration::from_mins(1),
            interactive_progress: INTERACTIVE,
            // As kube-apiserver: Go's clients open another connection when they need more.
            streams: 250,
            ping_after: Duration::from_secs(30),
            ping_answer: Duration::from_secs(20),
            farewell: Duration::from_secs(3),
            drain: Duration::from_secs(10),
        }
    }
}

impl Limits {
    /// The default limits, with at most `connections` for any client, and so many in all that a quarter of the file
    /// descriptors of this process is left: for the store, containers, connections to nodes and webhooks.
    #[must_use]
    pub fn within(descriptors: usize, connections: usize) -> Self {
        let all = (descriptors - descriptors / 4).min(connections.saturating_add(RESERVED + 2 * HANDSHAKES));
        let handshakes = (all / 16).clamp(2, HANDSHAKES);
        let reserved_connections = (all / 6).clamp(1, RESERVED);
        Self {
            // Twice the handshakes: those that are queued are open, too.
            connections: all
                .saturating_sub(2 * handshakes + reserved_connections)
                .clamp(1, connections.max(1)),
            reserved_connections,
            handshakes,
            ..Self::default()
        }
    }

    /// The limits of a node's agent, of which there are `agents` in this process. Its only client is the API server, on behalf
    /// of users who read logs and run commands, and who may pause the output.
    #[must_use]
    pub fn of_agent(descriptors: usize, agents: usize) -> Self {
        let all = (descriptors / 8 / agents.max(1)).clamp(4, TO_AGENT);
        Self {
            connections: all,
            reserved_connections: 0,
            handshakes: (all / 4).max(2),
            progress: INTERACTIVE,
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_file_descriptors_for_everything_else() {
        for descriptors in [0, 64, 256, 1_024, 4_096, 16_384, 65_536, 1 << 20] {
            let limits = Limits::within(descriptors, CONNECTIONS);
            let all = limits.connections + limits.reserved_connections + 2 * limits.handshakes;
            assert!(all <= (descriptors - descriptors / 4).max(6), "{descriptors}: {limits:?}");
            assert!(limits.connections > 0 && limits.reserved_connections > 0 && limits.handshakes > 1);
        }
        let few = Limits::within(1_024, CONNECTIONS);
        assert_eq!((few.connections, few.reserved_connections, few.handshakes), (544, 128, 48));
        let usual = Limits::within(1 << 20, CONNECTIONS);
        assert_eq!(usual.connections, CONNECTIONS);
        assert_eq!(Limits::within(1 << 20, 100).connections, 100);
    }

    #[test]
    fn many_agents_in_one_process_share_its_file_descriptors() {
        assert_eq!(Limits::of_agent(1 << 20, 1).connections, TO_AGENT);
        assert_eq!(Limits::of_agent(65_536, 1_000).connections, 8);
        assert_eq!(Limits::of_agent(1_024, 1_000).connections, 4);
    }
}
