//! How near a cgroup is to its memory limit.

use super::error::Result;
use super::group::Group;
use super::layout::Version;
use super::v1;
use crate::types::MemoryPressure;

impl Group {
    /// How near it is to its memory limit, and whether a process is held there. V2 holds none: there only the kernel's own
    /// throttling delays a kill.
    pub fn memory_pressure(&self) -> Result<MemoryPressure> {
        let limit = u64::try_from(self.applied_limit()?.limit).ok();
        let held = match self.version() {
            Version::V1 => v1::is_held(self)?,
            Version::V2 => false,
        };
        Ok(MemoryPressure { usage: self.unreclaimable()?, limit, held })
    }
}
