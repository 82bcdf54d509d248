//! `StorageClasses`.

use crate::registry::Strategy;

/// The strategy of `StorageClasses`.
#[derive(Debug)]
pub(in crate::registry) struct StorageClassStrategy;

impl Strategy for StorageClassStrategy {}
