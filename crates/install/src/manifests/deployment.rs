//! The Deployment of a component, and its `PodDisruptionBudget`.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy};
use k8s_openapi::api::core::v1::{
    Affinity, Capabilities, Container, ContainerPort, EnvVar, EnvVarSource, HTTPGetAction,
    ObjectFieldSelector, PodAffinityTerm, PodAntiAffinity, PodSecurityContext, PodSpec, PodTemplateSpec,
    Probe, ResourceRequirements, SeccompProfile, SecurityContext, WeightedPodAffinityTerm,
};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::network::WEBHOOK_PORT;
use super::{Options, component_labels, component_metadata, selector};
use crate::component::Component;

/// The port of metrics and health. Each component has a pod, so they have the same.
pub(super) const METRICS_PORT: u16 = 8942;
/// Its name.
pub(super) const METRICS: &str = "metrics";
/// The name of the port of a webhook.
pub(super) const WEBHOOK: &str = "webhook";
/// The user of the containers. The image has no users, only a static binary.
const USER: i64 = 65532;

/// The requests and the memory limit of a component. In a cluster with many pods use a VPA for the
/// Deployments themselves.
struct Size {
    cpu: &'static str,
    memory: &'static str,
    memory_limit: &'static str,
}

fn size(component: Component) -> Size {
    match component {
        Component::Recommender | Component::Autoscaler => {
            Size { cpu: "25m", memory: "64Mi", memory_limit: "1Gi" }
        }
        Component::Updater | Component::Rollout => Size { cpu: "10m", memory: "48Mi", memory_limit: "1Gi" },
        Component::Admission => Size { cpu: "10m", memory: "32Mi", memory_limit: "512Mi" },
    }
}

/// The flags of a component.
fn args(component: Component, options: &Options) -> Vec<String> {
    let namespace = &options.namespace;
    let mut args =
        vec!["run".to_owned(), component.command().to_owned(), format!("--address=:{METRICS_PORT}")];
    if let Some(service) = component.webhook_service() {
        args.extend([format!("--port={WEBHOOK_PORT}"), format!("--webhook-service={service}")]);
    }
    if component.is_elected() {
        args.extend([
            "--leader-elect=true".to_owned(),
            format!("--leader-elect-resource-namespace={namespace}"),
        ]);
    }
    if !options.feature_gates.is_empty() {
        args.push(format!("--feature-gates={}", options.feature_gates));
    }
    args.extend(options.extra_args.get(&component).into_iter().flatten().cloned());
    args
}

/// The Deployment of a component.
pub(super) fn deployment(component: Component, options: &Options) -> Deployment {
    let template = PodTemplateSpec {
        metadata: Some(ObjectMeta { labels: Some(component_labels(component)), ..ObjectMeta::default() }),
        spec: Some(PodSpec {
            service_account_name: Some(component.object_name()),
            containers: vec![container(component, options)],
            affinity: Some(apart(component)),
            // At SIGTERM a Lease is released, and a webhook keeps serving the requests that are still sent to it.
            termination_grace_period_seconds: Some(30),
            security_context: Some(PodSecurityContext {
                run_as_non_root: Some(true),
                run_as_user: Some(USER),
                run_as_group: Some(USER),
                seccomp_profile: Some(SeccompProfile {
                    type_: "RuntimeDefault".to_owned(),
                    localhost_profile: None,
                }),
                ..PodSecurityContext::default()
            }),
            ..PodSpec::default()
        }),
    };
    Deployment {
        metadata: component_metadata(component, options),
        spec: Some(DeploymentSpec {
            replicas: Some(if component.is_single() { 1 } else { options.replicas }),
            selector: selector(Some(component)),
            strategy: component
                .is_single()
                .then(|| DeploymentStrategy { type_: Some("Recreate".to_owned()), rolling_update: None }),
            template,
            ..DeploymentSpec::default()
        }),
        status: None,
    }
}

fn container(component: Component, options: &Options) -> Container {
    let port = |name: &str, port: u16| ContainerPort {
        name: Some(name.to_owned()),
        container_port: i32::from(port),
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    };
    let mut ports = vec![port(METRICS, METRICS_PORT)];
    if component.webhook_service().is_some() {
        ports.push(port(WEBHOOK, WEBHOOK_PORT));
    }
    let Size { cpu, memory, memory_limit } = size(component);
    let quantity = |text: &str| Quantity(text.to_owned());
    let resources = ResourceRequirements {
        requests: Some(BTreeMap::from([
            ("cpu".to_owned(), quantity(cpu)),
            ("memory".to_owned(), quantity(memory)),
        ])),
        limits: Some(BTreeMap::from([("memory".to_owned(), quantity(memory_limit))])),
        claims: None,
    };
    Container {
        name: component.name().to_owned(),
        image: Some(options.image.clone()),
        args: Some(args(component, options)),
        env: Some(vec![
            from_field("NAMESPACE", "metadata.namespace"),
            from_field("POD_NAME", "metadata.name"),
            // The allocator returns freed memory at once; otherwise a tenth of a controller's memory stays unused after its
            // first lists.
            EnvVar { name: "MIMALLOC_PURGE_DELAY".to_owned(), value: Some("0".to_owned()), value_from: None },
        ]),
        ports: Some(ports),
        liveness_probe: Some(Probe {
            initial_delay_seconds: Some(10),
            period_seconds: Some(10),
            failure_threshold: Some(6),
            ..probe("/livez")
        }),
        readiness_probe: Some(Probe {
            period_seconds: Some(5),
            failure_threshold: Some(3),
            ..probe("/readyz")
        }),
        resources: Some(resources),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities { add: None, drop: Some(vec!["ALL".to_owned()]) }),
            read_only_root_filesystem: Some(true),
            ..SecurityContext::default()
        }),
        ..Container::default()
    }
}

fn from_field(name: &str, path: &str) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value: None,
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector { field_path: path.to_owned(), api_version: None }),
            ..EnvVarSource::default()
        }),
    }
}

fn probe(path: &str) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::String(METRICS.to_owned()),
            ..HTTPGetAction::default()
        }),
        timeout_seconds: Some(5),
        ..Probe::default()
    }
}

/// Spreads replicas over nodes, if there are enough.
fn apart(component: Component) -> Affinity {
    let term = WeightedPodAffinityTerm {
        weight: 100,
        pod_affinity_term: PodAffinityTerm {
            label_selector: Some(selector(Some(component))),
            topology_key: "kubernetes.io/hostname".to_owned(),
            ..PodAffinityTerm::default()
        },
    };
    Affinity {
        pod_anti_affinity: Some(PodAntiAffinity {
            preferred_during_scheduling_ignored_during_execution: Some(vec![term]),
            ..PodAntiAffinity::default()
        }),
        ..Affinity::default()
    }
}

/// Lets a drain evict one replica at a time.
pub(super) fn disruption_budget(component: Component, options: &Options) -> PodDisruptionBudget {
    PodDisruptionBudget {
        metadata: component_metadata(component, options),
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(IntOrString::Int(1)),
            selector: Some(selector(Some(component))),
            unhealthy_pod_eviction_policy: Some("AlwaysAllow".to_owned()),
            ..PodDisruptionBudgetSpec::default()
        }),
        status: None,
    }
}
