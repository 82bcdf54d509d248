//! The Services of the cluster, of which containers get variables (`enableServiceLinks`).
//!
//! There is one watch for the Services of all namespaces, as in the kubelet: containers restart also while the API server
//! cannot be reached. Only the part of a Service that is in the variables is kept.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Service;
use kube::Client;
use plumb_client::Api;
use plumb_controller_runtime::{ObjectRef, Reflector, WatchConfig, WatchEvent};
use tokio::sync::watch;

use crate::cri_config::ConfigError;

/// How long a container waits for the first list of Services. Its pod came from the same API server, so the list is not far.
const SYNC_TIMEOUT: Duration = Duration::from_secs(10);

/// The Services of the cluster that have a cluster IP.
#[derive(Clone, Debug, Default)]
pub struct Services(Arc<watch::Sender<Option<Index>>>);

/// By namespace and name.
type Index = BTreeMap<String, BTreeMap<String, Arc<ServiceAddress>>>;

impl Services {
    /// Watches Services until the future is dropped.
    pub async fn run(&self, client: Client) {
        let reflector = Reflector::new(Api::<Service>::all(client), WatchConfig::default());
        let mut events = std::pin::pin!(reflector.into_stream());
        while let Some(event) = events.next().await {
            self.0.send_modify(|index| match event {
                WatchEvent::Restarted(services) => {
                    let index = index.insert(Index::new());
                    for service in &services {
                        apply(index, service);
                    }
                }
                WatchEvent::Applied(service) => apply(index.get_or_insert_default(), &service),
                WatchEvent::Deleted(service) => remove(index.get_or_insert_default(), &service),
            });
        }
    }

    /// The Services of a namespace, by name; waits for the first list.
    pub(crate) async fn in_namespace(
        &self,
        namespace: &str,
    ) -> Result<BTreeMap<String, Arc<ServiceAddress>>, ConfigError> {
        let mut index = self.0.subscribe();
        // The sender is here, so the channel is not closed.
        let Ok(Ok(index)) = tokio::time::timeout(SYNC_TIMEOUT, index.wait_for(Option::is_some)).await else {
            let message = "services have not yet been read at least once, cannot construct envvars";
            return Err(ConfigError::Container(message.to_owned()));
        };
        Ok(index.as_ref().and_then(|index| index.get(namespace)).cloned().unwrap_or_default())
    }
}

fn apply(index: &mut Index, service: &Service) {
    let key = ObjectRef::of(service);
    match ServiceAddress::new(service) {
        Some(address) => {
            index.entry(key.namespace).or_default().insert(key.name, Arc::new(address));
        }
        // Its type may have become ExternalName.
        None => remove(index, &key),
    }
}

fn remove(index: &mut Index, key: &ObjectRef) {
    let Some(services) = index.get_mut(&key.namespace) else { return };
    services.remove(&key.name);
    if services.is_empty() {
        index.remove(&key.namespace);
    }
}

/// The part of a Service that containers get variables of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServiceAddress {
    host: String,
    ports: Vec<Port>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Port {
    name: Option<String>,
    protocol: String,
    number: i32,
}

impl ServiceAddress {
    /// None if the Service has no cluster IP: it is headless or of the type `ExternalName`.
    fn new(service: &Service) -> Option<Self> {
        let spec = service.spec.as_ref()?;
        let host = spec.cluster_ip.clone().filter(|host| !host.is_empty() && host != "None")?;
        let ports = spec.ports.iter().flatten().map(|port| Port {
            name: port.name.clone().filter(|name| !name.is_empty()),
            protocol: port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
            number: port.port,
        });
        Some(Self { host, ports: ports.collect() })
    }

    /// A Service with the port `https`, as `kubernetes` has.
    pub(crate) fn https(host: &str, port: u16) -> Self {
        let port = Port { name: Some("https".to_owned()), protocol: "TCP".to_owned(), number: port.into() };
        Self { host: host.to_owned(), ports: vec![port] }
    }

    /// The variables of a Service: those of Kubernetes, and those of Docker's links.
    pub(crate) fn variables(&self, service: &str) -> Vec<(String, String)> {
        let prefix = variable_name(service);
        let mut variables = vec![(format!("{prefix}_SERVICE_HOST"), self.host.clone())];
        // The first port has variables of its own without a port name, for clients that know one port only.
        if let Some(first) = self.ports.first() {
            variables.push((format!("{prefix}_SERVICE_PORT"), first.number.to_string()));
            variables.push((format!("{prefix}_PORT"), self.url(first)));
        }
        for port in &self.ports {
            let number = port.number;
            if let Some(name) = &port.name {
                let name = variable_name(name);
                variables.push((format!("{prefix}_SERVICE_PORT_{name}"), number.to_string()));
            }
            let link = format!("{prefix}_PORT_{number}_{}", port.protocol.to_ascii_uppercase());
            variables.extend([
                (format!("{link}_PROTO"), port.protocol.to_ascii_lowercase()),
                (format!("{link}_PORT"), number.to_string()),
                (format!("{link}_ADDR"), self.host.clone()),
                (link, self.url(port)),
            ]);
        }
        variables
    }

    fn url(&self, port: &Port) -> String {
        let protocol = port.protocol.to_ascii_lowercase();
        let is_ipv6 = self.host.parse::<IpAddr>().is_ok_and(|address| address.is_ipv6());
        let host = if is_ipv6 { format!("[{}]", self.host) } else { self.host.clone() };
        format!("{protocol}://{host}:{}", port.number)
    }
}

/// The name of a Service or port in the name of a variable.
fn variable_name(name: &str) -> String {
    name.replace('-', "_").to_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use super::{ServiceAddress, Services};

    fn variables(spec: Value) -> Option<BTreeMap<String, String>> {
        let service = serde_json::from_value(json!({ "spec": spec })).unwrap();
        ServiceAddress::new(&service).map(|address| address.variables("redis-db").into_iter().collect())
    }

    #[test]
    fn each_port_has_the_variables_of_kubernetes_and_of_docker_links() {
        let found = variables(json!({ "clusterIP": "10.96.0.7", "ports": [
            { "name": "client-a", "port": 6379, "protocol": "TCP" },
            { "name": "gossip", "port": 16379, "protocol": "UDP" },
        ] }));
        let wanted = [
            ("REDIS_DB_PORT", "tcp://10.96.0.7:6379"),
            ("REDIS_DB_PORT_16379_UDP", "udp://10.96.0.7:16379"),
            ("REDIS_DB_PORT_16379_UDP_ADDR", "10.96.0.7"),
            ("REDIS_DB_PORT_16379_UDP_PORT", "16379"),
            ("REDIS_DB_PORT_16379_UDP_PROTO", "udp"),
            ("REDIS_DB_PORT_6379_TCP", "tcp://10.96.0.7:6379"),
            ("REDIS_DB_PORT_6379_TCP_ADDR", "10.96.0.7"),
            ("REDIS_DB_PORT_6379_TCP_PORT", "6379"),
            ("REDIS_DB_PORT_6379_TCP_PROTO", "tcp"),
            ("REDIS_DB_SERVICE_HOST", "10.96.0.7"),
            ("REDIS_DB_SERVICE_PORT", "6379"),
            ("REDIS_DB_SERVICE_PORT_CLIENT_A", "6379"),
            ("REDIS_DB_SERVICE_PORT_GOSSIP", "16379"),
        ];
        let wanted = wanted.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(found, Some(wanted.into_iter().collect()));
    }

    #[test]
    fn an_ipv6_address_is_in_brackets_in_urls_only() {
        let found =
            variables(json!({ "clusterIP": "fd00::7", "ports": [{ "port": 80, "protocol": "SCTP" }] }));
        let found = found.unwrap();
        assert_eq!(found["REDIS_DB_SERVICE_HOST"], "fd00::7");
        assert_eq!(found["REDIS_DB_PORT"], "sctp://[fd00::7]:80");
        assert_eq!(found["REDIS_DB_PORT_80_SCTP_ADDR"], "fd00::7");
        // A port without a name has no variable for its name.
        assert!(!found.keys().any(|name| name.starts_with("REDIS_DB_SERVICE_PORT_")));
    }

    #[test]
    fn services_without_a_cluster_ip_have_no_variables() {
        let ports = json!([{ "port": 80 }]);
        for cluster_ip in [json!("None"), json!(""), Value::Null] {
            assert_eq!(variables(json!({ "clusterIP": cluster_ip, "ports": ports })), None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_list_of_services_a_container_is_not_created() {
        let error = Services::default().in_namespace("default").await.unwrap_err();
        assert_eq!(error.waiting_reason(), "CreateContainerConfigError");
        let message = "services have not yet been read at least once, cannot construct envvars";
        assert_eq!(error.to_string(), message);
    }
}
