//! The controller that keeps an `APIService` for each group version that this server serves itself: upstream's `autoregister`
//! and `crdregistration` controllers.
//!
//! ```text
//!   built-in group versions ── automanaged=onstart ─┐
//!                                                    ├─▶ decide ─▶ create, update, delete
//!   custom group versions ──── automanaged=true ────┘
//! ```
//!
//! Those of built-in group versions are made and mended once after each start, so that an administrator can change them. Those of
//! custom group versions are kept as they are, and deleted with their last definition. An `APIService` without the label is never
//! touched, nor is one that names a Service for a group version of its own.

mod decide;
mod priorities;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::future::{join_all, select_all};
use http::{Method, StatusCode};
use plumb_store::{EventFilter, Prefix, Revision, Watch, WatchEnd};
use plumb_supervise::{Backoff, Exponential};
use serde_json::{Value, json};

use super::request::send;
use crate::aggregation::{GROUP, PLURAL};
use crate::completion::without_panic;
use crate::error::{ApiError, gone};
use crate::object::meta;
use crate::shutdown::Shutdown;
use crate::state::ApiServer;
use crate::stored;
use decide::{Action, Desired, History, decide};

/// The backoff after consecutive errors.
const DELAYS: Exponential = Exponential::new(Duration::from_millis(100), Duration::from_secs(30));
/// The kinds whose changes are watched.
const WATCHED: [(&str, &str); 2] = [(GROUP, PLURAL), ("apiextensions.k8s.io", "customresourcedefinitions")];

/// What the controller remembers since it started.
struct Memory {
    /// The names that existed at the start.
    at_start: BTreeSet<String>,
    /// The names that it has written, or found as they should be.
    synced: BTreeSet<String>,
}

/// Keeps the `APIService`s until the shutdown.
pub(crate) async fn run(server: &ApiServer, mut shutdown: Shutdown) {
    let mut backoff = Backoff::new(DELAYS);
    let mut memory = None;
    loop {
        let from = server.cluster().store().revision();
        let outcome = tokio::select! {
            outcome = without_panic(reconcile(server, &mut memory), panicked) => outcome,
            () = shutdown.requested() => return,
        };
        if let Err(error) = outcome {
            let failures = backoff.failures();
            tracing::warn!(error = error.message, failures, "cannot register APIServices");
            tokio::select! {
                () = backoff.wait() => continue,
                () = shutdown.requested() => return,
            }
        }
        backoff.reset();
        let changed = tokio::select! {
            changed = changed(server, from) => changed,
            () = shutdown.requested() => return,
        };
        match changed {
            Ok(true) => {}
            // The store is closed.
            Ok(false) => return,
            Err(error) => {
                tracing::warn!(error = error.message, "cannot watch APIServices");
                tokio::select! {
                    () = backoff.wait() => {}
                    () = shutdown.requested() => return,
                }
            }
        }
    }
}

fn panicked(panic: &str) -> Result<(), ApiError> {
    Err(ApiError::internal(format!("registering panicked: {panic}")))
}

/// Waits for a change of an `APIService` or a definition; false if the store is closed.
async fn changed(server: &ApiServer, from: Revision) -> Result<bool, ApiError> {
    let watch = |(group, plural)| {
        let prefix = Prefix::new(stored::root(group, plural));
        let prefix = prefix.map_err(|error| ApiError::internal(error.to_string()))?;
        server.cluster().store().watch(EventFilter::prefix(prefix), from).map_err(gone)
    };
    let mut watches: Vec<Watch> = WATCHED.into_iter().map(watch).collect::<Result<_, _>>()?;
    let next = watches.iter_mut().map(|watch| Box::pin(watch.next()));
    // Missed events do not matter, since everything is read again.
    Ok(!matches!(select_all(next).await.0, Err(WatchEnd::Closed)))
}

/// Brings all `APIService`s to what they should be. The failure of one does not stop the others.
async fn reconcile(server: &ApiServer, memory: &mut Option<Memory>) -> Result<(), ApiError> {
    let all: Vec<Value> = stored::all(server.cluster().store(), (GROUP, PLURAL), None)?;
    let current: BTreeMap<&str, &Value> = all.iter().map(|object| (meta(object, "name"), object)).collect();
    let memory = memory.get_or_insert_with(|| Memory {
        at_start: current.keys().map(|name| (*name).to_owned()).collect(),
        synced: BTreeSet::new(),
    });
    let desired = desired(server)?;
    let names: BTreeSet<&str> = current.keys().copied().chain(desired.keys().map(String::as_str)).collect();
    let writes = names.into_iter().map(async |name| {
        let history =
            History { at_start: memory.at_start.contains(name), synced: memory.synced.contains(name) };
        let action = decide(current.get(name).copied(), desired.get(name), history);
        (name.to_owned(), write(server, name, action).await)
    });
    let written = join_all(writes).await;
    let mut first_error = Ok(());
    for (name, written) in written {
        if written.is_ok() {
            memory.synced.insert(name);
        }
        first_error = first_error.and(written);
    }
    first_error
}

/// The `APIService`s that there should be, by name.
fn desired(server: &ApiServer) -> Result<BTreeMap<String, Desired>, ApiError> {
    server.cluster().definitions().serve_current()?;
    let mut desired = BTreeMap::new();
    let kinds = server.cluster().kinds();
    for row in kinds.iter() {
        let (group, version) = (row.group(), row.version());
        let wanted = match row.custom() {
            None => match priorities::builtin(group, version) {
                Some(priorities) => Desired::on_start(group, version, priorities),
                // metrics.k8s.io, which metrics-server may register with its Service.
                None => continue,
            },
            Some(_) => Desired::continuously(group, version, priorities::CUSTOM),
        };
        // Built-in rows come first, and stay.
        desired.entry(wanted.name()).or_insert(wanted);
    }
    Ok(desired)
}

async fn write(server: &ApiServer, name: &str, action: Action) -> Result<(), ApiError> {
    let collection = format!("/apis/{GROUP}/v1/{PLURAL}");
    let path = format!("{collection}/{name}");
    let (verb, status) = match action {
        Action::None => return Ok(()),
        Action::Create(object) => ("created", send(server, Method::POST, &collection, &object).await?),
        Action::Update(object) => ("updated", send(server, Method::PUT, &path, &object).await?),
        Action::Delete { uid } => {
            let options = json!({
                "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": { "uid": uid },
            });
            ("deleted", send(server, Method::DELETE, &path, &options).await?)
        }
    };
    // Another writer was faster: its write causes the next pass.
    let is_outdated = [StatusCode::CONFLICT, StatusCode::NOT_FOUND].contains(&status);
    if status.is_success() || is_outdated {
        tracing::debug!(api_service = name, verb, %status, "registered an APIService");
        return Ok(());
    }
    Err(ApiError::internal(format!("the APIService {name} is not {verb}: {status}")))
}
