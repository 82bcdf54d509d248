//! A container's environment: the variables of its spec, with references resolved.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, ObjectFieldSelector, Pod};
use plumb_runtime::types::Env;

use crate::cri_config::{ConfigError, expand, identity};
use crate::downward::{self, Amounts, DownwardError};
use crate::objects::{Content, Objects, Reference};
use crate::services::{ServiceAddress, Services};

/// The namespace of the Service `kubernetes`.
const DEFAULT: &str = "default";
/// The Service of the API server.
const KUBERNETES: &str = "kubernetes";

/// The facts of a pod and its node that variables may refer to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EnvFacts {
    /// The pod's addresses, the first one its own.
    pub pod_ips: Vec<IpAddr>,
    /// The node's.
    pub host_ips: Vec<IpAddr>,
    /// The node's allocatable resources.
    pub allocatable: Amounts,
    /// Where pods reach the API server.
    pub api_server: Option<ApiServerAddress>,
}

/// Where pods reach the API server, each a host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiServerAddress {
    /// From a network namespace of their own: the Service `kubernetes`, where the node makes it reachable.
    pub service: (String, u16),
    /// From the machine's network.
    pub host: (String, u16),
}

/// The variables of a container: those of whole objects, then its own in their order, then those of Services. Each name
/// occurs once; of the first two the last value counts, and Services change none of them. Without `services`, the only
/// Service is `kubernetes`.
pub async fn environment(
    objects: &Objects,
    services: Option<&Services>,
    pod: &Pod,
    container: &Container,
    facts: &EnvFacts,
) -> Result<Vec<Env>, ConfigError> {
    let mut source = Source { objects, pod, container, facts, read: BTreeMap::new() };
    let service_variables = service_variables(services, pod, facts).await?;
    let mut variables = Variables::default();
    for whole in container.env_from.iter().flatten() {
        let prefix = whole.prefix.as_deref().unwrap_or_default();
        let named = [
            whole.config_map_ref.as_ref().map(|map| (source.config_map(&map.name), map.optional)),
            whole.secret_ref.as_ref().map(|secret| (source.secret(&secret.name), secret.optional)),
        ];
        for (reference, optional) in named.into_iter().flatten() {
            let Some(content) = source.content(reference, optional).await? else { continue };
            for (key, value) in &content.data {
                variables.set(format!("{prefix}{key}"), text(key, value)?);
            }
        }
    }
    for variable in container.env.iter().flatten() {
        let known =
            |name: &str| variables.get(name).or_else(|| service_variables.get(name).map(String::as_str));
        let value = match variable {
            EnvVar { value: Some(value), .. } if !value.is_empty() => Some(expand(value, known)),
            EnvVar { value_from: Some(from), .. } => source.value(from).await?,
            _ => Some(String::new()),
        };
        if let Some(value) = value {
            variables.set(variable.name.clone(), value);
        }
    }
    for (name, value) in &service_variables {
        if variables.get(name).is_none() {
            variables.set(name.clone(), value.clone());
        }
    }
    Ok(variables.0)
}

/// Variables in the order in which they were first set.
#[derive(Default)]
struct Variables(Vec<Env>);

impl Variables {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|env| env.name == name).map(|env| env.value.as_str())
    }

    fn set(&mut self, name: String, value: String) {
        match self.0.iter_mut().find(|env| env.name == name) {
            Some(env) => env.value = value,
            None => self.0.push(Env { name, value }),
        }
    }
}

/// The sources of values.
struct Source<'a> {
    objects: &'a Objects,
    pod: &'a Pod,
    container: &'a Container,
    facts: &'a EnvFacts,
    /// The objects that were read already, so that all variables of one object are of one resource version.
    read: BTreeMap<Reference, Arc<Content>>,
}

impl Source<'_> {
    fn config_map(&self, name: &str) -> Reference {
        Reference::config_map(identity(self.pod).0, name)
    }

    fn secret(&self, name: &str) -> Reference {
        Reference::secret(identity(self.pod).0, name)
    }

    async fn content(
        &mut self,
        reference: Reference,
        optional: Option<bool>,
    ) -> Result<Option<Arc<Content>>, ConfigError> {
        if let Some(content) = self.read.get(&reference) {
            return Ok(Some(content.clone()));
        }
        match self.objects.read(&reference).await {
            Ok(content) => {
                self.read.insert(reference, content.clone());
                Ok(Some(content))
            }
            Err(error) if error.is_not_found() && optional == Some(true) => Ok(None),
            Err(error) => Err(ConfigError::Container(error.to_string())),
        }
    }

    /// The value of a variable with a source; `None` if the source is optional and missing.
    async fn value(&mut self, from: &EnvVarSource) -> Result<Option<String>, ConfigError> {
        if let Some(field) = &from.field_ref {
            let value = self.field(field);
            return value.map(Some).map_err(|error| ConfigError::Container(error.to_string()));
        }
        if let Some(resource) = &from.resource_field_ref {
            let value = downward::resource(self.pod, Some(self.container), resource, &self.facts.allocatable);
            return value.map(Some).map_err(|error| ConfigError::Container(error.to_string()));
        }
        let (reference, key, optional, kind) = match from {
            EnvVarSource { config_map_key_ref: Some(map), .. } => {
                (self.config_map(&map.name), &map.key, map.optional, "ConfigMap")
            }
            EnvVarSource { secret_key_ref: Some(secret), .. } => {
                (self.secret(&secret.name), &secret.key, secret.optional, "Secret")
            }
            _ => return Err(ConfigError::Container("this source of a variable is not supported".to_owned())),
        };
        let place = format!("{}/{}", reference.namespace, reference.name);
        let Some(content) = self.content(reference, optional).await? else { return Ok(None) };
        match content.data.get(key) {
            Some(value) => Ok(Some(text(key, value)?)),
            None if optional == Some(true) => Ok(None),
            None => Err(ConfigError::Container(format!("couldn't find key {key} in {kind} {place}"))),
        }
    }

    fn field(&self, field: &ObjectFieldSelector) -> Result<String, DownwardError> {
        let version = field.api_version.as_deref().filter(|version| !version.is_empty()).unwrap_or("v1");
        if version != "v1" {
            return Err(DownwardError::Version(version.to_owned()));
        }
        let spec = self.pod.spec.as_ref();
        let of_spec = |text: Option<&Option<String>>| text.cloned().flatten().unwrap_or_default();
        let first = |addresses: &[IpAddr]| addresses.first().map(IpAddr::to_string).unwrap_or_default();
        let all =
            |addresses: &[IpAddr]| addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(",");
        Ok(match field.field_path.as_str() {
            "spec.nodeName" | "spec.host" => of_spec(spec.map(|spec| &spec.node_name)),
            "spec.serviceAccountName" => of_spec(spec.map(|spec| &spec.service_account_name)),
            "status.podIP" => first(&self.facts.pod_ips),
            "status.podIPs" => all(&self.facts.pod_ips),
            "status.hostIP" => first(&self.facts.host_ips),
            "status.hostIPs" => all(&self.facts.host_ips),
            path => {
                return downward::metadata(self.pod, path)
                    .unwrap_or_else(|| Err(DownwardError::EnvField(path.to_owned())));
            }
        })
    }
}

/// A value as text: the runtime accepts only text in the environment.
fn text(key: &str, value: &[u8]) -> Result<String, ConfigError> {
    let text = std::str::from_utf8(value);
    let text = text.map_err(|_| ConfigError::Container(format!("the value of key {key} is not text")))?;
    Ok(text.to_owned())
}

/// The variables of the Services of the pod's namespace, if it has `enableServiceLinks`, and of the Service `kubernetes`.
async fn service_variables(
    services: Option<&Services>,
    pod: &Pod,
    facts: &EnvFacts,
) -> Result<BTreeMap<String, String>, ConfigError> {
    let namespace = identity(pod).0;
    let enabled = pod.spec.as_ref().and_then(|spec| spec.enable_service_links) != Some(false);
    let mut linked = match services.filter(|_| enabled) {
        Some(services) => services.in_namespace(namespace).await?,
        None => BTreeMap::new(),
    };
    if let Some(kubernetes) = api_server(pod, facts).map(Arc::new) {
        // As with the kubelet, a Service of that name in another namespace hides the one in `default` from its pods.
        if namespace == DEFAULT {
            linked.insert(KUBERNETES.to_owned(), kubernetes);
        } else {
            linked.entry(KUBERNETES.to_owned()).or_insert(kubernetes);
        }
    }
    Ok(linked.iter().flat_map(|(name, service)| service.variables(name)).collect())
}

/// The Service `kubernetes`, by which clients in pods find the API server.
fn api_server(pod: &Pod, facts: &EnvFacts) -> Option<ServiceAddress> {
    let addresses = facts.api_server.as_ref()?;
    let host_network = pod.spec.as_ref().and_then(|spec| spec.host_network) == Some(true);
    let (host, port) = if host_network { &addresses.host } else { &addresses.service };
    Some(ServiceAddress::https(host, *port))
}
