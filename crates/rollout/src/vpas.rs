//! Which resources of a workload's pods a `VerticalPodAutoscaler` owns. A rollout leaves those to it: both would resize the
//! same pods, each back to its own values.
//!
//! | | owner of a resource of a container |
//! |---|---|
//! | a VPA of the workload in mode `Recreate`, `InPlaceOrRecreate`, `InPlace` or `Auto` controls it | the VPA |
//! | everything else, `Off` and `Initial` among it | the template |

mod watch;

use std::sync::Arc;

use kube::ResourceExt as _;
use plumb_resize::resource::Resource;
use plumb_vpa_api::{ContainerControlledValues, VerticalPodAutoscaler, VerticalPodAutoscalerSpec};

use crate::engine::{Desired, Field, Selected};

pub(crate) use watch::Vpas;

/// Whether a VPA changes running pods.
fn updates(vpa: &VerticalPodAutoscaler) -> bool {
    vpa.metadata.deletion_timestamp.is_none() && vpa.spec.updates_running_pods()
}

fn targets(vpa: &VerticalPodAutoscaler, workload: &Selected<'_>) -> bool {
    let target = &vpa.spec.target_ref;
    let group = target.api_version.as_deref().and_then(|version| version.split_once('/'));
    group.is_none_or(|(group, _)| group == workload.group)
        && target.kind == workload.kind
        && Some(&target.name) == workload.metadata.name.as_ref()
        && vpa.metadata.namespace == workload.metadata.namespace
}

/// The VPAs that own resources of the pods of a workload.
#[derive(Clone, Debug, Default)]
pub struct Owners(Vec<Arc<VerticalPodAutoscaler>>);

impl Owners {
    /// Those of a workload, among all of its namespace.
    pub fn of(vpas: &[Arc<VerticalPodAutoscaler>], workload: &Selected<'_>) -> Self {
        let mut owners: Vec<_> =
            vpas.iter().filter(|vpa| updates(vpa) && targets(vpa, workload)).cloned().collect();
        owners.sort_by_key(|vpa| vpa.name_any());
        Self(owners)
    }

    /// The name of the VPA that owns a resource of a container; none if its template does.
    pub fn owner(&self, container: &str, field: Field, resource: Resource) -> Option<String> {
        let owner = self.0.iter().find(|vpa| controls(&vpa.spec, container, field, resource));
        owner.map(|vpa| vpa.name_any())
    }

    /// The desired resources of a template without those that VPAs own.
    #[must_use]
    pub fn without(&self, desired: Desired) -> Desired {
        if self.0.is_empty() {
            return desired;
        }
        desired.without(|container, field, resource| self.owner(container, field, resource).is_some())
    }

    /// The desired resources of a template that VPAs own, such as `app: requests.cpu (VerticalPodAutoscaler web)`.
    pub fn named(&self, desired: &Desired) -> Vec<String> {
        let owned = desired.named().filter_map(|(container, field, resource)| {
            let owner = self.owner(container, field, resource)?;
            Some(format!("{container}: {field}.{resource} (VerticalPodAutoscaler {owner})"))
        });
        owned.collect()
    }
}

fn controls(spec: &VerticalPodAutoscalerSpec, container: &str, field: Field, resource: Resource) -> bool {
    let Some(policy) = spec.container_policy(container) else { return true };
    policy.scales()
        && policy.controls(resource.name())
        && (field == Field::Requests || policy.controlled_values() != ContainerControlledValues::RequestsOnly)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use serde_json::{Value, from_value, json};

    use super::*;

    fn owner(spec: Value, container: &str, field: Field, resource: Resource) -> bool {
        let mut vpa = json!({ "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
            "metadata": { "name": "web", "namespace": "default" },
            "spec": { "targetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" } } });
        for (key, value) in spec.as_object().into_iter().flatten() {
            vpa["spec"][key] = value.clone();
        }
        let vpa: VerticalPodAutoscaler = from_value(vpa).expect("a VPA");
        let metadata = ObjectMeta {
            name: Some("web".to_owned()),
            namespace: Some("default".to_owned()),
            ..ObjectMeta::default()
        };
        let workload = Selected { group: "apps", kind: "Deployment", metadata: &metadata };
        Owners::of(&[Arc::new(vpa)], &workload).owner(container, field, resource).is_some()
    }

    #[test]
    fn a_vpa_owns_what_it_controls_of_the_pods_that_it_updates() {
        let mode = |mode: &str| json!({ "updatePolicy": { "updateMode": mode } });
        let policy = |fields: Value| json!({ "resourcePolicy": { "containerPolicies": [fields] } });
        let (cpu, memory) = (Resource::Cpu, Resource::Memory);
        // The spec, the field and resource of container `app`, and whether the VPA owns it.
        let table = [
            (json!({}), Field::Requests, cpu, true),
            (json!({}), Field::Limits, memory, true),
            (mode("Auto"), Field::Requests, cpu, true),
            (mode("InPlace"), Field::Requests, cpu, true),
            (mode("Initial"), Field::Requests, cpu, false),
            (mode("Off"), Field::Requests, cpu, false),
            (policy(json!({ "containerName": "*", "mode": "Off" })), Field::Requests, cpu, false),
            (policy(json!({ "containerName": "other", "mode": "Off" })), Field::Requests, cpu, true),
            (
                policy(json!({ "containerName": "app", "controlledResources": ["memory"] })),
                Field::Requests,
                cpu,
                false,
            ),
            (
                policy(json!({ "containerName": "app", "controlledResources": ["memory"] })),
                Field::Limits,
                memory,
                true,
            ),
            (
                policy(json!({ "containerName": "*", "controlledValues": "RequestsOnly" })),
                Field::Limits,
                cpu,
                false,
            ),
            (
                json!({ "targetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "db" } }),
                Field::Requests,
                cpu,
                false,
            ),
        ];
        for (spec, field, resource, owned) in table {
            assert_eq!(owner(spec.clone(), "app", field, resource), owned, "{spec} {field} {resource}");
        }
    }
}
