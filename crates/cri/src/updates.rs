//! Changes of containers' resources: written to the cgroup of a container, where it is found, and then sent to the runtime.
//!
//! A runtime starts a program that writes a few files (`runc update`), which takes several times as long as all the rest of
//! a resize. The files are known, so they are written first, and the runtime writes the same values a moment later.
//!
//! ```text
//!   update ─▶ the container's turn ─▶ write its cgroup ─▶ return
//!                                            └┄┄▶ UpdateContainerResources ─▶ the turn is over
//!                                                   ├─ refused: restore the cgroup, have workers look at it again
//!                                                   └─ no response: the cgroup has it
//! ```
//!
//! After either failure the runtime is asked before the next change of that container is written, so that the caller gets
//! its error.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use plumb_runtime::cgroup::Group;
use plumb_runtime::types::{ContainerId, Event, LinuxResources, Resources};
use plumb_runtime::{Error, Result};
use tokio::sync::OwnedMutexGuard;

use crate::runtime::{blocking, container};
use crate::{State, api, convert};

/// The turns of containers.
#[derive(Debug, Default)]
pub(crate) struct Updates {
    turns: Mutex<HashMap<ContainerId, Arc<tokio::sync::Mutex<Turn>>>>,
}

/// A container's turn: one change at a time, until the runtime has responded.
#[derive(Debug, Default)]
struct Turn {
    /// Its cgroup, once it was found.
    group: Option<Group>,
    /// The runtime did not take the last change.
    asks_first: bool,
}

impl Updates {
    fn turn(&self, id: &ContainerId) -> Arc<tokio::sync::Mutex<Turn>> {
        self.turns.lock().entry(id.clone()).or_default().clone()
    }

    /// Forgets a container that was removed.
    pub(crate) fn remove(&self, id: &ContainerId) {
        self.turns.lock().remove(id);
    }
}

impl State {
    /// Changes resources of a container.
    pub(crate) async fn update_container(
        self: &Arc<Self>,
        id: &ContainerId,
        resources: &Resources,
    ) -> Result<()> {
        let mut turn = self.updates.turn(id).lock_owned().await;
        let request = request(id, resources);
        let group = match resources {
            Resources::Linux(_) if !turn.asks_first => self.group_of(&mut turn, id).await,
            _ => None,
        };
        let (Some(group), Some(to)) = (group, resources.linux().cloned()) else {
            let updated = self.send_update(id, request).await;
            turn.asks_first = updated.is_err();
            return updated;
        };
        let written = group.clone();
        let before = blocking(move || {
            let before = written.read()?;
            written.set(&to)?;
            Ok(before)
        })
        .await?;
        // In a task of its own: it goes on when the caller has what it wanted.
        tokio::spawn(self.clone().inform(turn, id.clone(), request, (group, before)));
        Ok(())
    }

    /// The cgroup of a container that exists.
    async fn group_of(&self, turn: &mut Turn, id: &ContainerId) -> Option<Group> {
        if turn.group.is_none() {
            let status = self.status_of(id).await.ok()?;
            turn.group = self.cgroups.container(id.as_str(), &status.annotations);
        }
        turn.group.clone().filter(Group::exists)
    }

    /// Sends the runtime a change that is in the cgroup already.
    async fn inform(
        self: Arc<Self>,
        mut turn: OwnedMutexGuard<Turn>,
        id: ContainerId,
        request: api::UpdateContainerResourcesRequest,
        (group, before): (Group, LinuxResources),
    ) {
        let error = match self.send_update(&id, request).await {
            Ok(()) => return,
            Err(error) if error.is_not_found() => return,
            Err(error) => error,
        };
        turn.asks_first = true;
        if error.outcome_unknown() {
            tracing::warn!(container = %id, %error, "the container runtime may not know of new resources");
            return;
        }
        tracing::warn!(container = %id, %error, "the container runtime refuses new resources");
        if let Err(error) = blocking(move || Ok(group.set(&before)?)).await {
            tracing::warn!(container = %id, %error, "resources that the container runtime refused stay");
        }
        self.send(Event::Missed(1));
    }

    async fn send_update(
        &self,
        id: &ContainerId,
        request: api::UpdateContainerResourcesRequest,
    ) -> Result<(), Error> {
        let about = container("updating the resources of", id);
        let path = "/runtime.v1.RuntimeService/UpdateContainerResources";
        let _: api::Empty = self.call(path, request, about).await?;
        Ok(())
    }
}

/// `linux` is always set. Empty, a runtime for Windows ignores it, and one for Linux leaves all as it is.
fn request(id: &ContainerId, resources: &Resources) -> api::UpdateContainerResourcesRequest {
    let (linux, windows) = match resources {
        Resources::Linux(resources) => (convert::updated_resources(resources), None),
        Resources::Windows(resources) => {
            (api::LinuxContainerResources::default(), Some(convert::windows(resources)))
        }
    };
    api::UpdateContainerResourcesRequest { container_id: id.to_string(), linux: Some(linux), windows }
}
