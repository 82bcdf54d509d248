//! Sandboxes, which the containers of a pod share.

use std::net::IpAddr;
use std::path::PathBuf;

use jiff::Timestamp;
use plumb_resize::qos::QosClass;
use serde::{Deserialize, Serialize};

use super::{LinuxResources, Pairs, SandboxId};
use crate::error::{Error, Result};

/// Which pod a sandbox is for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodMeta {
    /// The pod's name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Its uid.
    pub uid: String,
    /// How many sandboxes the pod had before.
    pub attempt: u32,
}

/// The configuration of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxConfig {
    /// The pod it is for.
    pub meta: PodMeta,
    /// The pod's QoS class, which determines the parent of its cgroup.
    #[serde(with = "class_name")]
    pub class: QosClass,
    /// The hostname, unless the pod uses the host's; empty is the pod's name.
    pub hostname: String,
    /// The domain of the hostname, which its full name in `/etc/hosts` ends with; empty if it has none.
    #[serde(default)]
    pub domain: String,
    /// The directory that containers' `log_path`s are relative to. Without it there are no logs.
    pub log_directory: Option<PathBuf>,
    /// The resolver's configuration; `None` is the host's.
    pub dns: Option<Dns>,
    /// Entries of `/etc/hosts`, in addition to the default ones.
    #[serde(default)]
    pub host_aliases: Vec<(IpAddr, Vec<String>)>,
    /// Host ports that are forwarded to the pod.
    pub port_mappings: Vec<PortMapping>,
    /// Which namespaces are the pod's own.
    pub namespaces: Namespaces,
    /// Whether a container of the pod is privileged: some runtimes want to know it of the sandbox.
    #[serde(default)]
    pub privileged: bool,
    /// Sysctls of the pod's namespaces, such as `net.ipv4.ip_unprivileged_port_start`.
    pub sysctls: Pairs,
    /// The resources of the pod's cgroup.
    pub resources: LinuxResources,
    /// The handler of the pod's `RuntimeClass`: a name of one of the runtime's configurations; empty is its default one.
    #[serde(default)]
    pub runtime_handler: String,
    /// Labels, which filters match.
    pub labels: Pairs,
    /// Annotations, which the runtime only stores; the virtual runtime reads its model from them.
    pub annotations: Pairs,
}

impl SandboxConfig {
    /// A sandbox with its own namespaces and defaults for everything else.
    pub fn new(meta: PodMeta, class: QosClass) -> Self {
        Self {
            meta,
            class,
            hostname: String::new(),
            domain: String::new(),
            log_directory: None,
            dns: None,
            host_aliases: Vec::new(),
            port_mappings: Vec::new(),
            namespaces: Namespaces::default(),
            privileged: false,
            sysctls: Pairs::new(),
            resources: LinuxResources::default(),
            runtime_handler: String::new(),
            labels: Pairs::new(),
            annotations: Pairs::new(),
        }
    }

    /// Checks that a runtime with one handler has the handler of this sandbox. A pod that requires a stronger sandbox
    /// does not run in a weaker one.
    pub(crate) fn check_handler(&self) -> Result<()> {
        match self.runtime_handler.as_str() {
            // containerd's name of its default handler.
            "" | "runc" => Ok(()),
            handler => Err(Error::FailedPrecondition(format!("no runtime for {handler:?} is configured"))),
        }
    }
}

/// The resolver's configuration, as in `/etc/resolv.conf`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dns {
    /// Addresses of name servers.
    pub servers: Vec<String>,
    /// Search domains.
    pub searches: Vec<String>,
    /// Options of the resolver, such as `ndots:5`.
    pub options: Vec<String>,
}

/// A host port that is forwarded to a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PortMapping {
    /// The protocol.
    pub protocol: Protocol,
    /// The port in the pod.
    pub container_port: u16,
    /// The port of the host; 0 is none.
    pub host_port: u16,
    /// The host's address to listen on; `None` is all.
    pub host_ip: Option<IpAddr>,
}

/// A transport protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Protocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

/// The scope of a namespace, as in the CRI.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum NamespaceMode {
    /// All containers of the pod share one.
    #[default]
    Pod,
    /// Each container has its own.
    Container,
    /// The host's.
    Node,
}

/// The namespaces of a pod. The UTS namespace has the mode of the network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespaces {
    /// The network namespace: the pod's or the host's.
    pub network: NamespaceMode,
    /// The pid namespace: each container's own, shared in the pod, or the host's.
    pub pid: NamespaceMode,
    /// The IPC namespace: the pod's or the host's.
    pub ipc: NamespaceMode,
}

impl Default for Namespaces {
    fn default() -> Self {
        Self { network: NamespaceMode::Pod, pid: NamespaceMode::Container, ipc: NamespaceMode::Pod }
    }
}

/// Whether containers can run in a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SandboxState {
    /// Containers can run in it.
    Ready,
    /// It was stopped, or the host was.
    NotReady,
}

/// A sandbox in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandbox {
    /// Its id.
    pub id: SandboxId,
    /// The pod it is for.
    pub meta: PodMeta,
    /// Whether containers can run in it.
    pub state: SandboxState,
    /// When it was created.
    pub created_at: Timestamp,
    /// Its labels.
    pub labels: Pairs,
    /// Its annotations.
    pub annotations: Pairs,
}

/// The status of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxStatus {
    /// The sandbox as in a list.
    pub sandbox: Sandbox,
    /// The pod's addresses, the primary one first; none on the host network.
    pub ips: Vec<IpAddr>,
    /// Its namespaces.
    pub namespaces: Namespaces,
    /// The actual resources of the pod's cgroup, as read back; `None` if it has none.
    pub resources: Option<LinuxResources>,
    /// The handler that it was run with; empty is the runtime's default one.
    pub runtime_handler: String,
}

/// Selects sandboxes. All fields that are set must match; an empty filter matches all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxFilter {
    /// The sandbox with this id.
    pub id: Option<SandboxId>,
    /// In this state.
    pub state: Option<SandboxState>,
    /// With these labels.
    pub labels: Pairs,
}

impl SandboxFilter {
    /// Whether a sandbox matches.
    pub fn matches(&self, sandbox: &Sandbox) -> bool {
        self.id.as_ref().is_none_or(|id| *id == sandbox.id)
            && self.state.is_none_or(|state| state == sandbox.state)
            && self.labels.iter().all(|(name, value)| sandbox.labels.get(name) == Some(value))
    }
}

/// A QoS class by its name.
mod class_name {
    use plumb_resize::qos::QosClass;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
    pub(super) fn serialize<S: Serializer>(class: &QosClass, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(class.name())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<QosClass, D::Error> {
        let name = String::deserialize(from)?;
        QosClass::named(&name).ok_or_else(|| D::Error::custom(format!("unknown class {name:?}")))
    }
}
