//! What containers used before the recommender started, from Prometheus.
//!
//! ```text
//!   labels of pods that are gone ──┐
//!   usage, a day of it at a time ──┴──▶ state, container by container ──▶ history_fetched
//! ```
//!
//! The history goes into the model as it arrives, so that it is never in memory as a whole. Until all of it is there no
//! present usage is counted, which would make the past out of order, and VPAs have the condition `FetchingHistory`. An attempt
//! that fails is repeated from the start: what was counted before does not count again.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt as _};
use plumb_controller_runtime::{Backoff, Clock};
use tokio::task::JoinSet;

use super::SharedState;
use crate::input::prometheus::{ContainerUsage, Prometheus, PrometheusError, UsageSource as _};
use crate::state::State;

/// Loads the history, however often that has to be tried.
pub(super) fn load(prometheus: Prometheus, clock: Clock, state: SharedState) -> BoxFuture<'static, ()> {
    async move {
        let mut backoff = Backoff::new(prometheus.delays());
        let mut loading = Loading::default();
        loop {
            match loading.run(&prometheus, &clock, &state).await {
                Ok(samples) => {
                    tracing::info!(samples, "read the history of usage from Prometheus");
                    state.write(State::history_fetched);
                    return;
                }
                Err(error) => {
                    let source = std::error::Error::source(&error).map(ToString::to_string);
                    tracing::warn!(
                        %error,
                        source = source.unwrap_or_default(),
                        "cannot read the history of usage from Prometheus; there are no recommendations before"
                    );
                    backoff.wait().await;
                }
            }
        }
    }
    .boxed()
}

/// Waits for what loads the history; not at all if nothing does.
pub(super) async fn read(loading: &mut JoinSet<()>) {
    if let Some(Err(error)) = loading.join_next().await
        && error.is_panic()
    {
        // The recommender starts anew.
        std::panic::resume_unwind(error.into_panic());
    }
}

/// A pod that is gone.
#[derive(Debug, Default)]
struct PastPod {
    labels: BTreeMap<String, String>,
    /// The containers of which there is usage.
    containers: Vec<Arc<str>>,
}

/// What the attempts have read.
#[derive(Debug, Default)]
struct Loading {
    /// By namespace and name, from all attempts: those of one that failed are in the model already.
    past: HashMap<(Arc<str>, Arc<str>), PastPod>,
    /// How many samples the last attempt has read.
    samples: u64,
}

impl Loading {
    async fn run(
        &mut self,
        prometheus: &Prometheus,
        clock: &Clock,
        state: &SharedState,
    ) -> Result<u64, PrometheusError> {
        self.samples = 0;
        let until = clock.now();
        self.read_labels(prometheus, until, state).await?;
        let mut usage = prometheus.history(until);
        while let Some(usage) = usage.next().await {
            self.count(&usage?, state);
        }
        // They stay until the next run, which works out what their usage means.
        for (namespace, pod) in self.past.keys() {
            state.write(|state| state.delete_past_pod(namespace, pod));
        }
        Ok(self.samples)
    }

    /// Reads the labels of pods, and remembers those of pods that are gone. Without them the usage of such pods does not
    /// count; that is no reason to do without that of the others.
    async fn read_labels(
        &mut self,
        prometheus: &Prometheus,
        until: jiff::Timestamp,
        state: &SharedState,
    ) -> Result<(), PrometheusError> {
        let mut pods = prometheus.pod_labels(until);
        while let Some(pod) = pods.next().await {
            let pod = match pod {
                Ok(pod) => pod,
                Err(error) if error.is_transient() => return Err(error),
                Err(error) => {
                    tracing::warn!(%error, "cannot read the labels of past pods (--metric-for-pod-labels)");
                    return Ok(());
                }
            };
            let exists = |state: &State| state.cluster().has_pod(&pod.namespace, &pod.pod);
            if state.read(exists) == Some(false) {
                let key = (pod.namespace.into(), pod.pod.into());
                let labels = pod.labels.into_iter().collect();
                self.past.entry(key).or_insert(PastPod { labels, containers: Vec::new() });
            }
        }
        Ok(())
    }

    fn count(&mut self, usage: &ContainerUsage, state: &SharedState) {
        self.samples += usage.samples.len() as u64;
        let key = (usage.namespace.clone(), usage.pod.clone());
        if let Some(past) = self.past.get_mut(&key)
            && !past.containers.contains(&usage.container)
        {
            past.containers.push(usage.container.clone());
            let containers: Vec<&str> = past.containers.iter().map(|name| &**name).collect();
            let labels = &past.labels;
            let apply = |state: &mut State| state.apply_past_pod(&key.0, &key.1, labels, &containers);
            if !state.write(apply) {
                self.past.remove(&key);
            }
        }
        state.write(|state| state.count_history(usage));
    }
}
