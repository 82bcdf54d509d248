//! `ConfigMaps`.

use crate::registry::Strategy;

/// The strategy of `ConfigMaps`.
#[derive(Debug)]
pub(in crate::registry) struct ConfigMapStrategy;

impl Strategy for ConfigMapStrategy {}
