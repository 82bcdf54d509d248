//! The cgroups of one cluster.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use plumb_resize::cgroup::WeightScale;
use plumb_resize::qos::QosClass;

use super::error::Result;
use super::group::Group;
use super::layout::Layout;

/// The cgroups of one cluster: a root of its own, and below it the layout that the kubelet has below `kubepods`.
#[derive(Clone, Debug)]
pub struct Tree {
    layout: Arc<Layout>,
    root: PathBuf,
}

impl Tree {
    /// The tree below a cgroup of this name, which may be a path. Creates nothing yet.
    pub fn new(layout: Layout, root: impl Into<PathBuf>) -> Self {
        let root: PathBuf = root.into();
        let root = root.strip_prefix("/").map(Path::to_owned).unwrap_or(root);
        Self { layout: Arc::new(layout), root }
    }

    /// Where the controllers are mounted.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Its root: the cgroup of all pods.
    pub fn pods(&self) -> Group {
        Group::new(self.layout.clone(), self.root.clone(), WeightScale::Linear)
    }

    /// The cgroup of a QoS class. Guaranteed pods have none of their own, theirs is the root.
    pub fn class(&self, class: QosClass) -> Group {
        match class {
            QosClass::Guaranteed => self.pods(),
            QosClass::Burstable => self.pods().child("burstable", WeightScale::Linear),
            QosClass::BestEffort => self.pods().child("besteffort", WeightScale::Linear),
        }
    }

    /// The cgroup of a pod. Its weight is on the kubelet's scale.
    pub fn pod(&self, class: QosClass, uid: &str) -> Group {
        self.class(class).child(format!("pod{uid}"), WeightScale::Linear)
    }

    /// The cgroup of a container. Its weight is on the OCI runtimes' scale.
    pub fn container(&self, class: QosClass, uid: &str, id: &str) -> Group {
        self.pod(class, uid).child(id, WeightScale::Quadratic)
    }

    /// Creates the root and the cgroups of the QoS classes.
    pub fn create(&self) -> Result<()> {
        for class in [QosClass::Guaranteed, QosClass::Burstable, QosClass::BestEffort] {
            self.class(class).create()?;
        }
        Ok(())
    }

    /// Kills everything in the tree and removes it.
    pub fn delete(&self) -> Result<()> {
        self.pods().delete()
    }
}
