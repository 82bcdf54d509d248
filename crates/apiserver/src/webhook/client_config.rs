//! The address of a webhook: a URL, or a Service whose endpoints are looked up for every call.
//!
//! The machine may not route cluster IPs, so that the server looks up the `EndpointSlice`s of a Service: it calls any ready
//! endpoint at the port that the slice has for the port of the Service. Only a Service without slices is called at its
//! cluster IP. Loopback and link-local addresses of a Service are not called ([`resolver`](super::resolver)).

use k8s_openapi::api::core::v1::{Service, ServicePort};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use plumb_store::Store;
use serde::Deserialize as _;
use serde_json::Value;

use super::resolver::{NOT_ALLOWED, is_allowed};
use crate::error::ApiError;
use crate::stored;

/// The address of a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WebhookClientConfig {
    /// A URL.
    Url {
        /// Host and port in the configuration.
        authority: String,
        /// Host and port that the server connects to.
        dialed: String,
        /// The path.
        path: String,
    },
    /// A Service.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Its port.
        port: u16,
        /// The path.
        path: String,
    },
}

impl WebhookClientConfig {
    /// A Service that an `APIService` names.
    pub(crate) fn for_service(namespace: &str, name: &str, port: u16) -> Self {
        let [namespace, name] = [namespace, name].map(str::to_owned);
        Self::Service { namespace, name, port, path: "/".to_owned() }
    }

    /// Parses a client configuration.
    pub(super) fn read(config: &Value) -> Result<Self, String> {
        if let Some(service) = config.get("service").filter(|service| service.is_object()) {
            let text = |field: &str| service[field].as_str().unwrap_or_default().to_owned();
            let port = service["port"].as_u64().and_then(|port| u16::try_from(port).ok()).unwrap_or(443);
            let path = format!("/{}", text("path").trim_start_matches('/'));
            return Ok(Self::Service { namespace: text("namespace"), name: text("name"), port, path });
        }
        let url = config["url"].as_str().unwrap_or_default();
        if url.is_empty() {
            return Err("webhook configuration must have either service or URL".to_owned());
        }
        let uri: http::Uri = url.parse().map_err(|error| format!("Unparsable URL: {error}"))?;
        let authority = uri.authority().ok_or("Unparsable URL: no host")?;
        let dialed = match authority.port() {
            Some(_) => authority.to_string(),
            None => format!("{authority}:443"),
        };
        let path = if uri.path().is_empty() { "/" } else { uri.path() };
        Ok(Self::Url { authority: authority.to_string(), dialed, path: path.to_owned() })
    }

    /// Host and port for messages.
    pub(super) fn authority(&self) -> String {
        match self {
            Self::Url { authority, .. } => authority.clone(),
            Self::Service { namespace, name, port, .. } => format!("{name}.{namespace}.svc:{port}"),
        }
    }

    /// The server name that the certificate must have, if that is not the host of the connection.
    pub(super) fn server_name(&self) -> Option<String> {
        match self {
            Self::Url { .. } => None,
            Self::Service { namespace, name, .. } => Some(format!("{name}.{namespace}.svc")),
        }
    }

    /// The path.
    pub(super) fn path(&self) -> &str {
        match self {
            Self::Url { path, .. } | Self::Service { path, .. } => path,
        }
    }

    /// Host and port to connect to now. The number selects one of several endpoints.
    pub(crate) fn dialed(&self, store: &Store, pick: usize) -> Result<String, String> {
        let (namespace, name, port) = match self {
            Self::Url { dialed, .. } => return Ok(dialed.clone()),
            Self::Service { namespace, name, port, .. } => (namespace, name, *port),
        };
        let unreadable = |error: ApiError| error.message;
        let service = stored::one(store, ("", "services"), Some(namespace), name).map_err(unreadable)?;
        let service = service.ok_or_else(|| format!("service {name:?} not found"))?;
        let service = Service::deserialize(service).map_err(|error| error.to_string())?;
        let slices: Vec<EndpointSlice> =
            stored::all(store, ("discovery.k8s.io", "endpointslices"), Some(namespace))
                .map_err(unreadable)?;
        let label = "kubernetes.io/service-name";
        let own = |slice: &EndpointSlice| {
            slice.metadata.labels.as_ref().and_then(|labels| labels.get(label)).is_some_and(|of| of == name)
        };
        let slices: Vec<EndpointSlice> = slices.into_iter().filter(own).collect();
        endpoint(name, port, &service, &slices, pick)
    }
}

/// The endpoint of a Service to call.
fn endpoint(
    name: &str,
    port: u16,
    service: &Service,
    slices: &[EndpointSlice],
    pick: usize,
) -> Result<String, String> {
    let none = k8s_openapi::api::core::v1::ServiceSpec::default();
    let spec = service.spec.as_ref().unwrap_or(&none);
    if spec.type_.as_deref() == Some("ExternalName") {
        return allowed(spec.external_name.as_deref().unwrap_or_default(), port);
    }
    let found = spec.ports.iter().flatten().find(|own: &&ServicePort| own.port == i32::from(port));
    let found = found.ok_or_else(|| format!("no service port {port} found for service {name:?}"))?;
    let (mut endpoints, mut are_refused) = (Vec::new(), false);
    for slice in slices {
        let same =
            |named: Option<&str>| named.unwrap_or_default() == found.name.as_deref().unwrap_or_default();
        let target =
            slice.ports.iter().flatten().find(|port| same(port.name.as_deref())).and_then(|port| port.port);
        let Some(target) = target.and_then(|target| u16::try_from(target).ok()) else { continue };
        let ready = slice.endpoints.iter().flatten().filter(|endpoint| {
            endpoint.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true)
        });
        for address in ready.flat_map(|endpoint| &endpoint.addresses) {
            match allowed(address, target) {
                Ok(address) => endpoints.push(address),
                Err(_) => are_refused = true,
            }
        }
    }
    match endpoints.len() {
        0 if are_refused => return Err(NOT_ALLOWED.to_owned()),
        0 => {}
        count => return Ok(endpoints.swap_remove(pick % count)),
    }
    match spec.cluster_ip.as_deref() {
        Some(address) if slices.is_empty() && !matches!(address, "" | "None") => allowed(address, port),
        _ => Err(format!("no endpoints available for service {name:?}")),
    }
}

/// Host and port of a backend that may be called.
fn allowed(host: &str, port: u16) -> Result<String, String> {
    if is_allowed(host) { Ok(authority(host, port)) } else { Err(NOT_ALLOWED.to_owned()) }
}

fn authority(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_service_is_found_by_its_ready_endpoints() {
        let service: Service = serde_json::from_value(json!({ "spec": {
            "clusterIP": "10.0.0.1", "ports": [{ "name": "https", "port": 443, "targetPort": 9443 }],
        } }))
        .unwrap();
        let slice = |ready: bool| -> EndpointSlice {
            serde_json::from_value(json!({
                "addressType": "IPv4", "ports": [{ "name": "https", "port": 9443 }],
                "endpoints": [
                    { "addresses": ["10.1.0.1"], "conditions": { "ready": false } },
                    { "addresses": ["10.1.0.2"], "conditions": { "ready": ready } },
                ],
            }))
            .unwrap()
        };
        assert_eq!(endpoint("s", 443, &service, &[slice(true)], 7), Ok("10.1.0.2:9443".into()));
        assert_eq!(
            endpoint("s", 443, &service, &[slice(false)], 0),
            Err("no endpoints available for service \"s\"".into())
        );
        assert_eq!(endpoint("s", 443, &service, &[], 0), Ok("10.0.0.1:443".into()));
        assert_eq!(
            endpoint("s", 80, &service, &[], 0),
            Err("no service port 80 found for service \"s\"".into())
        );
    }

    #[test]
    fn a_service_is_not_called_at_loopback_and_link_local_addresses() {
        let ports = json!([{ "port": 443 }]);
        let spec = |spec: Value| serde_json::from_value::<Service>(json!({ "spec": spec })).unwrap();
        let slice = |addresses: &[&str]| -> EndpointSlice {
            serde_json::from_value(json!({
                "addressType": "IPv4", "ports": [{ "port": 9443 }], "endpoints": [{ "addresses": addresses }],
            }))
            .unwrap()
        };
        let service = spec(json!({ "clusterIP": "10.0.0.1", "ports": ports }));
        let refused = Err(NOT_ALLOWED.to_owned());
        for address in ["127.0.0.1", "::1", "::ffff:127.0.0.1", "169.254.169.254", "fe80::1", "0.0.0.0"] {
            assert_eq!(endpoint("s", 443, &service, &[slice(&[address])], 0), refused, "{address}");
            let both = endpoint("s", 443, &service, &[slice(&[address, "10.1.0.2"])], 1);
            assert_eq!(both, Ok("10.1.0.2:9443".into()), "{address}");
            let external = spec(json!({ "type": "ExternalName", "externalName": address }));
            assert_eq!(endpoint("s", 443, &external, &[], 0), refused, "{address}");
        }
        let headless = spec(json!({ "clusterIP": "127.0.0.1", "ports": ports }));
        assert_eq!(endpoint("s", 443, &headless, &[], 0), refused);
    }

    #[test]
    fn an_address_without_a_port_is_that_of_https() {
        let config =
            WebhookClientConfig::read(&json!({ "url": "https://hooks.example.com/mutate" })).unwrap();
        assert_eq!(config.authority(), "hooks.example.com");
        assert!(
            matches!(config, WebhookClientConfig::Url { dialed, .. } if dialed == "hooks.example.com:443")
        );
    }
}
