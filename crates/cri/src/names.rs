//! Labels and annotations by which a sandbox or a container is known as ours.

use plumb_runtime::types::{Pairs, QosClass};

/// The label with the name of the cluster, which is also its cgroup's: a runtime may have pods of others.
pub(crate) const CLUSTER: &str = "plumb.dev/cluster";
/// The annotation with the configuration of a sandbox.
pub(crate) const SANDBOX_CONFIG: &str = "plumb.dev/sandbox-config";
/// The annotation of a container with the id of its sandbox, which the CRI's status of a container does not have.
pub(crate) const SANDBOX: &str = "plumb.dev/sandbox";
/// The annotation of a container with the place of its cgroup: `CLASS/UID` of its pod.
pub(crate) const CGROUP: &str = "plumb.dev/cgroup";
/// The annotation of a container with the size at which its log is rotated and the number of files: `SIZE/FILES`.
pub(crate) const LOG_LIMITS: &str = "plumb.dev/log-limits";

const OURS: [&str; 5] = [CLUSTER, SANDBOX_CONFIG, SANDBOX, CGROUP, LOG_LIMITS];

/// Labels or annotations without ours.
pub(crate) fn without_ours(pairs: &Pairs) -> Pairs {
    pairs
        .iter()
        .filter(|(name, _)| !OURS.contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// The value of [`CGROUP`].
pub(crate) fn cgroup_of(class: QosClass, uid: &str) -> String {
    format!("{}/{uid}", class.name())
}

/// Reads the value of [`CGROUP`].
pub(crate) fn parse_cgroup(annotations: &Pairs) -> Option<(QosClass, &str)> {
    let (class, uid) = annotations.get(CGROUP)?.split_once('/')?;
    Some((QosClass::named(class)?, uid))
}
