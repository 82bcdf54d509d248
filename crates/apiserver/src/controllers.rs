//! The controllers that are part of the API server.

mod api_services;
mod auto_register;
mod policy_status;
mod request;

use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::shutdown::Shutdown;
use crate::state::ApiServer;
use crate::{allocation, custom};

impl ApiServer {
    /// Runs the controllers that are part of the API server until the shutdown: the one that establishes, serves and
    /// finalizes custom resource definitions, the one that repairs allocations, every `repair_interval`, the one that
    /// checks the types of policies, the one that checks aggregated API servers, and the one that registers the group
    /// versions of this server as `APIService`s.
    pub fn run_controllers(&self, repair_interval: Duration, shutdown: Shutdown) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let definitions = custom::run(self.cluster().definitions(), shutdown.clone());
            let policies = policy_status::run(self, shutdown.clone());
            let aggregated = api_services::run(self, shutdown.clone());
            let registered = auto_register::run(self, shutdown.clone());
            let repair = allocation::run(self.cluster().allocations(), self, repair_interval, shutdown);
            tokio::join!(definitions, policies, aggregated, registered, repair);
        })
    }
}
