//! Why a volume cannot be prepared.

use std::io;

use plumb_resize::quantity::QuantityError;

use crate::downward::DownwardError;
use crate::objects::ReadError;

/// Why a volume cannot be prepared, with the kubelet's messages.
#[derive(Debug, thiserror::Error)]
pub(super) enum VolumeError {
    /// A `ConfigMap` or a Secret cannot be read.
    #[error(transparent)]
    Object(#[from] ReadError),
    /// A field of the pod cannot be exposed.
    #[error(transparent)]
    Downward(#[from] DownwardError),
    /// A path in the volume is invalid.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A `ConfigMap` does not have a key.
    #[error("configmap references non-existent config key: {0}")]
    NoConfigKey(String),
    /// A Secret does not have a key.
    #[error("references non-existent secret key: {0}")]
    NoSecretKey(String),
    /// The API server issued no token.
    #[error("failed to fetch token: {0}")]
    Token(kube::Error),
    /// The API server issued no token, and the last one has expired.
    #[error("token expired and refresh failed: {0}")]
    ExpiredToken(kube::Error),
    /// A projected source is not supported.
    #[error("a volume of {0} is not supported")]
    Unsupported(&'static str),
    /// A persistent volume is of a kind that this node cannot mount.
    #[error("persistent volumes of kind {0} are not supported")]
    Kind(&'static str),
    /// A persistent volume of this kind is never a block device.
    #[error("volumeMode Block is not supported for volumes of kind {0}")]
    Block(&'static str),
    /// The path of a `local` volume with `volumeMode: Block` is not a block device.
    #[error("path {0:?} is not a block device")]
    NoDevice(String),
    /// The driver of a volume is not registered on this node.
    #[error("driver name {0} not found in the list of registered CSI drivers")]
    NoDriver(String),
    /// The driver knows no volumes of this lifecycle.
    #[error("volume mode {mode:?} not supported by driver {driver} ({why})")]
    Lifecycle {
        /// The lifecycle.
        mode: &'static str,
        /// The driver.
        driver: String,
        /// What it supports.
        why: String,
    },
    /// A call to the driver failed.
    #[error(transparent)]
    Driver(#[from] plumb_csi::DriverError),
    /// The attacher says that the volume cannot be attached.
    #[error("AttachVolume.Attach failed: {0}")]
    Attach(String),
    /// The volume is not attached to the node yet.
    #[error("timed out waiting for external-attacher of {driver} CSI driver to attach volume {volume}")]
    NotAttached {
        /// The driver.
        driver: String,
        /// The volume.
        volume: String,
    },
    /// The volume is being detached from the node.
    #[error("volume {0} is being detached from the node")]
    Detaching(String),
    /// A value of a Secret for a driver is not text.
    #[error("the value of key {0:?} of the Secret is not UTF-8")]
    SecretText(String),
    /// The path of a `local` volume does not exist.
    #[error("path {0:?} does not exist")]
    NoPath(String),
    /// The path of a `local` volume is not a directory.
    #[error("path {0:?} is not a directory")]
    NoDirectory(String),
    /// The volume cannot be reached from this node.
    #[error("no matching NodeSelectorTerms")]
    NodeAffinity,
    /// A `hostPath` cannot be used.
    #[error(transparent)]
    HostPath(#[from] HostPathError),
    /// The directory of a volume cannot be made.
    #[error(transparent)]
    Local(#[from] super::local::LocalVolumeError),
    /// The API server cannot be asked.
    #[error(transparent)]
    Api(Box<kube::Error>),
    /// A file operation failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The medium of an `emptyDir` is unknown.
    #[error("unknown storage medium {0:?}")]
    Medium(String),
    /// The size limit of an `emptyDir` is invalid.
    #[error(transparent)]
    SizeLimit(#[from] QuantityError),
}

/// Why a path in a volume is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PathError {
    /// It has no components.
    #[error("invalid path: must not be empty: {0:?}")]
    Empty(String),
    /// It is absolute.
    #[error("invalid path: must be relative path: {0}")]
    Absolute(String),
    /// It leads out of a directory.
    #[error("invalid path: must not contain '..': {0}")]
    Parent(String),
    /// It may collide with the links of the volume itself.
    #[error("invalid path: must not start with '..': {0}")]
    Dots(String),
}

/// Why a `hostPath` cannot be mounted.
#[derive(Debug, thiserror::Error)]
pub(super) enum HostPathError {
    /// The path is relative or leads out of a directory.
    #[error("invalid hostPath: {0}")]
    Invalid(String),
    /// The file at the path is of another type.
    #[error("hostPath type check failed: {path} is not {expected}")]
    Type {
        /// The path.
        path: String,
        /// The type.
        expected: &'static str,
    },
    /// There is no such type.
    #[error("{0} is an invalid volume type")]
    UnknownType(String),
    /// The path cannot be read or created.
    #[error("{path}: {error}")]
    Io {
        /// The path.
        path: String,
        /// Why.
        error: io::Error,
    },
}
