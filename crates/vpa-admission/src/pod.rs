//! The changes to a new pod, as a JSON patch. Pure.
//!
//! The operations, their order and the annotations are upstream's. A pod whose patch would have it refused, by a limit
//! range or by the API server, while it would not be refused as it is, gets its own resources instead.

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use plumb_vpa::annotations::UPDATES_ANNOTATION;
use plumb_vpa::boost::annotation::{self, boosts_text};
use plumb_vpa::boost::{BoostContext, BoostPlan, NoBoost, is_left_out};
use plumb_vpa::growth;
use plumb_vpa::recommendation::PodRecommendation;
use plumb_vpa_api::{Resources, UpdateMode, VerticalPodAutoscaler, resource_list};
use plumb_webhook::patch::Operation;
use serde_json::json;

/// The annotation that names the containers that the webhook saw: others were added by later webhooks.
pub const OBSERVED_CONTAINERS_ANNOTATION: &str = "vpaObservedContainers";

/// The limits for a pod, apart from its VPA.
#[derive(Clone, Debug, Default)]
pub struct PodContext {
    /// The limits of recommendations and boosts.
    pub boost: BoostContext,
    /// The gate `CPUStartupBoost`.
    pub startup_boost: bool,
    /// Whether the API server serves `pods/resize`, without which a boost could not be undone.
    pub serves_resize: bool,
}

/// The changes to a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodPatch {
    /// The patch.
    pub operations: Vec<Operation>,
    /// The boosts that it contains, and those that it does not.
    pub boost: BoostPlan,
    /// Whether the recommendation would have the pod refused, and was left out.
    pub recommendation_refused: bool,
}

impl PodPatch {
    /// The changes to a pod by the VPA that controls it.
    pub fn new(pod: &Pod, vpa: &VerticalPodAutoscaler, context: &PodContext) -> Self {
        let Some(own) = &pod.spec else { return Self::default() };
        let mut recommendation = match vpa.spec.update_mode() {
            UpdateMode::Off => PodRecommendation::default(),
            _ => PodRecommendation::new(vpa, own, &context.boost.ranges),
        };
        let mut unboosted = own.clone();
        recommendation.apply_to(&mut unboosted);
        let recommendation_refused = is_left_out(own, &unboosted, context.boost.ranges);
        if recommendation_refused {
            recommendation = PodRecommendation::default();
            unboosted.clone_from(own);
        }
        let boost = match (context.startup_boost, context.serves_resize) {
            (false, _) => BoostPlan::default(),
            (true, false) => BoostPlan::refuse_all(&vpa.spec, own, NoBoost::NoResize),
            (true, true) => BoostPlan::new(&vpa.spec, own, &unboosted, &context.boost),
        };
        let operations = operations(pod, own, vpa, &recommendation, &boost);
        Self { operations, boost, recommendation_refused }
    }
}

fn operations(
    pod: &Pod,
    own: &PodSpec,
    vpa: &VerticalPodAutoscaler,
    recommendation: &PodRecommendation,
    boost: &BoostPlan,
) -> Vec<Operation> {
    let mut operations = Vec::new();
    if pod.metadata.annotations.is_none() {
        operations.push(Operation::add("/metadata/annotations", json!({})));
    }
    operations.extend(stale_annotations(pod, boost));
    let mut updates = Vec::new();
    for (index, container) in own.containers.iter().enumerate() {
        let mut change = Change { index, container, notes: Vec::new(), operations: Vec::new() };
        let recommended = recommendation.container(&container.name);
        let mut requests = recommended.map(|recommended| recommended.target).unwrap_or_default();
        let mut limits = recommended.map(|recommended| recommended.limits).unwrap_or_default();
        change
            .notes
            .extend(recommended.iter().flat_map(|recommended| &recommended.notes).map(ToString::to_string));
        if let Some(boosted) = boost.container(&container.name) {
            let original = boosted.original.to_text();
            operations.push(Operation::add_annotation(&annotation::key(&container.name), original));
            requests.cpu = boosted.cpu.boosted.request;
            // Under RequestsOnly the limit is as it was.
            let own = plumb_vpa::boost::Cpu::of(container);
            limits.cpu =
                boosted.cpu.boosted.limit.filter(|limit| limits.cpu.is_some() || own.limit != Some(*limit));
        }
        change.set(&requests, &limits);
        if !change.operations.is_empty() {
            updates.push(format!("container {index}: {}", change.notes.join(", ")));
            operations.append(&mut change.operations);
        }
    }
    if !updates.is_empty() {
        let name = vpa.metadata.name.as_deref().unwrap_or_default();
        let text = format!("Pod resources updated by {name}: {}", updates.join("; "));
        operations.push(Operation::add_annotation(UPDATES_ANNOTATION, text));
    }
    if !boost.boosted.is_empty() {
        let boosts = boost.boosted.iter().map(|boosted| (boosted.name.as_str(), boosted.cpu));
        operations.push(Operation::add_annotation(annotation::BOOSTS, boosts_text(boosts)));
    }
    operations.extend(growth::annotation_changes(pod, vpa).into_iter().map(|(name, value)| match value {
        Some(value) => Operation::add_annotation(name, value),
        None => Operation::remove_annotation(name),
    }));
    let observed: Vec<&str> = own.containers.iter().map(|container| container.name.as_str()).collect();
    operations.push(Operation::add_annotation(OBSERVED_CONTAINERS_ANNOTATION, observed.join(", ")));
    operations
}

/// Removes annotations that a pod has from another one, whose YAML it was created from.
fn stale_annotations(pod: &Pod, boost: &BoostPlan) -> Vec<Operation> {
    let stale = |name: &&String| match name.strip_prefix(annotation::PREFIX) {
        Some(container) => boost.container(container).is_none(),
        None => *name == annotation::BOOSTS && boost.boosted.is_empty(),
    };
    let names = pod.metadata.annotations.iter().flatten().map(|(name, _)| name);
    names.filter(stale).map(|name| Operation::remove_annotation(name)).collect()
}

/// The changes to a container.
struct Change<'a> {
    index: usize,
    container: &'a Container,
    notes: Vec<String>,
    operations: Vec<Operation>,
}

impl Change<'_> {
    fn set(&mut self, requests: &Resources, limits: &Resources) {
        let (requests, limits) = (resource_list(requests), resource_list(limits));
        if requests.is_empty() && limits.is_empty() {
            return;
        }
        let path = format!("/spec/containers/{}/resources", self.index);
        let own = self.container.resources.as_ref();
        let own_requests = own.and_then(|own| own.requests.as_ref());
        let own_limits = own.and_then(|own| own.limits.as_ref());
        if own_requests.is_none() && own_limits.is_none() {
            // Claims stay.
            let claims = own.and_then(|own| own.claims.as_ref());
            let empty = claims.map_or(json!({}), |claims| json!({ "claims": claims }));
            self.operations.push(Operation::add(&path, empty));
        }
        for (field, shown, own, values) in
            [("requests", "request", own_requests, requests), ("limits", "limit", own_limits, limits)]
        {
            if own.is_none() && !values.is_empty() {
                self.operations.push(Operation::add(format!("{path}/{field}"), json!({})));
            }
            for (resource, quantity) in values {
                self.operations.push(Operation::add(format!("{path}/{field}/{resource}"), quantity.0));
                self.notes.push(format!("{resource} {shown}"));
            }
        }
    }
}
