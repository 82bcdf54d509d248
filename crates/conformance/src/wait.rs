//! Waits. Every wait is a watch with a deadline, and never polls; a wait that fails reports the last observed state.

use std::fmt::Debug;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Event;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::wait::{await_condition, conditions::is_deleted};
use kube::runtime::watcher::{self, Config, watch_object};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use crate::failure::Failure;

/// Why an object is not in the expected state.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Objection {
    /// It may still get there.
    NotYet(String),
    /// It cannot get there any more.
    Never(String),
}

impl Objection {
    /// An objection that a later change may remove.
    pub(crate) fn not_yet<T>(why: impl Into<String>) -> Result<T, Self> {
        Err(Self::NotYet(why.into()))
    }
}

/// The changes of an object, from a watch.
pub(crate) type Changes<K> = BoxStream<'static, watcher::Result<Option<K>>>;

/// Watches an object from now on, without a gap.
pub(crate) async fn watched<K>(objects: &Api<K>, name: &str) -> Changes<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut changes = watch_object(objects.clone(), name).boxed();
    // The first event has the current state.
    changes.next().await;
    changes
}

/// Waits until `holds` has no objection to the object, or until the timeout.
pub(crate) async fn until<K>(
    objects: &Api<K>,
    name: &str,
    timeout: Duration,
    holds: impl FnMut(&K) -> Result<(), Objection>,
) -> Result<K, Failure>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    until_in(watch_object(objects.clone(), name).boxed(), timeout, holds).await
}

/// The same with a watch that was opened before.
pub(crate) async fn until_in<K>(
    mut changes: Changes<K>,
    timeout: Duration,
    mut holds: impl FnMut(&K) -> Result<(), Objection>,
) -> Result<K, Failure> {
    let mut last = String::from("it was never seen");
    let watch = async {
        while let Some(change) = changes.next().await {
            match change {
                Ok(Some(object)) => match holds(&object) {
                    Ok(()) => return Ok(object),
                    Err(Objection::NotYet(why)) => last = why,
                    Err(Objection::Never(why)) => return Err(Failure::Unmet(why)),
                },
                Ok(None) => last = String::from("it is not there"),
                // The watch continues by itself, with a backoff of its own.
                Err(error) => last = error.to_string(),
            }
        }
        Err(Failure::WatchEnded)
    };
    let ended = tokio::time::timeout(timeout, watch).await;
    ended.unwrap_or_else(|_| Err(Failure::Timeout { within: timeout, last }))
}

/// Waits until the object with this UID is gone.
pub(crate) async fn until_gone<K>(
    objects: &Api<K>,
    name: &str,
    uid: &str,
    timeout: Duration,
) -> Result<(), Failure>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let gone = await_condition(objects.clone(), name, is_deleted(uid));
    match tokio::time::timeout(timeout, gone).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(Failure::Unmet(error.to_string())),
        Err(_) => Err(Failure::Unmet(format!("{name} was not gone within {} s", timeout.as_secs()))),
    }
}

/// Waits until a pod has an event with this reason.
pub(crate) async fn until_event(
    events: &Api<Event>,
    pod: &str,
    reason: &str,
    timeout: Duration,
) -> Result<(), Failure> {
    let about = Config::default().fields(&format!("involvedObject.name={pod}"));
    let mut seen = Vec::new();
    let watch = async {
        let mut events =
            std::pin::pin!(watcher::watcher(events.clone(), about).default_backoff().applied_objects());
        loop {
            match events.try_next().await {
                Ok(Some(event)) if event.reason.as_deref() == Some(reason) => return Ok(()),
                Ok(Some(event)) => seen.extend(event.reason),
                Ok(None) => return Err(Failure::WatchEnded),
                // The watch continues by itself.
                Err(error) => seen.push(error.to_string()),
            }
        }
    };
    let ended = tokio::time::timeout(timeout, watch).await;
    ended.unwrap_or_else(|_| {
        Err(Failure::Unmet(format!("no event {reason} within {} s, only {seen:?}", timeout.as_secs())))
    })
}
