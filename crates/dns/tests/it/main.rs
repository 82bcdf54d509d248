//! The DNS server, through its public API and its sockets.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod client;
mod fixture;
mod forward;
mod hostile;
mod server;
mod zone;
