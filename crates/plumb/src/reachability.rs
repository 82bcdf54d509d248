//! Reports once that the API server cannot be reached, and once that it answers again. Components retry for as long as they run.

mod outage;

use std::error::Error;
use std::fmt;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use plumb_cluster::say;
use tower::Service;

use crate::client::{connection_failure, server};
use crate::rate_limit;

pub(crate) use outage::WithoutOutages;

/// How the error of each request starts that did not reach the API server.
const UNREACHABLE: &str = "cannot reach the API server at";

/// A client that reports once that the server of another one cannot be reached, and once that it responds again.
pub(crate) fn reporting(client: Client) -> Client {
    reporting_to(client, |text| say!("plumb: {text}"))
}

/// A client that calls `report` in place of printing.
pub(crate) fn reporting_to(client: Client, report: impl Fn(&str) + Send + Sync + 'static) -> Client {
    let namespace = client.default_namespace().to_owned();
    let unlimited = rate_limit::limited(client, 0.0, 0.0);
    Client::new(Reported::new(unlimited, server(), report), namespace)
}

/// A service that reports when the server of another service cannot be reached. Clones share the reported state.
#[derive(Clone)]
pub(crate) struct Reported<S> {
    service: S,
    server: Arc<Server>,
}

struct Server {
    url: String,
    is_unreachable: AtomicBool,
    report: Box<dyn Fn(&str) + Send + Sync>,
}

impl<S> Reported<S> {
    /// Calls `report` with the message about the server at a URL.
    pub(crate) fn new(service: S, url: String, report: impl Fn(&str) + Send + Sync + 'static) -> Self {
        let server = Server { url, is_unreachable: AtomicBool::new(false), report: Box::new(report) };
        Self { service, server: Arc::new(server) }
    }
}

impl<S> Service<Request<Body>> for Reported<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = kube::Error>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = kube::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (server, answering) = (self.server.clone(), self.service.call(request));
        Box::pin(async move {
            match answering.await {
                Err(error) => Err(server.failed(error)),
                Ok(response) => {
                    server.answered();
                    Ok(response)
                }
            }
        })
    }
}

impl Server {
    /// The error of a request, without the wrapping of the client if the server could not be reached.
    fn failed(&self, error: kube::Error) -> kube::Error {
        let Some(failure) = connection_failure(&error) else { return error };
        let advice = match failure.kind() {
            ErrorKind::ConnectionRefused => {
                "start the cluster, or name another one with --kubeconfig or KUBECONFIG"
            }
            _ => {
                "check the address and the certificates in the kubeconfig (--kubeconfig or KUBECONFIG names it)"
            }
        };
        let unreachable = Unreachable { url: self.url.clone(), failure: failure.to_string(), source: error };
        if !self.is_unreachable.swap(true, Ordering::Relaxed) {
            (self.report)(&format!("{unreachable}; {advice}. Requests are retried until it answers"));
        }
        kube::Error::Service(Box::new(unreachable))
    }

    fn answered(&self) {
        if self.is_unreachable.swap(false, Ordering::Relaxed) {
            (self.report)(&format!("the API server at {} answers", self.url));
        }
    }
}

/// A request that did not reach the API server.
#[derive(Debug)]
struct Unreachable {
    url: String,
    failure: String,
    source: kube::Error,
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{UNREACHABLE} {}: {}", self.url, self.failure)
    }
}

impl Error for Unreachable {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.source)
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use kube::Client;
    use parking_lot::Mutex;

    use super::*;

    #[tokio::test]
    async fn an_outage_is_reported_once_and_so_is_its_end() {
        let is_down = Arc::new(AtomicBool::new(true));
        let down = is_down.clone();
        let service = tower::service_fn(move |_: Request<Body>| {
            let is_down = down.load(Ordering::Relaxed);
            async move {
                if is_down {
                    let refused = io::Error::from(ErrorKind::ConnectionRefused);
                    return Err(kube::Error::Service(Box::new(refused)));
                }
                Ok(Response::new(Body::empty()))
            }
        });
        let reports: Arc<Mutex<Vec<String>>> = Arc::default();
        let reported = reports.clone();
        let url = "https://192.0.2.7:6443".to_owned();
        let service = Reported::new(service, url, move |text| reported.lock().push(text.to_owned()));
        let client = Client::new(service, "default");
        let send = async || client.send(Request::new(Body::empty())).await;
        for _ in 0..3 {
            let error = send().await.unwrap_err();
            assert!(connection_failure(&error).is_some(), "{error}");
            let expected =
                "ServiceError: cannot reach the API server at https://192.0.2.7:6443: connection refused";
            assert_eq!(error.to_string(), expected);
        }
        is_down.store(false, Ordering::Relaxed);
        for _ in 0..2 {
            send().await.unwrap();
        }
        let reports = reports.lock();
        let [outage, end] = &reports[..] else { panic!("{reports:?}") };
        assert!(outage.starts_with("cannot reach the API server at https://192.0.2.7:6443: "), "{outage}");
        assert!(outage.contains("--kubeconfig") && outage.contains("retried"), "{outage}");
        assert_eq!(end, "the API server at https://192.0.2.7:6443 answers");
    }
}
