//! `PersistentVolumes`.

use crate::registry::Strategy;

/// The strategy of `PersistentVolumes`.
#[derive(Debug)]
pub(in crate::registry) struct PersistentVolumeStrategy;

impl Strategy for PersistentVolumeStrategy {}
