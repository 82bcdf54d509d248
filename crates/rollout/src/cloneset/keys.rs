//! The labels, annotations and conditions of pods, which are OpenKruise's: other controllers and tools read them.

/// The label with the lifecycle state of a pod.
pub const STATE: &str = "lifecycle.apps.kruise.io/state";
/// The annotation with the time at which the state was entered.
pub const STATE_TIMESTAMP: &str = "lifecycle.apps.kruise.io/timestamp";
/// The label with the revision of a pod.
pub const REVISION: &str = "controller-revision-hash";
/// The label with the hash of the revision alone.
pub const TEMPLATE_HASH: &str = "pod-template-hash";
/// The label of a revision with its hash.
pub const HASH: &str = "controller.kubernetes.io/hash";
/// The label that a pod and its claims share.
pub const INSTANCE_ID: &str = "apps.kruise.io/cloneset-instance-id";
/// The label of a pod that is to be deleted.
pub const SPECIFIED_DELETE: &str = "apps.kruise.io/specified-delete";
/// The annotation with the in-place update that a pod has had last.
pub const UPDATE_STATE: &str = "apps.kruise.io/inplace-update-state";
/// The annotation of a pod whose containers are launched in their order.
pub const LAUNCH_PRIORITY: &str = "apps.kruise.io/container-launch-priority";
/// The variable of a container with its launch priority.
pub const LAUNCH_PRIORITY_ENV: &str = "KRUISE_CONTAINER_PRIORITY";
/// The variable that OpenKruise's webhook adds to a container with a launch priority.
pub const LAUNCH_BARRIER_ENV: &str = "KRUISE_CONTAINER_BARRIER";
/// The readiness gate that is False while a pod is updated in place with a restart.
pub const UPDATE_READY: &str = "InPlaceUpdateReady";
/// The readiness gate that is False while a hook with `markPodNotReady` holds a pod.
pub const POD_READY: &str = "KruisePodReady";
/// The reason of [`UPDATE_READY`] when it is False.
pub const START_UPDATE: &str = "StartInPlaceUpdate";
