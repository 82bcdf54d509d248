//! The record on a workload, which is written before its first pod.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, PodTemplateSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use plumb_resize::list::BadQuantity;
use plumb_resize::rules::Rules;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::RECORD_ANNOTATION;
use crate::engine::{Desired, Heading, RolloutRecord, RolloutStatus};

/// The resources of a template, exactly as they are written there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TemplateResources {
    /// By the name of the container, init containers among them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub containers: BTreeMap<String, Option<ResourceRequirements>>,
    /// At pod level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<ResourceRequirements>,
}

impl TemplateResources {
    /// The resources of a template.
    pub fn of(template: &PodTemplateSpec) -> Self {
        let Some(spec) = &template.spec else { return Self::default() };
        let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
        // The API has no difference between none and empty ones.
        let empty = ResourceRequirements::default();
        let resources = |container: &Container| container.resources.clone().filter(|one| *one != empty);
        Self {
            containers: containers.map(|c| (c.name.clone(), resources(c))).collect(),
            pod: spec.resources.clone(),
        }
    }

    /// A template with these resources. Containers that they do not name stay as they are.
    #[must_use]
    pub fn applied_to(&self, template: &PodTemplateSpec) -> PodTemplateSpec {
        let mut template = template.clone();
        let Some(spec) = &mut template.spec else { return template };
        for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
            if let Some(resources) = self.containers.get(&container.name) {
                container.resources.clone_from(resources);
            }
        }
        spec.resources.clone_from(&self.pod);
        template
    }

    /// The resources that pods of a template have with these.
    pub fn desired(&self, template: &PodTemplateSpec, rules: &Rules) -> Result<Desired, BadQuantity> {
        Desired::of(&self.applied_to(template), rules)
    }

    /// The strategic merge patch of a template's spec that sets exactly these. Every other field stays as the API server
    /// has it, those that this program does not know among them.
    pub fn patch(&self, template: &PodTemplateSpec) -> Value {
        let Some(spec) = &template.spec else { return json!({}) };
        let list = |containers: &[Container]| -> Vec<Value> {
            containers
                .iter()
                .filter_map(|container| {
                    let resources = self.containers.get(&container.name)?;
                    Some(json!({ "name": container.name, "resources": replaced(resources.as_ref()) }))
                })
                .collect()
        };
        let mut patch = Map::new();
        patch.insert("containers".to_owned(), Value::Array(list(&spec.containers)));
        if let Some(init) = &spec.init_containers {
            patch.insert("initContainers".to_owned(), Value::Array(list(init)));
        }
        if self.pod.is_some() || spec.resources.is_some() {
            patch.insert("resources".to_owned(), replaced(self.pod.as_ref()));
        }
        Value::Object(patch)
    }

    /// The operations of a JSON patch that set exactly these in a template, whose spec is at this path: for kinds that have
    /// no strategic merge patch.
    pub fn operations(&self, template: &PodTemplateSpec, path: &str) -> Vec<Value> {
        let Some(spec) = &template.spec else { return Vec::new() };
        let containers = indexed(Some(&spec.containers)).map(|one| ("containers", one));
        let init = indexed(spec.init_containers.as_ref()).map(|one| ("initContainers", one));
        let mut operations: Vec<Value> = containers
            .chain(init)
            .filter_map(|(list, (index, container))| {
                let resources = self.containers.get(&container.name)?.clone().unwrap_or_default();
                let path = format!("{path}/{list}/{index}/resources");
                Some(json!({ "op": "add", "path": path, "value": resources }))
            })
            .collect();
        let path = format!("{path}/resources");
        match &self.pod {
            Some(resources) => operations.push(json!({ "op": "add", "path": path, "value": resources })),
            None if spec.resources.is_some() => operations.push(json!({ "op": "remove", "path": path })),
            None => {}
        }
        operations
    }
}

/// Where a list of containers is in a spec, by index.
fn indexed(containers: Option<&Vec<Container>>) -> impl Iterator<Item = (usize, &Container)> {
    containers.into_iter().flatten().enumerate()
}

/// Resources in a strategic merge patch that replaces them instead of merging them.
fn replaced(resources: Option<&ResourceRequirements>) -> Value {
    let Some(resources) = resources else { return json!({ "$patch": "replace" }) };
    let mut replaced = json!(resources);
    replaced["$patch"] = json!("replace");
    replaced
}

/// The fields that hold the native controller of a workload, and their former values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hold {
    /// The fields of the spec as they are restored.
    pub restored: Value,
}

/// The record on a workload: the rollout, and the hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadRecord {
    /// The rollout.
    #[serde(flatten)]
    pub rollout: RolloutRecord,
    /// The resources of the template before the rollout, as they were written.
    #[serde(default)]
    pub previous_template: TemplateResources,
    /// The resources that are rolled out. If the template has others, it was edited while the webhook did not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<TemplateResources>,
    /// The hold; none once the workload is released.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Hold>,
    /// The status of a rollout that has ended, until the workload is released: it is reported in the write that releases
    /// the workload, so that a client that waits for the end can write the workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Box<RolloutStatus>>,
    /// Whether the workload's own controller has rolled out another template since the rollout ended. Then the status
    /// of the rollout is obsolete.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub superseded: bool,
}

impl WorkloadRecord {
    /// The record of a workload. One that cannot be read counts as none.
    pub fn read(metadata: &ObjectMeta) -> Option<Self> {
        let text = metadata.annotations.as_ref()?.get(RECORD_ANNOTATION)?;
        serde_json::from_str(text).ok()
    }

    /// Whether a workload is held according to its record. A terminating one is not held.
    pub fn is_held(metadata: &ObjectMeta) -> bool {
        metadata.deletion_timestamp.is_none()
            && Self::read(metadata).is_some_and(|record| record.hold.is_some())
    }

    /// The record as the value of its annotation.
    pub fn to_text(&self) -> String {
        // A record is plain data: it can be written.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The record of a rollout of a template that was edited while the workload was held and the webhook did not answer;
    /// none if the template is what is rolled out, or rolled back.
    pub(super) fn overtaken(
        &self,
        template: &PodTemplateSpec,
        generation: i64,
        now: Timestamp,
    ) -> Option<Self> {
        if self.hold.is_none() || !self.is_of_other_resources(template) {
            return None;
        }
        let resources = TemplateResources::of(template);
        let now = now.max(self.rollout.started_at);
        let RolloutRecord { base, previous, paused, .. } = self.rollout.clone();
        let revision = revision_of(&plumb_client::encode_template(template), generation);
        let revert = self.is_revert(template);
        let rollout = RolloutRecord { revert, paused, ..RolloutRecord::new(revision, base, previous, now) };
        Some(Self { rollout, template: Some(resources), ended: None, ..self.clone() })
    }

    /// Whether a template has other resources than those that are rolled out, or rolled back.
    pub(super) fn is_of_other_resources(&self, template: &PodTemplateSpec) -> bool {
        let expected = match self.rollout.heading {
            Heading::Forward => self.template.as_ref(),
            Heading::Back => Some(&self.previous_template),
            Heading::Recreate => None,
        };
        expected.is_some_and(|expected| TemplateResources::of(template) != *expected)
    }

    /// Whether a template takes the rollout back while it is under way: it has the resources of before.
    pub(super) fn is_revert(&self, template: &PodTemplateSpec) -> bool {
        self.is_open() && TemplateResources::of(template) == self.previous_template
    }

    /// Whether this is a copy of a record that the workload had before `stored`: of an earlier rollout, or of the
    /// same one before it ended.
    pub(super) fn is_older_than(&self, stored: &Self) -> bool {
        let (rollout, last) = (&self.rollout, &stored.rollout);
        let precedes = self.hold.is_some() && stored.hold.is_none()
            || rollout.outcome.is_none() && last.outcome.is_some()
            || !self.superseded && stored.superseded;
        rollout.started_at < last.started_at || rollout.revision == last.revision && precedes
    }

    /// Whether pods of the rollout may still have to be resized.
    pub const fn is_open(&self) -> bool {
        self.rollout.outcome.is_none()
    }
}

/// The name of a revision: another one for each template and each time that it is rolled out.
pub fn revision_of(template: &Value, generation: i64) -> String {
    // FNV-1a: short, and the same on every machine. The keys of a JSON object are sorted.
    let hash = template
        .to_string()
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("{hash:08x}-{generation}")
}

/// The intent to roll out a template.
pub(super) fn intent(
    revision: String,
    base: String,
    previous: TemplateResources,
    (old, new): (&PodTemplateSpec, &PodTemplateSpec),
    hold: Hold,
    rules: &Rules,
    now: Timestamp,
) -> WorkloadRecord {
    // A template that cannot be read now could not be read when it was admitted.
    let desired = previous.desired(old, rules).unwrap_or_default();
    WorkloadRecord {
        rollout: RolloutRecord::new(revision, base, desired, now),
        previous_template: previous,
        template: Some(TemplateResources::of(new)),
        hold: Some(hold),
        ended: None,
        superseded: false,
    }
}
