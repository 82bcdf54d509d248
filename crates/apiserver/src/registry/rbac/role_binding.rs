//! `RoleBindings`.

use crate::registry::Strategy;

/// The strategy of `RoleBindings`.
#[derive(Debug)]
pub(in crate::registry) struct RoleBindingStrategy;

impl Strategy for RoleBindingStrategy {}
