//! The kinds of `apps`.

mod controller_revision;
mod daemon_set;
mod deployment;
mod print;
mod replica_set;
mod stateful_set;
mod validation;

pub(super) use controller_revision::ControllerRevisionStrategy;
pub(super) use daemon_set::DaemonSetStrategy;
pub(super) use deployment::DeploymentStrategy;
pub(super) use replica_set::ReplicaSetStrategy;
pub(super) use stateful_set::StatefulSetStrategy;
