//! The door: connections in, requests to the service behind, and an orderly end.
//!
//! ```text
//! Listener ── accept (bounded) ──▶ TLS handshake (timed) ──▶ HTTP/1.1 or HTTP/2, as ALPN settled
//!                                    │ client certificate          │ each request carries
//!                                    ▼                             ▼
//!                                   Peer ───────────────────▶ Peer, Shutdown ──▶ the service
//! ```
//!
//! The service learns from a request's extensions who is at the other end ([`Peer`]) and when to end what would go on
//! ([`Shutdown`]). The protocol is taken from ALPN and not guessed from the first bytes: there is nothing to wait for,
//! and so nothing to hold open by not sending it.
//!
//! A client that does not read a response is cut after [`Limits::progress`], over both protocols.
//!
//! At [`Trigger::pull`] no more connections are accepted, idle ones end, requests under way are waited for, watches are
//! told through their [`Shutdown`], and what then still stands after [`Limits::drain`] is cut.

mod accept;
mod activity;
mod connection;
mod connections;
mod limits;
mod listener;
mod peer;
mod place;
mod shutdown;
mod tls;

pub use accept::{Drained, serve};
pub use connection::Interactive;
pub use connections::ConnectionMetrics;
pub use limits::Limits;
pub use listener::{BindError, Listener};
pub use peer::Peer;
pub use shutdown::{Shutdown, Trigger, shutdown};
pub(crate) use tls::Wall;
pub use tls::{TlsError, install_crypto, tls, tls_of};
