//! Actuators, which change pods: one for the update mode `InPlace`, which has no evictor, and one for the modes that
//! may evict.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::Status;
use plumb_client::Api;
use plumb_resize::list::quantity_of;
use plumb_resize::resource::{Declared, Resource};
use serde_json::{Map, Value, json};

use crate::rate_limit::RateLimiter;
use crate::refusal::Refusal;
use crate::state::{PodState, Recommendation};

/// Resizes pods and annotates them, and has no other permission.
#[derive(Clone)]
pub struct Resizer {
    client: Client,
    limiter: RateLimiter,
}

impl Resizer {
    /// A resizer.
    pub fn new(client: Client, limiter: RateLimiter) -> Self {
        Self { client, limiter }
    }

    /// Waits until the rate limit allows one more resize. That may take long: what was decided before may not hold then.
    pub async fn acquire(&self) {
        self.limiter.acquire().await;
    }

    /// Sets the recommended resources of a pod's containers, through `/resize`. It is a conflict if the pod has
    /// changed since.
    pub async fn resize(&self, pod: &PodState, recommendation: &Recommendation) -> Result<Pod, Refusal> {
        let patch = Patch::Strategic(resize_patch(pod, recommendation));
        let resized = self.pods(pod).patch_resize(&pod.object.name, &PatchParams::default(), &patch).await;
        resized.map_err(|error| Refusal::of(&error))
    }

    /// Sets annotations of a pod, or removes those without a value.
    pub async fn annotate(
        &self,
        pod: &PodState,
        annotations: &BTreeMap<&str, Option<String>>,
    ) -> Result<Pod, Refusal> {
        // Another pod of the same name is not to be annotated: the UID of an object cannot change.
        let patch = Patch::Merge(json!({ "metadata": { "uid": pod.uid, "annotations": annotations } }));
        let annotated = self.pods(pod).patch(&pod.object.name, &PatchParams::default(), &patch).await;
        annotated.map_err(|error| Refusal::of(&error))
    }

    fn pods(&self, pod: &PodState) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &pod.object.namespace)
    }
}

/// A strategic merge patch that sets the recommended resources of a pod's containers.
fn resize_patch(pod: &PodState, recommendation: &Recommendation) -> Value {
    let changed = pod.containers.iter().filter_map(|container| {
        let wanted = recommendation.get(&container.name)?;
        let mut resources = Map::new();
        let lists = [("requests", wanted.target), ("limits", wanted.limits)];
        for (name, list) in lists.into_iter().filter(|(_, list)| !list.is_none()) {
            resources.insert(name.to_owned(), amounts(list));
        }
        Some(json!({ "name": container.name, "resources": resources }))
    });
    json!({
        "metadata": { "resourceVersion": pod.resource_version, "uid": pod.uid },
        "spec": { "containers": changed.collect::<Vec<_>>() },
    })
}

fn amounts(list: Declared) -> Value {
    let named = |resource: Resource| {
        let quantity = quantity_of(resource, list[resource]?);
        Some((resource.name().to_owned(), json!(quantity.to_string())))
    };
    Value::Object(Resource::ALL.into_iter().filter_map(named).collect())
}

/// Evicts pods.
#[derive(Clone)]
pub struct Evictor {
    client: Client,
    limiter: RateLimiter,
}

impl Evictor {
    /// An evictor.
    pub fn new(client: Client, limiter: RateLimiter) -> Self {
        Self { client, limiter }
    }

    /// Waits until the rate limit allows one more eviction. That may take long: earlier decisions may be obsolete
    /// then.
    pub async fn acquire(&self) {
        self.limiter.acquire().await;
    }

    /// Evicts a pod, if its disruption budgets allow it, and no other one of its name.
    pub async fn evict(&self, pod: &PodState) -> Result<(), Refusal> {
        let eviction = json!({
            "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": { "name": pod.object.name, "namespace": pod.object.namespace },
            "deleteOptions": { "preconditions": { "uid": pod.uid } },
        });
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.object.namespace);
        let evicted: kube::Result<Status> =
            pods.create_subresource("eviction", &pod.object.name, &PostParams::default(), &eviction).await;
        evicted.map(drop).map_err(|error| Refusal::of(&error))
    }
}

/// Changes pods in the update mode `InPlace`.
#[derive(Clone)]
pub struct InPlaceActuator {
    /// Resizes.
    pub resizer: Resizer,
}

/// Changes pods in the update modes that may evict.
#[derive(Clone)]
pub struct RecreatingActuator {
    /// Resizes.
    pub in_place: InPlaceActuator,
    /// Evicts.
    pub evictor: Evictor,
}
