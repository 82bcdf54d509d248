//! Unstaging: a volume that no pod of this node has any more is given back to its driver.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use plumb_controller_runtime::{Backoff, Exponential};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::records::Recorded;
use super::{State, VolumeId};
use crate::volumes::blocking;

/// How often the records are read although nothing was released.
const CHECK: Duration = Duration::from_mins(1);
/// The delay of the first retry.
const FIRST_RETRY: Duration = Duration::from_millis(500);
/// The longest delay: a driver that is not registered any more may never come back.
const LAST_RETRY: Duration = Duration::from_mins(5);

/// A volume whose driver did not take it back.
struct Failed {
    backoff: Backoff,
    not_before: Instant,
}

pub(super) async fn run(state: &Arc<State>) {
    let mut failures: BTreeMap<VolumeId, Failed> = BTreeMap::new();
    let mut running: BTreeSet<VolumeId> = BTreeSet::new();
    let mut tasks: JoinSet<(VolumeId, io::Result<()>)> = JoinSet::new();
    loop {
        let unused = unused(state).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot list staged volumes, will retry");
            Vec::new()
        });
        if let Err(error) = state.in_use.report(&state.layout).await {
            tracing::warn!(%error, "cannot write volumesInUse of the node, will retry");
        }
        failures.retain(|id, _| unused.iter().any(|volume| volume.record.id() == *id));
        let now = Instant::now();
        for volume in unused {
            let id = volume.record.id();
            let waits = failures.get(&id).is_some_and(|failed| failed.not_before > now);
            if waits || !running.insert(id.clone()) {
                continue;
            }
            let state = state.clone();
            // Each by itself: a driver that hangs keeps no volume of another one.
            tasks.spawn(async move { (id, unstage(&state, volume).await) });
        }
        let waiting = failures.iter().filter(|(id, _)| !running.contains(id));
        let next = waiting.map(|(_, failed)| failed.not_before).min().unwrap_or(now + CHECK).min(now + CHECK);
        tokio::select! {
            () = state.released.notified() => {}
            () = tokio::time::sleep_until(next) => {}
            Some(finished) = tasks.join_next() => {
                let Ok((id, result)) = finished else {
                    // It panicked; which one is not known.
                    running.clear();
                    continue;
                };
                running.remove(&id);
                match result {
                    Ok(()) => _ = failures.remove(&id),
                    Err(error) => {
                        let known = failures.entry(id.clone());
                        let failed = known.or_insert_with(|| Failed {
                            backoff: Backoff::new(Exponential::new(FIRST_RETRY, LAST_RETRY)),
                            not_before: now,
                        });
                        failed.not_before = Instant::now() + failed.backoff.failed();
                        tracing::warn!(%error, driver = id.driver, volume = id.handle, "cannot unstage a volume, will retry");
                    }
                }
            }
        }
    }
}

/// The staged volumes that no pod has.
async fn unused(state: &State) -> io::Result<Vec<Recorded>> {
    let layout = state.layout.clone();
    blocking(move || {
        // In this order: a volume that is being mounted is staged before its pod has it, and locked meanwhile.
        let staged = layout.all_staged()?;
        let used: BTreeSet<VolumeId> =
            layout.published_to_all()?.iter().map(|volume| volume.record.id()).collect();
        Ok(staged.into_iter().filter(|volume| !used.contains(&volume.record.id())).collect())
    })
    .await
}

async fn unstage(state: &State, volume: Recorded) -> io::Result<()> {
    let id = volume.record.id();
    let lock = state.lock(&id);
    let _locked = lock.lock().await;
    // A pod may have mounted it meanwhile.
    if !unused(state).await?.iter().any(|unused| unused.directory == volume.directory) {
        return Ok(());
    }
    let registered = state.drivers.get(&id.driver).map_err(io::Error::other)?;
    state.staged.lock().remove(&id);
    match registered.driver.unstage(&id.handle, &volume.staging()).await {
        Ok(()) => {}
        Err(error) if error.is_not_found() => {}
        Err(error) => return Err(io::Error::other(error)),
    }
    blocking(move || volume.remove()).await
}
