//! The servers of `healthCheckNodePort`: a load balancer asks them whether this node has endpoints of a Service.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use http::header::{CONTENT_TYPE, HeaderName, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::{Response, StatusCode};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use plumb_supervise::Backoff;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinSet};

use super::name::ServiceName;
use super::state::HealthCheck;

const WEIGHT: HeaderName = HeaderName::from_static("x-load-balancing-endpoint-weight");
/// Connections to one port at a time; a load balancer has one from each of its machines.
const CONNECTIONS: usize = 64;
/// How long a client may take to send a request.
const HEAD_WITHIN: Duration = Duration::from_secs(5);

/// The servers that run.
#[derive(Debug, Default)]
pub(crate) struct HealthServers {
    servers: BTreeMap<ServiceName, Server>,
    running: JoinSet<()>,
    /// Whether the kernel has the rules.
    healthy: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Server {
    port: u16,
    ready: Arc<AtomicUsize>,
    task: AbortHandle,
}

impl HealthServers {
    /// Says whether the kernel has the rules.
    pub(crate) fn set_healthy(&self, healthy: bool) {
        self.healthy.store(healthy, Relaxed);
    }

    /// Starts and ends servers, and updates their answers.
    pub(crate) fn update(&mut self, checks: &BTreeMap<ServiceName, HealthCheck>) {
        self.servers.retain(|service, server| {
            let kept = checks.get(service).is_some_and(|check| check.port == server.port);
            if !kept {
                server.task.abort();
            }
            kept
        });
        while self.running.try_join_next().is_some() {}
        for (service, check) in checks {
            if let Some(server) = self.servers.get(service) {
                server.ready.store(check.ready, Relaxed);
                continue;
            }
            let ready = Arc::new(AtomicUsize::new(check.ready));
            let answer =
                Answer { service: service.clone(), ready: ready.clone(), healthy: self.healthy.clone() };
            let task = self.running.spawn(serve(check.port, Arc::new(answer)));
            self.servers.insert(service.clone(), Server { port: check.port, ready, task });
        }
    }
}

/// What a server reports.
#[derive(Debug)]
struct Answer {
    service: ServiceName,
    ready: Arc<AtomicUsize>,
    healthy: Arc<AtomicBool>,
}

impl Answer {
    /// The body and the status are kube-proxy's.
    fn response(&self) -> Response<Full<Bytes>> {
        let (ready, healthy) = (self.ready.load(Relaxed), self.healthy.load(Relaxed));
        let ServiceName { namespace, name } = &self.service;
        let body = format!(
            "{{\n\t\"service\": {{\n\t\t\"namespace\": \"{namespace}\",\n\t\t\"name\": \"{name}\"\n\t}},\n\t\
             \"localEndpoints\": {ready},\n\t\"serviceProxyHealthy\": {healthy}\n}}"
        );
        let mut response = Response::new(Full::new(Bytes::from(body)));
        if ready == 0 || !healthy {
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        }
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(WEIGHT, HeaderValue::from(ready));
        response
    }
}

async fn serve(port: u16, answer: Arc<Answer>) {
    let mut backoff = Backoff::default();
    let listener = loop {
        match TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await {
            Ok(listener) => break listener,
            Err(error) if backoff.failures() == 0 => {
                let service = &answer.service;
                tracing::warn!(%error, %service, port, "cannot serve the health check of a Service");
            }
            Err(_) => {}
        }
        backoff.wait().await;
    };
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        // The semaphore is never closed.
        let Ok(slot) = slots.clone().acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of file descriptors, most likely: others have to be closed first.
                tracing::debug!(%error, port, "cannot accept a connection of a health check");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let answer = answer.clone();
        connections.spawn(async move {
            let respond = service_fn(move |_| {
                let response = answer.response();
                async move { Ok::<_, Infallible>(response) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_WITHIN)
                .serve_connection(TokioIo::new(stream), respond);
            if let Err(error) = connection.await {
                tracing::debug!(%error, port, "a connection of a health check ended early");
            }
            drop(slot);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_healthy_while_it_has_endpoints_and_rules() {
        let answer = Answer {
            service: ServiceName::new("default", "web"),
            ready: Arc::default(),
            healthy: Arc::new(AtomicBool::new(true)),
        };
        assert_eq!(answer.response().status(), StatusCode::SERVICE_UNAVAILABLE);
        answer.ready.store(2, Relaxed);
        let response = answer.response();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()[WEIGHT], "2");
        answer.healthy.store(false, Relaxed);
        assert_eq!(answer.response().status(), StatusCode::SERVICE_UNAVAILABLE);
    }
}
