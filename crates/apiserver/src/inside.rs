//! The API for parts of this process: no socket and no TLS, but a user like any other.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};

use crate::authn::InProcess;
use crate::body::Body;
use crate::server::ApiServer;
use crate::user::User;

/// Lists and watches need not say who manages which fields: of a small object that is most of it, and no part of this
/// process decides by it. What is read alone says it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WithoutManagers;

/// The API server as one user of this process sees it: a service that a `kube::Client` can be made of.
///
/// The user goes through authentication, authorization and admission like everybody; there is no way in that
/// may do everything unless the user may.
#[derive(Clone)]
pub struct Inside {
    server: ApiServer,
    user: Arc<User>,
}

impl ApiServer {
    /// The API server for a part of this process, which asks as `user`.
    pub fn inside(&self, user: User) -> Inside {
        Inside { server: self.clone(), user: Arc::new(user) }
    }
}

impl<B> tower::Service<Request<B>> for Inside
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = std::convert::Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        request.extensions_mut().insert(InProcess(self.user.clone()));
        request.extensions_mut().insert(WithoutManagers);
        self.server.call(request)
    }
}
