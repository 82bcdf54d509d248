//! A workload of any of the kinds.

use std::sync::Arc;

use jiff::SignedDuration;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{ObjectReference, Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use plumb_controller_runtime::ObjectRef;
use serde_json::{Value, json};

use super::IN_PLACE_ANNOTATION;
use super::kind::{WorkloadKind, rolling_setting};
use super::record::WorkloadRecord;
use crate::api::Share;
use crate::api::advanced::{AdvancedDaemonSet, AdvancedStatefulSet};
use crate::engine::Selected;

/// A workload.
#[derive(Clone, Debug)]
pub(super) enum Workload {
    Deployment(Arc<Deployment>),
    StatefulSet(Arc<StatefulSet>),
    DaemonSet(Arc<DaemonSet>),
    AdvancedStatefulSet(Arc<AdvancedStatefulSet>),
    AdvancedDaemonSet(Arc<AdvancedDaemonSet>),
}

impl Workload {
    pub(super) fn kind(&self) -> WorkloadKind {
        match self {
            Self::Deployment(_) => WorkloadKind::Deployment,
            Self::StatefulSet(_) => WorkloadKind::StatefulSet,
            Self::DaemonSet(_) => WorkloadKind::DaemonSet,
            Self::AdvancedStatefulSet(_) => WorkloadKind::AdvancedStatefulSet,
            Self::AdvancedDaemonSet(_) => WorkloadKind::AdvancedDaemonSet,
        }
    }

    pub(super) fn metadata(&self) -> &ObjectMeta {
        match self {
            Self::Deployment(object) => &object.metadata,
            Self::StatefulSet(object) => &object.metadata,
            Self::DaemonSet(object) => &object.metadata,
            Self::AdvancedStatefulSet(object) => &object.metadata,
            Self::AdvancedDaemonSet(object) => &object.metadata,
        }
    }

    /// Its namespace and name.
    pub(super) fn object_ref(&self) -> ObjectRef {
        let metadata = self.metadata();
        let (namespace, name) = (metadata.namespace.clone(), metadata.name.clone());
        ObjectRef::namespaced(namespace.unwrap_or_default(), name.unwrap_or_default())
    }

    /// The workload as policies and autoscalers select it.
    pub(super) fn selected(&self) -> Selected<'_> {
        Selected { group: self.kind().group(), kind: self.kind().name(), metadata: self.metadata() }
    }

    pub(super) fn record(&self) -> Option<WorkloadRecord> {
        WorkloadRecord::read(self.metadata())
    }

    /// Whether the workload opts in or out by its annotation.
    pub(super) fn opts(&self) -> Option<bool> {
        let value = self.metadata().annotations.as_ref()?.get(IN_PLACE_ANNOTATION)?;
        Some(value == "true")
    }

    pub(super) fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata().annotations.as_ref()?.get(key).map(String::as_str)
    }

    pub(super) fn template(&self) -> Option<&PodTemplateSpec> {
        match self {
            Self::Deployment(object) => object.spec.as_ref().map(|spec| &spec.template),
            Self::StatefulSet(object) => object.spec.as_ref().map(|spec| &spec.template),
            Self::DaemonSet(object) => object.spec.as_ref().map(|spec| &spec.template),
            Self::AdvancedStatefulSet(object) => object.spec.template.0.as_ref(),
            Self::AdvancedDaemonSet(object) => object.spec.template.0.as_ref(),
        }
    }

    /// How many pods it should have.
    pub(super) fn replicas(&self) -> usize {
        let replicas = match self {
            Self::Deployment(object) => object.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1),
            Self::StatefulSet(object) => object.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1),
            Self::DaemonSet(object) => {
                object.status.as_ref().map_or(0, |status| status.desired_number_scheduled)
            }
            Self::AdvancedStatefulSet(object) => object.spec.replicas.unwrap_or(1),
            Self::AdvancedDaemonSet(object) => {
                object.status.as_ref().map_or(0, |status| status.desired_number_scheduled)
            }
        };
        usize::try_from(replicas).unwrap_or(0)
    }

    /// For how long a pod has to be ready to be available.
    pub(super) fn min_ready(&self) -> SignedDuration {
        let seconds = match self {
            Self::Deployment(object) => object.spec.as_ref().and_then(|spec| spec.min_ready_seconds),
            Self::StatefulSet(object) => object.spec.as_ref().and_then(|spec| spec.min_ready_seconds),
            Self::DaemonSet(object) => object.spec.as_ref().and_then(|spec| spec.min_ready_seconds),
            Self::AdvancedStatefulSet(object) => {
                let seconds = &object.spec.update_strategy["rollingUpdate"]["minReadySeconds"];
                seconds.as_i64().and_then(|seconds| i32::try_from(seconds).ok())
            }
            Self::AdvancedDaemonSet(object) => object.spec.min_ready_seconds,
        };
        SignedDuration::from_secs(i64::from(seconds.unwrap_or(0)))
    }

    /// How many of its pods may be unavailable by its own strategy, which a hold may have replaced.
    pub(super) fn max_unavailable(&self, restored: Option<&Value>) -> usize {
        let replicas = self.replicas();
        let rolling = |fields: &Value| rolling_setting(fields, "maxUnavailable");
        let advanced = |strategy: &Value| match restored {
            Some(restored) => rolling(restored),
            None => rolling(&json!({ "updateStrategy": strategy })),
        };
        let own = match self {
            Self::Deployment(object) => {
                let strategy = object.spec.as_ref().and_then(|spec| spec.strategy.as_ref());
                if strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("Recreate") {
                    return replicas;
                }
                strategy.and_then(|strategy| strategy.rolling_update.as_ref()?.max_unavailable.clone())
            }
            Self::StatefulSet(object) => {
                let own = || object.spec.as_ref()?.update_strategy.as_ref()?.rolling_update.as_ref();
                restored.map_or_else(|| own()?.max_unavailable.clone(), rolling)
            }
            Self::DaemonSet(object) => {
                let own = || object.spec.as_ref()?.update_strategy.as_ref()?.rolling_update.as_ref();
                restored.map_or_else(|| own()?.max_unavailable.clone(), rolling)
            }
            Self::AdvancedStatefulSet(object) => advanced(&object.spec.update_strategy),
            Self::AdvancedDaemonSet(object) => advanced(&object.spec.update_strategy),
        };
        own.as_ref().and_then(Share::read).unwrap_or(Share::Count(1)).rounded_down_to_one(replicas)
    }

    /// Whether its controller has observed the latest spec.
    pub(super) fn is_observed(&self) -> bool {
        let observed = match self {
            Self::Deployment(object) => object.status.as_ref().and_then(|status| status.observed_generation),
            Self::StatefulSet(object) => object.status.as_ref().and_then(|status| status.observed_generation),
            Self::DaemonSet(object) => object.status.as_ref().and_then(|status| status.observed_generation),
            Self::AdvancedStatefulSet(object) => {
                object.status.as_ref().and_then(|status| status.observed_generation)
            }
            Self::AdvancedDaemonSet(object) => {
                object.status.as_ref().and_then(|status| status.observed_generation)
            }
        };
        observed >= self.metadata().generation
    }

    /// Whether its controller has rolled out the template, as `kubectl rollout status` has it. A StatefulSet with a partition
    /// is once the pods above it are updated.
    pub(super) fn is_rolled_out(&self) -> bool {
        let replicas = i32::try_from(self.replicas()).unwrap_or(i32::MAX);
        let above = |fields: Value| {
            let own = self.kind().own_partition(&json!({ "updateStrategy": fields }));
            let below = own.rounded_up(self.replicas());
            i32::try_from(self.replicas().saturating_sub(below)).unwrap_or(i32::MAX)
        };
        let is_updated = match self {
            Self::Deployment(object) => object.status.as_ref().is_some_and(|status| {
                let updated = status.updated_replicas.unwrap_or(0);
                updated >= replicas
                    && status.replicas.unwrap_or(0) <= updated
                    && status.available_replicas.unwrap_or(0) >= updated
            }),
            Self::StatefulSet(object) => object.status.as_ref().is_some_and(|status| {
                let strategy = object.spec.as_ref().and_then(|spec| spec.update_strategy.as_ref());
                status.updated_replicas.unwrap_or(0) >= above(json!(strategy))
                    && status.ready_replicas.unwrap_or(0) >= replicas
            }),
            Self::DaemonSet(object) => object.status.as_ref().is_some_and(|status| {
                status.updated_number_scheduled.unwrap_or(0) >= replicas
                    && status.number_available.unwrap_or(0) >= replicas
            }),
            Self::AdvancedStatefulSet(object) => object.status.as_ref().is_some_and(|status| {
                status.updated_replicas.unwrap_or(0) >= above(object.spec.update_strategy.clone())
            }),
            Self::AdvancedDaemonSet(object) => object.status.as_ref().is_some_and(|status| {
                status.updated_number_scheduled.unwrap_or(0) >= above(object.spec.update_strategy.clone())
            }),
        };
        is_updated && self.is_observed()
    }

    /// Whether its pods are numbered, and updated by their numbers.
    pub(super) fn is_ordered(&self) -> bool {
        matches!(self, Self::StatefulSet(_) | Self::AdvancedStatefulSet(_))
    }

    /// Where a pod comes among those that can be resized.
    pub(super) fn order(&self, pod: &Pod) -> u64 {
        if !self.is_ordered() {
            return 0;
        }
        // From the highest number, as its controller updates them.
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let ordinal = name.rsplit('-').next().and_then(|ordinal| ordinal.parse::<u64>().ok());
        u64::MAX - ordinal.unwrap_or(0)
    }

    pub(super) fn reference(&self) -> ObjectReference {
        let metadata = self.metadata();
        ObjectReference {
            api_version: Some(self.kind().api_version().to_owned()),
            kind: Some(self.kind().name().to_owned()),
            name: metadata.name.clone(),
            namespace: metadata.namespace.clone(),
            uid: metadata.uid.clone(),
            resource_version: metadata.resource_version.clone(),
            field_path: None,
        }
    }
}
