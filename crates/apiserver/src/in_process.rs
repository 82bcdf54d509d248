//! The API for components of this process: without socket and TLS, but with a user like any other.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};

use crate::authn::InProcess;
use crate::response_body::Body;
use crate::state::ApiServer;
use crate::user::User;

/// Leaves `managedFields` out of lists and watches: it is most of a small object, and no component of this process reads it
/// there. A single object has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WithoutManagers;

/// The API server for one user in this process: a service for a `kube::Client`.
///
/// Authentication, authorization and admission apply to its requests as to all others; there is no in-process superuser.
#[derive(Clone)]
pub struct InProcessService {
    server: ApiServer,
    user: Arc<User>,
}

impl ApiServer {
    /// The API server for a component of this process, which sends requests as `user`.
    pub fn inside(&self, user: User) -> InProcessService {
        InProcessService { server: self.clone(), user: Arc::new(user) }
    }
}

impl<B> tower::Service<Request<B>> for InProcessService
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
