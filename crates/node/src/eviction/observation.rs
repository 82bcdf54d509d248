//! Observations of the eviction signals on a machine.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use plumb_resize::quantity::{Format, Quantity};

use super::signal::{Signal, StarvedResource};
use super::threshold::Threshold;
use crate::kernel_files::{memory_figure, task_limit};

/// How much of a resource is available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// The available part.
    pub available: i64,
    /// All of it.
    pub capacity: i64,
}

impl Observation {
    fn new(available: u64, capacity: u64) -> Self {
        let [available, capacity] =
            [available, capacity].map(|amount| i64::try_from(amount).unwrap_or(i64::MAX));
        Self { available, capacity }
    }
}

/// The observed signals. One that cannot be observed is missing, and its thresholds are not met.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observations(pub BTreeMap<Signal, Observation>);

impl Observations {
    /// Observes the machine: memory and process ids in the kernel's files below `root`, and the file systems that two
    /// directories are on.
    pub fn read(root: &Path, node_fs: &Path, image_fs: Option<&Path>) -> io::Result<Self> {
        let mut found = BTreeMap::new();
        let memory = fs::read_to_string(root.join("proc/meminfo"))?;
        let figure = |name: &str| memory_figure(&memory, name);
        if let (Some(available), Some(total)) = (figure("MemAvailable"), figure("MemTotal")) {
            found.insert(Signal::MemoryAvailable, Observation::new(available, total));
        }
        if let (Some(tasks), Some(limit)) = (tasks(root), task_limit(root)) {
            found.insert(Signal::PidAvailable, Observation::new(limit.saturating_sub(tasks), limit));
        }
        let images = [Signal::ImageFsAvailable, Signal::ImageFsInodesFree];
        for (path, [bytes, inodes]) in
            [(Some(node_fs), [Signal::NodeFsAvailable, Signal::NodeFsInodesFree]), (image_fs, images)]
        {
            let Some(path) = path else { continue };
            let disk = rustix::fs::statvfs(path)?;
            let amount = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
            found.insert(bytes, Observation::new(amount(disk.f_bavail), amount(disk.f_blocks)));
            // A file system such as btrfs makes inodes as they are needed, and reports none.
            if disk.f_files > 0 {
                found.insert(inodes, Observation::new(disk.f_favail, disk.f_files));
            }
        }
        Ok(Self(found))
    }

    /// The thresholds that are met; `reclaiming` adds what is to be reclaimed beyond their values.
    pub fn met(&self, thresholds: &[Threshold], reclaiming: bool) -> Vec<Threshold> {
        let is_met = |threshold: &&Threshold| {
            let Some(observed) = self.0.get(&threshold.signal) else { return false };
            let value = threshold.value.of(observed.capacity);
            let beyond = threshold.minimum_reclaim.filter(|_| reclaiming);
            let beyond = beyond.map_or(Quantity::ZERO, |amount| amount.of(observed.capacity));
            value.saturating_add(beyond) > self.available(threshold.signal)
        };
        thresholds.iter().filter(is_met).cloned().collect()
    }

    /// The available amount of a signal, as it is written in messages.
    pub(super) fn available(&self, signal: Signal) -> Quantity {
        let available = self.0.get(&signal).map_or(0, |observed| observed.available);
        let format = match signal.resource() {
            StarvedResource::Memory | StarvedResource::EphemeralStorage => Format::BinarySi,
            StarvedResource::Inodes | StarvedResource::Pids => Format::DecimalSi,
        };
        Quantity::from_units(available).with_format(format)
    }
}

/// How many tasks there are: the fourth word of loadavg is `running/all`.
fn tasks(root: &Path) -> Option<u64> {
    let load = fs::read_to_string(root.join("proc/loadavg")).ok()?;
    load.split_whitespace().nth(3)?.split_once('/')?.1.parse().ok()
}
