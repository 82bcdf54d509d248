//! The priorities of group versions in discovery, as kube-apiserver 1.36 registers them.

/// The order of a group among groups, and of a version in its group: larger numbers come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Priorities {
    pub(super) group: i32,
    pub(super) version: i32,
}

/// Those of custom kinds: behind all built-in ones. Versions with the same priority are ordered by their names.
pub(super) const CUSTOM: Priorities = Priorities { group: 1_000, version: 100 };

/// The stable versions of a group have this priority, unless upstream has another.
const STABLE: i32 = 15;

/// The group, its priority, and its versions with their priorities.
type Group = (&'static str, i32, &'static [(&'static str, i32)]);

const GROUPS: &[Group] = &[
    ("", 18_000, &[("v1", 1)]),
    ("apps", 17_800, &[("v1", STABLE)]),
    ("events.k8s.io", 17_750, &[("v1", STABLE)]),
    ("authentication.k8s.io", 17_700, &[("v1", STABLE)]),
    ("authorization.k8s.io", 17_600, &[("v1", STABLE)]),
    ("autoscaling", 17_500, &[("v2", 30), ("v1", STABLE)]),
    ("batch", 17_400, &[("v1", STABLE)]),
    ("certificates.k8s.io", 17_300, &[("v1", STABLE), ("v1beta1", 9), ("v1alpha1", 1)]),
    ("networking.k8s.io", 17_200, &[("v1", STABLE), ("v1beta1", 9)]),
    ("policy", 17_100, &[("v1", STABLE)]),
    ("rbac.authorization.k8s.io", 17_000, &[("v1", STABLE)]),
    ("storage.k8s.io", 16_800, &[("v1", STABLE), ("v1beta1", 9), ("v1alpha1", 1)]),
    ("apiextensions.k8s.io", 16_700, &[("v1", STABLE)]),
    ("admissionregistration.k8s.io", 16_700, &[("v1", STABLE), ("v1beta1", 12), ("v1alpha1", 9)]),
    ("scheduling.k8s.io", 16_600, &[("v1", STABLE), ("v1alpha2", 2)]),
    ("coordination.k8s.io", 16_500, &[("v1", STABLE), ("v1beta1", 13), ("v1alpha2", 12)]),
    ("node.k8s.io", 16_300, &[("v1", STABLE)]),
    ("discovery.k8s.io", 16_200, &[("v1", STABLE)]),
    ("resource.k8s.io", 16_200, &[("v1", 21), ("v1beta2", 15), ("v1beta1", 9), ("v1alpha3", 1)]),
    ("flowcontrol.apiserver.k8s.io", 16_100, &[("v1", 21)]),
    ("internal.apiserver.k8s.io", 16_000, &[("v1alpha1", 9)]),
    ("storagemigration.k8s.io", 15_800, &[("v1beta1", 9)]),
];

/// Those of a built-in group version; none if kube-apiserver does not register it.
pub(super) fn builtin(group: &str, version: &str) -> Option<Priorities> {
    let (_, group, versions) = GROUPS.iter().find(|(name, ..)| *name == group)?;
    let (_, version) = versions.iter().find(|(name, _)| *name == version)?;
    Some(Priorities { group: *group, version: *version })
}
