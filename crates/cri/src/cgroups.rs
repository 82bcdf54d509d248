//! The cgroups of pods and containers under a runtime with the cgroupfs driver.
//!
//! The cgroups of all pods, of QoS classes and of pods are ours, as they are the kubelet's; those of containers are the
//! runtime's, below the `cgroup_parent` of their sandbox.

use plumb_resize::cgroup::WeightScale;
use plumb_runtime::cgroup::{Group, Tree, Version};
use plumb_runtime::types::{LinuxResources, Pairs, QosClass};

use crate::names::parse_cgroup;

/// What CRI-O has before the id in the name of a container's cgroup.
const CRIO_PREFIX: &str = "crio-";

/// The cgroups of a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Cgroups {
    tree: Tree,
}

impl Cgroups {
    pub(crate) fn new(tree: Tree) -> Self {
        Self { tree }
    }

    /// All of them.
    pub(crate) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// The cgroup of a pod.
    pub(crate) fn pod(&self, class: QosClass, uid: &str) -> Group {
        self.tree.pod(class, uid)
    }

    /// What a sandbox has as its `cgroup_parent`.
    pub(crate) fn parent(&self, class: QosClass, uid: &str) -> String {
        format!("/{}", self.pod(class, uid).path().display())
    }

    /// The cgroup of a container with these annotations, if it exists where it should be.
    pub(crate) fn container(&self, id: &str, annotations: &Pairs) -> Option<Group> {
        let (class, uid) = parse_cgroup(annotations)?;
        let pod = self.pod(class, uid);
        let names = [id.to_owned(), format!("{CRIO_PREFIX}{id}")];
        names.into_iter().map(|name| pod.child(name, WeightScale::Quadratic)).find(Group::exists)
    }
}

/// The actual resources of a container: those of its cgroup where it has one, else those that its runtime reports, which
/// are what it was last asked for. `known` are those that this process has asked it for, which not all runtimes report.
pub(crate) fn actual(
    reported: Option<LinuxResources>,
    known: Option<LinuxResources>,
    group: Option<&Group>,
) -> Option<LinuxResources> {
    let asked = reported.as_ref().or(known.as_ref());
    group.and_then(|group| read(group, asked)).or(reported)
}

/// What a cgroup has, if it exists. Shares are those that were asked for last, if the weight is theirs.
pub(crate) fn read(group: &Group, asked: Option<&LinuxResources>) -> Option<LinuxResources> {
    let mut read = group.read().ok()?;
    if let (Version::V2, Some(shares), Some(asked)) =
        (group.version(), read.cpu_shares, asked.and_then(|asked| asked.cpu_shares))
        && is_weight_of(shares, asked)
    {
        read.cpu_shares = Some(asked);
    }
    Some(read)
}

/// Whether a weight, read as shares on the quadratic scale, is that of these shares. Runtimes differ in how they make a
/// weight from shares, and a weight stands for several of them.
fn is_weight_of(read: u64, shares: u64) -> bool {
    let weight = WeightScale::Quadratic.weight(read);
    [WeightScale::Quadratic, WeightScale::Linear].iter().any(|scale| scale.weight(shares) == weight)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_cgroup_the_resources_are_those_that_the_runtime_reports() {
        let shares = |shares| LinuxResources { cpu_shares: Some(shares), ..LinuxResources::default() };
        assert_eq!(actual(Some(shares(512)), Some(shares(2)), None), Some(shares(512)));
        assert_eq!(actual(None, Some(shares(2)), None), None);
    }

    #[test]
    fn a_weight_on_either_scale_is_recognised() {
        for shares in [2, 102, 512, 1024, 262_144] {
            for scale in [WeightScale::Quadratic, WeightScale::Linear] {
                let read = WeightScale::Quadratic.shares(scale.weight(shares));
                assert!(is_weight_of(read, shares), "{shares} {scale:?}");
            }
        }
        assert!(!is_weight_of(1024, 512));
    }
}
