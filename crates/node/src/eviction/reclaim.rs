//! Reclaiming the disk of a node before pods are evicted: containers of pods that have ended, and images that no container uses.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::oneshot;

use crate::image_gc;
use crate::node::Node;
use crate::worker::{Message, is_finished};

/// How long the removal of containers may take: a worker may be busy with something else.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Removes what can be removed, and returns when that is done.
pub(super) async fn reclaim(node: &Node) {
    let ended = node.workers.existing().into_iter().filter(|pod| is_finished(pod));
    let removals = ended.filter_map(|pod| {
        let (done, is_done) = oneshot::channel();
        let is_sent = node.workers.send(pod.metadata.uid.as_deref()?, Message::ReleaseDisk(done));
        is_sent.then_some(is_done)
    });
    if tokio::time::timeout(TIMEOUT, join_all(removals.collect::<Vec<_>>())).await.is_err() {
        tracing::warn!("not all containers of pods that have ended were removed in time");
    }
    if let Err(error) = image_gc::remove_unused(node).await {
        tracing::warn!(%error, "cannot remove unused images");
    }
}
