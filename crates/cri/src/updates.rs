//! Updates of containers' resources: the node agent writes them to the cgroup of a container, and then sends them to the
//! runtime.
//!
//! The runtime executes a program that writes a few files (`runc update`). That takes several times as long as the rest of a
//! resize, and containerd 1.6 responds to no other call about the container meanwhile. So the node agent writes the files
//! itself first, and the runtime writes the same values a moment later.
//!
//! ```text
//!   update ─▶ lock the container ─▶ write its cgroup ─▶ unlock, return: Unconfirmed
//!                                                            ┆
//!   queue ─▶ a permit ─▶ lock the container ─▶ UpdateContainerResources ─▶ unlock
//!                                                ├─ done: Confirmed
//!                                                ├─ rejected: restore the cgroup; the next update goes to the runtime first
//!                                                └─ no response: Failing, retried with backoff
//! ```
//!
//! A journal has the unconfirmed updates, so that an agent that was killed sends them after its restart.
//!
//! If the runtime rejects an update, the caller observes in the cgroup that it was reverted, retries it, and gets the runtime's
//! error. Updates that wait in the queue are merged, so that the runtime gets the latest values only.

mod journal;
mod queue;
mod record;

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use plumb_runtime::cgroup::Group;
use plumb_runtime::types::{ContainerId, Event, LinuxResources, Resources};
use plumb_runtime::{Error, Result};
use plumb_supervise::Exponential;

use crate::cgroups::read;
use crate::names::SANDBOX;
use crate::runtime::{blocking, container};
use crate::{State, api, convert};
use journal::Entry;
pub(crate) use queue::Updates;
use record::{Record, Unconfirmed};

/// The backoff while the runtime does not respond.
const DELAYS: Exponential = Exponential::new(Duration::from_millis(100), Duration::from_secs(10));

/// Sends queued updates to the runtime until the task is aborted.
pub(crate) async fn confirm(state: Arc<State>) {
    let mut confirming = FuturesUnordered::new();
    state.updates.queue_unconfirmed();
    loop {
        tokio::select! {
            id = state.updates.next() => confirming.push(state.confirm(id)),
            Some(()) = confirming.next(), if !confirming.is_empty() => {}
        }
    }
}

impl State {
    /// Updates the resources of a container.
    pub(crate) async fn update_container(&self, id: &ContainerId, resources: &Resources) -> Result<()> {
        let record = self.updates.record(id);
        let mut turn = record.turn.lock().await;
        let linux = match resources {
            Resources::Linux(linux) => linux,
            Resources::Windows(_) => return self.send_update(id, request(id, resources)).await,
        };
        let group = if turn.runtime_first { None } else { self.group_of(id, &record).await };
        let before = match group {
            Some(group) => self.write(id, &record, group, linux.clone()).await?,
            None => None,
        };
        let Some(before) = before else {
            // Includes the unconfirmed updates, for which no other call is made.
            let all = record.merged_with_unconfirmed(linux).into();
            let updated = self.send_update(id, request(id, &all)).await;
            turn.runtime_first = updated.is_err();
            if updated.is_ok() {
                self.updates.confirm(id, &record);
            }
            return updated;
        };
        if record.apply(linux, before) {
            self.updates.queue(id.clone());
        }
        Ok(())
    }

    /// Writes an update to the journal and to the cgroup of a container. Returns the previous resources of the cgroup; `None` if
    /// it does not exist any more, because the container is exiting. Then the update is left to the runtime.
    async fn write(
        &self,
        id: &ContainerId,
        record: &Record,
        group: Group,
        to: LinuxResources,
    ) -> Result<Option<LinuxResources>> {
        let id = id.clone();
        let journal = self.updates.journal().clone();
        let sandbox = record.sandbox();
        let earlier = record.unconfirmed();
        let resources = record.merged_with_unconfirmed(&to);
        blocking(move || {
            let before = match group.read() {
                Err(error) if error.is_missing() => return Ok(None),
                before => before?,
            };
            let first = earlier.as_ref().map_or(&before, |earlier| &earlier.before).clone();
            journal.write(&id, &Entry { sandbox: sandbox.clone(), resources, before: first })?;
            let Err(error) = group.set(&to) else { return Ok(Some(before)) };
            // Some of the files may have been written.
            if let Err(error) = group.set(&before)
                && !error.is_missing()
            {
                tracing::warn!(container = %id, %error, "cannot restore all resources after a failed update");
            }
            match earlier {
                Some(Unconfirmed { resources, before, .. }) => {
                    journal.write(&id, &Entry { sandbox, resources, before })?;
                }
                None => journal.remove(&id),
            }
            if error.is_missing() { Ok(None) } else { Err(error.into()) }
        })
        .await
    }

    /// The actual resources of a container whose cgroup is known, without a call.
    pub(crate) fn resources_of(&self, id: &ContainerId) -> Option<LinuxResources> {
        let (group, written) = self.updates.get(id)?.applied()?;
        read(&group, written.as_ref())
    }

    /// Remembers the resources that a container is created with: on cgroup v2 the shares cannot be derived from the weight, and
    /// containerd 1.6 does not report them.
    pub(crate) fn remember_created(&self, id: &ContainerId, resources: &Resources) {
        if let Some(linux) = resources.linux() {
            self.updates.record(id).create(linux.clone());
        }
    }

    /// The resources that this process created a container with, updated by those that it has written to the cgroup since.
    pub(crate) fn known_resources(&self, id: &ContainerId) -> Option<LinuxResources> {
        self.updates.get(id)?.written()
    }

    /// Remembers the cgroup of a container from its status.
    pub(crate) fn remember(&self, id: &ContainerId, status: &api::ContainerStatus) -> Option<Group> {
        let group = self.cgroups.container(id.as_str(), &status.annotations)?;
        let sandbox = status.annotations.get(SANDBOX).map(String::as_str).unwrap_or_default();
        self.updates.record(id).set_location(sandbox.into(), group.clone());
        Some(group)
    }

    /// The cgroup of a container, if it exists.
    async fn group_of(&self, id: &ContainerId, record: &Record) -> Option<Group> {
        let known = record.applied().map(|(group, _)| group);
        let group = match known {
            Some(group) => group,
            None => self.remember(id, &self.status_of(id).await.ok()?)?,
        };
        Some(group).filter(Group::exists)
    }

    /// Sends an update that is already in the cgroup to the runtime, until it responds.
    async fn confirm(&self, id: ContainerId) {
        let mut failures = 0_u32;
        while let Some(record) = self.updates.get(&id) {
            let permit = self.updates.permit().await;
            let mut turn = record.turn.lock().await;
            let Some(Unconfirmed { resources, before, .. }) = record.unconfirmed() else { return };
            let updated = self.send_update(&id, request(&id, &resources.into())).await;
            match updated {
                Err(error) if error.outcome_unknown() => {
                    tracing::warn!(container = %id, %error, "cannot confirm the container's new resources with the runtime");
                    record.fail(error);
                    failures = failures.saturating_add(1);
                }
                Err(error) if !error.is_not_found() => {
                    tracing::warn!(container = %id, %error, "the container runtime rejected new resources");
                    turn.runtime_first = true;
                    self.restore(&id, &record, before).await;
                    self.updates.confirm(&id, &record);
                    failures = 0;
                }
                // Nothing has to be confirmed for a container that was removed.
                Ok(()) | Err(_) => {
                    self.updates.confirm(&id, &record);
                    failures = 0;
                }
            }
            drop((turn, permit));
            let sandbox = record.sandbox();
            let container = id.clone();
            self.send(Event::UpdateFinished { sandbox, container });
            if failures == 0 {
                return;
            }
            tokio::time::sleep(DELAYS.after(failures)).await;
        }
    }

    /// Restores the cgroup of a container to what it was before an update.
    async fn restore(&self, id: &ContainerId, record: &Record, before: LinuxResources) {
        let Some(group) = self.group_of(id, record).await else { return };
        let to = before.clone();
        match blocking(move || Ok(group.set(&to)?)).await {
            Ok(()) => record.restored(before),
            Err(error) => {
                tracing::warn!(container = %id, %error, "cannot restore resources that the container runtime rejected");
            }
        }
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

/// Creates the request of an update. `linux` is always set: if it is empty, a runtime for Windows ignores it, and a runtime for
/// Linux changes nothing.
fn request(id: &ContainerId, resources: &Resources) -> api::UpdateContainerResourcesRequest {
    let (linux, windows) = match resources {
        Resources::Linux(resources) => (convert::updated_resources(resources), None),
        Resources::Windows(resources) => {
            (api::LinuxContainerResources::default(), Some(convert::windows(resources)))
        }
    };
    api::UpdateContainerResourcesRequest { container_id: id.to_string(), linux: Some(linux), windows }
}
