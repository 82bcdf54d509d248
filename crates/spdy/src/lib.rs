//! SPDY/3.1 as Kubernetes uses it: many streams over one connection.
//!
//! `kubectl port-forward` uses SPDY inside of a `WebSocket`, older clients use it for exec, attach and port-forward after
//! an HTTP upgrade, and the streaming servers of CRI runtimes support nothing newer. This crate implements the parts that
//! they use: streams with headers, half closes, resets and pings. It has no flow control, since no implementation in
//! Kubernetes sends or reads window updates. Rust has no maintained library for SPDY, which browsers gave up for HTTP/2.
//!
//! ```text
//!   bytes ──▶ Decoder ──▶ Frame ──▶ connection ──▶ Stream (AsyncRead + AsyncWrite)
//!   bytes ◀── Encoder ◀── Frame ◀──            ◀──
//! ```
//!
//! [`frame`] is pure; [`connect`] runs a connection over any byte stream.

mod connection;
mod dictionary;
pub mod frame;
mod headers;
mod stream;

pub use connection::{Handle, Incoming, Side, connect};
pub use headers::Headers;
pub use stream::{Reader, Stream, Writer};
