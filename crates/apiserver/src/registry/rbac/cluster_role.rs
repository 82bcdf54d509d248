//! `ClusterRoles`.

use crate::registry::Strategy;

/// The strategy of `ClusterRoles`.
#[derive(Debug)]
pub(in crate::registry) struct ClusterRoleStrategy;

impl Strategy for ClusterRoleStrategy {}
