//! The client's rate limit, as in client-go: requests per second, and a burst after a pause. And a limit of requests that
//! wait for a response at the same time.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tower::Service;

/// How many requests wait for a response at the same time. Each of them has a connection, whose buffers take about 50 KB, and
/// which stays open for 90 seconds after the response. A burst without this limit takes more memory than some hundred VPAs.
const IN_FLIGHT: usize = 16;

/// The group of leases. A lease that is renewed too late is lost, so its requests do not wait behind others.
const LEASES: &str = "/apis/coordination.k8s.io/";

/// A service around a client that waits before it sends more than it may. Clones of it share the limits. Without a positive
/// rate there is no limit per second.
pub(crate) fn limited(client: Client, per_second: f64, burst: f64) -> Limited {
    let bucket = Bucket::new(per_second, burst, Instant::now());
    Limited {
        client,
        bucket: bucket.map(|bucket| Arc::new(Mutex::new(bucket))),
        in_flight: Arc::new(Semaphore::new(IN_FLIGHT)),
    }
}

/// When the next request may be sent.
#[derive(Debug)]
struct Bucket {
    /// The time between two requests.
    period: Duration,
    /// How far ahead of that requests may be sent.
    ahead: Duration,
    /// When a request would be sent if all had been sent in their time.
    next: Instant,
}

impl Bucket {
    fn new(per_second: f64, burst: f64, now: Instant) -> Option<Self> {
        let period = Duration::try_from_secs_f64(per_second.recip()).ok().filter(|_| per_second > 0.0)?;
        let ahead = Duration::try_from_secs_f64(period.as_secs_f64() * (burst - 1.0)).unwrap_or_default();
        Some(Self { period, ahead, next: now })
    }

    /// Reserves a token for a request, and returns how long it has to wait.
    fn reserve(&mut self, now: Instant) -> Duration {
        let place = self.next.max(now);
        self.next = place + self.period;
        place.duration_since(now).saturating_sub(self.ahead)
    }
}

/// A client that does not send too much.
#[derive(Clone)]
pub(crate) struct Limited {
    client: Client,
    bucket: Option<Arc<Mutex<Bucket>>>,
    in_flight: Arc<Semaphore>,
}

impl Service<Request<Body>> for Limited {
    type Response = Response<Body>;
    type Error = kube::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let client = self.client.clone();
        if request.uri().path().starts_with(LEASES) {
            return Box::pin(async move { client.send(request).await });
        }
        let wait = self.bucket.as_ref().map(|bucket| bucket.lock().reserve(Instant::now()));
        let in_flight = self.in_flight.clone();
        Box::pin(async move {
            tokio::time::sleep(wait.unwrap_or_default()).await;
            // The semaphore is never closed. A watch counts until its response begins.
            let _permit = in_flight.acquire_owned().await;
            client.send(request).await
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::{mpsc, oneshot};

    use super::*;

    #[test]
    fn a_burst_is_sent_at_once_and_then_so_many_a_second() {
        let start = Instant::now();
        let mut bucket = Bucket::new(50.0, 100.0, start).unwrap();
        let at = |millis| start + Duration::from_millis(millis);
        let waits: Vec<Duration> = (0..102).map(|_| bucket.reserve(start)).collect();
        assert!(waits[..100].iter().all(Duration::is_zero), "{waits:?}");
        assert_eq!(waits[100..], [20, 40].map(Duration::from_millis));
        // After a pause that is long enough the whole burst is there again.
        assert!((0..100).all(|_| bucket.reserve(at(4_000)).is_zero()));
        assert_eq!(bucket.reserve(at(4_000)), Duration::from_millis(20));
    }

    /// A request, and the sender of its response.
    type Waiting = (String, oneshot::Sender<()>);

    fn get(path: &str) -> Request<Body> {
        Request::get(path).body(Body::empty()).unwrap()
    }

    #[tokio::test]
    async fn so_many_requests_wait_for_a_response_and_leases_do_not_wait_behind_them() {
        let (sent, mut waiting) = mpsc::unbounded_channel::<Waiting>();
        let server = tower::service_fn(move |request: Request<Body>| {
            let (respond, responded) = oneshot::channel();
            sent.send((request.uri().path().to_owned(), respond)).unwrap();
            async move {
                responded.await.unwrap();
                Ok::<_, std::io::Error>(Response::new(Body::empty()))
            }
        });
        let mut limited = limited(Client::new(server, "default"), 0.0, 0.0);
        let requests: Vec<_> =
            (0..=IN_FLIGHT).map(|_| tokio::spawn(limited.call(get("/api/v1/pods")))).collect();
        let mut first = Vec::new();
        for _ in 0..IN_FLIGHT {
            first.push(waiting.recv().await.unwrap());
        }
        let lease = tokio::spawn(limited.call(get("/apis/coordination.k8s.io/v1/namespaces/a/leases/b")));
        // The one above the limit would have been sent before.
        let (path, respond) = waiting.recv().await.unwrap();
        assert!(path.starts_with(LEASES), "{path}");
        respond.send(()).unwrap();
        lease.await.unwrap().unwrap();
        first.pop().unwrap().1.send(()).unwrap();
        let (path, respond) = waiting.recv().await.unwrap();
        assert_eq!(path, "/api/v1/pods");
        respond.send(()).unwrap();
        for (_, respond) in first {
            respond.send(()).unwrap();
        }
        for request in requests {
            request.await.unwrap().unwrap();
        }
    }

    #[test]
    fn without_a_positive_rate_there_is_no_limit() {
        for per_second in [0.0, -1.0, f64::NAN] {
            assert!(Bucket::new(per_second, 10.0, Instant::now()).is_none());
        }
    }
}
