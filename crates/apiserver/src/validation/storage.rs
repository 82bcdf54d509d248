//! Claims of storage, and the names of its drivers.

use k8s_openapi::api::core::v1::PersistentVolumeClaimSpec;
use plumb_resize::Quantity;
use plumb_resize::field::{BadValue, FieldError, Path};
use plumb_resize::rules::Rules;
use serde_json::{Map, Value};

use super::json::{map, text};
use super::{Errors, complain, format, immutable, labels, typed};

const SPEC: Path<'_> = Path::root("spec");

/// The name of a storage driver: of the DNS, but upper case passes.
pub(super) fn driver_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    if name.len() > 63 {
        errors.push(FieldError::too_long(path, 63));
    }
    complain(errors, path, name, format::dns_subdomain(&name.to_lowercase()));
}

/// A new claim.
pub(super) fn claim(object: &Value, _rules: &Rules, errors: &mut Errors) {
    if let Some(spec) = typed(&object["spec"], errors) {
        claim_spec(&spec, &SPEC, errors);
    }
}

/// A changed claim: what was asked for stays, but a bound one may grow.
pub(super) fn claim_update(old: &Value, new: &Value, rules: &Rules, errors: &mut Errors) {
    claim(new, rules, errors);
    let bound = text(&new["status"], "phase") == "Bound";
    let fixed = |claim: &Value| {
        let mut spec = map(claim, "spec").cloned().unwrap_or_default();
        spec.retain(|_, value| !value.is_null());
        if text(&old["spec"], "volumeName").is_empty() {
            spec.remove("volumeName");
        }
        if bound {
            spec.remove("volumeAttributesClassName");
            if let Some(requests) = spec.get_mut("resources").and_then(|r| r.get_mut("requests")) {
                requests.as_object_mut().and_then(|requests| requests.remove("storage"));
            }
        }
        // A class can be given to a claim that had none.
        if old["spec"].get("storageClassName").is_none() {
            spec.remove("storageClassName");
        }
        spec
    };
    let (before, after) = (fixed(old), fixed(new));
    if before != after {
        let changed = changes(&before, &after);
        let rule = format!(
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n{changed}"
        );
        errors.push(FieldError::forbidden(SPEC, rule));
    }
    let size = |claim: &Value, pointer: &str| {
        claim.pointer(pointer).and_then(Value::as_str).and_then(|text| text.parse::<Quantity>().ok())
    };
    let storage = "/spec/resources/requests/storage";
    let after = size(new, storage).unwrap_or_else(|| Quantity::from_units(0));
    if let Some(before) = size(old, storage)
        && after < before
        && size(old, "/status/capacity/storage").map_or(!after.is_positive(), |capacity| after <= capacity)
    {
        let rule = "field can not be less than status.capacity";
        errors.push(FieldError::forbidden("spec.resources.requests.storage", rule));
    }
    let path = Path::root("volumeMode");
    immutable(old["spec"].get("volumeMode"), new["spec"].get("volumeMode"), &path, errors);
}

/// What a claim asks for, wherever it stands.
pub(super) fn claim_spec(spec: &PersistentVolumeClaimSpec, path: &Path<'_>, errors: &mut Errors) {
    const MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
    let modes = spec.access_modes.as_deref().unwrap_or_default();
    let modes_path = path.child("accessModes");
    if modes.is_empty() {
        errors.push(FieldError::required(modes_path, "at least 1 access mode is required"));
    }
    if let Some(selector) = &spec.selector {
        labels::selector(selector, &path.child("selector"), errors);
    }
    for mode in modes.iter().filter(|mode| !MODES.contains(&mode.as_str())) {
        errors.push(FieldError::not_supported(modes_path, mode, &MODES));
    }
    let alone = |mode: &String| mode == "ReadWriteOncePod";
    if modes.iter().any(alone) && modes.iter().any(|mode| !alone(mode) && MODES.contains(&mode.as_str())) {
        let rule = "may not use ReadWriteOncePod with other access modes";
        errors.push(FieldError::forbidden(modes_path, rule));
    }
    let resources = path.child("resources");
    let storage_path = resources.key("storage");
    let storage = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref()?.get("storage"));
    match storage {
        None => errors.push(FieldError::required(storage_path, "")),
        Some(amount) => {
            if amount.0.parse::<Quantity>().is_ok_and(|quantity| !quantity.is_positive()) {
                errors.push(FieldError::invalid(storage_path, &amount.0, "must be greater than zero"));
            }
        }
    }
    for (field, class) in [
        ("storageClassName", &spec.storage_class_name),
        ("volumeAttributesClassName", &spec.volume_attributes_class_name),
    ] {
        if let Some(class) = class.as_deref().filter(|class| !class.is_empty()) {
            complain(errors, &path.child(field), class, format::dns_subdomain(class));
        }
    }
    if let Some(mode) = spec.volume_mode.as_deref().filter(|mode| !["Block", "Filesystem"].contains(mode)) {
        errors.push(FieldError::not_supported(path.child("volumeMode"), mode, &["Block", "Filesystem"]));
    }
    sources(spec, path, errors);
}

fn sources(spec: &PersistentVolumeClaimSpec, path: &Path<'_>, errors: &mut Errors) {
    let source = spec.data_source.as_ref().map(|s| ("dataSource", &s.name, &s.kind, &s.api_group));
    let reference = spec.data_source_ref.as_ref().map(|s| ("dataSourceRef", &s.name, &s.kind, &s.api_group));
    for (field, name, kind, group) in [source, reference].into_iter().flatten() {
        let path = path.child(field);
        if name.is_empty() {
            errors.push(FieldError::required(path.child("name"), ""));
        }
        if kind.is_empty() {
            errors.push(FieldError::required(path.child("kind"), ""));
        }
        let group = group.as_deref().unwrap_or_default();
        if group.is_empty() && kind != "PersistentVolumeClaim" {
            let rule = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
            errors.push(FieldError::invalid(path, kind, rule));
        }
        if !group.is_empty() {
            complain(errors, &path.child("apiGroup"), group, format::dns_subdomain(group));
        }
    }
    let elsewhere = spec.data_source_ref.as_ref().and_then(|source| source.namespace.as_deref());
    if let Some(namespace) = elsewhere.filter(|namespace| !namespace.is_empty()) {
        let path = path.child("dataSourceRef");
        complain(errors, &path.child("namespace"), namespace, format::dns_label(namespace));
    }
    if let (Some((_, name, kind, group)), Some(other)) = (source, reference)
        && (name, kind, group.as_deref().unwrap_or_default())
            != (other.1, other.2, other.3.as_deref().unwrap_or_default())
    {
        // SPEC: kube-apiserver shows the path where the value should be, and has nothing to show of it.
        let nothing = BadValue::Bare("{}".to_owned());
        errors.push(FieldError::invalid(path, nothing, "must match dataSourceRef"));
    }
}

/// Which fields differ, one a line.
fn changes(before: &Map<String, Value>, after: &Map<String, Value>) -> String {
    let mut fields: Vec<&String> = before.keys().chain(after.keys()).collect();
    fields.sort_unstable();
    fields.dedup();
    let changed = fields.into_iter().filter(|field| before.get(*field) != after.get(*field));
    let changed: Vec<String> = changed.map(|field| format!("  spec.{field}\n")).collect();
    changed.concat()
}
