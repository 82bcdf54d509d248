//! Metrics of the requests of API clients, as in client-go.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::{BoxFuture, FutureExt as _};
use http::{Method, Request, Response, StatusCode};
use plumb_metrics::{CounterVec, Histogram, LabelValue, Text, Unit};
use tokio::time::Instant;
use tower::Service;

/// client-go's bounds, in nanoseconds: 5 ms to 60 s.
const BOUNDS: &[u64] = &[
    5_000_000,
    25_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_000_000_000,
    4_000_000_000,
    8_000_000_000,
    15_000_000_000,
    30_000_000_000,
    60_000_000_000,
];
/// The methods that have labels of their own.
const METHODS: [&str; 6] = ["GET", "POST", "PUT", "PATCH", "DELETE", "OTHER"];

/// The metrics of all clients of one API server.
#[derive(Debug)]
pub struct RestClientMetrics {
    /// By code and method.
    requests: CounterVec<2>,
    took: [Histogram; METHODS.len()],
}

impl Default for RestClientMetrics {
    fn default() -> Self {
        Self { requests: CounterVec::default(), took: METHODS.map(|_| Histogram::new(Unit::Time, BOUNDS)) }
    }
}

impl RestClientMetrics {
    /// A service that counts the requests that go through it. It is for [`kube::Client::new`].
    pub fn count<S>(self: &Arc<Self>, service: S) -> CountedService<S> {
        CountedService { service, metrics: self.clone() }
    }

    /// How often a code was answered to a method.
    pub fn requests(&self, code: StatusCode, method: &Method) -> u64 {
        self.requests.get([code.as_str().to_owned().into(), METHODS[index(method)].into()])
    }

    fn observe(&self, index: usize, code: Option<StatusCode>, began: Instant) {
        let code: LabelValue = code.map_or("<error>".into(), |code| code.as_str().to_owned().into());
        self.requests.inc([code, METHODS[index].into()]);
        self.took[index].observe_duration(began.elapsed());
    }
}

fn index(method: &Method) -> usize {
    METHODS.iter().position(|known| *known == method.as_str()).unwrap_or(METHODS.len() - 1)
}

/// A service that counts requests.
#[derive(Clone, Debug)]
pub struct CountedService<S> {
    service: S,
    metrics: Arc<RestClientMetrics>,
}

impl<S, B, C> Service<Request<B>> for CountedService<S>
where
    S: Service<Request<B>, Response = Response<C>>,
    S::Future: Send + 'static,
    S::Error: 'static,
    C: 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (metrics, index, began) = (self.metrics.clone(), index(request.method()), Instant::now());
        let answering = self.service.call(request);
        async move {
            let answered = answering.await;
            metrics.observe(index, answered.as_ref().ok().map(Response::status), began);
            answered
        }
        .boxed()
    }
}

pub(super) fn render(clients: &[(String, Arc<RestClientMetrics>)], text: &mut Text) {
    if clients.is_empty() {
        return;
    }
    let name = "rest_client_requests_total";
    text.counter(name, "requests to the API server by code and method");
    for (host, metrics) in clients {
        metrics.requests.render_samples(text, name, ["code", "method"], &[("host", host)]);
    }
    let name = "rest_client_request_duration_seconds";
    text.histogram(name, "seconds until the API server answers, by method");
    for (host, metrics) in clients {
        for (method, took) in METHODS.iter().zip(&metrics.took).filter(|(_, took)| took.count() > 0) {
            took.render(text, name, &[("host", host), ("verb", method)], |_| true);
        }
    }
}
