//! The kinds of `rbac.authorization.k8s.io`.

mod cluster_role;
mod cluster_role_binding;
mod print;
mod role;
mod role_binding;
mod validation;

pub(super) use cluster_role::ClusterRoleStrategy;
pub(super) use cluster_role_binding::ClusterRoleBindingStrategy;
pub(super) use role::RoleStrategy;
pub(super) use role_binding::RoleBindingStrategy;
