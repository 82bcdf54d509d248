//! From what a pod asks for to what the runtime is told: pure.
//!
//! ```text
//!   Pod ──▶ sandbox() ──▶ SandboxConfig
//!       ──▶ container(…, env, mounts) ──▶ ContainerConfig
//! ```
//!
//! Names of labels and annotations, and the words of refusals, are the kubelet's, so that what reads them there
//! reads them here.

mod container;
mod dns;
mod error;
mod expand;
mod sandbox;
mod security;

pub use container::{container, oom_score_adj, spec_hash};
pub use dns::{ClusterDns, resolv_conf};
pub use error::ConfigError;
pub use expand::expand;
pub use sandbox::{Place, host_name, log_folder, sandbox};

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use plumb_runtime::types::Pairs;

/// The label with a pod's name.
pub const POD_NAME: &str = "io.kubernetes.pod.name";
/// The label with a pod's namespace.
pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
/// The label with a pod's uid.
pub const POD_UID: &str = "io.kubernetes.pod.uid";
/// The label with a container's name.
pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";
/// The annotation with what a container's spec hashes to: see [`spec_hash`].
pub const HASH: &str = "io.kubernetes.container.hash";
/// The annotation with how many times a container was restarted before.
pub const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
/// The annotation with where a container writes its last words.
pub const TERMINATION_MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";
/// The annotation with what stands in for them.
pub const TERMINATION_MESSAGE_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
/// The annotation with how long a pod is given to end.
pub const TERMINATION_GRACE_PERIOD: &str = "io.kubernetes.pod.terminationGracePeriod";
/// The annotation with what is done before a container is asked to end.
pub const PRE_STOP: &str = "io.kubernetes.container.preStopHandler";

/// The labels that everything of a pod is found by.
pub fn pod_labels(pod: &Pod) -> Pairs {
    let (namespace, name, uid) = identity(pod);
    [(POD_NAME, name), (POD_NAMESPACE, namespace), (POD_UID, uid)]
        .map(|(label, value)| (label.to_owned(), value.to_owned()))
        .into()
}

/// A pod as the kubelet's messages name it.
pub(crate) fn pod_name(pod: &Pod) -> String {
    let (namespace, name, uid) = identity(pod);
    format!("{name}_{namespace}({uid})")
}

/// A pod's namespace, name and uid.
pub(crate) fn identity(pod: &Pod) -> (&str, &str, &str) {
    (
        pod.metadata.namespace.as_deref().unwrap_or_default(),
        pod.metadata.name.as_deref().unwrap_or_default(),
        pod.metadata.uid.as_deref().unwrap_or_default(),
    )
}

/// Whether a pod is on the machine's network.
pub(crate) fn on_host_network(spec: &PodSpec) -> bool {
    spec.host_network.unwrap_or(false)
}
