//! The answer of `/stats/summary`, as the kubelet has it.

use std::io;
use std::path::Path;

use jiff::Timestamp;
use plumb_runtime::types::{FilesystemUsage, InterfaceUsage, Pressure, PressureFigures};
use serde::{Serialize, Serializer};

/// The resource usage of a node and its pods.
#[derive(Clone, Debug, Serialize)]
pub(in crate::server) struct Summary {
    pub(super) node: NodeStats,
    pub(super) pods: Vec<PodStats>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeStats {
    pub(super) node_name: String,
    #[serde(serialize_with = "whole_seconds")]
    pub(super) start_time: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cpu: Option<Cpu>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) memory: Option<Memory>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fs: Option<Fs>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) runtime: Option<RuntimeStats>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) swap: Option<Swap>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RuntimeStats {
    pub(super) image_fs: Fs,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PodStats {
    pub(super) pod_ref: PodReference,
    #[serde(serialize_with = "whole_seconds")]
    pub(super) start_time: Timestamp,
    pub(super) containers: Vec<ContainerStats>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cpu: Option<Cpu>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) memory: Option<Memory>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) network: Option<Network>,
    #[serde(rename = "process_stats", skip_serializing_if = "Option::is_none")]
    pub(super) process_stats: Option<Processes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) swap: Option<Swap>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct PodReference {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) uid: String,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ContainerStats {
    pub(super) name: String,
    #[serde(serialize_with = "whole_seconds")]
    pub(super) start_time: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cpu: Option<Cpu>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) memory: Option<Memory>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rootfs: Option<Fs>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) swap: Option<Swap>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Cpu {
    #[serde(serialize_with = "whole_seconds")]
    pub(super) time: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) usage_nano_cores: Option<u64>,
    pub(super) usage_core_nano_seconds: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) psi: Option<Psi>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Memory {
    #[serde(serialize_with = "whole_seconds")]
    pub(super) time: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) available_bytes: Option<u64>,
    pub(super) usage_bytes: u64,
    pub(super) working_set_bytes: u64,
    pub(super) rss_bytes: u64,
    pub(super) page_faults: u64,
    pub(super) major_page_faults: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) psi: Option<Psi>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Swap {
    #[serde(serialize_with = "whole_seconds")]
    pub(super) time: Timestamp,
    pub(super) swap_usage_bytes: u64,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Fs {
    #[serde(serialize_with = "whole_seconds")]
    pub(super) time: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) available_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) capacity_bytes: Option<u64>,
    pub(super) used_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) inodes_free: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) inodes: Option<u64>,
    pub(super) inodes_used: u64,
}

impl Fs {
    /// The file system that a path is on.
    pub(super) fn of(path: &Path, at: Timestamp) -> io::Result<Self> {
        let found = rustix::fs::statvfs(path)?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Ok(Self {
            time: at,
            available_bytes: Some(bytes(found.f_bavail)),
            capacity_bytes: Some(bytes(found.f_blocks)),
            used_bytes: bytes(found.f_blocks.saturating_sub(found.f_bfree)),
            inodes_free: Some(found.f_favail),
            inodes: Some(found.f_files),
            inodes_used: found.f_files.saturating_sub(found.f_ffree),
        })
    }

    /// The usage of a file system.
    pub(super) fn used(usage: &FilesystemUsage) -> Self {
        let mut fs = Self::of(&usage.mountpoint, usage.at).unwrap_or(Self {
            time: usage.at,
            available_bytes: None,
            capacity_bytes: None,
            used_bytes: 0,
            inodes_free: None,
            inodes: None,
            inodes_used: 0,
        });
        (fs.used_bytes, fs.inodes_used) = (usage.used_bytes, usage.inodes_used);
        fs
    }
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Processes {
    pub(super) process_count: u64,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Network {
    #[serde(serialize_with = "whole_seconds")]
    pub(super) time: Timestamp,
    #[serde(flatten)]
    pub(super) default: Interface,
    pub(super) interfaces: Vec<Interface>,
}

#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Interface {
    pub(super) name: String,
    rx_bytes: u64,
    rx_errors: u64,
    tx_bytes: u64,
    tx_errors: u64,
}

impl Interface {
    pub(super) fn of(usage: &InterfaceUsage) -> Self {
        Self {
            name: usage.name.clone(),
            rx_bytes: usage.rx_bytes,
            rx_errors: usage.rx_errors,
            tx_bytes: usage.tx_bytes,
            tx_errors: usage.tx_errors,
        }
    }
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Psi {
    full: PsiFigures,
    some: PsiFigures,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct PsiFigures {
    /// In nanoseconds.
    total: u64,
    /// In hundredths.
    avg10: f64,
    avg60: f64,
    avg300: f64,
}

impl Psi {
    pub(super) fn of(pressure: Pressure) -> Self {
        Self { full: PsiFigures::of(pressure.full), some: PsiFigures::of(pressure.some) }
    }
}

impl PsiFigures {
    fn of(figures: PressureFigures) -> Self {
        let hundredths = |figure: u32| f64::from(figure) / 100.0;
        Self {
            total: figures.total.saturating_mul(1000),
            avg10: hundredths(figures.avg10),
            avg60: hundredths(figures.avg60),
            avg300: hundredths(figures.avg300),
        }
    }
}

/// A time as the API writes it.
fn whole_seconds<S: Serializer>(time: &Timestamp, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&format_args!("{time:.0}"))
}
