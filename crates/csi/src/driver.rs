//! The node service of a driver.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use plumb_grpc::{Code, Connection, Status};

use crate::api::{self, Capability, Map, Mode};

/// The longest id of a node that fits into a `CSINode`.
const LONGEST_NODE_ID: usize = 256;
/// How many topology segments a driver may give a node: each becomes a label.
const MOST_SEGMENTS: usize = 64;

/// Why a call to a driver failed, in the words of gRPC, which the kubelet's events have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DriverError {
    /// The driver, or the connection to it, says so.
    #[error("rpc error: code = {} desc = {}", .0.code, .0.message)]
    Call(Status),
    /// Its answer cannot be used.
    #[error("{0}")]
    Answer(String),
    /// A path that a call needs is not UTF-8.
    #[error("{} is not UTF-8", .0.display())]
    Path(PathBuf),
}

impl From<Status> for DriverError {
    fn from(status: Status) -> Self {
        Self::Call(status)
    }
}

impl DriverError {
    /// Whether the driver has neither the volume nor anything of it at the path.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Call(status) if status.code == Code::NotFound)
    }
}

/// What a driver says about the node that it runs on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeInfo {
    /// The name that it has for the node.
    pub node_id: String,
    /// How many volumes the node can have; `None` is no limit.
    pub max_volumes: Option<i32>,
    /// Where the node is, as labels.
    pub topology: Map,
}

/// What a container gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessType {
    /// A directory with a file system.
    Mount {
        /// The type of the file system; empty is the driver's choice.
        fs_type: String,
        /// Options of the mount.
        flags: Vec<String>,
        /// The group that the driver is to give the files to; empty if it is not to.
        group: String,
    },
    /// A device file.
    Block,
}

/// How a volume is to be staged.
#[derive(Clone, Debug)]
pub struct StageRequest<'a> {
    /// The handle of the volume.
    pub handle: &'a str,
    /// Where it is staged.
    pub staging: &'a Path,
    /// What containers get.
    pub access_type: &'a AccessType,
    /// How it may be used.
    pub mode: Mode,
    /// What the attacher says about it.
    pub publish_context: &'a Map,
    /// What its provisioner says about it.
    pub volume_context: &'a Map,
    /// The Secret that its volume names for this call.
    pub secrets: Map,
}

/// How a volume is to be published to a pod.
#[derive(Clone, Debug)]
pub struct PublishRequest<'a> {
    /// The handle of the volume.
    pub handle: &'a str,
    /// Where it is staged, if its driver stages volumes.
    pub staging: Option<&'a Path>,
    /// Where the pod gets it.
    pub target: &'a Path,
    /// What containers get.
    pub access_type: &'a AccessType,
    /// How it may be used.
    pub mode: Mode,
    /// Whether no container may write.
    pub read_only: bool,
    /// What the attacher says about it.
    pub publish_context: &'a Map,
    /// What its provisioner says about it, and the pod if the driver wants to know it.
    pub volume_context: Map,
    /// The Secret that its volume names for this call.
    pub secrets: Map,
}

/// A client of the node service of a driver. Clones share the connection.
#[derive(Clone, Debug)]
pub struct Driver {
    connection: Connection,
}

impl Driver {
    /// The driver at a socket.
    pub fn new(socket: PathBuf) -> Self {
        Self::with_timeout(socket, crate::TIMEOUT)
    }

    /// The driver at a socket, whose calls may take so long.
    pub fn with_timeout(socket: PathBuf, timeout: std::time::Duration) -> Self {
        Self { connection: Connection::new(socket, timeout) }
    }

    /// What the driver says about this node, checked.
    pub async fn node_info(&self) -> Result<NodeInfo, DriverError> {
        let call = self.connection.call("/csi.v1.Node/NodeGetInfo", api::Empty {});
        let api::NodeGetInfoResponse { node_id, max_volumes_per_node, accessible_topology } = call.await?;
        if node_id.is_empty() || node_id.len() > LONGEST_NODE_ID {
            return Err(DriverError::Answer(format!(
                "NodeGetInfo answers with a node id of {} bytes",
                node_id.len()
            )));
        }
        let topology = accessible_topology.unwrap_or_default().segments;
        if topology.len() > MOST_SEGMENTS {
            return Err(DriverError::Answer(format!(
                "NodeGetInfo answers with {} topology segments",
                topology.len()
            )));
        }
        // As CSI has it, no limit is zero.
        let max_volumes = i32::try_from(max_volumes_per_node).ok().filter(|count| *count > 0);
        Ok(NodeInfo { node_id, max_volumes, topology })
    }

    /// What the driver can do.
    pub async fn capabilities(&self) -> Result<BTreeSet<Capability>, DriverError> {
        let call = self.connection.call("/csi.v1.Node/NodeGetCapabilities", api::Empty {});
        let api::NodeGetCapabilitiesResponse { capabilities } = call.await?;
        Ok(capabilities.into_iter().filter_map(|one| Some(one.rpc?.r#type())).collect())
    }

    /// Makes a volume available on this node. Idempotent.
    pub async fn stage(&self, request: StageRequest<'_>) -> Result<(), DriverError> {
        let message = api::NodeStageVolumeRequest {
            volume_id: request.handle.to_owned(),
            publish_context: request.publish_context.clone(),
            staging_target_path: text(request.staging)?,
            volume_capability: Some(capability(request.access_type, request.mode)),
            secrets: request.secrets,
            volume_context: request.volume_context.clone(),
        };
        self.connection.call::<api::Empty>("/csi.v1.Node/NodeStageVolume", message).await?;
        Ok(())
    }

    /// Undoes [`stage`](Self::stage). Idempotent.
    pub async fn unstage(&self, handle: &str, staging: &Path) -> Result<(), DriverError> {
        let message = api::NodeUnstageVolumeRequest {
            volume_id: handle.to_owned(),
            staging_target_path: text(staging)?,
        };
        self.connection.call::<api::Empty>("/csi.v1.Node/NodeUnstageVolume", message).await?;
        Ok(())
    }

    /// Gives a volume to a pod. Idempotent.
    pub async fn publish(&self, request: PublishRequest<'_>) -> Result<(), DriverError> {
        let message = api::NodePublishVolumeRequest {
            volume_id: request.handle.to_owned(),
            publish_context: request.publish_context.clone(),
            staging_target_path: request.staging.map(text).transpose()?.unwrap_or_default(),
            target_path: text(request.target)?,
            volume_capability: Some(capability(request.access_type, request.mode)),
            readonly: request.read_only,
            secrets: request.secrets,
            volume_context: request.volume_context,
        };
        self.connection.call::<api::Empty>("/csi.v1.Node/NodePublishVolume", message).await?;
        Ok(())
    }

    /// Undoes [`publish`](Self::publish). Idempotent.
    pub async fn unpublish(&self, handle: &str, target: &Path) -> Result<(), DriverError> {
        let message =
            api::NodeUnpublishVolumeRequest { volume_id: handle.to_owned(), target_path: text(target)? };
        self.connection.call::<api::Empty>("/csi.v1.Node/NodeUnpublishVolume", message).await?;
        Ok(())
    }

    /// Grows the file system of a volume to its new size, of which the controller's part is done.
    pub async fn expand(
        &self,
        handle: &str,
        paths: (&Path, Option<&Path>),
        bytes: i64,
        as_mounted: (&AccessType, Mode),
        secrets: Map,
    ) -> Result<(), DriverError> {
        let (path, staging) = paths;
        let message = api::NodeExpandVolumeRequest {
            volume_id: handle.to_owned(),
            volume_path: text(path)?,
            capacity_range: Some(api::CapacityRange { required_bytes: bytes, limit_bytes: 0 }),
            staging_target_path: staging.map(text).transpose()?.unwrap_or_default(),
            volume_capability: Some(capability(as_mounted.0, as_mounted.1)),
            secrets,
        };
        self.connection
            .call::<api::NodeExpandVolumeResponse>("/csi.v1.Node/NodeExpandVolume", message)
            .await?;
        Ok(())
    }
}

/// The mode of a volume with this access mode, as the kubelet maps it.
pub fn access_mode(mode: &str, capabilities: &BTreeSet<Capability>) -> Mode {
    let knows_single = capabilities.contains(&Capability::SingleNodeMultiWriter);
    match mode {
        "ReadWriteOncePod" if knows_single => Mode::SingleNodeSingleWriter,
        "ReadWriteOnce" if knows_single => Mode::SingleNodeMultiWriter,
        "ReadWriteOnce" | "ReadWriteOncePod" => Mode::SingleNodeWriter,
        "ReadOnlyMany" => Mode::MultiNodeReaderOnly,
        "ReadWriteMany" => Mode::MultiNodeMultiWriter,
        _ => Mode::Unknown,
    }
}

fn capability(access_type: &AccessType, mode: Mode) -> api::VolumeCapability {
    let access_mode = Some(api::AccessMode { mode: mode.into() });
    match access_type.clone() {
        AccessType::Block => api::VolumeCapability { block: Some(api::Empty {}), mount: None, access_mode },
        AccessType::Mount { fs_type, flags, group } => {
            let mount = api::MountVolume { fs_type, mount_flags: flags, volume_mount_group: group };
            api::VolumeCapability { block: None, mount: Some(mount), access_mode }
        }
    }
}

fn text(path: &Path) -> Result<String, DriverError> {
    path.to_str().map(str::to_owned).ok_or_else(|| DriverError::Path(path.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_modes_depend_on_what_the_driver_knows() {
        let plain = BTreeSet::new();
        let single = BTreeSet::from([Capability::SingleNodeMultiWriter]);
        for (mode, of_plain, of_single) in [
            ("ReadWriteOnce", Mode::SingleNodeWriter, Mode::SingleNodeMultiWriter),
            ("ReadWriteOncePod", Mode::SingleNodeWriter, Mode::SingleNodeSingleWriter),
            ("ReadOnlyMany", Mode::MultiNodeReaderOnly, Mode::MultiNodeReaderOnly),
            ("ReadWriteMany", Mode::MultiNodeMultiWriter, Mode::MultiNodeMultiWriter),
        ] {
            assert_eq!((access_mode(mode, &plain), access_mode(mode, &single)), (of_plain, of_single));
        }
    }
}
