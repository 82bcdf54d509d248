//! `emptyDir` volumes: empty at first, and removed with their pod.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use k8s_openapi::api::core::v1::{Pod, Volume};
use plumb_resize::pod::{PodResources, PodShape};
use plumb_resize::quantity::Quantity;

use super::error::VolumeError;
use super::mounted;
use super::owner::{Owner, READ_WRITE};
use crate::downward::Amounts;

/// All users may write.
const MODE: u32 = 0o777;

/// How an `emptyDir` is created.
pub(super) struct Plan {
    in_memory: bool,
    size: Option<u64>,
}

impl Plan {
    pub(super) fn of(volume: &Volume, pod: &Pod, allocatable: &Amounts) -> Result<Self, VolumeError> {
        let source = volume.empty_dir.clone().unwrap_or_default();
        match source.medium.as_deref().unwrap_or_default() {
            "" => Ok(Self { in_memory: false, size: None }),
            "Memory" => {
                let asked = source.size_limit.as_ref().map(|size| size.0.parse::<Quantity>()).transpose();
                let asked = asked?.filter(|size| !size.is_zero());
                let asked = asked.and_then(|size| u64::try_from(size.saturating_units()).ok());
                Ok(Self {
                    in_memory: true,
                    size: asked.into_iter().chain(memory_size_limit(pod, allocatable)).min(),
                })
            }
            other => Err(VolumeError::Medium(other.to_owned())),
        }
    }

    /// Creates the volume, unless it exists: files that containers wrote stay.
    pub(super) fn make(&self, path: &Path, owner: Owner) -> io::Result<()> {
        let new = !path.exists();
        fs::create_dir_all(path)?;
        if self.in_memory {
            mounted::memory(path, self.size, MODE)?;
        }
        if new {
            fs::set_permissions(path, Permissions::from_mode(MODE))?;
            owner.take(path, READ_WRITE)?;
        }
        Ok(())
    }
}

/// The memory that all containers of a pod may use together, else the node's allocatable memory. The pod is the one
/// with its allocation: see `worker::allocated`.
fn memory_size_limit(pod: &Pod, allocatable: &Amounts) -> Option<u64> {
    let limit = || {
        let resources = PodResources::desired(pod.spec.as_ref()?).ok()?;
        PodShape::of(pod).ok()?.cgroup(&resources).limits.memory
    };
    let of_node = || allocatable.get("memory")?.0.parse::<Quantity>().ok()?.units().ok();
    u64::try_from(limit().or_else(of_node)?).ok()
}
