//! The CPU of zones, and how many endpoints each zone gets for it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use plumb_resize::quantity::Quantity;

use crate::nodes::health::is_ready;

/// By how much of its share an endpoint may be overloaded.
const OVERLOAD: f64 = 0.2;
/// Nodes with these labels do not count.
const EXCLUDED: [&str; 2] = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];

/// The part of the cluster's CPU that each zone has; unknown with fewer than two zones, or if a node has no zone or CPU.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CpuRatios(Option<BTreeMap<String, f64>>);

/// How many endpoints a zone gets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Allocation {
    pub(super) minimum: usize,
    pub(super) maximum: usize,
    pub(super) desired: f64,
}

impl CpuRatios {
    /// The ratios of ready nodes.
    pub fn from_nodes<'a>(nodes: impl IntoIterator<Item = &'a Node>) -> Self {
        let mut by_zone: BTreeMap<String, i64> = BTreeMap::new();
        for node in nodes.into_iter().filter(|node| counts(node)) {
            let Some((zone, cpu)) = zone(node).zip(cpu(node)) else { return Self(None) };
            let sum = by_zone.entry(zone.to_owned()).or_default();
            *sum = sum.saturating_add(cpu);
        }
        if by_zone.len() < 2 {
            return Self(None);
        }
        let total = by_zone.values().fold(0_i64, |total, cpu| total.saturating_add(*cpu));
        let ratio = |cpu: i64| milli(cpu) / milli(total);
        Self(Some(by_zone.into_iter().map(|(zone, cpu)| (zone, ratio(cpu))).collect()))
    }

    pub(super) fn by_zone(&self) -> Option<&BTreeMap<String, f64>> {
        self.0.as_ref()
    }

    /// How many of so many endpoints each zone gets, or why that cannot be said.
    pub(super) fn allocations(&self, endpoints: usize) -> Result<BTreeMap<String, Allocation>, String> {
        let Some(ratios) = &self.0 else {
            let reason =
                "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes";
            return Err(reason.to_owned());
        };
        let counts = format!("({endpoints} endpoints, {} zones)", ratios.len());
        if ratios.len() > endpoints {
            return Err(format!("Insufficient number of endpoints {counts}"));
        }
        let allocation = |ratio: &f64| {
            let desired = ratio * float(endpoints);
            let minimum = minimum(desired);
            Allocation { minimum, maximum: 0, desired: desired.max(float(minimum)) }
        };
        let mut allocations: BTreeMap<String, Allocation> =
            ratios.iter().map(|(zone, ratio)| (zone.clone(), allocation(ratio))).collect();
        let minimum: usize = allocations.values().map(|allocation| allocation.minimum).sum();
        let Some(rest) = endpoints.checked_sub(minimum) else {
            return Err(format!(
                "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold {counts}"
            ));
        };
        for allocation in allocations.values_mut() {
            allocation.maximum = allocation.minimum + rest;
        }
        Ok(allocations)
    }
}

/// The least number of endpoints of a zone that should have this many.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "at most the number of endpoints"
)]
pub(super) fn minimum(desired: f64) -> usize {
    (desired * (1.0 / (1.0 + OVERLOAD))).ceil() as usize
}

#[expect(clippy::cast_precision_loss, reason = "numbers of endpoints are small")]
pub(super) fn float(number: usize) -> f64 {
    number as f64
}

#[expect(clippy::cast_precision_loss, reason = "ratios are computed with float64 upstream, too")]
fn milli(cpu: i64) -> f64 {
    cpu as f64
}

fn counts(node: &Node) -> bool {
    let labels = node.metadata.labels.as_ref();
    !EXCLUDED.iter().any(|label| labels.is_some_and(|labels| labels.contains_key(*label))) && is_ready(node)
}

/// The zone of a node, if it has one.
pub(in crate::endpointslice) fn zone(node: &Node) -> Option<&str> {
    let labels = node.metadata.labels.as_ref()?;
    labels.get("topology.kubernetes.io/zone").map(String::as_str).filter(|zone| !zone.is_empty())
}

/// The allocatable CPU of a node in thousandths; none if it has none.
fn cpu(node: &Node) -> Option<i64> {
    let cpu = node.status.as_ref()?.allocatable.as_ref()?.get("cpu")?;
    let cpu: Quantity = cpu.0.parse().ok()?;
    Some(cpu.saturating_milli()).filter(|cpu| *cpu > 0)
}
