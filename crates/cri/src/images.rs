//! The images of the runtime, and which of them must not be removed.

use plumb_runtime::image::normalise;
use plumb_runtime::types::Image;
use plumb_runtime::{Error, Result};
use serde_json::Value;

use crate::runtime::{About, unless_missing};
use crate::{State, api, convert};

/// The image of the workload that is on every node (`plumb_runtime::image::Load`).
const LOAD: &str = "plumb/load";

impl State {
    /// An image by its name or id, if the runtime has it.
    pub(crate) async fn image(&self, name: &str) -> Result<Option<Image>> {
        let request = api::ImageRequest { image: Some(name.into()) };
        let about = About { doing: "reading", what: "image", id: name };
        let response: api::ImageStatusResponse =
            self.call_images("/runtime.v1.ImageService/ImageStatus", request, about).await?;
        Ok(response.image.map(|image| to_image(image, None)))
    }

    /// All images, including those that other users of the runtime have pulled.
    pub(crate) async fn list_images(&self) -> Result<Vec<Image>> {
        let about = About { doing: "listing images", what: "image", id: "" };
        let response: api::ListImagesResponse =
            self.call_images("/runtime.v1.ImageService/ListImages", api::Empty {}, about).await?;
        let sandbox = self.sandbox_image().await.unwrap_or_else(|error| {
            tracing::debug!(%error, "the container runtime does not report its sandbox image");
            None
        });
        Ok(response.images.into_iter().map(|image| to_image(image, sandbox.as_deref())).collect())
    }

    /// Removes an image that no container uses.
    pub(crate) async fn remove_image(&self, name: &str) -> Result<()> {
        let Some(found) = self.image(name).await? else { return Ok(()) };
        // The runtime would remove an image that containers use, including those of other clusters.
        let about = About { doing: "listing containers", what: "container", id: "" };
        let all: api::ListContainersResponse = self
            .call("/runtime.v1.RuntimeService/ListContainers", api::ListContainersRequest::default(), about)
            .await?;
        let uses =
            |container: &api::Container| container.image_ref == found.id || container.image_id == found.id;
        let used = all.containers.iter().any(uses);
        let sandbox = self.sandbox_image().await?;
        let is_sandbox = sandbox.is_some_and(|sandbox| found.tags.contains(&sandbox));
        if used || is_sandbox || found.pinned {
            let why = if used {
                "is used by containers"
            } else if is_sandbox {
                "is that of sandboxes"
            } else {
                "is part of plumb"
            };
            return Err(Error::FailedPrecondition(format!("image {name} {why}")));
        }
        let request = api::ImageRequest { image: Some(name.into()) };
        let about = About { doing: "removing", what: "image", id: name };
        let removed = self.call_images::<api::Empty>("/runtime.v1.ImageService/RemoveImage", request, about);
        unless_missing(removed.await)
    }

    /// The image of sandboxes, if the runtime reports it. No container uses it, but without it no pod starts. Newer runtimes
    /// report that it is pinned.
    async fn sandbox_image(&self) -> Result<Option<String>> {
        let about = About { doing: "asking for the configuration", what: "runtime", id: "" };
        let request = api::StatusRequest { verbose: true };
        let response: api::StatusResponse =
            self.call("/runtime.v1.RuntimeService/Status", request, about).await?;
        Ok(response.info.get("config").and_then(|config| sandbox_image(config)))
    }
}

/// Reads the image of sandboxes from the configuration that containerd reports.
fn sandbox_image(config: &str) -> Option<String> {
    let config: Value = serde_json::from_str(config).ok()?;
    config.get("sandboxImage").and_then(Value::as_str).filter(|name| !name.is_empty()).map(normalise)
}

/// Converts an image. Plumb's own image and that of sandboxes are pinned: they must not be garbage collected, and the former
/// cannot be pulled.
fn to_image(image: api::Image, sandbox: Option<&str>) -> Image {
    let mut image = convert::image(image);
    let load = normalise(LOAD);
    image.pinned |= image.tags.iter().any(|tag| *tag == load || Some(tag.as_str()) == sandbox);
    image
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_of_sandboxes_is_pinned_and_so_is_ours() {
        let sandbox = sandbox_image(r#"{"sandboxImage":"pause:3.9","drainExecSyncIOTimeout":"0s"}"#);
        assert_eq!(sandbox.as_deref(), Some("docker.io/library/pause:3.9"));
        let table = [
            ("docker.io/library/pause:3.9", true),
            ("docker.io/library/pause:3.8", false),
            ("docker.io/plumb/load:latest", true),
        ];
        for (tag, pinned) in table {
            let image = api::Image { repo_tags: vec![tag.to_owned()], ..api::Image::default() };
            assert_eq!(to_image(image, sandbox.as_deref()).pinned, pinned, "{tag}");
        }
        for none in ["", "{}", r#"{"sandboxImage":""}"#, r#"{"sandboxImage":1}"#] {
            assert_eq!(sandbox_image(none), None, "{none}");
        }
    }
}
