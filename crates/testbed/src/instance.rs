//! An instance: the number of a cluster on this machine, and the cgroups, bridge, subnets and files named after it.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::assets::Programs;
use crate::error::{Error, IoContext as _};
use crate::image::ProgramImage;
use crate::process::Process;

/// How many clusters may run at once on one machine.
pub(crate) const SLOTS: u8 = 64;

/// How many nodes a cluster may have: each is a kubelet and a containerd.
pub(crate) const NODES: u8 = 16;

/// The record of what one cluster owns. The monitor writes it before it creates any of it, so that `testbed clean` can
/// remove it even when all processes of the cluster are dead.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Instance {
    /// The number of the cluster; no other running cluster has the same.
    pub(crate) slot: u8,
    /// Its folder.
    pub(crate) dir: PathBuf,
    /// Whether the folder existed before, so that only its content is removed.
    pub(crate) dir_was_given: bool,
    /// Its first process, once it is started: all others end with it.
    pub(crate) first: Option<Process>,
    /// The programs that it runs.
    pub(crate) programs: Programs,
    /// Additional flags of kube-apiserver.
    #[serde(default)]
    pub(crate) apiserver_flags: Vec<String>,
    /// Additional flags of kube-controller-manager.
    #[serde(default)]
    pub(crate) controllers_flags: Vec<String>,
    /// How many nodes it has, if any.
    pub(crate) nodes: u8,
    /// Images of programs of this machine.
    #[serde(default)]
    pub(crate) images: Vec<ProgramImage>,
}

impl Instance {
    const FILE: &str = "instance.json";

    /// Writes the record to the cluster's folder, where its processes read it.
    pub(crate) fn write(&self) -> Result<(), Error> {
        let path = self.file(Self::FILE);
        let text =
            serde_json::to_vec(self).map_err(|source| Error::Encoding { what: "the instance", source })?;
        fs::write(&path, text).doing("write", &path)
    }

    /// Reads the record in `dir`.
    pub(crate) fn read(dir: &Path) -> Result<Self, Error> {
        let path = dir.join(Self::FILE);
        let text = fs::read(&path).doing("read", &path)?;
        serde_json::from_slice(&text).map_err(|source| Error::Encoding { what: "the instance", source })
    }

    /// Whether it has a node, and with it containers, cgroups and a bridge.
    pub(crate) fn has_node(&self) -> bool {
        self.programs.runtime().is_some()
    }

    /// The parent of all cgroups that the kubelet creates, in every hierarchy.
    pub(crate) fn cgroup(&self) -> String {
        format!("plumb-testbed-{}", self.slot)
    }

    /// The cgroup of one of its nodes, from 1 on.
    pub(crate) fn node_cgroup(&self, number: u8) -> String {
        let all = self.cgroup();
        if number == 1 { all } else { format!("{all}/node-{number}") }
    }

    /// The bridge that its pods are connected to.
    pub(crate) fn bridge(&self) -> String {
        format!("plumbtb{}", self.slot)
    }

    /// Its pods' subnet: a /24 of its own.
    pub(crate) fn subnet(&self) -> [u8; 4] {
        subnet(self.slot)
    }

    /// The host's address on the bridge.
    pub(crate) fn gateway(&self) -> String {
        let [a, b, c, _] = self.subnet();
        format!("{a}.{b}.{c}.1")
    }

    /// The first address for pods.
    pub(crate) fn first_pod_address(&self) -> String {
        let [a, b, c, _] = self.subnet();
        format!("{a}.{b}.{c}.10")
    }

    /// The subnet as routes write it.
    pub(crate) fn subnet_text(&self) -> String {
        let [a, b, c, _] = self.subnet();
        format!("{a}.{b}.{c}.0/24")
    }

    /// The subnet of the addresses of Services: a /24 of its own if there are pods that reach them.
    pub(crate) fn service_subnet(&self) -> String {
        if !self.has_node() {
            return "10.96.0.0/16".to_owned();
        }
        let [a, b, c, d] = service_subnet(self.slot);
        format!("{a}.{b}.{c}.{d}/24")
    }

    /// The address of the Service `kubernetes`: the first of its subnet.
    pub(crate) fn service_address(&self) -> String {
        let [a, b, c, _] = service_subnet(self.slot);
        format!("{a}.{b}.{c}.1")
    }

    /// Its logs, one file per process.
    pub(crate) fn logs(&self) -> PathBuf {
        self.dir.join("logs")
    }

    /// One of its files.
    pub(crate) fn file(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.join(name)
    }

    /// The administrator's kubeconfig.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.file("kubeconfig")
    }
}

/// The /24 of pods that belongs to a slot.
pub(crate) fn subnet(slot: u8) -> [u8; 4] {
    [10, 213, slot, 0]
}

/// The /24 of Services that belongs to a slot.
pub(crate) fn service_subnet(slot: u8) -> [u8; 4] {
    [10, 214, slot, 0]
}
