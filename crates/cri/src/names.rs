//! The labels and annotations that the node agent adds to sandboxes and containers.

use std::path::Path;

use plumb_runtime::types::{LogLimits, Pairs, QosClass};

/// The label with the name of the cluster, which is also the name of its cgroup. A runtime may have pods of others.
pub(crate) const CLUSTER: &str = "plumb.dev/cluster";
/// The annotation with the configuration of a sandbox.
pub(crate) const SANDBOX_CONFIG: &str = "plumb.dev/sandbox-config";
/// The annotation of a container with the id of its sandbox, which the CRI's status of a container does not have.
pub(crate) const SANDBOX: &str = "plumb.dev/sandbox";
/// The annotation of a container with the QoS class and the uid of its pod, which determine its cgroup: `CLASS/UID`.
pub(crate) const CGROUP: &str = "plumb.dev/cgroup";
/// The annotation of a container with its log, the size at which it is rotated and the number of files: `SIZE:FILES:PATH`.
pub(crate) const LOG: &str = "plumb.dev/log";
/// The annotation of a container with its image as the pod's spec names it. Runtimes report an image by the name that they
/// resolved it to, and a container whose image differs from that of the spec would be restarted.
pub(crate) const IMAGE: &str = "plumb.dev/image";

const OURS: [&str; 6] = [CLUSTER, SANDBOX_CONFIG, SANDBOX, CGROUP, LOG, IMAGE];

/// Removes the labels and annotations of the node agent.
pub(crate) fn without_ours(pairs: &Pairs) -> Pairs {
    pairs
        .iter()
        .filter(|(name, _)| !OURS.contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// Formats the value of [`LOG`].
pub(crate) fn log_of(limits: LogLimits, path: &Path) -> String {
    format!("{}:{}:{}", limits.max_size, limits.max_files, path.display())
}

/// Parses the value of [`LOG`].
pub(crate) fn parse_log(annotations: &Pairs) -> Option<(LogLimits, &Path)> {
    let mut parts = annotations.get(LOG)?.splitn(3, ':');
    let limits = LogLimits { max_size: parts.next()?.parse().ok()?, max_files: parts.next()?.parse().ok()? };
    Some((limits, Path::new(parts.next()?)))
}

/// Formats the value of [`CGROUP`].
pub(crate) fn cgroup_of(class: QosClass, uid: &str) -> String {
    format!("{}/{uid}", class.name())
}

/// Parses the value of [`CGROUP`].
pub(crate) fn parse_cgroup(annotations: &Pairs) -> Option<(QosClass, &str)> {
    let (class, uid) = annotations.get(CGROUP)?.split_once('/')?;
    Some((QosClass::named(class)?, uid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_are_read_as_they_were_written() {
        let limits = LogLimits { max_size: 1024, max_files: 3 };
        let path = Path::new("/logs/a:b/0.log");
        let pairs: Pairs = [
            (LOG.to_owned(), log_of(limits, path)),
            (CGROUP.to_owned(), cgroup_of(QosClass::BestEffort, "u-1")),
        ]
        .into();
        assert_eq!(parse_log(&pairs), Some((limits, path)));
        assert_eq!(parse_cgroup(&pairs), Some((QosClass::BestEffort, "u-1")));
        assert_eq!(parse_log(&Pairs::new()), None);
    }
}
