//! Discards the rest of a request body that no handler reads.
//!
//! A response that ends before the request does makes HTTP/2 reset the stream, and HTTP/1.1 close a socket with unread bytes,
//! which resets the connection. Some clients then lose the response: curl 7.88 reported "Stream error in the HTTP/2 framing
//! layer" instead of a 401 for half of its POST requests.

use std::future::{Future as _, poll_fn};
use std::task::Poll;
use std::time::Duration;

use http_body::Body;
use http_body_util::BodyExt as _;

/// How many bytes are discarded: as many as a valid body may have.
const MOST: usize = 3 << 20;
/// How long a response waits for the rest of the request. A client that sends a body at all sends it at once.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Reads and discards a body up to a limit, within a timeout.
pub(crate) async fn discard<B: Body + Unpin>(body: &mut B) {
    discard_permitted(body, || Some(())).await;
}

/// Reads and discards a body. What has arrived costs nothing; for the rest the request waits only with a permit: one whose body
/// never comes counts against no other limit.
pub(crate) async fn discard_permitted<B: Body + Unpin, P>(body: &mut B, permit: impl FnOnce() -> Option<P>) {
    let mut left = MOST;
    let mut read = std::pin::pin!(async {
        while let Some(Ok(frame)) = body.frame().await {
            let size = frame.into_data().map_or(0, |data| bytes::Buf::remaining(&data));
            if size > left {
                return;
            }
            left -= size;
        }
    });
    if poll_fn(|context| Poll::Ready(read.as_mut().poll(context).is_ready())).await {
        return;
    }
    let Some(_permit) = permit() else { return };
    // After the timeout the client gets the response, and then loses the stream.
    drop(tokio::time::timeout(TIMEOUT, read).await);
}
