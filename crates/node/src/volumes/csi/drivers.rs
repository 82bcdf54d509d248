//! The drivers that are registered on this node.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use plumb_csi::api::Capability;
use plumb_csi::{Driver, NodeInfo};

use crate::volumes::error::VolumeError;

/// A registered driver.
#[derive(Debug)]
pub(super) struct Registered {
    pub(super) driver: Driver,
    pub(super) capabilities: BTreeSet<Capability>,
    pub(super) info: NodeInfo,
    /// The registration socket. Once it is removed, so is the driver.
    pub(super) socket: PathBuf,
}

impl Registered {
    pub(super) fn can(&self, capability: Capability) -> bool {
        self.capabilities.contains(&capability)
    }
}

/// All of them, by name.
#[derive(Debug, Default)]
pub(super) struct Drivers(Mutex<BTreeMap<String, Arc<Registered>>>);

impl Drivers {
    /// The driver of a volume.
    pub(super) fn get(&self, name: &str) -> Result<Arc<Registered>, VolumeError> {
        self.0.lock().get(name).cloned().ok_or_else(|| VolumeError::NoDriver(name.to_owned()))
    }

    /// Registers a driver, in the place of an earlier one of its name.
    pub(super) fn insert(&self, name: &str, driver: Registered) {
        self.0.lock().insert(name.to_owned(), Arc::new(driver));
    }

    /// Removes the driver of a registration socket, and returns its name.
    pub(super) fn remove(&self, socket: &Path) -> Option<String> {
        let mut drivers = self.0.lock();
        let name = drivers.iter().find(|(_, driver)| driver.socket == socket)?.0.clone();
        drivers.remove(&name);
        Some(name)
    }
}
