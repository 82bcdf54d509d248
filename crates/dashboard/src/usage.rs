//! What containers use, by metrics.k8s.io.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use plumb_recommender::input::live_usage::{LiveUsage as _, LiveUsageError, Measurement, MetricsApi};
use plumb_resize::resource::{Amounts, Declared, Resource};

use crate::history::{History, PodKey, Resized, Series};
use crate::source::{Access, Changes};

/// How long to wait for metrics: an aggregated API may hang.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The usage of containers by the namespace and the name of their pod: as last measured, and lately.
#[derive(Default)]
pub(crate) struct Usage(Mutex<State>);

#[derive(Default)]
struct State {
    access: Access,
    pods: HashMap<PodKey, HashMap<String, Declared>>,
    history: History,
}

impl Usage {
    /// Whether it can be read.
    pub(crate) fn access(&self) -> Access {
        self.0.lock().access.clone()
    }

    /// The usage of a container.
    pub(crate) fn container(&self, namespace: &str, pod: &str, container: &str) -> Declared {
        let state = self.0.lock();
        let pod = state.pods.get(&(namespace.to_owned(), pod.to_owned()));
        pod.and_then(|containers| containers.get(container)).copied().unwrap_or_default()
    }

    /// The usage of all containers of a pod.
    pub(crate) fn pod(&self, namespace: &str, pod: &str) -> Declared {
        let state = self.0.lock();
        let Some(containers) = state.pods.get(&(namespace.to_owned(), pod.to_owned())) else {
            return Declared::NONE;
        };
        let sum = containers.values().fold(Amounts::ZERO, |sum, used| sum.plus(used.amounts()));
        Declared::of(|resource| {
            let is_known = containers.values().any(|used| used[resource].is_some());
            is_known.then_some(sum[resource])
        })
    }

    /// What a container used lately.
    pub(crate) fn series(&self, pod: &PodKey, container: &str, resource: Resource) -> Series {
        self.0.lock().history.series(pod, container, resource)
    }

    /// The resizes of a pod that were observed lately.
    pub(crate) fn resizes(&self, pod: &PodKey) -> Vec<Resized> {
        self.0.lock().history.resizes(pod)
    }

    /// Notes a change of a pod.
    pub(crate) fn observe(&self, before: Option<&Pod>, after: Option<&Pod>) {
        self.0.lock().history.observe(before, after, Timestamp::now());
    }

    /// Reads metrics at an interval for good.
    pub(crate) async fn keep(&self, metrics: MetricsApi, interval: Duration, changes: &Changes) {
        let mut ticks = tokio::time::interval(interval);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if self.read(&metrics).await {
                changes.note();
            }
        }
    }

    /// Reads metrics once. Returns whether anything changed.
    async fn read(&self, metrics: &MetricsApi) -> bool {
        let measured = tokio::time::timeout(TIMEOUT, metrics.read(Timestamp::now())).await;
        let read = match measured {
            Err(_) => Err(Access::Unreachable("metrics.k8s.io did not answer in time".to_owned())),
            Ok(Err(LiveUsageError::Request(error))) => Err(Access::from_error(error)),
            Ok(Err(error)) => Err(Access::Unreachable(error.to_string())),
            Ok(Ok(measured)) => {
                let mut pods: HashMap<PodKey, HashMap<String, Declared>> = HashMap::new();
                let visited = measured.visit(&mut |measurement| add(&mut pods, &measurement));
                visited.map(|()| pods).map_err(|error| Access::Unreachable(error.to_string()))
            }
        };
        // Usage that is not current is misleading.
        let (access, pods) = match read {
            Ok(pods) => (Access::Granted, pods),
            Err(access) => (access, HashMap::new()),
        };
        let mut state = self.0.lock();
        let changed = state.access != access || state.pods != pods;
        if access == Access::Granted {
            state.history.add(Timestamp::now(), &pods);
        }
        (state.access, state.pods) = (access, pods);
        changed
    }
}

fn add(pods: &mut HashMap<PodKey, HashMap<String, Declared>>, measurement: &Measurement<'_>) {
    let Ok(sample) = measurement.sample else { return };
    let pod = (measurement.namespace.to_owned(), measurement.pod.to_owned());
    let container = pods.entry(pod).or_default().entry(measurement.container.to_owned());
    let resource: Resource = sample.resource;
    container.or_default()[resource] = Some(sample.usage);
}
