//! What containers use now, by metrics.k8s.io.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use plumb_client::Api;
use plumb_recommender::input::live_usage::{LiveUsage as _, Measurement, MetricsApi};
use plumb_resize::list::{WireList, declared};
use plumb_resize::resource::{Declared, Resource};
use plumb_vpa::namespaces::Namespaces;

use crate::reading::POD_LEVEL;

/// How often usage is read again: as often as metrics-server measures it.
pub(crate) const REFRESH: Duration = Duration::from_secs(15);
/// How long to wait for metrics. An aggregated API may hang, and the rest of the status does not need it.
const TIMEOUT: Duration = Duration::from_secs(3);

/// The usage of containers, by namespace and name of their pod. Empty where there is no metrics.k8s.io, or this user may not
/// read it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage(HashMap<(String, String), HashMap<String, Declared>>);

impl Usage {
    /// Reads the usage of the containers of a namespace, or of all.
    pub(crate) async fn read(client: &Client, namespace: Option<&str>) -> Self {
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

    /// The usage of a container, for tests.
    #[cfg(test)]
    pub(crate) fn of_container(namespace: &str, pod: &str, container: &str, used: Declared) -> Self {
        let containers = HashMap::from([(container.to_owned(), used)]);
        Self(HashMap::from([((namespace.to_owned(), pod.to_owned()), containers)]))
    }

    fn add(&mut self, measurement: &Measurement<'_>) {
        let Ok(sample) = measurement.sample else { return };
        let pod = (measurement.namespace.to_owned(), measurement.pod.to_owned());
        let container = self.0.entry(pod).or_default().entry(measurement.container.to_owned());
        container.or_default()[sample.resource] = Some(sample.usage);
    }

    /// The usage of a container, or of all containers of a pod for its pod-level resources.
    pub(crate) fn of(&self, pod: &Pod, container: &str) -> Option<Declared> {
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

/// The usage of nodes, which includes what is in no pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeUsage(HashMap<String, Declared>);

impl NodeUsage {
    /// Reads it. Empty where there is no metrics.k8s.io, or this user may not read it.
    pub(crate) async fn read(client: &Client) -> Self {
        let metrics = GroupVersionKind::gvk("metrics.k8s.io", "v1beta1", "NodeMetrics");
        let nodes = ApiResource::from_gvk_with_plural(&metrics, "nodes");
        let nodes: Api<DynamicObject> = Api::all_with(client.clone(), &nodes);
        match tokio::time::timeout(TIMEOUT, nodes.list(&ListParams::default())).await {
            Ok(Ok(list)) => Self::from_objects(&list.items),
            _ => Self::default(),
        }
    }

    pub(crate) fn from_objects(nodes: &[DynamicObject]) -> Self {
        let usage = |node: &DynamicObject| {
            let usage: WireList = serde_json::from_value(node.data["usage"].clone()).ok()?;
            Some((node.metadata.name.clone()?, declared(Some(&usage)).ok()?))
        };
        Self(nodes.iter().filter_map(usage).collect())
    }

    /// The usage of a node.
    pub(crate) fn of(&self, node: &str) -> Option<Declared> {
        self.0.get(node).copied()
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

    #[test]
    fn node_usage_is_read_from_node_metrics() {
        let node = |name: &str, cpu: &str| -> DynamicObject {
            let usage = json!({ "cpu": cpu, "memory": "2Gi" });
            serde_json::from_value(json!({ "metadata": { "name": name }, "usage": usage })).unwrap()
        };
        let usage = NodeUsage::from_objects(&[node("n1", "1500m"), node("n2", "much")]);
        assert_eq!(usage.of("n1"), Some(Declared::both(1500, 2 << 30)));
        assert_eq!(usage.of("n2"), None, "it cannot be read");
    }
}
