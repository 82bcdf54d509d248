//! The pods of a workload with every version from a watch, so that short-lived states count, too.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::ResourceExt as _;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Config, Event};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::failure::Failure;
use crate::wait::Objection;

/// A pod since its creation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Life {
    /// Its versions, and when each was observed.
    pub(crate) versions: Vec<(Timestamp, Pod)>,
    /// Whether it is deleted.
    pub(crate) is_gone: bool,
}

impl Life {
    /// The version that was observed first.
    pub(crate) fn first(&self) -> Option<&Pod> {
        self.versions.first().map(|(_, pod)| pod)
    }

    /// The version that was observed last.
    pub(crate) fn last(&self) -> Option<&Pod> {
        self.versions.last().map(|(_, pod)| pod)
    }

    /// Whether it exists and is not being deleted.
    pub(crate) fn is_live(&self) -> bool {
        !self.is_gone && self.last().is_some_and(|pod| pod.metadata.deletion_timestamp.is_none())
    }

    fn add(&mut self, pod: Pod) {
        if self.last().is_none_or(|last| last.resource_version() != pod.resource_version()) {
            self.versions.push((Timestamp::now(), pod));
        }
    }
}

/// Pods by UID.
pub(crate) type Lives = BTreeMap<String, Life>;

/// Those that exist and are not being deleted.
pub(crate) fn live(lives: &Lives) -> impl Iterator<Item = (&String, &Life)> {
    lives.iter().filter(|(_, life)| life.is_live())
}

/// The pods of a label selector, for as long as this is held.
pub(crate) struct Followed {
    lives: watch::Receiver<Lives>,
    _task: JoinSet<()>,
}

impl Followed {
    /// Follows pods. What happens to them after this is not missed.
    pub(crate) async fn start(pods: Api<Pod>, selector: &str) -> Self {
        let (sender, lives) = watch::channel(Lives::new());
        let (ready, mut is_ready) = watch::channel(false);
        let events = watcher::watcher(pods, Config::default().labels(selector)).default_backoff();
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut events = std::pin::pin!(events);
            let mut listed = BTreeSet::new();
            while let Some(event) = events.next().await {
                // The watch continues by itself.
                let Ok(event) = event else { continue };
                let is_listed = matches!(event, Event::InitDone);
                sender.send_modify(|lives| apply(lives, &mut listed, event));
                if is_listed {
                    ready.send_replace(true);
                }
            }
        });
        // The task ends when this is dropped.
        let _ = is_ready.wait_for(|ready| *ready).await;
        Self { lives, _task: task }
    }

    /// Waits until `holds` has no objection to the pods, or until the timeout.
    pub(crate) async fn until<T>(
        &mut self,
        timeout: Duration,
        mut holds: impl FnMut(&Lives) -> Result<T, Objection>,
    ) -> Result<T, Failure> {
        let mut last = String::new();
        let wait = async {
            loop {
                match holds(&self.lives.borrow_and_update()) {
                    Ok(held) => return Ok(held),
                    Err(Objection::NotYet(why)) => last = why,
                    Err(Objection::Never(why)) => return Err(Failure::Unmet(why)),
                }
                if self.lives.changed().await.is_err() {
                    return Err(Failure::WatchEnded);
                }
            }
        };
        let ended = tokio::time::timeout(timeout, wait).await;
        ended.unwrap_or_else(|_| Err(Failure::Timeout { within: timeout, last }))
    }

    /// The last observed pods.
    pub(crate) fn now(&self) -> Lives {
        self.lives.borrow().clone()
    }
}

/// Applies an event. `listed` has the pods of a list that is being delivered.
fn apply(lives: &mut Lives, listed: &mut BTreeSet<String>, event: Event<Pod>) {
    match event {
        Event::Apply(pod) => lives.entry(pod.uid().unwrap_or_default()).or_default().add(pod),
        Event::Delete(pod) => {
            let life = lives.entry(pod.uid().unwrap_or_default()).or_default();
            life.add(pod);
            life.is_gone = true;
        }
        Event::Init => listed.clear(),
        Event::InitApply(pod) => {
            let uid = pod.uid().unwrap_or_default();
            listed.insert(uid.clone());
            lives.entry(uid).or_default().add(pod);
        }
        Event::InitDone => {
            for (uid, life) in lives {
                life.is_gone |= !listed.contains(uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(uid: &str, version: &str) -> Pod {
        serde_json::from_value(json!({ "metadata": { "uid": uid, "resourceVersion": version } }))
            .expect("a pod")
    }

    #[test]
    fn versions_are_kept_and_pods_that_a_list_lacks_are_gone() {
        let (mut lives, mut listed) = (Lives::new(), BTreeSet::new());
        let mut apply = |event| apply(&mut lives, &mut listed, event);
        apply(Event::Init);
        apply(Event::InitDone);
        apply(Event::Apply(pod("a", "1")));
        apply(Event::Apply(pod("a", "2")));
        apply(Event::Apply(pod("b", "3")));
        apply(Event::Delete(pod("b", "4")));
        apply(Event::Apply(pod("c", "5")));
        apply(Event::Init);
        apply(Event::InitApply(pod("a", "2")));
        apply(Event::InitDone);
        let versions: Vec<usize> = lives.values().map(|life| life.versions.len()).collect();
        assert_eq!(versions, [2, 2, 1]);
        assert_eq!(live(&lives).map(|(uid, _)| uid.as_str()).collect::<Vec<_>>(), ["a"]);
    }
}
