//! The `MutatingWebhookConfiguration` that makes the API server call the webhook.
//!
//! All replicas apply the same object, from the same options and the same Secret, by server-side apply under one field
//! manager: they do not fight, and there is no moment without a configuration. Upstream deletes and creates it.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhook, MutatingWebhookConfiguration, RuleWithOperations, ServiceReference, WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement, ObjectMeta};

use crate::namespaces::Namespaces;

/// The name of the configuration: upstream's.
pub const NAME: &str = "vpa-webhook-config";
/// The name of the webhook: upstream's.
pub const WEBHOOK: &str = "vpa.k8s.io";
/// The manager of the fields that are applied.
pub const FIELD_MANAGER: &str = "plumb-vpa-admission-controller";

const NAMESPACE_LABEL: &str = "kubernetes.io/metadata.name";

/// Where the API server finds the webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// At a URL (`--register-by-url`).
    Url {
        /// Host name or address.
        host: String,
        /// Port; that which the server listens on if absent.
        port: Option<u16>,
    },
    /// Behind a Service.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name (`--webhook-service`).
        name: String,
        /// Its port (`--webhook-port`).
        port: u16,
    },
}

impl Endpoint {
    /// The names that the serving certificate is for.
    pub fn names(&self) -> Vec<String> {
        match self {
            Self::Url { host, .. } => vec![host.clone()],
            Self::Service { namespace, name, .. } => {
                let service = format!("{name}.{namespace}.svc");
                vec![service.clone(), format!("{service}.cluster.local")]
            }
        }
    }
}

/// How the webhook is registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Where it is.
    pub endpoint: Endpoint,
    /// Whether objects are refused while it does not answer (`--webhook-failure-policy-fail`).
    pub fail: bool,
    /// How long the API server waits for an answer (`--webhook-timeout-seconds`).
    pub timeout_seconds: i32,
    /// Labels of the configuration (`--webhook-labels`).
    pub labels: BTreeMap<String, String>,
    /// The namespaces that it is called for.
    pub namespaces: Namespaces,
}

impl Registration {
    /// One with upstream's defaults, except that the API server waits for 5 seconds instead of 30: a webhook that hangs
    /// should not hold up pods for longer.
    pub fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            fail: false,
            timeout_seconds: 5,
            labels: BTreeMap::new(),
            namespaces: Namespaces::All,
        }
    }

    /// The configuration for a server that listens on a port and whose authorities these are, as PEM.
    pub fn configuration(&self, port: u16, bundle: &str) -> MutatingWebhookConfiguration {
        let rule = |group: &str, version: &str, resource: &str, operations: &[&str]| RuleWithOperations {
            api_groups: Some(vec![group.to_owned()]),
            api_versions: Some(vec![version.to_owned()]),
            operations: Some(operations.iter().map(|&operation| operation.to_owned()).collect()),
            resources: Some(vec![resource.to_owned()]),
            scope: Some("*".to_owned()),
        };
        let webhook = MutatingWebhook {
            name: WEBHOOK.to_owned(),
            admission_review_versions: vec!["v1".to_owned()],
            client_config: self.client_config(port, bundle),
            failure_policy: Some(if self.fail { "Fail" } else { "Ignore" }.to_owned()),
            match_policy: Some("Equivalent".to_owned()),
            namespace_selector: Some(self.namespace_selector()),
            object_selector: Some(LabelSelector::default()),
            reinvocation_policy: Some("Never".to_owned()),
            rules: Some(vec![
                rule("", "v1", "pods", &["CREATE"]),
                rule("autoscaling.k8s.io", "*", "verticalpodautoscalers", &["CREATE", "UPDATE"]),
            ]),
            // Events are emitted, except for a dry run.
            side_effects: "NoneOnDryRun".to_owned(),
            timeout_seconds: Some(self.timeout_seconds),
            match_conditions: None,
        };
        MutatingWebhookConfiguration {
            metadata: ObjectMeta {
                name: Some(NAME.to_owned()),
                labels: Some(self.labels.clone()).filter(|labels| !labels.is_empty()),
                ..ObjectMeta::default()
            },
            webhooks: Some(vec![webhook]),
        }
    }

    fn client_config(&self, listening: u16, bundle: &str) -> WebhookClientConfig {
        let ca_bundle = Some(ByteString(bundle.as_bytes().to_vec()));
        match &self.endpoint {
            Endpoint::Url { host, port } => {
                let port = port.unwrap_or(listening);
                WebhookClientConfig { ca_bundle, url: Some(format!("https://{host}:{port}/")), service: None }
            }
            Endpoint::Service { namespace, name, port } => {
                let service = ServiceReference {
                    namespace: namespace.clone(),
                    name: name.clone(),
                    port: Some(i32::from(*port)),
                    path: None,
                };
                WebhookClientConfig { ca_bundle, url: None, service: Some(service) }
            }
        }
    }

    fn namespace_selector(&self) -> LabelSelector {
        let requirement = |operator: &str, values: Vec<String>| LabelSelectorRequirement {
            key: NAMESPACE_LABEL.to_owned(),
            operator: operator.to_owned(),
            values: Some(values),
        };
        let requirement = match &self.namespaces {
            Namespaces::All => None,
            Namespaces::Only(only) => Some(requirement("In", vec![only.clone()])),
            Namespaces::Except(ignored) => Some(requirement("NotIn", ignored.iter().cloned().collect())),
        };
        LabelSelector {
            match_expressions: requirement.map(|requirement| vec![requirement]),
            match_labels: None,
        }
    }
}

/// Whether a stored configuration says what it should. What else it says, annotations for instance, does not matter.
pub fn is_current(stored: &MutatingWebhookConfiguration, desired: &MutatingWebhookConfiguration) -> bool {
    let labels = desired.metadata.labels.iter().flatten();
    let has_labels = labels.into_iter().all(|(key, value)| {
        stored.metadata.labels.as_ref().and_then(|labels| labels.get(key)) == Some(value)
    });
    has_labels && stored.webhooks == desired.webhooks
}
