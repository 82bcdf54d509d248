//! Keeping containers on the cpus that they are to run on.

use plumb_resize::aggregate::Role;
use plumb_runtime::types::LinuxResources;

use super::Worker;
use crate::cpus::{CpuSet, all_assigned};

impl Worker {
    /// The cpus that a container is to run on; none where that is left to the kernel.
    pub(super) fn cpus(&self, position: usize) -> Option<CpuSet> {
        let shared = self.node.allocations.shared_cpus()?;
        let assigned = &self.entry.cpus;
        let part = self.info.shape.containers.get(position)?;
        let own = match part.role {
            // It runs before the others do, on what those have.
            Role::Init => Some(all_assigned(assigned)).filter(|all| !all.is_empty()),
            Role::Main | Role::Sidecar => assigned.get(&part.name).cloned(),
        };
        Some(own.unwrap_or_else(|| CpuSet::clone(&shared)))
    }

    /// Moves the containers that run elsewhere than they are to; whether there were any.
    pub(super) async fn pin(&mut self) -> Result<bool, String> {
        let mut moved = false;
        for position in 0..self.info.shape.containers.len() {
            let seen = self.looked.seen.containers.get(position).and_then(Option::as_ref);
            let Some(id) = seen.filter(|seen| seen.runs()).map(|seen| seen.id.clone()) else { continue };
            let Some(to) = self.cpus(position) else { return Ok(false) };
            let on = self.looked.cpus.get(position).and_then(Option::as_deref);
            // A runtime that does not say where it runs cannot tell it where to.
            if on.is_none_or(|on| on.parse::<CpuSet>().as_ref() == Ok(&to)) {
                continue;
            }
            let to = LinuxResources { cpuset_cpus: Some(to.to_string()), ..LinuxResources::default() };
            let updated = self.update(&id, to).await;
            updated.map_err(|error| format!("moving a container to other cpus: {error}"))?;
            moved = true;
        }
        Ok(moved)
    }
}
