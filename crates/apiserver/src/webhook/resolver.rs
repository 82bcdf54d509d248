//! Which addresses a webhook is called at.
//!
//! A URL in the configuration of a webhook is the choice of an administrator. The backends of a Service are not: who may edit
//! Services or `EndpointSlice`s of the namespace chooses them, and must not lead the API server to its own loopback, where
//! other processes trust all clients, or to the metadata service of a cloud (169.254.169.254).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::task::{Context, Poll};
use std::vec;

use futures_util::future::BoxFuture;
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use plumb_validation::addresses::is_global_unicast;
use tower::Service;

/// The error for a backend that is not called.
pub(super) const NOT_ALLOWED: &str = "address not allowed";

/// Whether the backend of a Service may be called: names are checked when they are resolved.
pub(super) fn is_allowed(host: &str) -> bool {
    host.parse::<IpAddr>().as_ref().map_or(true, is_global_unicast)
}

/// Resolves host names.
#[derive(Clone, Debug)]
pub(crate) struct Resolver {
    inner: GaiResolver,
    only_global: bool,
}

impl Resolver {
    /// `only_global` leaves out loopback and link-local addresses. The connector resolves no host that is an address
    /// ([`is_allowed`]).
    pub(crate) fn new(only_global: bool) -> Self {
        Self { inner: GaiResolver::new(), only_global }
    }
}

impl Service<Name> for Resolver {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = BoxFuture<'static, Result<Self::Response, io::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let (resolving, only_global) = (self.inner.call(name), self.only_global);
        Box::pin(async move {
            let mut addresses: Vec<SocketAddr> = resolving.await?.collect();
            if only_global {
                addresses.retain(|address| is_global_unicast(&address.ip()));
                if addresses.is_empty() {
                    return Err(io::Error::other(NOT_ALLOWED));
                }
            }
            Ok(addresses.into_iter())
        })
    }
}
