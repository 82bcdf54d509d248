//! Ephemeral containers: added to a pod that runs, started once, never restarted, and without resources of their own.
//!
//! They are no part of the pod's shape: they have no allocation, and the pod's phase does not depend on them. They
//! end with the pod's sandbox.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::EphemeralContainer;
use plumb_resize::resource::Requirements;
use plumb_runtime::types::{ContainerConfig, ContainerId, Image, SandboxId};

use super::Worker;
use super::act::{StartFailure, note_failure};
use super::error::GenerateError;
use super::image::needs_image;
use super::start_backoff::BackoffKey;
use crate::cri_config;
use crate::events::Kind;
use crate::lifecycle::{ObservedContainer, State, containers, ephemeral};
use crate::readback;
use crate::status::{Waiting, has_run};

impl Worker {
    fn ephemeral_containers(&self) -> impl Iterator<Item = &EphemeralContainer> {
        self.pod.spec.iter().flat_map(|spec| spec.ephemeral_containers.iter().flatten())
    }

    /// Starts the ephemeral containers that have not run yet. Whether any was, or could not be.
    pub(super) async fn start_ephemeral(&mut self) -> bool {
        let Some(sandbox) = self.observation.observed.sandbox.as_ref().filter(|sandbox| sandbox.ready) else {
            return false;
        };
        let sandbox = sandbox.id.clone();
        let due: Vec<EphemeralContainer> =
            self.ephemeral_containers().filter(|container| self.is_due(container)).cloned().collect();
        let mut done = false;
        for container in due {
            done |= match self.try_ephemeral(&sandbox, &container).await {
                Ok(started) => started,
                Err(failed) => {
                    self.ephemeral_not_started(&container, failed);
                    true
                }
            };
        }
        done
    }

    /// Whether a container has yet to be started, and may be by now.
    fn is_due(&self, container: &EphemeralContainer) -> bool {
        let name = &container.name;
        let observed = self.observation.observed.ephemeral.get(name);
        // One that a runtime has lost was started: it is not a second time.
        let statuses =
            self.pod.status.iter().flat_map(|status| status.ephemeral_container_statuses.iter().flatten());
        let ran = statuses.into_iter().any(|status| status.name == *name && has_run(status));
        let failure = self.ephemeral_backoffs.get(name).and_then(|backoff| backoff.failure());
        observed.is_none_or(|observed| observed.state == State::Created)
            && !ran
            && failure.is_none_or(|(_, until)| until <= (self.node.clock)())
    }

    /// Creates and starts a container. False if its image is being pulled.
    async fn try_ephemeral(
        &mut self,
        sandbox: &SandboxId,
        container: &EphemeralContainer,
    ) -> Result<bool, StartFailure> {
        let created = self.observation.observed.ephemeral.get(&container.name);
        let id = if let Some(created) = created {
            created.id.clone()
        } else {
            // The pull sends a message when it is done.
            let Some(image) = self.image(&ephemeral(container)).await? else { return Ok(false) };
            let config = self.generate_ephemeral_config(container, &image).await;
            self.create_with(sandbox, &container.name, config).await?
        };
        if let Err(error) = self.node.runtime.start_container(&id).await {
            if let Err(also) = self.node.runtime.remove_container(&id).await {
                tracing::warn!(uid = self.uid, container = %id, error = %also, "cannot remove a container that did not start");
            }
            return Err(StartFailure::new("RunContainerError", error));
        }
        self.ephemeral_backoffs.remove(&container.name);
        let (name, message) = (&container.name, "Container started");
        self.node.events.container(&self.pod, name, Kind::Normal, "Started", message);
        Ok(true)
    }

    async fn generate_ephemeral_config(
        &self,
        container: &EphemeralContainer,
        image: &Image,
    ) -> Result<ContainerConfig, GenerateError> {
        let pod = self.allocated_pod();
        let mut resources = readback::container_cgroup(&Requirements::default());
        let (shape, allocated) = (&self.info.shape, &self.entry.allocation.allocated);
        // It has no requests, like a position that the pod does not have.
        let score = cri_config::oom_score_adj(&self.pod, shape, allocated, usize::MAX, self.node.memory);
        resources.oom_score_adj = Some(score);
        let mut config = self.container_config(&pod, &ephemeral(container), 0, resources, image).await?;
        config.pid_target = self.pid_target(container)?;
        Ok(config)
    }

    /// The running container whose processes this one is to see.
    fn pid_target(&self, container: &EphemeralContainer) -> Result<Option<ContainerId>, GenerateError> {
        let name = container.target_container_name.as_deref().unwrap_or_default();
        if name.is_empty() {
            return Ok(None);
        }
        let position = self.pod.spec.iter().flat_map(containers).position(|own| own.name == name);
        let observed = &self.observation.observed;
        let target = match position {
            Some(position) => observed.containers.get(position).and_then(Option::as_ref),
            None => observed.ephemeral.get(name),
        };
        let target = target.filter(|target| target.runs());
        target.map(|target: &ObservedContainer| Some(target.id.clone())).ok_or_else(|| {
            GenerateError::NoTarget { container: name.to_owned(), pod: self.info.name.clone() }
        })
    }

    /// Notes that a container could not be started; it is tried again after a backoff.
    fn ephemeral_not_started(&mut self, container: &EphemeralContainer, failed: StartFailure) {
        let image = container.image.clone().unwrap_or_default();
        // Ephemeral containers have no resources.
        let key = BackoffKey { image, ..BackoffKey::default() };
        let backoff = self.ephemeral_backoffs.entry(container.name.clone()).or_default();
        note_failure(&self.node, &self.pod, &container.name, key, failed, Some(backoff));
    }

    /// Notes that an image could not be pulled, of all containers that wait for it.
    pub(super) fn ephemeral_not_pulled(&mut self, image: &str, failed: impl Fn() -> StartFailure) {
        let waits = |container: &&EphemeralContainer| {
            needs_image(&self.pod, &ephemeral(container), image)
                && !self.observation.observed.ephemeral.contains_key(&container.name)
        };
        let waiting: Vec<EphemeralContainer> = self.ephemeral_containers().filter(waits).cloned().collect();
        for container in waiting {
            self.ephemeral_not_started(&container, failed());
        }
    }

    /// When the next one is retried. One that was due at `now` waits for another event: a pull, or the end of the
    /// pod.
    pub(super) fn next_ephemeral(&self, now: Timestamp) -> Option<Timestamp> {
        let retries = self.ephemeral_backoffs.values().filter_map(|backoff| Some(backoff.failure()?.1));
        retries.filter(|at| *at > now).min()
    }

    /// Why containers have not been started, by name.
    pub(super) fn ephemeral_waiting(&self) -> BTreeMap<String, Waiting> {
        let failures = self.ephemeral_backoffs.iter();
        failures.filter_map(|(name, backoff)| Some((name.clone(), backoff.failure()?.0.clone()))).collect()
    }
}
