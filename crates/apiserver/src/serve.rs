//! The HTTP server: accepts connections, passes requests to a service, and shuts down in order.
//!
//! ```text
//! Listener ── accept (bounded) ──▶ TLS handshake (timed) ──▶ HTTP/1.1 or HTTP/2, as ALPN settled
//!                                    │ client certificate          │ each request carries
//!                                    ▼                             ▼
//!                                   Peer ───────────────────▶ Peer, Shutdown ──▶ the service
//! ```
//!
//! The extensions of a request have its client ([`Peer`](crate::authn::Peer)) and the signal that ends long responses ([`Shutdown`]). ALPN decides
//! the protocol, not the first bytes of the connection: the server does not wait for them, so that a client that sends none
//! holds no connection open.
//!
//! The server closes the connection of a client that does not read a response for [`Limits::progress`], over both protocols.
//!
//! At [`Trigger::pull`] the server accepts no more connections, closes idle ones, ends watches by their [`Shutdown`], waits for
//! requests, and closes the connections that are left after [`Limits::drain`].

mod accept;
mod activity;
mod candidates;
mod connection;
mod connections;
mod handshakes;
mod heads;
mod limits;
mod listener;
mod permitted;
mod source;
mod tls;

pub use crate::shutdown::{Shutdown, Trigger, shutdown};
pub use accept::{Drained, serve};
pub use connection::Interactive;
pub use connections::ConnectionMetrics;
pub use limits::Limits;
pub use listener::{BindError, Listener};
pub(crate) use source::source;
pub(crate) use tls::Wall;
pub use tls::{TlsError, install_crypto, tls, tls_of};
