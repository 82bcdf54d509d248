//! Sandboxes: what the containers of a pod share.

use std::net::IpAddr;
use std::path::PathBuf;

use jiff::Timestamp;
use plumb_resize::qos::QosClass;
use serde::{Deserialize, Serialize};

use super::{LinuxResources, Pairs, SandboxId};

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

/// How to make a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxConfig {
    /// The pod it is for.
    pub meta: PodMeta,
    /// The pod's class: where its cgroup stands.
    #[serde(with = "class_name")]
    pub class: QosClass,
    /// The host name, unless the pod has the machine's; empty is the pod's name.
    pub hostname: String,
    /// The folder that containers' `log_path`s are relative to. Without it nothing is logged.
    pub log_directory: Option<PathBuf>,
    /// How names are looked up; `None` takes the machine's.
    pub dns: Option<Dns>,
    /// Names for addresses, on top of what `/etc/hosts` has anyway.
    #[serde(default)]
    pub host_aliases: Vec<(IpAddr, Vec<String>)>,
    /// Ports of the machine that lead into the pod.
    pub port_mappings: Vec<PortMapping>,
    /// Which namespaces are the pod's own.
    pub namespaces: Namespaces,
    /// Kernel parameters of the pod's namespaces, such as `net.ipv4.ip_unprivileged_port_start`.
    pub sysctls: Pairs,
    /// What the pod as a whole may use.
    pub resources: LinuxResources,
    /// To find it by.
    pub labels: Pairs,
    /// Carried along; the virtual runtime takes its model from them.
    pub annotations: Pairs,
}

impl SandboxConfig {
    /// A sandbox of its own namespaces for a pod, with nothing asked for beyond that.
    pub fn new(meta: PodMeta, class: QosClass) -> Self {
        Self {
            meta,
            class,
            hostname: String::new(),
            log_directory: None,
            dns: None,
            host_aliases: Vec::new(),
            port_mappings: Vec::new(),
            namespaces: Namespaces::default(),
            sysctls: Pairs::new(),
            resources: LinuxResources::default(),
            labels: Pairs::new(),
            annotations: Pairs::new(),
        }
    }
}

/// How names are looked up: what `/etc/resolv.conf` says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dns {
    /// Addresses of name servers.
    pub servers: Vec<String>,
    /// Domains that are tried for short names.
    pub searches: Vec<String>,
    /// Options of the resolver, such as `ndots:5`.
    pub options: Vec<String>,
}

/// A port of the machine that leads into a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PortMapping {
    /// What is spoken there.
    pub protocol: Protocol,
    /// The port in the pod.
    pub container_port: u16,
    /// The port of the machine; 0 is none.
    pub host_port: u16,
    /// The machine's address to listen on; `None` is all.
    pub host_ip: Option<IpAddr>,
}

/// A transport.
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

/// Whose a namespace is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum NamespaceMode {
    /// All containers of the pod share one.
    #[default]
    Pod,
    /// Each container has its own.
    Container,
    /// The machine's.
    Node,
}

/// Which namespaces are whose. The host name's goes with the network's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespaces {
    /// The network: the pod's or the machine's.
    pub network: NamespaceMode,
    /// Processes: each container's own, shared in the pod, or the machine's.
    pub pid: NamespaceMode,
    /// System V and POSIX IPC: the pod's or the machine's.
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
    /// They can.
    Ready,
    /// It was stopped, or the machine was.
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
    /// When it was made.
    pub created_at: Timestamp,
    /// Its labels.
    pub labels: Pairs,
    /// Its annotations.
    pub annotations: Pairs,
}

/// How a sandbox stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxStatus {
    /// What a list says of it.
    pub sandbox: Sandbox,
    /// The pod's addresses, the first one its own; none on the machine's network.
    pub ips: Vec<IpAddr>,
    /// Which namespaces are whose.
    pub namespaces: Namespaces,
    /// What the pod as a whole may use, as read back; `None` where it has no cgroup to read.
    pub resources: Option<LinuxResources>,
}

/// Which sandboxes. All that is given must hold; an empty filter lets all pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxFilter {
    /// This one.
    pub id: Option<SandboxId>,
    /// In this state.
    pub state: Option<SandboxState>,
    /// With these labels.
    pub labels: Pairs,
}

impl SandboxFilter {
    /// Whether a sandbox passes.
    pub fn admits(&self, sandbox: &Sandbox) -> bool {
        self.id.as_ref().is_none_or(|id| *id == sandbox.id)
            && self.state.is_none_or(|state| state == sandbox.state)
            && self.labels.iter().all(|(name, value)| sandbox.labels.get(name) == Some(value))
    }
}

/// A class by its name.
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
