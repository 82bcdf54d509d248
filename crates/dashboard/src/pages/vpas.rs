//! VPAs: recommendations with their bounds and caps.

use plumb_controller_runtime::ObjectRef;
use plumb_resize::list::amount_of;
use plumb_resize::resource::{Declared, Resource};
use plumb_vpa_api::{
    ConditionStatus, RecommendedContainerResources, ResourceList, VerticalPodAutoscaler,
    VerticalPodAutoscalerCheckpoint, read_resources,
};

use super::{absent, columns, list_section, matches, vpa_history, vpa_pods};
use crate::chart::{Bounds, bounds_chart};
use crate::cluster::Cluster;
use crate::page::{Page, Section};
use crate::source::Access;
use crate::table::{Cell, Table, Tone};
use crate::view::{Filter, View};

const OBJECTS: &str = "verticalpodautoscalers of autoscaling.k8s.io";
/// The list of VPAs, with a row for each container.
pub(super) fn list(cluster: &Cluster, filter: &Filter) -> Page {
    let store = cluster.vpas.store();
    let vpas = if filter.namespace.is_empty() { store.all() } else { store.in_namespace(&filter.namespace) };
    let rows = vpas.iter().flat_map(|vpa| rows(vpa)).filter(|row| matches(row, filter)).collect();
    let table = Table {
        caption: "Recommended requests of containers".to_owned(),
        columns: columns(&[
            ("name", "VPA"),
            ("namespace", "Namespace"),
            ("mode", "Mode"),
            ("target", "Target"),
            ("container", "Container"),
            ("cpuTarget", "CPU"),
            ("cpuLower", "Lower"),
            ("cpuUpper", "Upper"),
            ("memoryTarget", "Memory"),
            ("memoryLower", "Lower"),
            ("memoryUpper", "Upper"),
            ("attention", "Attention"),
        ]),
        rows,
        empty: "No VPA matches.",
    };
    let section = Section::new("vpas", "VPAs").needs(OBJECTS, &cluster.vpas.access());
    let section = list_section(section, table, filter, View::Vpas);
    Page { title: "VPAs".to_owned(), found: true, sections: vec![section] }
}

fn rows(vpa: &VerticalPodAutoscaler) -> Vec<Vec<Cell>> {
    let attention: Vec<String> = attention(vpa).into_iter().map(|(condition, _)| condition).collect();
    let target = &vpa.spec.target_ref;
    let row = |container: Option<&RecommendedContainerResources>| {
        let mut row = vec![
            vpa_link(vpa),
            Cell::text(vpa.metadata.namespace.clone().unwrap_or_default()),
            Cell::text(vpa.spec.update_mode().as_str()),
            Cell::text(format!("{}/{}", target.kind, target.name)),
            Cell::text(container.map(|container| container.container_name.clone()).unwrap_or_default()),
        ];
        for resource in Resource::ALL {
            let cell = |list: fn(&RecommendedContainerResources) -> &ResourceList| {
                Cell::Amount(resource, container.and_then(|container| amount(list(container), resource)))
            };
            row.extend([cell(|of| &of.target), cell(|of| &of.lower_bound), cell(|of| &of.upper_bound)]);
        }
        let tone = if attention.is_empty() { Tone::Plain } else { Tone::Warning };
        row.push(Cell::state(attention.join(", "), tone));
        row
    };
    let containers = recommended(vpa);
    if containers.is_empty() {
        vec![row(None)]
    } else {
        containers.iter().map(|one| row(Some(one))).collect()
    }
}

/// A link to the page of a VPA.
pub(super) fn vpa_link(vpa: &VerticalPodAutoscaler) -> Cell {
    let name = vpa.metadata.name.clone().unwrap_or_default();
    let namespace = vpa.metadata.namespace.clone().unwrap_or_default();
    Cell::Link { href: View::Vpa(namespace, name.clone()).href(), text: name }
}

/// The conditions of a VPA that need attention, with their messages.
pub(super) fn attention(vpa: &VerticalPodAutoscaler) -> Vec<(String, String)> {
    let conditions = vpa.status.iter().flat_map(|status| &status.conditions);
    let found = conditions.filter_map(|condition| {
        let type_ = condition.type_.as_str();
        let is_expected = ["RecommendationProvided", "PodsUpdated"].contains(&type_);
        let is_problem =
            ["NoPodsMatched", "ConfigDeprecated", "ConfigUnsupported", "LowConfidence"].contains(&type_);
        let holds = condition.status == ConditionStatus::True;
        let text = match (is_expected, is_problem, holds) {
            (true, _, false) => format!("{type_}={}", condition.status),
            (_, true, true) => type_.to_owned(),
            _ => return None,
        };
        Some((text, condition.message.clone().unwrap_or_default()))
    });
    found.collect()
}

fn recommended(vpa: &VerticalPodAutoscaler) -> &[RecommendedContainerResources] {
    let recommendation = vpa.status.as_ref().and_then(|status| status.recommendation.as_ref());
    recommendation.map_or(&[], |recommendation| &recommendation.container_recommendations)
}

fn amount(list: &ResourceList, resource: Resource) -> Option<i64> {
    amount_of(resource, read_resources(list)[resource]?).ok()
}

/// The target of a container, if the VPA has a recommendation for it.
pub(super) fn recommended_for(vpa: &VerticalPodAutoscaler, container: &str) -> Option<Declared> {
    let found = recommended(vpa).iter().find(|one| one.container_name == container)?;
    Some(Declared::of(|resource| amount(&found.target, resource)))
}

fn bounds(vpa: &VerticalPodAutoscaler) -> Vec<Bounds> {
    let mut all = Vec::new();
    for container in recommended(vpa) {
        let policy = vpa.spec.container_policy(&container.container_name);
        for resource in Resource::ALL {
            all.push(Bounds {
                container: container.container_name.clone(),
                resource,
                target: amount(&container.target, resource),
                lower: amount(&container.lower_bound, resource),
                upper: amount(&container.upper_bound, resource),
                uncapped: amount(&container.uncapped_target, resource),
                min_allowed: policy.and_then(|policy| amount(&policy.min_allowed, resource)),
                max_allowed: policy.and_then(|policy| amount(&policy.max_allowed, resource)),
            });
        }
    }
    all
}

/// The page of a VPA.
pub(super) fn page(
    cluster: &Cluster,
    namespace: &str,
    name: &str,
    checkpoints: Result<Vec<VerticalPodAutoscalerCheckpoint>, Access>,
) -> Page {
    let title = format!("VPA {namespace}/{name}");
    let Some(vpa) = cluster.vpas.store().get(&ObjectRef::namespaced(namespace, name)) else {
        return absent(title, OBJECTS, &cluster.vpas.access());
    };
    let bounds = bounds(&vpa);
    let sections = vec![
        recommendation(&vpa, &bounds),
        vpa_history::section(checkpoints, &bounds),
        vpa_pods::section(cluster, &vpa),
        conditions(&vpa),
    ];
    Page { title, found: true, sections }
}

fn recommendation(vpa: &VerticalPodAutoscaler, bounds: &[Bounds]) -> Section {
    let row = |one: &Bounds| {
        let amounts = [one.target, one.lower, one.upper, one.uncapped, one.min_allowed, one.max_allowed];
        let amounts = amounts.map(|amount| Cell::Amount(one.resource, amount));
        let names = [Cell::text(one.container.clone()), Cell::text(one.resource.name())];
        names.into_iter().chain(amounts).collect()
    };
    let table = Table {
        caption: "Recommended requests of containers, their bounds, and what the policy allows".to_owned(),
        columns: columns(&[
            ("container", "Container"),
            ("resource", "Resource"),
            ("target", "Target"),
            ("lower", "Lower bound"),
            ("upper", "Upper bound"),
            ("uncapped", "Uncapped target"),
            ("minAllowed", "Minimum allowed"),
            ("maxAllowed", "Maximum allowed"),
        ]),
        rows: bounds.iter().map(row).collect(),
        empty: "There is no recommendation.",
    };
    let target = &vpa.spec.target_ref;
    let mut section = Section::new("recommendation", "Recommendation").with_table(table);
    section.notes.push(format!(
        "It scales {}/{}; its update mode is {}.",
        target.kind,
        target.name,
        vpa.spec.update_mode().as_str()
    ));
    section.figure = (!bounds.is_empty()).then(|| bounds_chart(bounds));
    section
}

fn conditions(vpa: &VerticalPodAutoscaler) -> Section {
    let conditions = vpa.status.iter().flat_map(|status| &status.conditions);
    let rows = conditions.map(|condition| {
        vec![
            Cell::text(condition.type_.as_str()),
            Cell::text(condition.status.as_str()),
            Cell::Time(condition.last_transition_time.as_ref().map(|time| time.0)),
            Cell::text(condition.reason.clone().unwrap_or_default()),
            Cell::text(condition.message.clone().unwrap_or_default()),
        ]
    });
    let table = Table {
        caption: "Conditions of the VPA".to_owned(),
        columns: columns(&[
            ("type", "Type"),
            ("status", "Status"),
            ("since", "Since"),
            ("reason", "Reason"),
            ("message", "Message"),
        ]),
        rows: rows.collect(),
        empty: "There are no conditions.",
    };
    Section::new("conditions", "Conditions").with_table(table)
}
