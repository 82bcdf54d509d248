//! Pinning containers to their CPUs.

use plumb_resize::aggregate::Role;
use plumb_runtime::types::{CpuSet, LinuxResources};

use super::Worker;
use super::error::SyncError;
use crate::cpus::all_assigned;

impl Worker {
    /// The CPUs of a container; none without the static CPU manager policy.
    pub(super) fn cpus(&self, position: usize) -> Option<CpuSet> {
        let shared = self.node.allocations.shared_cpus()?;
        let assigned = &self.entry.cpus;
        let part = self.info.shape.containers.get(position)?;
        let own = match part.role {
            // It runs before the others, on their CPUs.
            Role::Init => Some(all_assigned(assigned)).filter(|all| !all.is_empty()),
            Role::Main | Role::Sidecar => assigned.get(&part.name).cloned(),
        };
        Some(own.unwrap_or_else(|| CpuSet::clone(&shared)))
    }

    /// Moves containers that run on other CPUs; returns whether there were any.
    pub(super) async fn pin(&mut self) -> Result<bool, SyncError> {
        let mut moved = false;
        for position in 0..self.info.shape.containers.len() {
            let observed = self.observation.observed.containers.get(position).and_then(Option::as_ref);
            let Some(id) = observed.filter(|observed| observed.runs()).map(|observed| observed.id.clone())
            else {
                continue;
            };
            let Some(to) = self.cpus(position) else { return Ok(false) };
            let on = self.observation.cpus.get(position).and_then(Option::as_deref);
            // A runtime that does not report cpusets cannot set them.
            if on.is_none_or(|on| on.parse::<CpuSet>().as_ref() == Ok(&to)) {
                continue;
            }
            let to = LinuxResources { cpuset_cpus: Some(to.to_string()), ..LinuxResources::default() };
            let updated = self.update(&id, to).await;
            updated.map_err(SyncError::runtime("moving a container to other CPUs"))?;
            moved = true;
        }
        Ok(moved)
    }
}
