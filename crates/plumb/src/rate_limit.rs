//! The client's rate limit, as in client-go: requests per second, and a burst after a pause.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use tokio::time::Instant;
use tower::Service;

/// A service around a client that waits before it sends more than it may. Clones of it share the limit. Without a positive
/// rate there is none.
pub(crate) fn limited(client: Client, per_second: f64, burst: f64) -> Limited {
    let bucket = Bucket::new(per_second, burst, Instant::now());
    Limited { client, bucket: bucket.map(|bucket| Arc::new(Mutex::new(bucket))) }
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
        let wait = self.bucket.as_ref().map(|bucket| bucket.lock().reserve(Instant::now()));
        Box::pin(async move {
            tokio::time::sleep(wait.unwrap_or_default()).await;
            client.send(request).await
        })
    }
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn without_a_positive_rate_there_is_no_limit() {
        for per_second in [0.0, -1.0, f64::NAN] {
            assert!(Bucket::new(per_second, 10.0, Instant::now()).is_none());
        }
    }
}
