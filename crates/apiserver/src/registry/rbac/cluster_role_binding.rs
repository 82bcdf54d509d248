//! `ClusterRoleBindings`.

use crate::registry::Strategy;

/// The strategy of `ClusterRoleBindings`.
#[derive(Debug)]
pub(in crate::registry) struct ClusterRoleBindingStrategy;

impl Strategy for ClusterRoleBindingStrategy {}
