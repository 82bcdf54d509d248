//! Conversion of sandboxes.

use std::net::IpAddr;

use jiff::Timestamp;
use plumb_runtime::types::{
    LinuxResources, NamespaceMode, Namespaces, Pairs, PodMeta, PortMapping, Protocol, Sandbox, SandboxConfig,
    SandboxState, SandboxStatus,
};

use super::{created_with, time};
use crate::api;
use crate::names::{CLUSTER, SANDBOX_CONFIG, without_ours};

/// The CRI's configuration of a sandbox whose cgroup is in `cgroup_parent`. An annotation has the configuration as the runtime
/// trait defines it: the CRI requires it again for each container, and the process that creates a container may not be the one
/// that created the sandbox.
pub(crate) fn config(config: &SandboxConfig, cluster: &str, cgroup_parent: String) -> api::PodSandboxConfig {
    let mut labels = config.labels.clone();
    labels.insert(CLUSTER.to_owned(), cluster.to_owned());
    let mut annotations = config.annotations.clone();
    let own = SandboxConfig { labels: Pairs::new(), annotations: Pairs::new(), ..config.clone() };
    // Serializing plain structs cannot fail.
    annotations.insert(SANDBOX_CONFIG.to_owned(), serde_json::to_string(&own).unwrap_or_default());
    api::PodSandboxConfig {
        metadata: Some(metadata(&config.meta)),
        hostname: config.hostname.clone(),
        log_directory: config
            .log_directory
            .as_ref()
            .map(|path| path.to_string_lossy().into_owned())
            .unwrap_or_default(),
        dns_config: config.dns.as_ref().map(|dns| api::DnsConfig {
            servers: dns.servers.clone(),
            searches: dns.searches.clone(),
            options: dns.options.clone(),
        }),
        port_mappings: config.port_mappings.iter().map(port_mapping).collect(),
        labels,
        annotations,
        linux: Some(api::LinuxPodSandboxConfig {
            cgroup_parent,
            security_context: Some(api::LinuxSandboxSecurityContext {
                namespace_options: Some(namespace_options(config.namespaces)),
                privileged: config.privileged,
                seccomp: Some(api::SecurityProfile::default()),
                ..api::LinuxSandboxSecurityContext::default()
            }),
            sysctls: config.sysctls.clone(),
            overhead: None,
            resources: Some(created_with(&config.resources)),
        }),
    }
}

/// Reads the configuration that a sandbox was created with from its annotation.
pub(crate) fn stored(status: &api::PodSandboxStatus) -> Option<SandboxConfig> {
    let own: SandboxConfig = serde_json::from_str(status.annotations.get(SANDBOX_CONFIG)?).ok()?;
    Some(SandboxConfig {
        labels: without_ours(&status.labels),
        annotations: without_ours(&status.annotations),
        ..own
    })
}

/// A sandbox in a list.
pub(crate) fn listed(listed: api::PodSandbox) -> Sandbox {
    let state = state(listed.state());
    Sandbox {
        id: listed.id.into(),
        meta: meta(listed.metadata.unwrap_or_default()),
        state,
        created_at: time(listed.created_at).unwrap_or(Timestamp::UNIX_EPOCH),
        labels: without_ours(&listed.labels),
        annotations: without_ours(&listed.annotations),
    }
}

/// The status of a sandbox, with the actual resources of the pod's cgroup.
pub(crate) fn status(status: api::PodSandboxStatus, resources: Option<LinuxResources>) -> SandboxStatus {
    let network = status.network.clone().unwrap_or_default();
    let addresses =
        std::iter::once(network.ip).chain(network.additional_ips.into_iter().map(|other| other.ip));
    let linux = status.linux.clone().unwrap_or_default();
    let options = linux.namespaces.unwrap_or_default().options.unwrap_or_default();
    SandboxStatus {
        ips: addresses.filter_map(|address| address.parse::<IpAddr>().ok()).collect(),
        namespaces: Namespaces {
            network: mode(options.network()),
            pid: mode(options.pid()),
            ipc: mode(options.ipc()),
        },
        resources,
        runtime_handler: status.runtime_handler,
        sandbox: listed(api::PodSandbox {
            id: status.id,
            metadata: status.metadata,
            state: status.state,
            created_at: status.created_at,
            labels: status.labels,
            annotations: status.annotations,
        }),
    }
}

/// The namespaces of a pod.
pub(super) fn namespace_options(namespaces: Namespaces) -> api::NamespaceOption {
    let mode = |mode| match mode {
        NamespaceMode::Pod => api::NamespaceMode::Pod.into(),
        NamespaceMode::Container => api::NamespaceMode::Container.into(),
        NamespaceMode::Node => api::NamespaceMode::Node.into(),
    };
    api::NamespaceOption {
        network: mode(namespaces.network),
        pid: mode(namespaces.pid),
        ipc: mode(namespaces.ipc),
        target_id: String::new(),
    }
}

fn metadata(meta: &PodMeta) -> api::PodSandboxMetadata {
    api::PodSandboxMetadata {
        name: meta.name.clone(),
        uid: meta.uid.clone(),
        namespace: meta.namespace.clone(),
        attempt: meta.attempt,
    }
}

fn meta(metadata: api::PodSandboxMetadata) -> PodMeta {
    PodMeta {
        name: metadata.name,
        namespace: metadata.namespace,
        uid: metadata.uid,
        attempt: metadata.attempt,
    }
}

fn port_mapping(mapping: &PortMapping) -> api::PortMapping {
    api::PortMapping {
        protocol: match mapping.protocol {
            Protocol::Tcp => api::Protocol::Tcp.into(),
            Protocol::Udp => api::Protocol::Udp.into(),
            Protocol::Sctp => api::Protocol::Sctp.into(),
        },
        container_port: mapping.container_port.into(),
        host_port: mapping.host_port.into(),
        host_ip: mapping.host_ip.map(|ip| ip.to_string()).unwrap_or_default(),
    }
}

fn state(state: api::SandboxState) -> SandboxState {
    match state {
        api::SandboxState::Ready => SandboxState::Ready,
        api::SandboxState::NotReady => SandboxState::NotReady,
    }
}

fn mode(mode: api::NamespaceMode) -> NamespaceMode {
    match mode {
        api::NamespaceMode::Pod => NamespaceMode::Pod,
        api::NamespaceMode::Container | api::NamespaceMode::Target => NamespaceMode::Container,
        api::NamespaceMode::Node => NamespaceMode::Node,
    }
}

#[cfg(test)]
mod tests {
    use plumb_runtime::types::QosClass;

    use super::*;

    fn sandbox() -> SandboxConfig {
        let meta = PodMeta { name: "web".into(), namespace: "ns".into(), uid: "u-1".into(), attempt: 2 };
        let mut config = SandboxConfig::new(meta, QosClass::Burstable);
        config.labels.insert("app".into(), "web".into());
        config.annotations.insert("note".into(), "text".into());
        config.log_directory = Some("/var/log/pods/web".into());
        config
    }

    #[test]
    fn the_configuration_of_a_sandbox_can_be_read_back_from_the_runtime() {
        let made = sandbox();
        let sent = config(&made, "plumb-1", "/plumb-1/burstable/podu-1".into());
        assert_eq!(sent.labels.get(CLUSTER).map(String::as_str), Some("plumb-1"));
        let status = api::PodSandboxStatus {
            labels: sent.labels,
            annotations: sent.annotations,
            ..api::PodSandboxStatus::default()
        };
        assert_eq!(stored(&status), Some(made));
    }

    #[test]
    fn our_labels_and_annotations_do_not_show() {
        let sent = config(&sandbox(), "plumb-1", String::new());
        let found = listed(api::PodSandbox {
            id: "s".into(),
            metadata: sent.metadata,
            state: api::SandboxState::NotReady.into(),
            created_at: 1_000_000_000,
            labels: sent.labels,
            annotations: sent.annotations,
        });
        assert_eq!(found.labels, sandbox().labels);
        assert_eq!(found.annotations, sandbox().annotations);
        assert_eq!((found.meta, found.state), (sandbox().meta, SandboxState::NotReady));
        assert_eq!(found.created_at, Timestamp::from_second(1).unwrap());
    }
}
