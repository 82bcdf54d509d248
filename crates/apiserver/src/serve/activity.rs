//! Whether a connection has requests under way.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tokio::sync::watch;

/// Counts the requests under way on one connection.
#[derive(Clone, Debug)]
pub(super) struct Activity(Arc<watch::Sender<usize>>);

impl Activity {
    pub(super) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }

    /// A request begins; it is under way until what is returned is dropped.
    pub(super) fn begin(&self) -> UnderWay {
        self.0.send_modify(|count| *count += 1);
        UnderWay(Arc::clone(&self.0))
    }

    /// Returns when there was no request under way for as long as `patience`.
    pub(super) async fn idle_for(&self, patience: Duration) {
        let mut count = self.0.subscribe();
        loop {
            // Neither can fail: the sender is `self`'s.
            if count.wait_for(|count| *count == 0).await.is_err() {
                return;
            }
            match tokio::time::timeout(patience, count.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return,
            }
        }
    }
}

/// A request that is under way.
#[derive(Debug)]
pub(super) struct UnderWay(Arc<watch::Sender<usize>>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

pin_project! {
    /// A response's body; with it ends what is under way.
    pub(super) struct Tracked<B> {
        #[pin]
        body: B,
        under_way: UnderWay,
    }
}

impl<B> Tracked<B> {
    pub(super) fn new(body: B, under_way: UnderWay) -> Self {
        Self { body, under_way }
    }
}

impl<B: Body> Body for Tracked<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        self.project().body.poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
