//! Nodes with real containers: what the kernel holds while their agent works, dies and comes back.

pub(crate) mod api;
mod cpus;
mod deaths;
mod downward_api;
mod eviction;
mod flow;
mod hostile;
mod leaks;
pub(crate) mod machine;
mod memory;
mod names;
mod network;
mod policies;
mod pressure;
mod programs;
mod remains;
mod several;
mod sums;
mod top;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;

/// Waits until a pod runs with what it asks for.
pub(crate) async fn running(pods: &Api<Pod>, name: &str) {
    machine::until(pods, name, "running", machine::is_settled).await;
}
