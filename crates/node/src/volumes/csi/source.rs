//! What a pod or a persistent volume says about a volume of a driver.

use k8s_openapi::api::core::v1::{CSIVolumeSource, PersistentVolume, SecretReference};
use plumb_csi::api::Map;

use super::VolumeId;
use super::records::Record;

/// The claim that a volume is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::volumes) struct Claimed {
    pub(in crate::volumes) namespace: String,
    pub(in crate::volumes) name: String,
    /// Whether the pod's volume is read-only.
    pub(in crate::volumes) read_only: bool,
}

/// A Secret that a driver gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SecretName {
    pub(super) namespace: String,
    pub(super) name: String,
}

/// A volume of a driver.
#[derive(Clone, Debug)]
pub(in crate::volumes) struct Source {
    pub(super) id: VolumeId,
    /// The name of the persistent volume, or of the volume in the pod.
    pub(super) name: String,
    /// Its claim; `None` if the volume is written in the pod, and ends with it.
    pub(super) claim: Option<Claimed>,
    pub(super) is_block: bool,
    pub(super) fs_type: String,
    pub(super) flags: Vec<String>,
    pub(super) access_modes: Vec<String>,
    pub(super) read_only: bool,
    pub(super) attributes: Map,
    pub(super) stage_secret: Option<SecretName>,
    pub(super) publish_secret: Option<SecretName>,
    pub(super) expand_secret: Option<SecretName>,
    /// The capacity of the persistent volume.
    pub(super) capacity: plumb_resize::Quantity,
}

impl Source {
    /// A persistent volume of a driver; `None` if it is of another kind.
    pub(in crate::volumes) fn from_volume(volume: &PersistentVolume, claim: Claimed) -> Option<Self> {
        let spec = volume.spec.as_ref()?;
        let source = spec.csi.as_ref()?;
        let secret = |reference: &Option<SecretReference>| {
            let reference = reference.as_ref()?;
            let (namespace, name) = (reference.namespace.clone()?, reference.name.clone()?);
            Some(SecretName { namespace, name })
        };
        Some(Self {
            id: VolumeId { driver: source.driver.clone(), handle: source.volume_handle.clone() },
            name: volume.metadata.name.clone()?,
            is_block: spec.volume_mode.as_deref() == Some("Block"),
            fs_type: source.fs_type.clone().unwrap_or_default(),
            flags: spec.mount_options.clone().unwrap_or_default(),
            access_modes: spec.access_modes.clone().unwrap_or_default(),
            read_only: claim.read_only,
            claim: Some(claim),
            attributes: source.volume_attributes.clone().unwrap_or_default(),
            stage_secret: secret(&source.node_stage_secret_ref),
            publish_secret: secret(&source.node_publish_secret_ref),
            expand_secret: secret(&source.node_expand_secret_ref),
            capacity: plumb_placement::volumes::capacity(volume),
        })
    }

    /// A volume that is written in the pod.
    pub(in crate::volumes) fn inline(
        source: &CSIVolumeSource,
        volume: &str,
        (namespace, pod_uid): (&str, &str),
    ) -> Self {
        let secret = source.node_publish_secret_ref.as_ref();
        Self {
            id: VolumeId { driver: source.driver.clone(), handle: plumb_csi::inline_handle(pod_uid, volume) },
            name: volume.to_owned(),
            claim: None,
            is_block: false,
            fs_type: source.fs_type.clone().unwrap_or_default(),
            flags: Vec::new(),
            access_modes: vec!["ReadWriteOnce".to_owned()],
            read_only: source.read_only.unwrap_or(false),
            attributes: source.volume_attributes.clone().unwrap_or_default(),
            stage_secret: None,
            publish_secret: secret
                .map(|secret| SecretName { namespace: namespace.to_owned(), name: secret.name.clone() }),
            expand_secret: None,
            capacity: plumb_resize::Quantity::ZERO,
        }
    }

    /// The lifecycle of the volume, as `CSIDriver` objects call it.
    pub(super) fn lifecycle(&self) -> &'static str {
        if self.claim.is_some() { "Persistent" } else { "Ephemeral" }
    }

    /// The access mode that counts: as the kubelet, the first.
    pub(super) fn access_mode(&self) -> &str {
        self.access_modes.first().map_or("", String::as_str)
    }

    /// Its record, on a node with this attachment.
    pub(super) fn record(&self, node: &str, attachment: String) -> Record {
        Record {
            name: self.name.clone(),
            volume_handle: self.id.handle.clone(),
            driver_name: self.id.driver.clone(),
            node_name: node.to_owned(),
            attachment_id: attachment,
            volume_lifecycle_mode: self.lifecycle().to_owned(),
            volume_mode: if self.is_block { "Block".to_owned() } else { String::new() },
        }
    }
}
