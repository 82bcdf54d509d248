//! Writes to pods: their CPU through `/resize`, and the annotations of boosts.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use plumb_client::Api;
use plumb_vpa::boost::annotation::{
    BOOSTS, RESTARTS, boosted_containers, boosted_restarts, boosts_text, key, read_boosts,
};
use plumb_vpa::boost::restart::Restart;
use plumb_vpa::boost::{BoostPlan, Cpu, Unboost};
use serde_json::{Value, json};

use super::{Inner, UnboostError};
use crate::attempt::{ANNOTATION, IN_PLACE_UPDATED, Record};

type Annotations = BTreeMap<String, Option<String>>;

impl Inner {
    /// Sets the resources of containers after a boost. Returns whether that was accepted; if not, the pod has changed
    /// since.
    pub(super) async fn resize(&self, pod: &Pod, unboost: &Unboost) -> Result<bool, UnboostError> {
        let changed: Vec<(&str, Cpu)> =
            unboost.containers.iter().map(|container| (container.name.as_str(), container.to)).collect();
        self.set_cpu(pod, &changed).await
    }

    /// Sets the CPU of containers. Whether that was accepted; if not, the pod has changed since, and comes again.
    pub(super) async fn set_cpu(&self, pod: &Pod, changed: &[(&str, Cpu)]) -> Result<bool, UnboostError> {
        let containers = changed.iter().map(|(name, cpu)| {
            let mut resources = json!({});
            for (list, amount) in [("requests", cpu.request), ("limits", cpu.limit)] {
                if let Some(amount) = amount {
                    resources[list] = json!({ "cpu": amount.to_string() });
                }
            }
            json!({ "name": name, "resources": resources })
        });
        let patch = json!({
            "metadata": { "resourceVersion": pod.metadata.resource_version, "uid": pod.metadata.uid },
            "spec": { "containers": containers.collect::<Vec<Value>>() },
        });
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let resized =
            self.pods(pod).patch_resize(name, &PatchParams::default(), &Patch::Strategic(patch)).await;
        match resized {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.is_conflict() => Ok(false),
            // The pod is gone, or the API server does not serve its subresource.
            Err(kube::Error::Api(status)) if status.is_not_found() && !self.exists(pod).await? => Ok(false),
            Err(source) => Err(UnboostError::Request { operation: "resizing the pod", source }),
        }
    }

    async fn exists(&self, pod: &Pod) -> Result<bool, UnboostError> {
        let found = self.pods(pod).get_opt(pod.metadata.name.as_deref().unwrap_or_default()).await;
        let found = found.map_err(|source| UnboostError::Request { operation: "reading the pod", source })?;
        Ok(found.is_some_and(|found| found.metadata.uid == pod.metadata.uid))
    }

    /// Removes the annotations of the boosts that have ended, of this version of the pod alone: a rollout may have written
    /// since that a container gets back to other resources. Returns whether they were removed; if not, the pod has changed
    /// since.
    pub(super) async fn finish(&self, pod: &Pod, unboost: &Unboost) -> Result<bool, UnboostError> {
        let ended: BTreeSet<&str> = unboost
            .containers
            .iter()
            .map(|container| container.name.as_str())
            .chain(unboost.unknown.iter().map(String::as_str))
            .collect();
        let mut annotations: Annotations = ended.iter().map(|name| (key(name), None)).collect();
        let boosted = boosted_containers(pod);
        let left: BTreeMap<_, _> = read_boosts(pod)
            .into_iter()
            .filter(|(name, _)| !ended.contains(name.as_str()) && boosted.contains(name))
            .collect();
        let boosts =
            (!left.is_empty()).then(|| boosts_text(left.iter().map(|(name, boost)| (name.as_str(), *boost))));
        annotations.insert(BOOSTS.to_owned(), boosts);
        annotations.insert(IN_PLACE_UPDATED.to_owned(), Some("true".to_owned()));
        Ok(self.annotate(pod, &annotations).await?.is_some())
    }

    /// Records on the pod that an unboost failed. Returns the pod with the record; `None` if it has changed since, and comes
    /// again.
    pub(super) async fn record(&self, pod: &Pod, record: &Record) -> Result<Option<Pod>, UnboostError> {
        let annotations = Annotations::from([(ANNOTATION.to_owned(), record.annotation())]);
        self.annotate(pod, &annotations).await
    }

    /// Annotates the boosts of containers that restart. None if the pod has changed since, and comes again.
    pub(super) async fn annotate_restarts(
        &self,
        pod: &Pod,
        restarts: &[Restart],
        plan: &BoostPlan,
    ) -> Result<Option<Pod>, UnboostError> {
        let mut counts = boosted_restarts(pod);
        counts.extend(restarts.iter().map(|restart| (restart.container.clone(), restart.count)));
        // Maps from text to numbers can always be written.
        let counts = serde_json::to_string(&counts).unwrap_or_default();
        let mut annotations = Annotations::from([(RESTARTS.to_owned(), Some(counts))]);
        for boosted in &plan.boosted {
            annotations.insert(key(&boosted.name), Some(boosted.original.to_text()));
        }
        let mut boosts = read_boosts(pod);
        boosts.extend(plan.boosted.iter().map(|boosted| (boosted.name.clone(), boosted.cpu)));
        if !boosts.is_empty() {
            let text = boosts_text(boosts.iter().map(|(name, boost)| (name.as_str(), *boost)));
            annotations.insert(BOOSTS.to_owned(), Some(text));
        }
        self.annotate(pod, &annotations).await
    }

    /// Changes annotations of this version of a pod. None if it has changed since.
    async fn annotate(&self, pod: &Pod, annotations: &Annotations) -> Result<Option<Pod>, UnboostError> {
        let metadata = json!({
            "uid": pod.metadata.uid,
            "resourceVersion": pod.metadata.resource_version,
            "annotations": annotations,
        });
        let patch = json!({ "metadata": metadata });
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        match self.pods(pod).patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await {
            Ok(annotated) => Ok(Some(annotated)),
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(None),
            Err(source) => Err(UnboostError::Request { operation: "writing the annotations", source }),
        }
    }

    fn pods(&self, pod: &Pod) -> Api<Pod> {
        Api::namespaced(self.client.clone(), pod.metadata.namespace.as_deref().unwrap_or_default())
    }
}
