//! The `MutatingWebhookConfiguration` that makes the API server call a webhook.
//!
//! All replicas apply the same object, from the same options and the same Secret, by server-side apply under one field
//! manager: they do not overwrite each other, and the configuration is never missing.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MutatingWebhook, MutatingWebhookConfiguration, RuleWithOperations, ServiceReference,
    WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::api::{DeleteParams, Preconditions};
use kube::{Client, ResourceExt as _};
use plumb_client::Api;

/// Where the API server finds a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// At a URL (`--register-by-url`).
    Url {
        /// Host name or address.
        host: String,
        /// The port; by default the one that the server listens on.
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

/// How a webhook is registered.
#[derive(Clone, Debug, PartialEq)]
pub struct Registration {
    /// The name of the configuration.
    pub name: &'static str,
    /// The name of the webhook in it.
    pub webhook: &'static str,
    /// The manager of the fields that are applied.
    pub field_manager: &'static str,
    /// The requests that it is called for.
    pub rules: Vec<RuleWithOperations>,
    /// CEL match conditions that exclude requests.
    pub match_conditions: Vec<MatchCondition>,
    /// Whether it has side effects (`None`, `NoneOnDryRun`).
    pub side_effects: &'static str,
    /// How the API server reaches it.
    pub endpoint: Endpoint,
    /// Whether the API server refuses objects while it does not respond (`--webhook-failure-policy-fail`).
    pub fail: bool,
    /// How long the API server waits for a response (`--webhook-timeout-seconds`).
    pub timeout_seconds: i32,
    /// Labels of the configuration (`--webhook-labels`).
    pub labels: BTreeMap<String, String>,
    /// The namespaces that it is called for.
    pub namespace_selector: LabelSelector,
}

impl Registration {
    /// The configuration for a server that listens on a port and whose authorities these are, as PEM.
    pub fn configuration(&self, port: u16, bundle: &str) -> MutatingWebhookConfiguration {
        let webhook = MutatingWebhook {
            name: self.webhook.to_owned(),
            admission_review_versions: vec!["v1".to_owned()],
            client_config: self.client_config(port, bundle),
            failure_policy: Some(if self.fail { "Fail" } else { "Ignore" }.to_owned()),
            match_policy: Some("Equivalent".to_owned()),
            namespace_selector: Some(self.namespace_selector.clone()),
            object_selector: Some(LabelSelector::default()),
            reinvocation_policy: Some("Never".to_owned()),
            rules: Some(self.rules.clone()),
            side_effects: self.side_effects.to_owned(),
            timeout_seconds: Some(self.timeout_seconds),
            match_conditions: Some(self.match_conditions.clone()).filter(|conditions| !conditions.is_empty()),
        };
        MutatingWebhookConfiguration {
            metadata: ObjectMeta {
                name: Some(self.name.to_owned()),
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
}

/// A rule for operations on a resource of a group, in any scope.
pub fn rule(group: &str, version: &str, resources: &[&str], operations: &[&str]) -> RuleWithOperations {
    let texts = |texts: &[&str]| Some(texts.iter().map(|&text| text.to_owned()).collect());
    RuleWithOperations {
        api_groups: texts(&[group]),
        api_versions: texts(&[version]),
        operations: texts(operations),
        resources: texts(resources),
        scope: Some("*".to_owned()),
    }
}

/// Whether a stored configuration is up to date. Other fields, such as annotations, are not compared.
pub fn is_current(stored: &MutatingWebhookConfiguration, desired: &MutatingWebhookConfiguration) -> bool {
    let labels = desired.metadata.labels.iter().flatten();
    let has_labels = labels.into_iter().all(|(key, value)| {
        stored.metadata.labels.as_ref().and_then(|labels| labels.get(key)) == Some(value)
    });
    has_labels && stored.webhooks == desired.webhooks
}

/// Whether a configuration is for a webhook at a loopback address of the API server. `plumb up` registers its own that way,
/// and no webhook of an installation can be there.
pub fn is_on_loopback(configuration: &MutatingWebhookConfiguration) -> bool {
    let is_on_loopback = |webhook: &MutatingWebhook| {
        let url = webhook.client_config.url.as_deref().and_then(|url| url.parse::<http::Uri>().ok());
        let address = url.as_ref().and_then(http::Uri::host).and_then(|host| host.parse::<IpAddr>().ok());
        address.is_some_and(|address| address.is_loopback())
    };
    configuration.webhooks.iter().flatten().any(is_on_loopback)
}

/// Whether a field manager has applied a configuration.
pub fn is_managed_by(configuration: &MutatingWebhookConfiguration, manager: &str) -> bool {
    configuration.managed_fields().iter().any(|entry| entry.manager.as_deref() == Some(manager))
}

/// Deletes the configuration of a webhook that `plumb up` served. That of any other webhook stays.
pub async fn unregister_from_loopback(client: &Client, name: &str, manager: &str) -> kube::Result<()> {
    let api: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let found = api.get_opt(name).await?;
    let Some(found) = found.filter(|found| is_on_loopback(found) && is_managed_by(found, manager)) else {
        return Ok(());
    };
    let preconditions = Preconditions { uid: found.metadata.uid, resource_version: None };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    match api.delete(name, &params).await {
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
        deleted => deleted.map(drop),
    }
}
