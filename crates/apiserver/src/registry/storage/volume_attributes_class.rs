//! `VolumeAttributesClasses`.

use crate::registry::Strategy;

/// The strategy of `VolumeAttributesClasses`.
#[derive(Debug)]
pub(in crate::registry) struct VolumeAttributesClassStrategy;

impl Strategy for VolumeAttributesClassStrategy {}
