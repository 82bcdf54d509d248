//! Other inputs of recommendations in a cluster: the sizes of nodes, quotas, and HPAs of the same target. Upstream
//! ignores them, so each has to be enabled.

mod hpa;
mod sizes;

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _, join_all};
use k8s_openapi::api::core::v1::{Node, Pod, ResourceQuota};
use kube::api::{ApiResource, DynamicObject};
use kube::core::{Selector, SelectorExt as _};
use kube::{Client, ResourceExt as _};
use plumb_client::Api;
use plumb_controller_runtime::Informer;
use plumb_resize::Quantity;
use plumb_resize::resource::{PerResource, Resource};
use plumb_supervise::Supervisor;
use plumb_vpa::informers::keep;
use plumb_vpa::namespaces::Namespaces;
use plumb_vpa::target::ControllerRef;
use plumb_vpa_api::DEFAULT_CONTAINER_POLICY;
use tokio::time::timeout;

use super::node_groups::LabelsByNode;
use crate::model::estimate::{Ceiling, CeilingSource};
use crate::model::policy::{ContainerPolicy, ResourcePolicy};
pub use hpa::scaled_by;
pub use sizes::{largest, left_by_quotas};

/// The timeout for the watches of the environment; the recommender runs without them afterwards.
const SYNC_WITHIN: Duration = Duration::from_secs(10);

/// Which parts of the environment count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct EnvironmentOptions {
    /// No container gets more than the largest node that pods can be scheduled to has allocatable.
    pub cap_by_largest_node: bool,
    /// No container gets more than the quotas of its namespace leave for each pod of the VPA.
    pub cap_by_quota: bool,
    /// A resource that an HPA scales the same target on is not recommended, and a condition of the VPA reports it.
    pub yield_to_hpa: bool,
    /// VPAs may select nodes, see [`node_groups`](plumb_vpa::node_groups).
    pub node_selectors: bool,
}

/// The environment of one VPA.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bearing {
    /// Maximums.
    pub ceilings: Vec<Ceiling>,
    /// The resources that are not recommended.
    pub withheld: PerResource<bool>,
    /// The message of the VPA's condition.
    pub message: Option<String>,
}

impl Bearing {
    /// The policy without the resources that are not recommended.
    pub(crate) fn restrict(&self, policy: &mut ResourcePolicy) {
        if !self.withheld.any(|_, withheld| *withheld) {
            return;
        }
        if !policy.containers.iter().any(|of| of.container == DEFAULT_CONTAINER_POLICY) {
            policy.containers.push(ContainerPolicy::new(DEFAULT_CONTAINER_POLICY));
        }
        for container in &mut policy.containers {
            container.controlled =
                PerResource::of(|resource| container.controlled[resource] && !self.withheld[resource]);
        }
    }
}

/// Watches what counts.
#[derive(Clone, Default)]
pub(crate) struct Environment {
    options: EnvironmentOptions,
    nodes: Option<Informer<Node>>,
    quotas: Option<Informer<ResourceQuota>>,
    hpas: Option<Informer<DynamicObject>>,
}

impl Environment {
    pub(crate) fn new(options: EnvironmentOptions) -> Self {
        let needs_nodes = options.cap_by_largest_node || options.node_selectors;
        Self {
            options,
            nodes: needs_nodes.then(|| Informer::default().with_transform(sizes_only)),
            quotas: options.cap_by_quota.then(Informer::default),
            hpas: options.yield_to_hpa.then(Informer::default),
        }
    }

    /// Whether anything counts.
    pub(crate) fn counts(&self) -> bool {
        self.options.cap_by_largest_node || self.quotas.is_some() || self.hpas.is_some()
    }

    /// The labels of nodes, if VPAs may select nodes.
    pub(crate) fn node_labels(&self) -> Option<LabelsByNode> {
        let nodes = self.nodes.as_ref().filter(|_| self.options.node_selectors)?;
        Some(nodes.all().iter().map(|node| (node.name_any(), node.labels().clone())).collect())
    }

    /// Updates its state for good.
    pub(crate) fn run(
        &self,
        client: &Client,
        namespaces: &Namespaces,
        supervisor: &Supervisor,
    ) -> BoxFuture<'static, ()> {
        let mut running = Vec::new();
        if let Some(nodes) = &self.nodes {
            running.push(keep(supervisor, "vpa-informer/nodes", nodes, Api::all(client.clone())));
        }
        if let Some(quotas) = &self.quotas {
            let api = match namespaces.only() {
                Some(only) => Api::namespaced(client.clone(), only),
                None => Api::all(client.clone()),
            };
            running.push(keep(supervisor, "vpa-informer/resourcequotas", quotas, api));
        }
        if let Some(hpas) = &self.hpas {
            let resource = ApiResource {
                group: "autoscaling".to_owned(),
                version: "v2".to_owned(),
                api_version: "autoscaling/v2".to_owned(),
                kind: "HorizontalPodAutoscaler".to_owned(),
                plural: "horizontalpodautoscalers".to_owned(),
            };
            let api = match namespaces.only() {
                Some(only) => Api::namespaced_with(client.clone(), only, &resource),
                None => Api::all_with(client.clone(), &resource),
            };
            running.push(keep(supervisor, "vpa-informer/horizontalpodautoscalers", hpas, api));
        }
        join_all(running).map(drop).boxed()
    }

    /// Waits until everything was read, but not for long: what cannot be read does not count.
    pub(crate) async fn wait_for_sync(&self) {
        let synced = async {
            if let Some(nodes) = &self.nodes {
                nodes.wait_for_sync().await;
            }
            if let Some(quotas) = &self.quotas {
                quotas.wait_for_sync().await;
            }
            if let Some(hpas) = &self.hpas {
                hpas.wait_for_sync().await;
            }
        };
        if timeout(SYNC_WITHIN, synced).await.is_err() {
            tracing::warn!("nodes, quotas or HPAs cannot be read, and do not count until they can");
        }
    }

    /// Everything as it is now.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let mut hpas: BTreeMap<ControllerRef, Vec<(String, Vec<Resource>)>> = BTreeMap::new();
        for hpa in self.hpas.iter().flat_map(|hpas| hpas.all()) {
            if let Some((target, resources)) = scaled_by(&hpa) {
                hpas.entry(target).or_default().push((hpa.name_any(), resources));
            }
        }
        Snapshot {
            largest_node: self
                .nodes
                .as_ref()
                .filter(|_| self.options.cap_by_largest_node)
                .and_then(|nodes| largest(&nodes.all())),
            quotas: self.quotas.clone(),
            hpas,
        }
    }
}

/// The environment at one moment.
pub(crate) struct Snapshot {
    largest_node: Option<PerResource<Option<Quantity>>>,
    quotas: Option<Informer<ResourceQuota>>,
    hpas: BTreeMap<ControllerRef, Vec<(String, Vec<Resource>)>>,
}

impl Snapshot {
    /// The environment of a VPA with a target, whose selector may be known.
    pub(crate) fn bearing_on(
        &self,
        target: &ControllerRef,
        selector: Option<&Selector>,
        pods: &Informer<Pod>,
    ) -> Bearing {
        let mut bearing = Bearing::default();
        if let Some(max) = self.largest_node {
            bearing.ceilings.push(Ceiling { source: CeilingSource::LargestNode, max });
        }
        let quotas = self.quotas.as_ref().map(|quotas| quotas.in_namespace(&target.namespace));
        if let (Some(quotas), Some(selector)) = (quotas.filter(|quotas| !quotas.is_empty()), selector) {
            let own = pods.in_namespace(&target.namespace);
            let own: Vec<_> = own.into_iter().filter(|pod| selector.matches(pod.labels())).collect();
            let max = left_by_quotas(&quotas, &own);
            bearing.ceilings.push(Ceiling { source: CeilingSource::Quota, max });
        }
        let mut messages = Vec::new();
        for (hpa, resources) in self.hpas.get(target).into_iter().flatten() {
            let names: Vec<&str> = resources.iter().map(|resource| resource.name()).collect();
            for &resource in resources {
                bearing.withheld[resource] = true;
            }
            let names = names.join(" and ");
            messages.push(format!(
                "HorizontalPodAutoscaler {hpa} scales the same target on {names}, which is not recommended therefore"
            ));
        }
        bearing.message = Some(messages.join("; ")).filter(|message| !message.is_empty());
        bearing
    }
}

/// A node without the fields of its size.
fn sizes_only(mut node: Node) -> Node {
    if let Some(status) = &mut node.status {
        (status.images, status.conditions, status.addresses) = (None, None, None);
        (status.capacity, status.node_info) = (None, None);
    }
    node
}
