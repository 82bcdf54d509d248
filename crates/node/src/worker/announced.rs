//! Waiting for a resize that a pod announces together with a new image, see [`plumb_resize::announced`].

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use plumb_resize::announced::{self, Announced};

use super::Worker;

/// How long a restart for a new image waits for the resize. The client requests it right after the image: longer means that it has
/// crashed, or that it does not reach the API server.
const WAITS_FOR: SignedDuration = SignedDuration::from_secs(10);

/// The announcement that the worker has observed last.
#[derive(Debug, Default)]
pub(super) struct AnnouncedResize {
    text: String,
    containers: Announced,
    until: Timestamp,
}

impl AnnouncedResize {
    /// Observes the annotation of a pod.
    pub(super) fn observe(&mut self, pod: &Pod, now: Timestamp) {
        let text = announced::text(pod).unwrap_or_default();
        if text != self.text {
            *self = Self {
                text: text.to_owned(),
                // One that cannot be read announces nothing.
                containers: serde_json::from_str(text).unwrap_or_default(),
                until: now.checked_add(WAITS_FOR).unwrap_or(Timestamp::MAX),
            };
        }
    }
}

impl Worker {
    /// Until when each container, by position, waits for the announced resize before it is restarted for a new image.
    pub(super) fn resize_awaited(&self) -> Vec<Option<Timestamp>> {
        let outstanding = announced::outstanding(&self.pod, &self.announced.containers);
        let names = self.info.shape.containers.iter().map(|part| &part.name);
        names.map(|name| outstanding.contains(name).then_some(self.announced.until)).collect()
    }
}
