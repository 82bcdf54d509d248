//! Validation of Nodes.

use plumb_validation::field::{BadValue, FieldError, Path};
use serde_json::Value;

use crate::registry::core::pod::validation::scheduling::EFFECTS;
use crate::validation::resource_name;
use plumb_apiserver::validation::json::{entries, internal, list, raw, shown, text, texts};
use plumb_apiserver::validation::{Errors, add_invalid, format};

const METADATA: Path<'_> = Path::root("metadata");
const POD_CIDR_IMMUTABLE: &str = "node updates may not change podCIDR except from \"\" to valid";

/// Validates a new node.
pub(super) fn create(node: &Value, errors: &mut Errors) {
    validate_taints(node, errors);
    validate_resources(node, errors);
    let ranges: Vec<&str> = texts(&node["spec"], "podCIDRs").collect();
    let spec = Path::root("spec");
    let path = spec.child("podCIDRs");
    for (i, range) in ranges.iter().enumerate() {
        add_invalid(errors, &path.index(i), range, format::cidr(range));
    }
    if ranges.len() > 1 {
        let six = ranges.iter().filter(|range| range.contains(':')).count();
        if ranges.len() > 2 || six != 1 {
            let rule = "may specify no more than one CIDR for each IP family";
            errors.push(FieldError::invalid(path, shown(node["spec"].get("podCIDRs")), rule));
        }
    }
}

/// Validates an updated node.
pub(super) fn update(old: &Value, new: &Value, errors: &mut Errors) {
    create(new, errors);
    update_status(old, new, errors);
}

/// Validates an updated status of a node.
pub(super) fn update_status(old: &Value, new: &Value, errors: &mut Errors) {
    validate_resources(new, errors);
    let addresses = list(&new["status"], "addresses");
    for (i, address) in addresses.iter().enumerate().filter(|(i, address)| addresses[..*i].contains(address))
    {
        let value =
            internal(&[("Type", raw(&text(address, "type"))), ("Address", raw(&text(address, "address")))]);
        errors.push(FieldError::duplicate(format!("status.addresses[{i}]"), BadValue::Bare(value)));
    }
    let ranges = |node: &Value| texts(&node["spec"], "podCIDRs").map(str::to_owned).collect::<Vec<_>>();
    let (before, after) = (ranges(old), ranges(new));
    if !before.is_empty() {
        let changed = if before.len() == after.len() {
            before.iter().zip(&after).filter(|(before, after)| before != after).count()
        } else {
            1
        };
        errors.extend((0..changed).map(|_| FieldError::forbidden("spec.podCIDRs", POD_CIDR_IMMUTABLE)));
    }
    let (before, after) = (text(&old["spec"], "providerID"), text(&new["spec"], "providerID"));
    if !before.is_empty() && before != after {
        let rule = "node updates may not change providerID except from \"\" to valid";
        errors.push(FieldError::forbidden("spec.providerID", rule));
    }
    validate_taints(new, errors);
    if text(&old["spec"], "externalID") != text(&new["spec"], "externalID") {
        errors.push(FieldError::forbidden("spec.externalID", "may not be updated"));
    }
}

fn validate_taints(node: &Value, errors: &mut Errors) {
    // SPEC: kube-apiserver's errors name `metadata.taints`, although the field is in the spec.
    let list_path = METADATA.child("taints");
    let taints = list(&node["spec"], "taints");
    for (i, taint) in taints.iter().enumerate() {
        let path = list_path.index(i);
        let (key, value, effect) = (text(taint, "key"), text(taint, "value"), text(taint, "effect"));
        add_invalid(errors, &path.child("key"), key, format::qualified_name(key));
        let messages = format::label_value(value);
        if !messages.is_empty() {
            errors.push(FieldError::invalid(path.child("value"), value, messages.join(";")));
        }
        if effect.is_empty() {
            errors.push(FieldError::required(path.child("effect"), ""));
        } else if !EFFECTS.contains(&effect) {
            errors.push(FieldError::not_supported(path.child("effect"), effect, &EFFECTS));
        }
        let same = |other: &&Value| text(other, "key") == key && text(other, "effect") == effect;
        if taints[..i].iter().any(|other| same(&other)) {
            let rule = "taints must be unique by key and effect pair";
            let value = internal(&[
                ("Key", raw(&key)),
                ("Value", raw(&value)),
                ("Effect", raw(&effect)),
                ("TimeAdded", raw(&taint.get("timeAdded"))),
            ]);
            errors.push(FieldError::duplicate(path, BadValue::Bare(value)).because(rule));
        }
    }
}

fn validate_resources(node: &Value, errors: &mut Errors) {
    for field in ["capacity", "allocatable"] {
        for (name, amount) in entries(&node["status"], field) {
            let status = Path::root("status");
            let list = status.child(field);
            resource_name::validate_resource_quantity_value(
                name,
                amount.as_str().unwrap_or_default(),
                &list.child(name),
                errors,
            );
        }
    }
}
