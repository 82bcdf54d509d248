//! gRPC on hyper's HTTP/2: as much of it as the sockets of container runtimes and storage drivers need, and etcd on other machines.
//!
//! A call is a POST; each message in it has five bytes before it, a flag and its length; the trailers say how it went. The
//! HTTP/2 client is there already, for the API server's clients and for gRPC probes, so no gRPC framework is needed.
//!
//! ```text
//!   Connection::call ──▶ deadline ──▶ one HTTP/2 connection per server, made anew after it was lost ──▶ Messages ──▶ Status
//! ```

mod connection;
mod host;
mod message;

pub use connection::{Connection, InvalidEndpoint, Metadata, socket_path};
pub use host::{Host, InvalidHost, TlsError, TlsFiles};
pub use message::{Body, Code, Messages, Status, causes};
