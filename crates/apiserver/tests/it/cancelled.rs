//! Writes whose client disconnects, at every await; and servers that crash, between any two writes of theirs.
//!
//! A request is polled so many times and then dropped, as the connection of a client that disconnects does: never,
//! once, twice, until it is answered. Whatever it did until then, the cluster is afterwards as if the request had not
//! been sent, or as if it had been answered, and nothing in between.

mod allocations;
mod definitions;
pub(crate) mod gated;
mod writes;

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use plumb_resize::rules::Rules;
use plumb_store::{EventFilter, List, Prefix, Revision, Store};
use serde_json::Value;

use super::test_api_server::{TestApiServer, admin};
use gated::Gate;

/// The timeout of every wait.
const DEADLINE: Duration = Duration::from_mins(3);
/// More polls than any request needs.
const MOST_POLLS: usize = 200;

/// A request that can be sent repeatedly.
pub(super) struct TestRequest {
    method: Method,
    path: String,
    media: &'static str,
    body: Value,
}

impl TestRequest {
    fn new(method: Method, path: impl Into<String>, body: Value) -> Self {
        let media = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        Self { method, path: path.into(), media, body }
    }

    fn request(&self) -> Request<Full<Bytes>> {
        let body = if self.body.is_null() { String::new() } else { self.body.to_string() };
        Request::builder()
            .method(self.method.clone())
            .uri(&self.path)
            .header("content-type", self.media)
            .extension(admin())
            .body(Full::new(body.into()))
            .unwrap()
    }

    /// Sends the request, and drops it after so many polls. Returns the status of the response, if it came before.
    async fn cancelled_after(
        &self,
        apiserver: &TestApiServer,
        gate: &Gate,
        polls: usize,
    ) -> Option<StatusCode> {
        let answered = {
            let mut request = pin!(apiserver.server.handle(self.request()));
            let polled = poll_times(request.as_mut(), gate, polls);
            tokio::time::timeout(DEADLINE, polled).await.expect("the request is woken")
        };
        gate.open();
        let completed = apiserver.server.writes_completed();
        tokio::time::timeout(DEADLINE, completed).await.expect("the tasks that complete requests end");
        apiserver.store().sync().await.unwrap();
        answered.map(|response| response.status())
    }
}

/// Polls a future so many times, each time when it was woken. Nothing becomes durable while it is polled, so that it
/// waits for every write of its own.
async fn poll_times<F: Future>(mut future: Pin<&mut F>, gate: &Gate, polls: usize) -> Option<F::Output> {
    let mut left = polls;
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        gate.close();
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => {
                gate.let_one_pass();
                Poll::Pending
            }
        }
    })
    .await
}

/// Everything that is stored, but for what is different every time.
pub(super) fn stored(store: &Store) -> BTreeMap<String, Value> {
    let page = store.list(&List::all(Prefix::everything())).unwrap();
    // The controllers of the server register its own group versions at each start.
    let registered = "apiregistration.k8s.io/apiservices/";
    let objects = page.objects.iter().filter(|object| !object.key.as_str().starts_with(registered));
    objects.map(|object| (object.key.to_string(), without_identity(&object.value))).collect()
}

fn without_identity(bytes: &[u8]) -> Value {
    let mut object: Value = serde_json::from_slice(bytes).unwrap();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("uid");
        metadata.remove("resourceVersion");
    }
    object
}

/// An API server over a store whose writes become durable when the gate lets them.
pub(super) fn gated() -> (TestApiServer, Gate) {
    let (store, gate) = gated::store();
    (TestApiServer::over(store, Rules::kep()), gate)
}

/// What became of a request that was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// As if there had been no request.
    Undone,
    /// It was completed without its client.
    Completed,
    /// It was answered first.
    Answered,
}

/// Drops a request at every await, each time in a new cluster, and checks what is stored, and calls `check`.
/// Returns the outcome of each.
pub(super) async fn at_every_await(
    request: &TestRequest,
    prepare: impl AsyncFn(&TestApiServer),
    check: impl AsyncFn(&TestApiServer, Outcome),
) -> Vec<Outcome> {
    let (complete, gate) = gated();
    prepare(&complete).await;
    let status = request.cancelled_after(&complete, &gate, usize::MAX).await.unwrap();
    assert!(status.is_success(), "{} {}: {status}", request.method, request.path);
    let after = stored(complete.store());

    let mut outcomes = Vec::new();
    for polls in 0..MOST_POLLS {
        let (apiserver, gate) = gated();
        prepare(&apiserver).await;
        let before = stored(apiserver.store());
        assert_ne!(before, after, "the request changes something");
        let answered = request.cancelled_after(&apiserver, &gate, polls).await;
        let now = stored(apiserver.store());
        let outcome = match answered {
            Some(status) => {
                assert!(status.is_success(), "{} {}: {status}", request.method, request.path);
                Outcome::Answered
            }
            None if now == before => Outcome::Undone,
            None => Outcome::Completed,
        };
        if outcome != Outcome::Undone {
            let what = format!("{} {} dropped after {polls} polls", request.method, request.path);
            assert_eq!(now, after, "{what} is neither undone nor completed");
        }
        idle(&apiserver).await;
        check(&apiserver, outcome).await;
        outcomes.push(outcome);
        if outcome == Outcome::Answered {
            return outcomes;
        }
    }
    unreachable!("the request is answered after a few polls")
}

/// No request is under way, and none holds a place.
async fn idle(apiserver: &TestApiServer) {
    let figures = apiserver.get("/metrics").await.body;
    let figures = figures.as_str().unwrap();
    let writing = figures
        .lines()
        .find(|line| line.starts_with("apiserver_current_inflight_requests") && line.contains("mutating"));
    for line in figures.lines().filter(|line| line.starts_with("apiserver_current_inflight_requests{")) {
        assert!(line.ends_with(" 0"), "{line}");
    }
    assert!(writing.is_some());
}

/// Waits until something holds that is looked at whenever something was written.
pub(super) async fn until(store: &Store, what: &str, holds: impl AsyncFn() -> bool) {
    let waiting = async {
        loop {
            let seen = store.revision();
            if holds().await {
                return;
            }
            let mut changes = store.watch(EventFilter::prefix(Prefix::everything()), seen).unwrap();
            changes.next().await.unwrap();
        }
    };
    tokio::time::timeout(DEADLINE, waiting).await.expect(what);
}

/// A new store with what another held at a revision, as after a crash at that moment.
pub(super) async fn as_of(store: &Store, revision: Revision) -> Store {
    let page = store.list(&List::all(Prefix::everything()).at(revision)).unwrap();
    let copy = Store::in_memory(&plumb_store::Options::default());
    for object in page.objects {
        let write = plumb_store::Write::put(object.key.clone(), object.value.clone());
        copy.write(write.attributes(object.attributes.clone())).await.unwrap();
    }
    copy
}
