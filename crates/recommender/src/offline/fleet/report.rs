//! A report over the workloads of a cluster: as rows of text, CSV, HTML and JSON.

mod html;

use std::fmt::Write as _;

use plumb_resize::Quantity;
use plumb_resize::resource::{PerResource, Resource};
use serde_json::{Value, json};

use super::WorkloadKey;
use crate::ContainerRecommendation;
use crate::display::{short, short_quantity};

/// What is recommended for each container of each workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// One row for each container, in the order of namespaces, kinds, names and containers.
    pub rows: Vec<Row>,
}

/// One container of a workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The workload.
    pub workload: WorkloadKey,
    /// The container.
    pub container: String,
    /// How many pods have it at present; 0 where that is not known.
    pub pods: u32,
    /// How many CPU samples there are.
    pub samples: u64,
    /// What it requests and what is recommended, by resource.
    pub resources: PerResource<Change>,
}

/// One resource of a container. Amounts are millicores or bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Change {
    /// The request; none if there is none, or if it is not known.
    pub request: Option<i64>,
    /// The recommended request.
    pub target: Option<Quantity>,
    /// Below this a request is too small.
    pub lower: Option<Quantity>,
    /// Above this a request is too large.
    pub upper: Option<Quantity>,
}

impl Change {
    /// The recommended request less the present one.
    pub fn difference(&self, resource: Resource) -> Option<i64> {
        Some(amount(resource, self.target?).saturating_sub(self.request?))
    }
}

impl Row {
    pub(super) fn new(
        workload: &WorkloadKey,
        recommended: &ContainerRecommendation,
        pods: u32,
        requested: PerResource<Option<f64>>,
        samples: u64,
    ) -> Self {
        let change = |resource: Resource| Change {
            request: requested[resource].and_then(|units| from_units(resource, units)),
            target: recommended.target[resource],
            lower: recommended.lower_bound[resource],
            upper: recommended.upper_bound[resource],
        };
        Self {
            workload: workload.clone(),
            container: recommended.container.clone(),
            pods,
            samples,
            resources: PerResource::of(change),
        }
    }
}

impl Report {
    /// The report as rows of a table, the first of which is its head.
    pub fn table(&self) -> Vec<Vec<String>> {
        let head = [
            "NAMESPACE",
            "WORKLOAD",
            "CONTAINER",
            "PODS",
            "CPU",
            "RECOMMENDED",
            "DIFFERENCE",
            "MEMORY",
            "RECOMMENDED",
            "DIFFERENCE",
            "SAMPLES",
        ];
        let mut table = vec![head.map(str::to_owned).to_vec()];
        for row in &self.rows {
            let WorkloadKey { namespace, kind, name } = &row.workload;
            let pods = if row.pods == 0 { none() } else { row.pods.to_string() };
            let mut cells = vec![namespace.clone(), format!("{kind}/{name}"), row.container.clone(), pods];
            for resource in Resource::ALL {
                let change = &row.resources[resource];
                cells.push(change.request.map_or_else(none, |request| short(resource, request)));
                cells.push(change.target.map_or_else(none, |target| short_quantity(resource, target)));
                cells.push(change.difference(resource).map_or_else(none, |by| signed(resource, by)));
            }
            cells.push(row.samples.to_string());
            table.push(cells);
        }
        table
    }

    /// The report as CSV. Amounts are millicores and bytes.
    pub fn csv(&self) -> String {
        let mut csv = String::from("namespace,kind,workload,container,pods,samples");
        for resource in Resource::ALL {
            let unit = if resource == Resource::Cpu { "cpu_millicores" } else { "memory_bytes" };
            for column in ["request", "target", "lower", "upper", "difference"] {
                // Writing to a string does not fail.
                let _ = write!(csv, ",{unit}_{column}");
            }
        }
        csv.push('\n');
        for row in &self.rows {
            let WorkloadKey { namespace, kind, name } = &row.workload;
            let mut cells = vec![field(namespace), field(kind), field(name), field(&row.container)];
            cells.extend([row.pods.to_string(), row.samples.to_string()]);
            for resource in Resource::ALL {
                let change = &row.resources[resource];
                let known = |of: Option<i64>| of.map_or_else(String::new, |amount| amount.to_string());
                let bound = |of: Option<Quantity>| known(of.map(|quantity| amount(resource, quantity)));
                cells.extend([
                    known(change.request),
                    bound(change.target),
                    bound(change.lower),
                    bound(change.upper),
                ]);
                cells.push(known(change.difference(resource)));
            }
            csv.push_str(&cells.join(","));
            csv.push('\n');
        }
        csv
    }

    /// The report as a page.
    pub fn html(&self, title: &str) -> String {
        html::page(self, title)
    }

    /// The report for programs.
    pub fn json(&self) -> Value {
        let text = |of: Option<Quantity>| of.map(|quantity| quantity.to_string());
        let rows = self.rows.iter().map(|row| {
            let resource = |resource: Resource| {
                let change = &row.resources[resource];
                let written = |amount: i64| match resource {
                    Resource::Cpu => Quantity::from_milli(amount).to_string(),
                    Resource::Memory => Quantity::from_bytes(amount).to_string(),
                };
                json!({
                    "request": change.request.map(written),
                    "target": text(change.target),
                    "lowerBound": text(change.lower),
                    "upperBound": text(change.upper),
                    "difference": change.difference(resource).map(written),
                })
            };
            json!({
                "namespace": row.workload.namespace, "kind": row.workload.kind, "name": row.workload.name,
                "containerName": row.container, "pods": row.pods, "samples": row.samples,
                "cpu": resource(Resource::Cpu), "memory": resource(Resource::Memory),
            })
        });
        rows.collect()
    }
}

fn none() -> String {
    "-".to_owned()
}

fn amount(resource: Resource, quantity: Quantity) -> i64 {
    match resource {
        Resource::Cpu => quantity.saturating_milli(),
        Resource::Memory => quantity.saturating_units(),
    }
}

/// A difference with its sign.
fn signed(resource: Resource, by: i64) -> String {
    match by {
        0 => "0".to_owned(),
        more if more > 0 => format!("+{}", short(resource, more)),
        less => format!("-{}", short(resource, less.saturating_neg())),
    }
}

/// Millicores of cores, or bytes; none for what is no amount.
fn from_units(resource: Resource, units: f64) -> Option<i64> {
    let amount = if resource == Resource::Cpu { units * 1_000.0 } else { units };
    #[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
    (0.0..1e18).contains(&amount).then_some(amount.round() as i64)
}

/// A field of CSV. A name that a spreadsheet would take for a formula is made text.
fn field(text: &str) -> String {
    let formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let text = if formula { format!("'{text}") } else { text.to_owned() };
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}
