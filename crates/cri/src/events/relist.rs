//! The differences between two lists. The module is pure.

use std::collections::BTreeMap;

use plumb_runtime::types::{ContainerChange, ContainerId, ContainerState, SandboxId, SandboxState};

/// The states of all containers and sandboxes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Listing {
    pub(super) containers: BTreeMap<ContainerId, (SandboxId, ContainerState)>,
    pub(super) sandboxes: BTreeMap<SandboxId, SandboxState>,
}

/// A difference between two lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// A container was created, started, stopped or deleted.
    Container { id: ContainerId, sandbox: SandboxId, change: ContainerChange },
    /// A sandbox cannot run containers any more.
    SandboxNotReady,
}

/// The differences from one list to the next.
pub(super) fn changes(before: &Listing, now: &Listing) -> Vec<Change> {
    let of = |(id, sandbox): (&ContainerId, &SandboxId), change| Change::Container {
        id: id.clone(),
        sandbox: sandbox.clone(),
        change,
    };
    let mut changes = Vec::new();
    for (id, (sandbox, state)) in &now.containers {
        let was = before.containers.get(id).map(|(_, state)| *state);
        if was == Some(*state) {
            continue;
        }
        let change = match state {
            ContainerState::Created => ContainerChange::Created,
            ContainerState::Running => ContainerChange::Started,
            // The shim of a container in the state unknown has ended, and so has the container.
            ContainerState::Exited | ContainerState::Unknown => ContainerChange::Stopped,
        };
        changes.push(of((id, sandbox), change));
    }
    for (id, (sandbox, state)) in &before.containers {
        if now.containers.contains_key(id) {
            continue;
        }
        if *state == ContainerState::Running {
            changes.push(of((id, sandbox), ContainerChange::Stopped));
        }
        changes.push(of((id, sandbox), ContainerChange::Deleted));
    }
    let was_ready = |id: &SandboxId| before.sandboxes.get(id) == Some(&SandboxState::Ready);
    let is_ready = |id: &SandboxId| now.sandboxes.get(id) == Some(&SandboxState::Ready);
    if before.sandboxes.keys().any(|id| was_ready(id) && !is_ready(id)) {
        changes.push(Change::SandboxNotReady);
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(containers: &[(&str, ContainerState)], ready: bool) -> Listing {
        let state = if ready { SandboxState::Ready } else { SandboxState::NotReady };
        Listing {
            containers: containers.iter().map(|(id, state)| ((*id).into(), ("s".into(), *state))).collect(),
            sandboxes: [("s".into(), state)].into(),
        }
    }

    #[test]
    fn each_change_of_state_is_an_event() {
        use ContainerChange::{Created, Deleted, Started, Stopped};
        use ContainerState::{Exited, Running, Unknown};
        let table = [
            ("nothing", vec![("a", Running)], vec![("a", Running)], vec![]),
            ("a new one", vec![], vec![("a", ContainerState::Created)], vec![("a", Created)]),
            ("one that runs", vec![], vec![("a", Running)], vec![("a", Started)]),
            ("an exit", vec![("a", Running)], vec![("a", Exited)], vec![("a", Stopped)]),
            ("a lost shim", vec![("a", Running)], vec![("a", Unknown)], vec![("a", Stopped)]),
            ("an exit and a removal", vec![("a", Running)], vec![], vec![("a", Stopped), ("a", Deleted)]),
            ("a removal", vec![("a", Exited)], vec![], vec![("a", Deleted)]),
        ];
        for (what, before, now, expected) in table {
            let expected: Vec<_> = expected
                .into_iter()
                .map(|(id, change)| Change::Container { id: id.into(), sandbox: "s".into(), change })
                .collect();
            assert_eq!(changes(&listing(&before, true), &listing(&now, true)), expected, "{what}");
        }
    }

    #[test]
    fn a_sandbox_that_is_not_ready_any_more_shows() {
        assert_eq!(changes(&listing(&[], true), &listing(&[], false)), [Change::SandboxNotReady]);
        assert_eq!(changes(&listing(&[], false), &listing(&[], false)), []);
        assert_eq!(changes(&listing(&[], true), &Listing::default()), [Change::SandboxNotReady]);
    }
}
