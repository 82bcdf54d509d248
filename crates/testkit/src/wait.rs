//! Waiting: for objects by watching them, and for anything else.

#![expect(clippy::expect_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Event;
use kube::{Client, ResourceExt as _};
use plumb_client::Api;
use plumb_controller_runtime::{Reflector, WatchConfig, WatchEvent, Watchable};

/// How long anything may take, on a loaded machine too; no test waits that long unless it fails.
pub const TIMEOUT: Duration = Duration::from_mins(3);

/// How often a condition is looked at that has no event.
const POLL: Duration = Duration::from_millis(5);

/// Waits for something that must happen.
///
/// # Panics
/// If it does not happen in time.
pub async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(TIMEOUT, future).await.expect("it happens in time")
}

/// Polls until a condition holds for which there is no event.
///
/// # Panics
/// If it does not hold in time.
pub async fn eventually(mut holds: impl AsyncFnMut() -> bool) {
    in_time(async {
        while !holds().await {
            tokio::time::sleep(POLL).await;
        }
    })
    .await;
}

/// Waits until the objects that are selected are as they should be, and returns them by name.
async fn wait<K: Watchable>(
    api: impl Into<Api<K>>,
    config: WatchConfig,
    wanted: impl Fn(&BTreeMap<String, K>) -> bool,
) -> BTreeMap<String, K> {
    let mut events = std::pin::pin!(Reflector::new(api, config).into_stream());
    let mut objects = BTreeMap::new();
    let waiting = async {
        while let Some(event) = events.next().await {
            match event {
                WatchEvent::Restarted(all) => {
                    objects = all.into_iter().map(|object| (object.name_any(), object)).collect();
                }
                WatchEvent::Applied(object) => _ = objects.insert(object.name_any(), *object),
                WatchEvent::Deleted(object) => _ = objects.remove(&object.name),
            }
            if wanted(&objects) {
                return;
            }
        }
    };
    let done = tokio::time::timeout(TIMEOUT, waiting).await;
    assert!(done.is_ok(), "not within {TIMEOUT:?}, it came to {objects:#?}");
    objects
}

fn named(name: &str) -> WatchConfig {
    WatchConfig::default().fields(format!("metadata.name={name}"))
}

/// Waits until an object is as it should be.
///
/// # Panics
/// If that does not happen in time.
pub async fn until<K: Watchable>(api: impl Into<Api<K>>, name: &str, wanted: impl Fn(&K) -> bool) -> K {
    let is_so = |all: &BTreeMap<String, K>| all.values().any(&wanted);
    let mut found = wait(api, named(name), is_so).await.into_values();
    found.find(|object| wanted(object)).expect("one that was waited for")
}

/// Waits until an object is gone.
///
/// # Panics
/// If that does not happen in time.
pub async fn until_gone<K: Watchable>(api: impl Into<Api<K>>, name: &str) {
    wait(api, named(name), BTreeMap::is_empty).await;
}

/// Waits until all objects of a namespace, or of a cluster-scoped kind, are as they should be, and returns them by name.
///
/// # Panics
/// If that does not happen in time.
pub async fn until_all<K: Watchable>(
    api: impl Into<Api<K>>,
    wanted: impl Fn(&BTreeMap<String, K>) -> bool,
) -> BTreeMap<String, K> {
    wait(api, WatchConfig::default(), wanted).await
}

/// Waits for an event in the namespace `default` about an object, for a reason, that was counted so often.
///
/// # Panics
/// If there is none in time.
pub async fn event(client: &Client, object: &str, reason: &str, count: i32) -> Event {
    let config = WatchConfig::default().fields(format!("involvedObject.name={object},reason={reason}"));
    let often = |event: &Event| event.count.unwrap_or(1) >= count;
    let is_so = |all: &BTreeMap<String, Event>| all.values().any(often);
    let found = wait(Api::default_namespaced(client.clone()), config, is_so).await;
    found.into_values().find(often).expect("one that was waited for")
}
