//! Which port of which pod or node a request goes to.

use std::net::IpAddr;

use bytes::Bytes;
use http::header::HOST;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use plumb_validation::addresses::is_global_unicast;
use serde_json::Value;

use crate::cluster::Cluster;
use crate::error::ApiError;
use crate::kubelet::{Endpoint, KubeletClient};
use crate::object::{decode, meta};

/// Where a request goes.
pub(super) enum Backend {
    /// A node's agent.
    Agent(Endpoint),
    /// A port of a pod, by way of its node's agent.
    Pod { agent: Endpoint, namespace: String, name: String, address: IpAddr, port: u16, tls: bool },
}

/// A name with a scheme before it and a port behind it, as far as they are given.
#[derive(Debug, PartialEq, Eq)]
struct Named<'a> {
    tls: bool,
    name: &'a str,
    port: &'a str,
}

impl<'a> Named<'a> {
    /// `name`, `name:port` or `scheme:name:port`.
    fn read(text: &'a str, what: &str) -> Result<Self, ApiError> {
        let (scheme, name, port) = match text.split(':').collect::<Vec<_>>()[..] {
            [name] => ("", name, ""),
            [name, port] => ("", name, port),
            [scheme, name, port] => (scheme, name, port),
            _ => ("", "", ""),
        };
        if name.is_empty() || !["", "http", "https"].contains(&scheme) {
            return Err(ApiError::bad_request(format!("invalid {what} request {text:?}")));
        }
        Ok(Self { tls: scheme == "https", name, port })
    }
}

impl Backend {
    /// The agent of the node that an id names: `name`, `name:port` or `scheme:name:port`.
    pub(super) fn of_node(cluster: &Cluster, id: &str) -> Result<Self, ApiError> {
        let Named { name, port, .. } = Named::read(id, "node")?;
        let endpoint = Endpoint::find(cluster, name)?;
        if !port.is_empty() && port != endpoint.port.to_string() {
            // Upstream goes to any port of a node that is another machine. A node here may be this machine, and clients
            // must not reach its other ports through its API server.
            return Err(ApiError::bad_request("address not allowed"));
        }
        Ok(Self::Agent(endpoint))
    }

    /// The pod that an id names. Without a port it is the first that the pod declares.
    pub(super) fn of_pod(cluster: &Cluster, namespace: Option<&str>, id: &str) -> Result<Self, ApiError> {
        let Named { tls, name, port } = Named::read(id, "pod")?;
        let pod =
            object(cluster, namespace, "pods", name)?.ok_or_else(|| ApiError::not_found("", "pods", name))?;
        let declared = pod["spec"]["containers"].as_array().into_iter().flatten();
        let mut declared = declared.filter_map(|container| container["ports"][0]["containerPort"].as_u64());
        let port = match port {
            "" => declared.next().and_then(|port| u16::try_from(port).ok()).unwrap_or(if tls {
                443
            } else {
                80
            }),
            port => number(port)?,
        };
        Self::reach(cluster, &pod, port, tls)
    }

    /// A pod behind the service that an id names.
    pub(super) fn of_service(cluster: &Cluster, namespace: Option<&str>, id: &str) -> Result<Self, ApiError> {
        let Named { tls, name, port } = Named::read(id, "service")?;
        let service = object(cluster, namespace, "services", name)?
            .ok_or_else(|| ApiError::not_found("", "services", name))?;
        let port = match port.parse::<i64>() {
            Ok(port_number) => {
                let ports = service["spec"]["ports"].as_array().into_iter().flatten();
                let mut own = ports.filter(|own| own["port"].as_i64() == Some(port_number));
                let own = own.next().ok_or_else(|| {
                    ApiError::unavailable(format!("no service port {port_number} found for service {name:?}"))
                })?;
                own["name"].as_str().unwrap_or_default().to_owned()
            }
            Err(_) => port.to_owned(),
        };
        let endpoints = object(cluster, namespace, "endpoints", name)?.unwrap_or_default();
        let subsets: &[Value] = endpoints["subsets"].as_array().map_or(&[], Vec::as_slice);
        if subsets.is_empty() {
            return Err(ApiError::unavailable(format!("no endpoints available for service {name:?}")));
        }
        for subset in subsets {
            let ports = subset["ports"].as_array().into_iter().flatten();
            let mut own = ports.filter(|own| own["name"].as_str().unwrap_or_default() == port);
            let Some(port) = own.next().and_then(|own| u16::try_from(own["port"].as_u64()?).ok()) else {
                continue;
            };
            let addresses: &[Value] = subset["addresses"].as_array().map_or(&[], Vec::as_slice);
            // Any of them does; requests that follow one another go to different ones.
            let first = usize::try_from(uuid::Uuid::new_v4().as_u64_pair().0).unwrap_or_default();
            for try_next in 0..addresses.len() {
                let address = &addresses[first.wrapping_add(try_next) % addresses.len()];
                if let Some(pod) = pod_of(cluster, namespace, address)? {
                    return Self::reach(cluster, &pod, port, tls);
                }
            }
        }
        Err(ApiError::unavailable(format!("no endpoints available for service {id:?}")))
    }

    fn reach(cluster: &Cluster, pod: &Value, port: u16, tls: bool) -> Result<Self, ApiError> {
        let address =
            pod.pointer("/status/podIP").and_then(Value::as_str).and_then(|ip| ip.parse::<IpAddr>().ok());
        // The pod's agent connects to the address that the runtime gave the pod, not to this one, which a user who may write the
        // status can change between this check and the connection. It is for messages and for names in TLS.
        let address =
            address.filter(is_global_unicast).ok_or_else(|| ApiError::bad_request("address not allowed"))?;
        let node = pod.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or_default();
        let agent = Endpoint::find(cluster, node)?;
        let (namespace, name) = (meta(pod, "namespace").to_owned(), meta(pod, "name").to_owned());
        Ok(Self::Pod { agent, namespace, name, address, port, tls })
    }

    /// The authority that means the backend in its own redirects.
    pub(super) fn authority(&self) -> String {
        match self {
            Self::Agent(endpoint) => endpoint.to_string(),
            Self::Pod { address, port, .. } => std::net::SocketAddr::new(*address, *port).to_string(),
        }
    }

    /// The host that the backend is asked for: an agent by its own name, a pod by the one that the client used.
    pub(super) fn host(&self, asked: &HeaderMap) -> Result<HeaderValue, ApiError> {
        let given = asked.get(HOST).filter(|_| matches!(self, Self::Pod { .. })).cloned();
        let own =
            || HeaderValue::try_from(self.authority()).map_err(|error| ApiError::internal(error.to_string()));
        given.map_or_else(own, Ok)
    }

    /// Sends a request, and returns the response once its header is there.
    pub(super) async fn send(
        &self,
        client: &KubeletClient,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, ApiError> {
        match self {
            Self::Agent(endpoint) => client.send(endpoint, true, request).await,
            Self::Pod { agent, namespace, name, address, port, tls } => {
                let path = format!("/podConnect/{namespace}/{name}?port={port}");
                client.send_through(agent, &path, tls.then_some(*address), request).await
            }
        }
    }
}

fn number(port: &str) -> Result<u16, ApiError> {
    port.parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(|| {
        ApiError::unavailable(format!(
            "error trying to reach service: dial tcp: address {port}: invalid port"
        ))
    })
}

/// An object, if it exists.
fn object(
    cluster: &Cluster,
    namespace: Option<&str>,
    plural: &str,
    name: &str,
) -> Result<Option<Value>, ApiError> {
    let row = cluster.kinds().find("", plural).ok_or_else(ApiError::no_such_path)?;
    let stored = cluster.store().get(&row.key(namespace, name)?);
    stored.map(|stored| decode(&stored.value)).transpose()
}

/// The pod that an endpoint's address is of. Addresses of anything else are not proxied to.
fn pod_of(cluster: &Cluster, namespace: Option<&str>, address: &Value) -> Result<Option<Value>, ApiError> {
    let target = &address["targetRef"];
    let (Some(name), Some(ip)) = (target["name"].as_str(), address["ip"].as_str()) else { return Ok(None) };
    if target["namespace"].as_str() != namespace {
        return Ok(None);
    }
    let pod = object(cluster, namespace, "pods", name)?;
    let has_address = |pod: &Value| {
        let mut ips = pod.pointer("/status/podIPs").and_then(Value::as_array).into_iter().flatten();
        ips.any(|own| own["ip"] == ip)
    };
    Ok(pod.filter(has_address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_have_a_scheme_and_a_port() {
        let named = |tls, name, port| Ok(Named { tls, name, port });
        for (text, expected) in [
            ("web", named(false, "web", "")),
            ("web:8080", named(false, "web", "8080")),
            ("https:web:", named(true, "web", "")),
            (":web:http", named(false, "web", "http")),
        ] {
            assert_eq!(Named::read(text, "pod"), expected, "{text}");
        }
        for text in ["ftp:web:80", "", ":80", "a:b:c:d"] {
            let error = Named::read(text, "pod").unwrap_err();
            assert_eq!(error.message, format!("invalid pod request {text:?}"));
        }
    }
}
