//! A client with random latency of requests, responses and watch events.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _};
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use kube::Client;
use parking_lot::Mutex;
use plumb_apiserver::ApiServer;
use plumb_apiserver::authn::User;
use tower::ServiceExt as _;

use super::super::dice::Dice;

/// The largest latency of a request, a response or an event, in milliseconds.
const MAX_LATENCY_MS: u64 = 20;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The latency of all clients.
#[derive(Clone)]
pub(super) struct Lag(Arc<Mutex<Dice>>);

impl Lag {
    pub(super) fn new(dice: Dice) -> Self {
        Self(Arc::new(Mutex::new(dice)))
    }

    async fn wait(&self) {
        let wait = self.0.lock().below(MAX_LATENCY_MS + 1);
        tokio::time::sleep(Duration::from_millis(wait)).await;
    }

    /// A client of the API server with latency.
    pub(super) fn client(&self, server: &ApiServer, user: User) -> Client {
        let (inside, lag) = (server.inside(user), self.clone());
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let (inside, lag) = (inside.clone(), lag.clone());
            async move {
                let watches = request.uri().query().is_some_and(|query| query.contains("watch=true"));
                lag.wait().await;
                let answer = inside.oneshot(request).await.map_err(|never| match never {})?;
                lag.wait().await;
                Ok::<_, Failure>(if watches { delayed(answer, lag) } else { answer.map(boxed) })
            }
        });
        Client::new(service, "default")
    }
}

fn boxed<B>(body: B) -> UnsyncBoxBody<Bytes, Failure>
where
    B: hyper::body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Failure>,
{
    body.map_err(Into::into).boxed_unsync()
}

/// Delays the events of a watch, in order. Events that arrive during a delay are delivered with the first.
fn delayed<B>(answer: Response<B>, lag: Lag) -> Response<UnsyncBoxBody<Bytes, Failure>>
where
    B: hyper::body::Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Failure> + Send,
{
    answer.map(|body| {
        let lines = futures::stream::unfold((body.into_data_stream(), lag), |(mut lines, lag)| async move {
            let line = if let Some(line) = lines.next().now_or_never() {
                line?
            } else {
                let line = lines.next().await?;
                lag.wait().await;
                line
            };
            Some((line.map(Frame::data).map_err(Into::into), (lines, lag)))
        });
        boxed(StreamBody::new(lines))
    })
}
