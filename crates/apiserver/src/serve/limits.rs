//! What a client may take of the server.

use std::time::Duration;

/// What a client may take of the server, in time and in number.
#[derive(Clone, Debug)]
pub struct Limits {
    /// How many connections stand at a time. Further ones wait in the kernel's queue until one ends.
    pub connections: usize,
    /// How long a client may take for the TLS handshake.
    pub handshake: Duration,
    /// How long a connection without a request under way may take to send the next one, head and all. It ends both
    /// those who trickle a head byte by byte and those who forgot that they are connected.
    pub request_head: Duration,
    /// How many requests, watches included, stand at a time on one HTTP/2 connection.
    pub streams: u32,
    /// How long a silent HTTP/2 client is left alone before it is asked whether it is still there.
    pub ping_after: Duration,
    /// How long it may take to answer that.
    pub ping_answer: Duration,
    /// How long a connection that was asked to end, and has no request under way, may take to do so.
    pub farewell: Duration,
    /// How long requests under way are waited for after the shutdown was asked for.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            handshake: Duration::from_secs(10),
            // Clients written in Go drop an idle connection after as long, so that mostly they are the ones to do it.
            request_head: Duration::from_secs(90),
            streams: 2_000,
            ping_after: Duration::from_secs(30),
            ping_answer: Duration::from_secs(20),
            farewell: Duration::from_secs(3),
            drain: Duration::from_secs(10),
        }
    }
}
