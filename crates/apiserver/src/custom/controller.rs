//! The controller of definitions: reconciles them at the start, whenever one was written, whenever an object of one that
//! is terminating was, and again with a backoff after an error.
//!
//! A request that writes a definition reconciles by itself before it answers, so that clients find at once what they
//! wrote. The controller is for what a request could not do: after a crash, an error, or a race.

use std::time::Duration;

use futures_util::future::select_all;
use plumb_store::{EventFilter, Revision, Watch, WatchEnd};
use plumb_supervise::{Backoff, Exponential};

use super::Definitions;
use super::reconcile::{reconcile, terminating};
use crate::completion::without_panic;
use crate::error::ApiError;
use crate::shutdown::Shutdown;

/// The backoff after consecutive errors.
const DELAYS: Exponential = Exponential::new(Duration::from_millis(100), Duration::from_secs(30));

/// Reconciles what a request wrote, which holds the lock. If that fails the controller tries again: what was written
/// is stored, and the response says so.
pub(crate) async fn reconcile_now(definitions: &Definitions) {
    if let Err(error) = reconcile(definitions).await {
        tracing::warn!(error = error.message, "definitions are not reconciled yet");
        definitions.requeued.notify_one();
    }
}

/// Reconciles definitions until the shutdown.
pub(crate) async fn run(definitions: &Definitions, mut shutdown: Shutdown) {
    let mut backoff = Backoff::new(DELAYS);
    let mut changed = None;
    loop {
        let watches = match without_panic(pass(definitions, changed), panicked).await {
            Ok(watches) => {
                backoff.reset();
                watches
            }
            Err(error) => {
                tracing::warn!(
                    error = error.message,
                    failures = backoff.failures(),
                    "cannot reconcile definitions"
                );
                tokio::select! {
                    () = backoff.wait() => {}
                    () = shutdown.requested() => return,
                }
                changed = None;
                continue;
            }
        };
        changed = tokio::select! {
            change = next_change(watches) => match change {
                // The store is closed.
                Err(WatchEnd::Closed) => return,
                // The next pass reads everything from the store.
                Err(_) => None,
                Ok(revision) => Some(revision),
            },
            () = definitions.requeued.notified() => None,
            () = shutdown.requested() => return,
        };
    }
}

fn panicked(panic: &str) -> Result<Vec<Watch>, ApiError> {
    Err(ApiError::internal(format!("reconciling panicked: {panic}")))
}

/// Reconciles, unless the request that made the known change did; and watches what to reconcile for next.
async fn pass(definitions: &Definitions, changed: Option<Revision>) -> Result<Vec<Watch>, ApiError> {
    let from = {
        let _alone = definitions.writing.lock().await;
        match changed {
            Some(changed) if changed <= definitions.reconciled() => changed,
            _ => {
                // From before the reconciliation: it may itself write something that others are to be reconciled for.
                let from = definitions.store.revision();
                reconcile(definitions).await?;
                from
            }
        }
    };
    let mut prefixes = vec![definitions.row()?.prefix(None)?];
    prefixes.extend(terminating(definitions)?);
    let watch = |prefix| definitions.store.watch(EventFilter::prefix(prefix), from);
    let watches: Result<Vec<Watch>, _> = prefixes.into_iter().map(watch).collect();
    watches.map_err(crate::error::gone)
}

/// The revision of the next change that any of the watches sees.
async fn next_change(mut watches: Vec<Watch>) -> Result<Revision, WatchEnd> {
    let next = watches.iter_mut().map(|watch| Box::pin(watch.next()));
    let (event, _, _) = select_all(next).await;
    event.map(|event| event.revision)
}
