//! The images of containers: present, pulled, or the reason why not.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, ImageVolumeSource, Pod};
use plumb_oci::Reference;
use plumb_runtime::Error;
use plumb_runtime::types::Image;

use super::act::StartFailure;
use super::error::PullError;
use super::{Message, POD_WORKER, Worker};
use crate::events::Kind;
use crate::image_pulls::PulledWith;
use crate::lifecycle::{ObservedContainer, containers};
use crate::node::Node;
use crate::pull_secrets::PullSecrets;
use crate::status::Waiting;

/// The state of an image pull.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pull {
    /// It is being pulled.
    UnderWay,
    /// It was pulled for the next start.
    Done,
}

/// The result of a pull.
#[derive(Debug)]
pub(crate) struct Pulled {
    /// The container that it was pulled for first.
    container: String,
    image: String,
    outcome: Result<Success, PullError>,
}

#[derive(Debug)]
struct Success {
    /// How long it took.
    took: Duration,
    /// The size of the image, in bytes.
    size: u64,
}

impl Worker {
    /// The image of a container, if it and those of its volumes are on this node by now; none while one is being pulled.
    pub(super) async fn image(&mut self, container: &Container) -> Result<Option<Image>, StartFailure> {
        let policy = container.image_pull_policy.as_deref();
        let name = container.image.as_deref().unwrap_or_default();
        let mut image = self.ensure_image(container, name, policy).await?;
        for source in image_volumes(&self.pod, container) {
            let name = source.reference.as_deref().unwrap_or_default();
            if self.ensure_image(container, name, source.pull_policy.as_deref()).await?.is_none() {
                image = None;
            }
        }
        if image.is_some() {
            if !self.was_pulled(name) {
                let message = format!(
                    "Container image {name:?} already present on machine and can be accessed by the pod"
                );
                self.node.events.container(&self.pod, &container.name, Kind::Normal, "Pulled", message);
            }
            // The next start pulls an image again whose policy is `Always`.
            let volumes = image_volumes(&self.pod, container);
            let names = volumes.iter().filter_map(|source| source.reference.as_ref());
            for name in names.chain(&container.image) {
                if self.was_pulled(name) {
                    self.images.remove(name);
                }
            }
        }
        Ok(image)
    }

    /// An image, if it is on this node by now.
    async fn ensure_image(
        &mut self,
        container: &Container,
        name: &str,
        policy: Option<&str>,
    ) -> Result<Option<Image>, StartFailure> {
        let reference: Reference = name.parse().map_err(|error| {
            let message = format!(
                "Failed to apply default image tag {name:?}: couldn't parse image name {name:?}: {error}"
            );
            StartFailure::of_image("InvalidImageName", "InspectFailed", message)
        })?;
        let found = self.node.runtime.image_status(name).await.map_err(|error: Error| {
            let message = format!("Failed to inspect image {name:?}: {error}");
            StartFailure::of_image("ImageInspectError", "InspectFailed", message)
        })?;
        let is_usable = match &found {
            None => false,
            // An image that is part of Plumb is in no registry.
            Some(image) if image.pinned || self.was_pulled(name) => true,
            Some(_) if policy == Some("Always") => false,
            Some(image) => may_use(&self.node.clone(), &self.pod.clone(), &reference, &image.id).await,
        };
        match found.filter(|_| is_usable) {
            Some(image) => Ok(Some(image)),
            // One that the pod may not use is as if it were missing, so that the message does not say that it is there.
            None if policy == Some("Never") => {
                let advice = self.node.runtime.image_advice(name).map(|advice| format!("; {advice}"));
                let message = format!(
                    "Container image {name:?} is not present with pull policy of Never{}",
                    advice.unwrap_or_default()
                );
                Err(StartFailure::of_image("ErrImageNeverPull", "ErrImageNeverPull", message))
            }
            None => {
                self.pull(container, name.to_owned());
                Ok(None)
            }
        }
    }

    /// Whether an image was pulled for this start.
    fn was_pulled(&self, name: &str) -> bool {
        self.images.get(name) == Some(&Pull::Done)
    }

    /// Pulls an image in a task of its own.
    fn pull(&mut self, container: &Container, name: String) {
        if self.images.insert(name.clone(), Pull::UnderWay) == Some(Pull::UnderWay) {
            return;
        }
        let message = format!("Pulling image {name:?}");
        self.node.events.container(&self.pod, &container.name, Kind::Normal, "Pulling", message);
        let (node, pod, sender) = (self.node.clone(), self.pod.clone(), self.sender.clone());
        let container = container.name.clone();
        tokio::spawn(async move {
            let pulled = node.supervisor.guard(POD_WORKER, pull(&node, &pod, &name)).await;
            let outcome = pulled.unwrap_or_else(|panic| Err(panic.into()));
            // The worker may have ended.
            let _ = sender.send(Message::Pulled(Box::new(Pulled { container, image: name, outcome })));
        });
    }

    /// Handles the result of a pull.
    pub(super) fn handle_pulled(&mut self, pulled: Pulled) {
        let Pulled { container, image, outcome } = pulled;
        self.images.remove(&image);
        let error = match outcome {
            Ok(Success { took, size }) => {
                let took = plumb_go::duration::format_std(took);
                let message = format!(
                    "Successfully pulled image {image:?} in {took} ({took} including waiting). Image size: {size} bytes."
                );
                self.node.events.container(&self.pod, &container, Kind::Normal, "Pulled", message);
                self.images.insert(image, Pull::Done);
                return;
            }
            Err(error) => error,
        };
        let failed = || {
            let later = Waiting {
                reason: "ImagePullBackOff".to_owned(),
                message: format!("Back-off pulling image {image:?}: ErrImagePull: {error}"),
            };
            let message = format!("Failed to pull image {image:?}: {error}");
            StartFailure::of_image("ErrImagePull", "Failed", message).then(later)
        };
        self.ephemeral_not_pulled(&image, failed);
        for position in self.waiting_for(&image) {
            self.not_started(position, failed());
        }
    }

    /// The positions of the containers of an image that do not run.
    fn waiting_for(&self, image: &str) -> Vec<usize> {
        let runs = |position: usize| {
            let observed = self.observation.observed.containers.get(position).and_then(Option::as_ref);
            observed.is_some_and(ObservedContainer::runs)
        };
        let all = self.pod.spec.iter().flat_map(containers).enumerate();
        let of_image = all.filter(|(_, container)| needs_image(&self.pod, container, image));
        of_image.map(|(position, _)| position).filter(|position| !runs(*position)).collect()
    }
}

/// Whether a container cannot start without an image: its own, or that of a volume.
pub(super) fn needs_image(pod: &Pod, container: &Container, image: &str) -> bool {
    container.image.as_deref() == Some(image)
        || image_volumes(pod, container).iter().any(|volume| volume.reference.as_deref() == Some(image))
}

/// The images that a container sees as volumes.
fn image_volumes(pod: &Pod, container: &Container) -> Vec<ImageVolumeSource> {
    let mounted = |name: &str| container.volume_mounts.iter().flatten().any(|mount| mount.name == name);
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let images = volumes.filter(|volume| mounted(&volume.name)).filter_map(|volume| volume.image.clone());
    images.collect()
}

/// Whether a pod may use an image that is on this node without pulling it.
async fn may_use(node: &Node, pod: &Pod, image: &Reference, id: &str) -> bool {
    let secrets = async {
        match PullSecrets::read(&node.objects, pod).await {
            Ok(secrets) => {
                secrets.of_image(&image.to_string()).into_iter().map(|(secret, _)| secret).collect()
            }
            // The pull fails with the same error.
            Err(_) => Vec::new(),
        }
    };
    node.image_pulls.is_accessible(image, id, secrets).await
}

/// Pulls an image, and records with which secret.
async fn pull(node: &Arc<Node>, pod: &Arc<Pod>, image: &str) -> Result<Success, PullError> {
    let start = (node.clock)();
    let secrets = PullSecrets::read(&node.objects, pod).await?;
    if !secrets.missing.is_empty() {
        let message = format!(
            "Unable to retrieve some image pull secrets ({}); attempting to pull the image may not succeed.",
            secrets.missing.join(", ")
        );
        node.events.pod(pod, Kind::Warning, "FailedToRetrieveImagePullSecret", message);
    }
    let reference: Reference = image.parse()?;
    let (pulls, intended) = (node.image_pulls.clone(), reference.clone());
    tokio::task::spawn_blocking(move || pulls.begin(&intended))
        .await?
        .map_err(|source| PullError::Intent { image: image.to_owned(), source })?;
    let pulled = pull_with(node, image, &secrets).await;
    let status = node.runtime.image_status(image).await.ok().flatten();
    let (pulls, with) = (node.image_pulls.clone(), pulled.as_ref().ok().cloned());
    let id = status.as_ref().map(|image| image.id.clone());
    tokio::task::spawn_blocking(move || match (id, with) {
        (Some(id), Some(with)) => pulls.end(&reference, Some((&id, with))),
        // Without an id there is no record, and the intent stays.
        (None, Some(_)) => {}
        (_, None) => pulls.end(&reference, None),
    })
    .await?;
    pulled?;
    let took = Duration::try_from((node.clock)().duration_since(start)).unwrap_or_default();
    let size = status.map_or(0, |image| image.size);
    Ok(Success { took: Duration::from_millis(u64::try_from(took.as_millis()).unwrap_or(u64::MAX)), size })
}

/// Pulls an image with each of the pod's credentials for its registry until one is accepted, as the kubelet does, and returns
/// the secret that had them.
async fn pull_with(node: &Node, image: &str, secrets: &PullSecrets) -> Result<PulledWith, PullError> {
    let credentials = secrets.lookup(image);
    if credentials.is_empty() {
        let pulled = node.runtime.pull_image(image, None).await;
        pulled.map_err(|error| PullError::Runtime { errors: vec![error] })?;
        return Ok(PulledWith::Nothing);
    }
    let owners = secrets.of_image(image);
    let mut errors: Vec<Error> = Vec::new();
    for credentials in &credentials {
        match node.runtime.pull_image(image, Some(credentials)).await {
            Ok(_) => {
                let owner = owners.into_iter().find(|(_, own)| own == credentials);
                // There is one, since both are of the same secrets. If not, the empty secret is that of no pod.
                return Ok(PulledWith::Secret(owner.map(|(secret, _)| secret).unwrap_or_default()));
            }
            Err(error) => errors.push(error),
        }
    }
    Err(PullError::Runtime { errors })
}
