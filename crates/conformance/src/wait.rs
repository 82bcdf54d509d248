//! Waiting. Every wait is a watch with a deadline: nothing is asked again and again, and a wait that ends in vain says
//! what was seen last.

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

/// What speaks against an object.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Objection {
    /// It may still come.
    NotYet(String),
    /// It can't be right any more.
    Never(String),
}

impl Objection {
    /// Something that may still come.
    pub(crate) fn not_yet<T>(why: impl Into<String>) -> Result<T, Self> {
        Err(Self::NotYet(why.into()))
    }
}

/// The changes of an object, as a watch tells them.
pub(crate) type Changes<K> = BoxStream<'static, watcher::Result<Option<K>>>;

/// Watches an object, from now on: nothing that happens to it after this is missed.
pub(crate) async fn watched<K>(objects: &Api<K>, name: &str) -> Changes<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut changes = watch_object(objects.clone(), name).boxed();
    // The first is how it stands.
    changes.next().await;
    changes
}

/// Waits until `holds` says nothing against the object, or until `patience` is over.
pub(crate) async fn until<K>(
    objects: &Api<K>,
    name: &str,
    patience: Duration,
    holds: impl FnMut(&K) -> Result<(), Objection>,
) -> Result<K, Failure>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    until_in(watch_object(objects.clone(), name).boxed(), patience, holds).await
}

/// The same, in a watch that has begun.
pub(crate) async fn until_in<K>(
    mut changes: Changes<K>,
    patience: Duration,
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
                // The watch goes on by itself, with a backoff of its own.
                Err(error) => last = error.to_string(),
            }
        }
        Err(Failure::WatchEnded)
    };
    let ended = tokio::time::timeout(patience, watch).await;
    ended.unwrap_or_else(|_| Err(Failure::Timeout { within: patience, last }))
}

/// Waits until an object of this identity is gone.
pub(crate) async fn until_gone<K>(
    objects: &Api<K>,
    name: &str,
    uid: &str,
    patience: Duration,
) -> Result<(), Failure>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let gone = await_condition(objects.clone(), name, is_deleted(uid));
    match tokio::time::timeout(patience, gone).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(Failure::Unmet(error.to_string())),
        Err(_) => Err(Failure::Unmet(format!("{name} was not gone within {} s", patience.as_secs()))),
    }
}

/// Waits until a pod has an event of this reason.
pub(crate) async fn until_event(
    events: &Api<Event>,
    pod: &str,
    reason: &str,
    patience: Duration,
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
                // The watch goes on by itself.
                Err(error) => seen.push(error.to_string()),
            }
        }
    };
    let ended = tokio::time::timeout(patience, watch).await;
    ended.unwrap_or_else(|_| {
        Err(Failure::Unmet(format!("no event {reason} within {} s, only {seen:?}", patience.as_secs())))
    })
}
