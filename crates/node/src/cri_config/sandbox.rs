//! The sandbox, which the containers of a pod share.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{ContainerPort, Pod, PodSpec};
use plumb_runtime::types::{
    Dns, LinuxResources, LogLimits, NamespaceMode, Namespaces, PodMeta, PortMapping, Protocol, QosClass,
    SandboxConfig,
};

use super::dns::ClusterDns;
use super::{ConfigError, identity, on_host_network, pod_labels};
use crate::lifecycle::containers;

/// The kernel's limit of a hostname.
const LONGEST_HOST_NAME: usize = 63;
const LONGEST_FULL_NAME: usize = 64;
/// The domain of services where the node knows of no cluster DNS, as most clusters have it.
const DEFAULT_CLUSTER_DOMAIN: &str = "cluster.local";

/// The common configuration of all sandboxes of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxDefaults {
    /// The directory of the logs of all pods.
    pub log_root: PathBuf,
    /// The cluster's DNS service, if it has one.
    pub cluster_dns: Option<ClusterDns>,
    /// The file with the resolver's configuration of the host, which is read for each sandbox; `None` leaves pods that do
    /// not use the cluster's DNS without any.
    pub resolv_conf: Option<PathBuf>,
    /// How many tasks (processes and threads) a pod may have (`--pod-max-pids`); `None` is unlimited.
    pub max_pids: Option<u32>,
    /// When the logs of containers are rotated.
    pub log_limits: LogLimits,
}

/// The configuration of a pod's sandbox. `attempt` is how many it had before; `dns` is that of
/// [`pod_dns`](super::pod_dns).
pub fn sandbox(
    pod: &Pod,
    class: QosClass,
    attempt: u32,
    resources: LinuxResources,
    defaults: &SandboxDefaults,
    dns: Dns,
) -> Result<SandboxConfig, ConfigError> {
    let none = PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&none);
    if spec.host_users == Some(false) {
        let message = "can't set `spec.hostUsers: false`, runtime does not support user namespaces";
        return Err(ConfigError::Sandbox(message.to_owned()));
    }
    let (namespace, name, uid) = identity(pod);
    let meta =
        PodMeta { name: name.to_owned(), namespace: namespace.to_owned(), uid: uid.to_owned(), attempt };
    let on_host = on_host_network(spec);
    let mut labels = pod.metadata.labels.clone().unwrap_or_default();
    labels.extend(pod_labels(pod));
    let security = spec.security_context.as_ref();
    let sysctls = security.and_then(|security| security.sysctls.as_ref()).into_iter().flatten();
    let aliases = spec.host_aliases.iter().flatten();
    Ok(SandboxConfig {
        meta,
        class,
        hostname: if on_host { String::new() } else { kernel_name(pod, spec, defaults)? },
        domain: if on_host { String::new() } else { domain(pod, spec, defaults).unwrap_or_default() },
        log_directory: Some(log_folder(&defaults.log_root, pod)),
        dns: Some(dns),
        host_aliases: aliases
            .filter_map(|alias| Some((alias.ip.parse().ok()?, alias.hostnames.clone()?)))
            .collect(),
        port_mappings: if on_host { Vec::new() } else { port_mappings(spec) },
        namespaces: namespaces(spec),
        privileged: containers(spec).any(|container| {
            container.security_context.as_ref().and_then(|security| security.privileged).unwrap_or(false)
        }),
        sysctls: sysctls.map(|sysctl| (sysctl.name.clone(), sysctl.value.clone())).collect(),
        resources: LinuxResources { pids_limit: defaults.max_pids.map(i64::from), ..resources },
        runtime_handler: String::new(),
        labels,
        annotations: pod.metadata.annotations.clone().unwrap_or_default(),
    })
}

/// The directory of a pod's logs.
pub fn log_folder(root: &Path, pod: &Pod) -> PathBuf {
    let (namespace, name, uid) = identity(pod);
    root.join(format!("{namespace}_{name}_{uid}"))
}

/// The hostname of a pod, without a domain.
pub fn host_name(pod: &Pod) -> String {
    let spec = pod.spec.as_ref();
    let named = |name: &'_ Option<String>| name.clone().filter(|name| !name.is_empty());
    let name = spec
        .and_then(|spec| named(&spec.hostname_override).or_else(|| named(&spec.hostname)))
        .unwrap_or_else(|| identity(pod).1.to_owned());
    let end = name.char_indices().map(|(at, char)| at + char.len_utf8());
    let end = end.take_while(|end| *end <= LONGEST_HOST_NAME).last().unwrap_or_default();
    let cut = &name[..end];
    if cut.len() < name.len() { cut.trim_end_matches(['-', '.']).to_owned() } else { name }
}

/// The domain of a pod with a subdomain.
fn domain(pod: &Pod, spec: &PodSpec, defaults: &SandboxDefaults) -> Option<String> {
    let subdomain = spec.subdomain.as_deref().filter(|subdomain| !subdomain.is_empty())?;
    let of_cluster =
        defaults.cluster_dns.as_ref().map(|dns| &*dns.domain).filter(|domain| !domain.is_empty());
    let of_cluster = of_cluster.unwrap_or(DEFAULT_CLUSTER_DOMAIN);
    let domain = format!("{subdomain}.{}.svc.{of_cluster}", identity(pod).0);
    spec.hostname_override.is_none().then_some(domain)
}

/// The hostname that is set in the kernel: the FQDN if the pod requests it.
fn kernel_name(pod: &Pod, spec: &PodSpec, defaults: &SandboxDefaults) -> Result<String, ConfigError> {
    let name = host_name(pod);
    let domain = domain(pod, spec, defaults).filter(|_| spec.set_hostname_as_fqdn == Some(true));
    let Some(domain) = domain else { return Ok(name) };
    let full = format!("{name}.{domain}");
    if full.len() > LONGEST_FULL_NAME {
        return Err(ConfigError::Sandbox(format!(
            "failed to construct FQDN from pod hostname and cluster domain, FQDN {full} is too long \
             ({LONGEST_FULL_NAME} characters is the max, {} characters requested)",
            full.len()
        )));
    }
    Ok(full)
}

fn namespaces(spec: &PodSpec) -> Namespaces {
    let whose = |of_machine: Option<bool>, otherwise: NamespaceMode| {
        if of_machine == Some(true) { NamespaceMode::Node } else { otherwise }
    };
    let shared = spec.share_process_namespace == Some(true);
    Namespaces {
        network: whose(spec.host_network, NamespaceMode::Pod),
        pid: whose(spec.host_pid, if shared { NamespaceMode::Pod } else { NamespaceMode::Container }),
        ipc: whose(spec.host_ipc, NamespaceMode::Pod),
    }
}

fn port_mappings(spec: &PodSpec) -> Vec<PortMapping> {
    let sidecars = spec.init_containers.iter().flatten();
    let sidecars = sidecars.filter(|container| container.restart_policy.as_deref() == Some("Always"));
    let ports = spec.containers.iter().chain(sidecars).flat_map(|container| container.ports.iter().flatten());
    ports.filter_map(port_mapping).collect()
}

/// The mapping of a port to a host port, if it has one.
fn port_mapping(port: &ContainerPort) -> Option<PortMapping> {
    let host_port = u16::try_from(port.host_port?).ok().filter(|port| *port > 0)?;
    let protocol = match port.protocol.as_deref() {
        Some("UDP") => Protocol::Udp,
        Some("SCTP") => Protocol::Sctp,
        _ => Protocol::Tcp,
    };
    Some(PortMapping {
        protocol,
        container_port: u16::try_from(port.container_port).ok()?,
        host_port,
        host_ip: port.host_ip.as_deref().and_then(|address| address.parse().ok()),
    })
}
