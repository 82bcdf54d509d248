//! The Services of webhooks and metrics, and the network policies.

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::{Value, json};

use super::deployment::{METRICS, METRICS_PORT, WEBHOOK};
use super::{Options, component_labels, component_metadata, labels, metadata, selector};
use crate::component::Component;

/// The port that webhooks listen on: upstream's.
pub(super) const WEBHOOK_PORT: u16 = 8000;
/// The port of the Service: the default of the API server's webhook client.
const SERVICE_PORT: u16 = 443;
const METRICS_SERVICE: &str = "plumb-metrics";

fn service_port(name: &str, port: u16) -> ServicePort {
    ServicePort {
        name: Some(name.to_owned()),
        port: i32::from(port),
        target_port: Some(IntOrString::String(name.to_owned())),
        protocol: Some("TCP".to_owned()),
        ..ServicePort::default()
    }
}

/// The Service by which API servers reach the webhook of a component. The component itself writes the webhook configuration,
/// since the certificate in it is created at run time.
pub(super) fn webhook_service(component: Component, options: &Options) -> Option<Service> {
    let name = component.webhook_service()?;
    let mut metadata = component_metadata(component, options);
    metadata.name = Some(name.to_owned());
    let spec = ServiceSpec {
        selector: Some(component_labels(component)),
        ports: Some(vec![service_port(WEBHOOK, SERVICE_PORT)]),
        ..ServiceSpec::default()
    };
    Some(Service { metadata, spec: Some(spec), status: None })
}

/// The configuration of the webhook of a component, without webhooks: the component adds its own, with the certificate that it makes
/// at run time. It may change this configuration and create none.
pub(super) fn webhook_configuration(component: Component) -> Option<MutatingWebhookConfiguration> {
    let metadata = ObjectMeta {
        name: Some(component.webhook_configuration()?.to_owned()),
        labels: Some(component_labels(component)),
        ..ObjectMeta::default()
    };
    Some(MutatingWebhookConfiguration { metadata, webhooks: None })
}

/// A headless Service with the metrics of every pod.
pub(super) fn metrics_service(options: &Options) -> Service {
    let spec = ServiceSpec {
        cluster_ip: Some("None".to_owned()),
        selector: Some(labels()),
        ports: Some(vec![service_port(METRICS, METRICS_PORT)]),
        ..ServiceSpec::default()
    };
    Service { metadata: metadata(METRICS_SERVICE, options), spec: Some(spec), status: None }
}

/// The `ServiceMonitor` with which a Prometheus operator scrapes every pod.
pub(super) fn service_monitor(options: &Options) -> Value {
    json!({
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "ServiceMonitor",
        "metadata": metadata("plumb", options),
        "spec": {
            "selector": { "matchLabels": labels() },
            "endpoints": [{ "port": METRICS, "interval": "30s" }],
        },
    })
}

/// The policy allows connections to metrics, probes and webhooks only. No selector matches API servers, so the ports
/// are open to all.
pub(super) fn policy(options: &Options) -> NetworkPolicy {
    let port = |name: &str| NetworkPolicyPort {
        port: Some(IntOrString::String(name.to_owned())),
        protocol: Some("TCP".to_owned()),
        end_port: None,
    };
    NetworkPolicy {
        metadata: metadata("plumb", options),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(selector(None)),
            policy_types: Some(vec!["Ingress".to_owned()]),
            ingress: Some(vec![NetworkPolicyIngressRule {
                ports: Some(vec![port(METRICS), port(WEBHOOK)]),
                from: None,
            }]),
            egress: None,
        }),
    }
}
