//! What containers use now, by metrics.k8s.io.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use plumb_recommender::input::live_usage::{LiveUsage as _, Measurement, MetricsApi};
use plumb_resize::resource::{Declared, Resource};
use plumb_vpa::namespaces::Namespaces;

use crate::reading::POD_LEVEL;

/// How long to wait for metrics. An aggregated API may hang, and the rest of the status does not need it.
const TIMEOUT: Duration = Duration::from_secs(3);

/// The usage of containers, by namespace and name of their pod. Empty where there is no metrics.k8s.io, or this user may not
/// read it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage(HashMap<(String, String), HashMap<String, Declared>>);

impl Usage {
    /// Reads the usage of the containers of a namespace, or of all.
    pub(super) async fn read(client: &Client, namespace: Option<&str>) -> Self {
        let namespaces = namespace.map_or(Namespaces::All, |only| Namespaces::Only(only.to_owned()));
        let metrics = MetricsApi::new(client.clone(), &namespaces);
        let measured = tokio::time::timeout(TIMEOUT, metrics.read(k8s_openapi::jiff::Timestamp::now())).await;
        let mut usage = Self::default();
        if let Ok(Ok(measured)) = measured
            && let Err(error) = measured.visit(&mut |measurement| usage.add(&measurement))
        {
            tracing::debug!(%error, "cannot read metrics.k8s.io");
        }
        usage
    }

    fn add(&mut self, measurement: &Measurement<'_>) {
        let Ok(sample) = measurement.sample else { return };
        let pod = (measurement.namespace.to_owned(), measurement.pod.to_owned());
        let container = self.0.entry(pod).or_default().entry(measurement.container.to_owned());
        container.or_default()[sample.resource] = Some(sample.usage);
    }

    /// The usage of a container, or of all containers of a pod for its pod-level resources.
    pub(super) fn of(&self, pod: &Pod, container: &str) -> Option<Declared> {
        let name = |name: &Option<String>| name.clone().unwrap_or_default();
        let containers = self.0.get(&(name(&pod.metadata.namespace), name(&pod.metadata.name)))?;
        if container != POD_LEVEL {
            return containers.get(container).copied();
        }
        let mut sum = Declared::default();
        for used in containers.values() {
            for resource in Resource::ALL {
                sum[resource] = match (sum[resource], used[resource]) {
                    (Some(sum), Some(used)) => Some(sum.saturating_add(used)),
                    (sum, used) => sum.or(used),
                };
            }
        }
        Some(sum)
    }
}

#[cfg(test)]
mod tests {
    use plumb_recommender::{Sample, Time};
    use serde_json::json;

    use super::*;

    #[test]
    fn pod_level_usage_is_that_of_all_containers() {
        let mut usage = Usage::default();
        let mut add = |container, resource, amount| {
            let sample = Ok(Sample { at: Time::UNSET, resource, usage: amount });
            usage.add(&Measurement { namespace: "ns", pod: "web", container, sample });
        };
        add("app", Resource::Cpu, 100);
        add("app", Resource::Memory, 1 << 20);
        add("log", Resource::Cpu, 20);
        let pod = |namespace: &str| -> Pod {
            serde_json::from_value(json!({ "metadata": { "name": "web", "namespace": namespace } })).unwrap()
        };
        let used = |pod: &Pod, container| usage.of(pod, container).map(|used| (used.cpu, used.memory));
        assert_eq!(used(&pod("ns"), "log"), Some((Some(20), None)));
        assert_eq!(used(&pod("ns"), POD_LEVEL), Some((Some(120), Some(1 << 20))));
        assert_eq!(used(&pod("ns"), "other"), None);
        assert_eq!(used(&pod("other"), "app"), None);
    }
}
