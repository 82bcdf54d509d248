//! Giving endpoints of zones that have too many to zones that have too few.

use std::collections::BTreeMap;

use k8s_openapi::api::discovery::v1::Endpoint;

use super::zones::{Allocation, float};
use super::{Endpoints, for_zone};

/// Gives endpoints of zones with more than they should have to those with fewer. Of equal zones the first by name counts;
/// upstream takes any.
pub(super) fn redistribute<'a>(
    slices: impl Iterator<Item = &'a mut Endpoint>,
    allocations: &BTreeMap<String, Allocation>,
    endpoints: &mut Endpoints,
) {
    let (mut giving, mut receiving) = transfers(allocations, endpoints);
    for endpoint in slices {
        let Some(receiver) = receiving.keys().next().cloned() else { return };
        let giver = endpoint.zone.clone().unwrap_or_default();
        if !take(&mut giving, &giver) {
            continue;
        }
        take(&mut receiving, &receiver);
        if let Some(count) = endpoints.get_mut(&giver) {
            *count -= 1;
        }
        *endpoints.entry(receiver.clone()).or_default() += 1;
        endpoint.hints = Some(for_zone(receiver));
    }
}

/// Takes one off the count of a zone; false if it has none.
fn take(counts: &mut Endpoints, zone: &str) -> bool {
    let Some(count) = counts.get_mut(zone) else { return false };
    *count -= 1;
    if *count == 0 {
        counts.remove(zone);
    }
    true
}

/// How many endpoints zones give, and how many they receive.
fn transfers(allocations: &BTreeMap<String, Allocation>, endpoints: &Endpoints) -> (Endpoints, Endpoints) {
    let mut surplus: BTreeMap<&str, f64> = BTreeMap::new();
    let mut deficit: BTreeMap<&str, f64> = BTreeMap::new();
    for (zone, allocation) in allocations {
        let difference = float(endpoints.get(zone).copied().unwrap_or_default()) - allocation.desired;
        if difference > 0.0 {
            surplus.insert(zone, difference);
        } else if difference < 0.0 {
            deficit.insert(zone, -difference);
        }
    }
    let (mut giving, mut receiving) = (Endpoints::new(), Endpoints::new());
    // Each turn takes one off a positive number, so it ends.
    while let (Some((giver, to_give)), Some((receiver, to_receive))) = (most(&surplus), most(&deficit)) {
        if (to_give < 1.0 && to_receive < 1.0) || to_give < 0.5 || to_receive < 0.5 {
            break;
        }
        *giving.entry(giver.to_owned()).or_default() += 1;
        *receiving.entry(receiver.to_owned()).or_default() += 1;
        surplus.insert(giver, to_give - 1.0);
        deficit.insert(receiver, to_receive - 1.0);
    }
    (giving, receiving)
}

/// The zone with the largest positive number.
fn most<'a>(zones: &BTreeMap<&'a str, f64>) -> Option<(&'a str, f64)> {
    let positive = zones.iter().filter(|(_, number)| **number > 0.0);
    positive.fold(None, |most: Option<(&str, f64)>, (zone, number)| match most {
        Some((_, largest)) if largest >= *number => most,
        _ => Some((*zone, *number)),
    })
}
