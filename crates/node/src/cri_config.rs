//! The CRI configuration of a pod's sandbox and containers: pure.
//!
//! ```text
//!   Pod ──▶ sandbox() ──▶ SandboxConfig
//!       ──▶ container(…, env, mounts) ──▶ ContainerConfig
//! ```
//!
//! Names of labels and annotations, and the messages of errors, are the kubelet's, so that tools that read them work
//! here, too.

mod container;
mod dns;
mod error;
mod expand;
mod sandbox;
mod security;

pub use container::{container, oom_score_adj, spec_hash};
pub use dns::{ClusterDns, PodDns, pod_dns, read_resolv_conf, usual_resolv_conf};
pub use error::ConfigError;
pub use expand::expand;
pub use sandbox::{SandboxDefaults, host_name, log_folder, sandbox};

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
/// The annotation with the hash of a container's spec: see [`spec_hash`].
pub const HASH: &str = "io.kubernetes.container.hash";
/// The annotation with how many times a container was restarted before.
pub const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
/// The annotation with the path of a container's termination message.
pub const TERMINATION_MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";
/// The annotation with the termination message policy.
pub const TERMINATION_MESSAGE_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
/// The annotation with a pod's grace period.
pub const TERMINATION_GRACE_PERIOD: &str = "io.kubernetes.pod.terminationGracePeriod";
/// The annotation with a container's pre-stop hook.
pub const PRE_STOP: &str = "io.kubernetes.container.preStopHandler";

/// The labels of everything that belongs to a pod.
pub fn pod_labels(pod: &Pod) -> Pairs {
    let (namespace, name, uid) = identity(pod);
    [(POD_NAME, name), (POD_NAMESPACE, namespace), (POD_UID, uid)]
        .map(|(label, value)| (label.to_owned(), value.to_owned()))
        .into()
}

/// The name of a pod in the kubelet's messages.
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

/// Whether a pod uses the host network.
pub(crate) fn on_host_network(spec: &PodSpec) -> bool {
    spec.host_network.unwrap_or(false)
}
