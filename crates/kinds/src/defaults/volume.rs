//! Defaults of volume sources and of the modes of projected files.

use super::plan::Fill::{Bool, Int, Text};
use super::plan::Row;
use super::plan::Rule::{Do, Set};
use super::{Object, fill, fill_text, image, text};

const CORE: &str = "api/core/v1";

/// The default mode of files: 0644.
const MODE: super::plan::Fill = Int(0o644);

pub(super) const ROWS: &[Row] = &[
    (CORE, "Volume", &[Do(source)]),
    (CORE, "ImageVolumeSource", &[Do(pull_policy)]),
    (CORE, "HostPathVolumeSource", &[Set("type", Text(""))]),
    (CORE, "SecretVolumeSource", &[Set("defaultMode", MODE)]),
    (CORE, "ConfigMapVolumeSource", &[Set("defaultMode", MODE)]),
    (CORE, "DownwardAPIVolumeSource", &[Set("defaultMode", MODE)]),
    (CORE, "ProjectedVolumeSource", &[Set("defaultMode", MODE)]),
    (CORE, "ServiceAccountTokenProjection", &[Set("expirationSeconds", Int(60 * 60))]),
    (CORE, "ISCSIVolumeSource", &[Set("iscsiInterface", Text("default"))]),
    (CORE, "ISCSIPersistentVolumeSource", &[Set("iscsiInterface", Text("default"))]),
    (CORE, "RBDVolumeSource", RBD),
    (CORE, "RBDPersistentVolumeSource", RBD),
    (CORE, "ScaleIOVolumeSource", &[Set("storageMode", Text("ThinProvisioned")), Set("fsType", Text("xfs"))]),
    (
        CORE,
        "ScaleIOPersistentVolumeSource",
        &[Set("storageMode", Text("ThinProvisioned")), Set("fsType", Text("xfs"))],
    ),
    (
        CORE,
        "AzureDiskVolumeSource",
        &[
            Set("cachingMode", Text("ReadWrite")),
            Set("fsType", Text("ext4")),
            Set("readOnly", Bool(false)),
            Set("kind", Text("Shared")),
        ],
    ),
];

const RBD: &[super::plan::Rule] =
    &[Set("pool", Text("rbd")), Set("user", Text("admin")), Set("keyring", Text("/etc/ceph/keyring"))];

/// A volume without a source is an emptyDir.
fn source(volume: &mut Object) {
    if !volume.keys().any(|field| field != "name") {
        fill(volume, "emptyDir", serde_json::Map::new());
    }
}

fn pull_policy(source: &mut Object) {
    let policy = if image::is_latest(text(source, "reference")) { "Always" } else { "IfNotPresent" };
    fill_text(source, "pullPolicy", policy);
}
