//! Roles.

use crate::registry::Strategy;

/// The strategy of Roles.
#[derive(Debug)]
pub(in crate::registry) struct RoleStrategy;

impl Strategy for RoleStrategy {}
