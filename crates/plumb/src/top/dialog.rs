//! The resize of a pod: what to change, what the API server says to it, and whether to do it.

use k8s_openapi::api::core::v1::Pod;
use plumb_controller_runtime::pods;
use plumb_resize::resource::Resource;
use plumb_vpa_explain::printable;

use super::event::{Effect, ResizeRequest};
use super::nodes;
use super::observed::Observed;
use super::table::Key;
use crate::reading;
use crate::resize::{self, Change};

/// A resize that the user is about to request.
#[derive(Debug)]
pub(super) struct Dialog {
    /// The pod and the container.
    pub(super) key: Key,
    pub(super) input: String,
    pub(super) step: Step,
}

/// How far it is.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// The user writes what to change; with what was wrong with it before.
    Editing { error: Option<String> },
    /// The API server is asked what it would do.
    Checking(ResizeRequest),
    /// The API server would accept it: these are the changes. The user decides.
    Confirming { request: ResizeRequest, preview: Vec<String> },
    /// It is requested.
    Requested(ResizeRequest),
}

impl Dialog {
    pub(super) fn new(key: Key) -> Self {
        Self { key, input: String::new(), step: Step::Editing { error: None } }
    }

    /// Checks what the user wrote, first here and then by a dry run.
    pub(super) fn check(&mut self, observed: &Observed) -> Vec<Effect> {
        match self.request(observed) {
            Ok(request) => {
                self.step = Step::Checking(request.clone());
                vec![Effect::Resize(request)]
            }
            Err(error) => {
                self.step = Step::Editing { error: Some(format!("{error:#}")) };
                Vec::new()
            }
        }
    }

    fn request(&self, observed: &Observed) -> anyhow::Result<ResizeRequest> {
        let Some(pod) = observed.pods.get(&self.key.object).map(|observed| &observed.pod) else {
            anyhow::bail!("pod {} was deleted", self.key.object);
        };
        let mut change = Change::from_words(&self.input)?;
        if !self.key.part.is_empty() {
            change = change.or_of_container(&self.key.part);
        }
        let mut patch = resize::patch(pod, &change)?;
        if let Some(uid) = &pod.metadata.uid {
            // The API server refuses the resize of a later pod of the same name.
            patch["metadata"] = serde_json::json!({ "uid": uid });
        }
        Ok(ResizeRequest { pod: self.key.object.clone(), patch, is_dry_run: true })
    }

    /// Shows what the API server said to the dry run. An answer to another request is ignored.
    pub(super) fn answer(
        &mut self,
        observed: &Observed,
        request: ResizeRequest,
        response: Result<Box<Pod>, String>,
    ) {
        if self.step != Step::Checking(request.clone()) {
            return;
        }
        self.step = match response {
            Err(refusal) => Step::Editing { error: Some(refusal) },
            Ok(after) => {
                let before = observed.pods.get(&request.pod).map(|observed| &observed.pod);
                let preview = before.map(|before| preview(observed, before, &after)).unwrap_or_default();
                Step::Confirming { request, preview }
            }
        };
    }

    /// The resize that the user has confirmed.
    pub(super) fn confirm(&mut self) -> Option<Effect> {
        let Step::Confirming { request, .. } = &self.step else { return None };
        let request = ResizeRequest { is_dry_run: false, ..request.clone() };
        self.step = Step::Requested(request.clone());
        Some(Effect::Resize(request))
    }
}

/// What changes, and what is free on the node.
fn preview(observed: &Observed, before: &Pod, after: &Pod) -> Vec<String> {
    let (Ok(old), Ok(new)) = (reading::of(before), reading::of(after)) else { return Vec::new() };
    let mut lines = Vec::new();
    for ((label, old), (_, new)) in reading::values(&old).zip(reading::values(&new)) {
        for resource in Resource::ALL {
            let [from, to] = [old, new].map(|values| reading::pair(&values.desired, resource));
            if from != to {
                lines.push(format!("{label} {resource} {from} → {to}"));
            }
        }
    }
    if lines.is_empty() {
        lines.push("unchanged: the pod desires this already".to_owned());
    }
    if let Some(node) = pods::node_of(before)
        && let Some(free) = nodes::free(observed, node)
    {
        let [cpu, memory] = Resource::ALL.map(|resource| reading::short(&free, resource));
        lines.push(format!("free on node {node}: cpu {cpu}, memory {memory}"));
    }
    lines
}

/// The line about a resize that the API server has accepted, or not.
pub(super) fn outcome(request: &ResizeRequest, response: &Result<Box<Pod>, String>) -> String {
    let name = &request.pod.name;
    let outcome = match response {
        Err(refusal) => format!("pod/{name} is not resized: {refusal}"),
        Ok(pod) => match reading::of(pod) {
            Ok(reading) => format!("pod/{name} asked for: {}", reading.stage),
            Err(error) => format!("pod/{name} asked for: {error:#}"),
        },
    };
    printable(&outcome).into_owned()
}
