//! The cgroups of pods and containers.
//!
//! The node agent manages the cgroups of all pods, of QoS classes and of pods, like the kubelet. The runtime manages those of
//! containers, inside the `cgroup_parent` of their sandbox. With the driver systemd, the cgroups of the node agent are slices,
//! and those of containers are scopes.

use std::sync::Arc;

use plumb_resize::cgroup::WeightScale;
use plumb_runtime::cgroup::{Group, Layout, Tree, Version};
use plumb_runtime::types::{LinuxResources, Pairs, QosClass};
use plumb_runtime::{Error, Result};

use crate::names::parse_cgroup;
use crate::runtime::blocking;
use crate::systemd::UnitManager;
use crate::systemd::properties::{Environment, accounting, completed, resource_properties, slice_properties};
use crate::systemd::slice::Slice;

/// The prefix of the id in the names of CRI-O's cgroups.
const CRIO_PREFIX: &str = "crio-";
/// The prefix of the id in the names of containerd's scopes.
const CONTAINERD_PREFIX: &str = "cri-containerd-";
/// The cgroups of a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Cgroups {
    /// The hierarchy of cgroups, which are slices with the driver systemd.
    tree: Tree,
    systemd: Option<Slices>,
}

/// The slices of a cluster.
#[derive(Clone, Debug)]
struct Slices {
    units: Arc<dyn UnitManager>,
    pods: Slice,
    environment: Environment,
}

/// A cgroup that the node agent manages.
#[derive(Clone, Debug)]
struct Managed<'a> {
    group: Group,
    /// The unit of the cgroup, if it is a slice.
    unit: Option<(&'a Slices, String)>,
}

impl Cgroups {
    /// Manages the cgroups inside the cgroup of this name, which may be a path, with the driver cgroupfs.
    pub(crate) fn cgroupfs(layout: Layout, name: &str) -> Self {
        Self { tree: Tree::new(layout, name), systemd: None }
    }

    /// Manages the cgroups inside the slice of this name with the driver systemd.
    pub(crate) async fn systemd(layout: Layout, name: &str, units: Arc<dyn UnitManager>) -> Result<Self> {
        let pods = Slice::from_path(name);
        if !pods.is_valid() {
            return Err(Error::InvalidArgument(format!("{name:?} cannot name a slice of systemd")));
        }
        let environment = Environment { cgroups: layout.version(), systemd: units.version().await? };
        Ok(Self { tree: Tree::new(layout, pods.path()), systemd: Some(Slices { units, pods, environment }) })
    }

    /// The cgroup of a pod.
    pub(crate) fn pod(&self, class: QosClass, uid: &str) -> Group {
        self.managed(class, Some(uid)).group
    }

    /// The `cgroup_parent` of the sandboxes of a pod.
    pub(crate) fn parent(&self, class: QosClass, uid: &str) -> String {
        let managed = self.managed(class, Some(uid));
        managed.unit.map_or_else(|| format!("/{}", managed.group.path().display()), |(_, unit)| unit)
    }

    /// Whether a uid can be part of the name of a cgroup.
    pub(crate) fn can_name(&self, uid: &str) -> bool {
        let is_name = !uid.is_empty() && !uid.contains(['/', '\0']) && !uid.starts_with('.');
        is_name
            && self
                .systemd
                .as_ref()
                .is_none_or(|slices| slices.slice(QosClass::Burstable, Some(uid)).is_valid())
    }

    /// The cgroup of a container with these annotations, if it exists.
    pub(crate) fn container(&self, id: &str, annotations: &Pairs) -> Option<Group> {
        let (class, uid) = parse_cgroup(annotations)?;
        self.in_pod(&self.pod(class, uid), id)
    }

    /// The cgroup of a container or of a sandbox in the cgroup of its pod, if it exists.
    pub(crate) fn in_pod(&self, pod: &Group, id: &str) -> Option<Group> {
        let names = match self.systemd {
            None => [id.to_owned(), format!("{CRIO_PREFIX}{id}")],
            Some(_) => [CONTAINERD_PREFIX, CRIO_PREFIX].map(|prefix| format!("{prefix}{id}.scope")),
        };
        names.into_iter().map(|name| pod.child(name, WeightScale::Quadratic)).find(Group::exists)
    }

    /// Creates the cgroups of all pods and of QoS classes.
    pub(crate) async fn create(&self) -> Result<()> {
        for class in [QosClass::Guaranteed, QosClass::Burstable, QosClass::BestEffort] {
            self.managed(class, None).create(&LinuxResources::default()).await?;
        }
        Ok(())
    }

    /// Creates the cgroup of a pod, unless it exists, and sets its resources.
    pub(crate) async fn create_pod(&self, class: QosClass, uid: &str, to: &LinuxResources) -> Result<()> {
        self.managed(class, Some(uid)).create(to).await
    }

    /// Sets the resources of a pod.
    pub(crate) async fn set_pod(&self, class: QosClass, uid: &str, to: &LinuxResources) -> Result<()> {
        self.managed(class, Some(uid)).set(to).await
    }

    /// Sets the resources of a QoS class.
    pub(crate) async fn set_class(&self, class: QosClass, to: &LinuxResources) -> Result<()> {
        self.managed(class, None).set(to).await
    }

    /// Kills all processes in the cgroup of a pod, and removes it.
    pub(crate) async fn delete_pod(&self, class: QosClass, uid: &str) -> Result<()> {
        self.managed(class, Some(uid)).delete().await
    }

    /// Kills all processes in the cgroups of the cluster, and removes them.
    pub(crate) async fn delete(&self) -> Result<()> {
        self.managed(QosClass::Guaranteed, None).delete().await
    }

    /// The cgroup of a QoS class, or of a pod in it.
    fn managed(&self, class: QosClass, uid: Option<&str>) -> Managed<'_> {
        let Some(slices) = &self.systemd else {
            let group = uid.map_or_else(|| self.tree.class(class), |uid| self.tree.pod(class, uid));
            return Managed { group, unit: None };
        };
        let slice = slices.slice(class, uid);
        let pods = self.tree.pods();
        let path = slice.path();
        let group = match path.strip_prefix(pods.path()) {
            Ok(relative) if relative.components().next().is_some() => {
                pods.child(relative, WeightScale::Linear)
            }
            _ => pods,
        };
        Managed { group, unit: Some((slices, slice.unit())) }
    }
}

impl Slices {
    fn slice(&self, class: QosClass, uid: Option<&str>) -> Slice {
        let class = match class {
            QosClass::Guaranteed => self.pods.clone(),
            QosClass::Burstable => self.pods.child("burstable"),
            QosClass::BestEffort => self.pods.child("besteffort"),
        };
        uid.map_or_else(|| class.clone(), |uid| class.child(&format!("pod{uid}")))
    }
}

impl Managed<'_> {
    async fn create(self, to: &LinuxResources) -> Result<()> {
        let mut is_new = true;
        if let Some((slices, unit)) = &self.unit {
            let mut properties = slice_properties(unit, slices.environment);
            properties.extend(resource_properties(to, slices.environment));
            is_new = slices.units.start(unit, &properties).await?;
            if !is_new {
                slices.units.set_properties(unit, &accounting(slices.environment)).await?;
            }
        }
        // systemd creates the cgroups only of the controllers that it knows, and rounds quotas.
        let group = self.group.clone();
        let resources = to.clone();
        blocking(move || {
            group.create()?;
            if is_new { Ok(group.set(&resources)?) } else { Ok(()) }
        })
        .await?;
        if is_new { Ok(()) } else { self.set(to).await }
    }

    /// Writes resources to the files of the cgroup, and then sets them as properties of the unit, if it has one. The order
    /// matters: the kernel rejects a memory limit below usage when the file is written, while systemd would apply it and have
    /// processes killed.
    async fn set(self, to: &LinuxResources) -> Result<()> {
        let group = self.group.clone();
        let resources = to.clone();
        let has_unit = self.unit.is_some();
        let before = blocking(move || {
            let before = if has_unit { Some(group.read()?) } else { None };
            group.set(&resources)?;
            Ok(before)
        })
        .await?;
        let (Some((slices, unit)), Some(before)) = (self.unit, before) else { return Ok(()) };
        let group = self.group;
        let properties = resource_properties(&completed(to, &before), slices.environment);
        if let Err(error) = slices.units.set_properties(&unit, &properties).await {
            // Without the properties, the files would keep the values only until systemd is reloaded.
            if let Err(also) = blocking(move || Ok(group.set(&before)?)).await {
                tracing::warn!(unit, error = %also, "cannot restore resources that systemd rejected");
            }
            return Err(error);
        }
        let quota = LinuxResources {
            cpu_quota: to.cpu_quota,
            cpu_period: to.cpu_period,
            ..LinuxResources::default()
        };
        // systemd has rounded the quota.
        blocking(move || Ok(group.set(&quota)?)).await
    }

    async fn delete(self) -> Result<()> {
        if let Some((slices, unit)) = self.unit {
            // Otherwise systemd would send SIGTERM to the remaining processes, and wait for them.
            let group = self.group.clone();
            blocking(move || Ok(group.kill()?)).await?;
            slices.units.stop(&unit).await?;
        }
        let group = self.group;
        blocking(move || Ok(group.delete()?)).await
    }
}

/// The actual resources of a container: those of its cgroup if it exists, else those that the runtime reports, which are the
/// last requested ones. `known` are those that this process requested, since not all runtimes report them.
pub(crate) fn actual(
    reported: Option<LinuxResources>,
    known: Option<LinuxResources>,
    group: Option<&Group>,
) -> Option<LinuxResources> {
    let asked = reported.as_ref().or(known.as_ref());
    group.and_then(|group| read(group, asked)).or(reported)
}

/// Reads the resources of a cgroup, if it exists. On cgroup v2, several values of shares have one weight, so the last requested
/// shares are returned if the weight is theirs.
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

/// Whether a weight, read as shares on the quadratic scale, is that of these shares. Runtimes convert shares to weights on
/// different scales: runc 1.3.2 and later on the quadratic one.
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
