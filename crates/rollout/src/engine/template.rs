//! Differences between two revisions of a pod template.

use std::fmt::Write as _;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, PodTemplateSpec, ResourceRequirements};
use plumb_resize::defaulting::default_pod;
use plumb_resize::list::{BadQuantity, ResourceList};
use plumb_resize::pod::{PodResources, PodShape};
use plumb_resize::qos::QosClass;
use plumb_resize::resource::Resource;
use plumb_resize::rules::Rules;
use serde_json::Value;

use super::defaults::is_default;
use super::reason::Reason;

/// The differences between two revisions of a template.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TemplateChange {
    /// The containers whose cpu or memory changed.
    pub resized: Vec<String>,
    /// Whether the pod-level cpu or memory changed.
    pub pod_resized: bool,
    /// Everything else that changed, and what no resize can do.
    pub reasons: Vec<Reason>,
}

impl TemplateChange {
    /// Whether there is no difference.
    pub fn is_none(&self) -> bool {
        !self.resizes() && self.reasons.is_empty()
    }

    /// Whether cpu or memory changed, whatever else did.
    pub fn resizes(&self) -> bool {
        !self.resized.is_empty() || self.pod_resized
    }

    /// Whether a resize alone makes running pods follow (`CanVerticalUpdate` of OpenKruise's proposal).
    pub fn is_vertical(&self) -> bool {
        self.resizes() && self.reasons.is_empty()
    }

    /// Whether running pods follow in place by a resize, new images, or both, as a `CloneSet` updates them. Metadata
    /// is patched into running pods, too.
    pub fn is_in_place(&self) -> bool {
        !self.is_none()
            && self
                .reasons
                .iter()
                .all(|reason| matches!(reason, Reason::Image { .. } | Reason::Metadata { .. }))
    }
}

/// Whether running pods follow a template change by a resize alone, and if not, why not.
///
/// Requests and limits may change and be added, as long as the QoS class stays. The label that a Deployment adds to the
/// template of its replica sets, `pod-template-hash`, is not compared.
pub fn can_update(old: &PodTemplateSpec, new: &PodTemplateSpec, rules: &Rules) -> TemplateChange {
    compare_templates(old, new, rules).unwrap_or_else(|bad| TemplateChange {
        reasons: vec![Reason::Invalid { message: bad.to_string() }],
        ..TemplateChange::default()
    })
}

fn compare_templates(
    old: &PodTemplateSpec,
    new: &PodTemplateSpec,
    rules: &Rules,
) -> Result<TemplateChange, BadQuantity> {
    let mut change = TemplateChange::default();
    change.reasons.extend(other_differences(old, new));
    let (old, new) = (defaulted(old, rules)?, defaulted(new, rules)?);
    if !names(&old.containers).eq(names(&new.containers)) || !names(init(&old)).eq(names(init(&new))) {
        // The paths of the containers that moved would not help.
        change.reasons.retain(|reason| !is_of_container(reason));
        change.reasons.push(Reason::Containers);
        return Ok(change);
    }
    for (old, new) in init(&old).iter().zip(init(&new)) {
        let sidecar = new.restart_policy.as_deref() == Some("Always");
        let changed = compare_resources(
            Some(&new.name),
            old.resources.as_ref(),
            new.resources.as_ref(),
            &mut change.reasons,
        )?;
        if changed && !sidecar && !rules.resize_init_containers {
            change.reasons.push(Reason::InitContainer { container: new.name.clone() });
        }
        if changed {
            change.resized.push(new.name.clone());
        }
    }
    for (old, new) in old.containers.iter().zip(&new.containers) {
        let (name, resources) = (&new.name, new.resources.as_ref());
        if compare_resources(Some(name), old.resources.as_ref(), resources, &mut change.reasons)? {
            change.resized.push(name.clone());
        }
    }
    change.pod_resized =
        compare_resources(None, old.resources.as_ref(), new.resources.as_ref(), &mut change.reasons)?;
    if change.pod_resized && !rules.resize_pod_level {
        change.reasons.push(Reason::PodLevel);
    }
    let (from, to) = (QosClass::of_spec(&old)?, QosClass::of_spec(&new)?);
    if from != to {
        change.reasons.push(Reason::QosClass { from, to });
    }
    Ok(change)
}

/// The first container that a resize from one template to another restarts, and the resource that it restarts for.
pub fn restarted(
    old: &PodTemplateSpec,
    new: &PodTemplateSpec,
    rules: &Rules,
) -> Result<Option<(String, Resource)>, BadQuantity> {
    let (old, new) = (defaulted(old, rules)?, defaulted(new, rules)?);
    let (before, after) = (PodResources::desired(&old)?, PodResources::desired(&new)?);
    let shape = PodShape::of(&Pod { spec: Some(new), ..Pod::default() })?;
    let mut containers = shape.containers.iter().zip(before.containers.iter().zip(&after.containers));
    Ok(containers.find_map(|(shape, (before, after))| {
        shape.restarts_for(*before, *after).map(|resource| (shape.name.clone(), resource))
    }))
}

/// The spec of a new pod, with the defaults of the API server.
fn defaulted(template: &PodTemplateSpec, rules: &Rules) -> Result<PodSpec, BadQuantity> {
    let mut pod = Pod { spec: template.spec.clone(), ..Pod::default() };
    default_pod(&mut pod, rules)?;
    Ok(pod.spec.unwrap_or_default())
}

fn names(containers: &[Container]) -> impl Iterator<Item = &str> {
    containers.iter().map(|container| container.name.as_str())
}

fn init(spec: &PodSpec) -> &[Container] {
    spec.init_containers.as_deref().unwrap_or_default()
}

/// Whether cpu or memory changed; other changes and removals are reasons.
fn compare_resources(
    container: Option<&str>,
    old: Option<&ResourceRequirements>,
    new: Option<&ResourceRequirements>,
    reasons: &mut Vec<Reason>,
) -> Result<bool, BadQuantity> {
    let none = ResourceRequirements::default();
    let (old, new) = (old.unwrap_or(&none), new.unwrap_or(&none));
    let owned = || container.map(ToOwned::to_owned);
    let mut changed = false;
    if old.claims.as_ref().filter(|claims| !claims.is_empty())
        != new.claims.as_ref().filter(|claims| !claims.is_empty())
    {
        reasons.push(Reason::OtherResource { container: owned(), resource: "claims".to_owned() });
    }
    let lists = [
        ("requests", old.requests.as_ref(), new.requests.as_ref()),
        ("limits", old.limits.as_ref(), new.limits.as_ref()),
    ];
    for (field, old, new) in lists {
        let (old, new) = (ResourceList::read(old)?, ResourceList::read(new)?);
        for (name, quantity) in old.iter() {
            match (new.get(name), Resource::named(name)) {
                (Some(after), _) if after == quantity => {}
                (None, Some(_)) => {
                    reasons.push(Reason::Removed { container: owned(), field: format!("{field}.{name}") });
                }
                (Some(_), Some(_)) => changed = true,
                (_, None) => push_other(reasons, container, name),
            }
        }
        for (name, _) in new.iter().filter(|(name, _)| old.get(name).is_none()) {
            match Resource::named(name) {
                Some(_) => changed = true,
                None => push_other(reasons, container, name),
            }
        }
    }
    Ok(changed)
}

fn push_other(reasons: &mut Vec<Reason>, container: Option<&str>, resource: &str) {
    let reason =
        Reason::OtherResource { container: container.map(ToOwned::to_owned), resource: resource.to_owned() };
    if !reasons.contains(&reason) {
        reasons.push(reason);
    }
}

/// The fields that differ, except for resources.
fn other_differences(old: &PodTemplateSpec, new: &PodTemplateSpec) -> Vec<Reason> {
    let json = |template: &PodTemplateSpec| plumb_client::encode_template(&without_resources(template));
    let mut paths = Vec::new();
    differences(&json(old), &json(new), &mut String::new(), &mut paths);
    paths.into_iter().map(|path| reason(path, new)).collect()
}

fn without_resources(template: &PodTemplateSpec) -> PodTemplateSpec {
    let mut template = template.clone();
    if let Some(labels) = template.metadata.as_mut().and_then(|metadata| metadata.labels.as_mut()) {
        labels.remove(POD_TEMPLATE_HASH);
    }
    if let Some(metadata) = &mut template.metadata {
        metadata.creation_timestamp = None;
    }
    if let Some(spec) = &mut template.spec {
        spec.resources = None;
        for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
            container.resources = None;
        }
    }
    template
}

const POD_TEMPLATE_HASH: &str = "pod-template-hash";

/// Collects the paths at which two values differ. An absent value equals an empty one, and the default of its field: the API has
/// no difference either.
fn differences(old: &Value, new: &Value, path: &mut String, paths: &mut Vec<String>) {
    let length = path.len();
    match (old, new) {
        _ if old == new || (is_empty(old) && is_empty(new)) => {}
        (Value::Object(before), Value::Object(after)) => {
            let keys: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
            for key in keys {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(key);
                let (old, new) = (before.get(key), after.get(key));
                let is_default = match (old, new) {
                    (Some(old), None) => is_default(path, old, after),
                    (None, Some(new)) => is_default(path, new, before),
                    _ => false,
                };
                if is_default {
                    path.truncate(length);
                    continue;
                }
                differences(old.unwrap_or(&Value::Null), new.unwrap_or(&Value::Null), path, paths);
                path.truncate(length);
            }
        }
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            for (i, (old, new)) in before.iter().zip(after).enumerate() {
                // Writing to a string does not fail.
                let _ = write!(path, "[{i}]");
                differences(old, new, path, paths);
                path.truncate(length);
            }
        }
        _ => paths.push(path.clone()),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(values) => values.is_empty(),
        Value::Object(fields) => fields.values().all(is_empty),
        _ => false,
    }
}

fn reason(path: String, new: &PodTemplateSpec) -> Reason {
    if path.starts_with("metadata") {
        return Reason::Metadata { path };
    }
    let image = path.strip_suffix("].image").and_then(|path| path.strip_prefix("spec.containers["));
    let container = image.and_then(|position| {
        let position: usize = position.parse().ok()?;
        new.spec.as_ref()?.containers.get(position)
    });
    match container {
        Some(container) => Reason::Image { container: container.name.clone() },
        None => Reason::Field { path },
    }
}

fn is_of_container(reason: &Reason) -> bool {
    match reason {
        Reason::Image { .. } => true,
        Reason::Field { path } => {
            path.starts_with("spec.containers") || path.starts_with("spec.initContainers")
        }
        _ => false,
    }
}

/// The template with the resources of another: the undo of a resize of a workload.
///
/// Containers are matched by name. Fields that only the template has stay; resources that the other lacks are
/// removed.
#[must_use]
pub fn with_resources_of(template: &PodTemplateSpec, other: &PodTemplateSpec) -> PodTemplateSpec {
    let mut template = template.clone();
    let (Some(spec), Some(from)) = (&mut template.spec, &other.spec) else { return template };
    spec.resources.clone_from(&from.resources);
    let others = || from.init_containers.iter().flatten().chain(&from.containers);
    for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
        if let Some(other) = others().find(|other| other.name == container.name) {
            container.resources.clone_from(&other.resources);
        }
    }
    template
}
