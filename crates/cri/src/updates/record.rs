//! The state of one container's updates.

use parking_lot::Mutex;
use plumb_runtime::cgroup::Group;
use plumb_runtime::types::{LinuxResources, SandboxId};
use plumb_runtime::{Confirmation, Error};

use super::journal::Entry;

/// The record of a container.
#[derive(Debug, Default)]
pub(super) struct Record {
    /// Locked while the cgroup changes: by an update, and while the runtime executes one.
    pub(super) turn: tokio::sync::Mutex<Turn>,
    state: Mutex<RecordState>,
}

/// The state that the lock of the cgroup protects.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// Whether the runtime rejected the last update. The next one goes to the runtime first.
    pub(super) runtime_first: bool,
}

#[derive(Debug, Default)]
struct RecordState {
    /// The sandbox and the cgroup of the container, once they are known.
    sandbox: Option<SandboxId>,
    group: Option<Group>,
    /// The resources that this process created the container with, updated by those that it has written since.
    written: Option<LinuxResources>,
    unconfirmed: Option<Unconfirmed>,
}

/// An update that the runtime has yet to confirm.
#[derive(Clone, Debug)]
pub(super) struct Unconfirmed {
    pub(super) resources: LinuxResources,
    /// The resources of the cgroup before the update.
    pub(super) before: LinuxResources,
    /// Why the last attempt failed.
    error: Option<Error>,
}

impl Record {
    /// Sets the sandbox and the cgroup of the container.
    pub(super) fn set_location(&self, sandbox: SandboxId, group: Group) {
        let mut state = self.state.lock();
        state.sandbox = Some(sandbox);
        state.group = Some(group);
    }

    /// Sets the resources that the container is created with.
    pub(super) fn create(&self, resources: LinuxResources) {
        self.state.lock().written.get_or_insert(resources);
    }

    /// The sandbox of the container; an empty id if it is not known.
    pub(super) fn sandbox(&self) -> SandboxId {
        self.state.lock().sandbox.clone().unwrap_or_else(|| "".into())
    }

    /// The cgroup of the container, if it is known, and the resources that this process has written.
    pub(super) fn applied(&self) -> Option<(Group, Option<LinuxResources>)> {
        let state = self.state.lock();
        Some((state.group.clone()?, state.written.clone()))
    }

    /// The resources that this process created the container with, updated by those that it has written since.
    pub(super) fn written(&self) -> Option<LinuxResources> {
        self.state.lock().written.clone()
    }

    pub(super) fn unconfirmed(&self) -> Option<Unconfirmed> {
        self.state.lock().unconfirmed.clone()
    }

    pub(super) fn confirmation(&self) -> Confirmation {
        match &self.state.lock().unconfirmed {
            None => Confirmation::Confirmed,
            Some(Unconfirmed { error: None, .. }) => Confirmation::Awaited,
            Some(Unconfirmed { error: Some(error), .. }) => Confirmation::Failing(error.clone()),
        }
    }

    /// Merges an update with the unconfirmed ones.
    pub(super) fn merged_with_unconfirmed(&self, update: &LinuxResources) -> LinuxResources {
        let unconfirmed = self.unconfirmed().map(|unconfirmed| unconfirmed.resources);
        merged(unconfirmed.as_ref(), update)
    }

    /// Records an update that was written. Returns whether no other update is unconfirmed.
    pub(super) fn apply(&self, update: &LinuxResources, before: LinuxResources) -> bool {
        let mut state = self.state.lock();
        state.written = Some(merged(state.written.as_ref(), update));
        if let Some(unconfirmed) = &mut state.unconfirmed {
            unconfirmed.resources = merged(Some(&unconfirmed.resources), update);
            return false;
        }
        state.unconfirmed = Some(Unconfirmed { resources: update.clone(), before, error: None });
        true
    }

    /// Restores an update from the journal.
    pub(super) fn resume(&self, entry: Entry) {
        let Entry { sandbox, resources, before } = entry;
        let mut state = self.state.lock();
        state.sandbox = Some(sandbox);
        state.written = Some(resources.clone());
        state.unconfirmed = Some(Unconfirmed { resources, before, error: None });
    }

    /// Records that the attempt to confirm the update failed.
    pub(super) fn fail(&self, error: Error) {
        if let Some(unconfirmed) = &mut self.state.lock().unconfirmed {
            unconfirmed.error = Some(error);
        }
    }

    /// Records that the runtime has confirmed all updates.
    pub(super) fn confirm(&self) {
        self.state.lock().unconfirmed = None;
    }

    /// Records that the cgroup was restored.
    pub(super) fn restored(&self, to: LinuxResources) {
        self.state.lock().written = Some(to);
    }
}

/// Merges two updates: settings that the later one does not change come from the earlier one.
fn merged(earlier: Option<&LinuxResources>, later: &LinuxResources) -> LinuxResources {
    let Some(earlier) = earlier.cloned() else { return later.clone() };
    let later = later.clone();
    let mut unified = earlier.unified;
    unified.extend(later.unified);
    LinuxResources {
        cpu_period: later.cpu_period.or(earlier.cpu_period),
        cpu_quota: later.cpu_quota.or(earlier.cpu_quota),
        cpu_shares: later.cpu_shares.or(earlier.cpu_shares),
        memory_limit: later.memory_limit.or(earlier.memory_limit),
        memory_swap_limit: later.memory_swap_limit.or(earlier.memory_swap_limit),
        memory_high: later.memory_high.or(earlier.memory_high),
        oom_score_adj: later.oom_score_adj.or(earlier.oom_score_adj),
        cpuset_cpus: later.cpuset_cpus.or(earlier.cpuset_cpus),
        cpuset_mems: later.cpuset_mems.or(earlier.cpuset_mems),
        pids_limit: later.pids_limit.or(earlier.pids_limit),
        hugepage_limits: if later.hugepage_limits.is_empty() {
            earlier.hugepage_limits
        } else {
            later.hugepage_limits
        },
        unified,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(shares: u64) -> LinuxResources {
        LinuxResources { cpu_shares: Some(shares), ..LinuxResources::default() }
    }

    #[test]
    fn updates_that_wait_are_one_and_the_first_cgroup_is_what_a_refusal_restores() {
        let record = Record::default();
        assert_eq!(record.confirmation(), Confirmation::Confirmed);
        assert!(record.apply(&shares(512), shares(2)));
        let memory = LinuxResources { memory_limit: Some(64), ..LinuxResources::default() };
        assert!(!record.apply(&memory, shares(512)));
        assert!(!record.apply(&shares(768), shares(512)));
        let unconfirmed = record.unconfirmed().unwrap();
        let all = LinuxResources { memory_limit: Some(64), ..shares(768) };
        assert_eq!((unconfirmed.resources, unconfirmed.before), (all, shares(2)));
        assert_eq!(record.confirmation(), Confirmation::Awaited);
    }

    #[test]
    fn an_update_without_a_response_fails_until_it_is_confirmed() {
        let record = Record::default();
        record.apply(&shares(512), shares(2));
        let error = Error::Unavailable("gone".into());
        record.fail(error.clone());
        assert_eq!(record.confirmation(), Confirmation::Failing(error));
        record.confirm();
        assert_eq!(record.confirmation(), Confirmation::Confirmed);
    }
}
