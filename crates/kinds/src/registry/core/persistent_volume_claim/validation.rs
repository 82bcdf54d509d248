//! Validation of `PersistentVolumeClaims`.

use k8s_openapi::api::core::v1::PersistentVolumeClaimSpec;
use plumb_apischema::{Schema, semantic};
use plumb_resize::Quantity;
use plumb_validation::field::{BadValue, FieldError, Path};
use serde_json::{Map, Value};

use plumb_apiserver::validation::json::{entries, is_empty, map, text};
use plumb_apiserver::validation::{Errors, add_invalid, format, labels, typed, validate_immutable_field};

const SPEC: Path<'_> = Path::root("spec");
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

/// Validates a new claim.
pub(super) fn create(object: &Value, errors: &mut Errors) {
    if let Some(claim) = typed(&object["spec"], errors) {
        validate_claim_spec(&claim, &SPEC, errors);
    }
}

/// Validates an updated claim: the spec is immutable, except that the storage request of a bound claim may grow.
pub(super) fn update(old: &Value, new: &Value, errors: &mut Errors) {
    if let (Some(before), Some(after)) = (typed(&old["spec"], errors), typed(&new["spec"], errors)) {
        validate_claim_spec_with_options(&after, ClaimSpecOptions::of_stored(&before), &SPEC, errors);
    }
    let [before, mut after] = [old, new].map(|claim| map(claim, "spec").cloned().unwrap_or_default());
    reset_mutable_fields(old, new, &before, &mut after, errors);
    if !is_semantically_equal(&before, &after) {
        let changed = changed_fields(&before, &after);
        let rule = format!(
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n{changed}"
        );
        errors.push(FieldError::forbidden(SPEC, rule));
    }
    let size = |claim: &Value, pointer: &str| {
        let size = claim.pointer(pointer).and_then(Value::as_str);
        size.and_then(|text| text.parse::<Quantity>().ok()).unwrap_or(Quantity::ZERO)
    };
    let storage = "/spec/resources/requests/storage";
    let requested = size(new, storage);
    if requested < size(old, storage) && requested <= size(old, "/status/capacity/storage") {
        let rule = "field can not be less than status.capacity";
        errors.push(FieldError::forbidden("spec.resources.requests.storage", rule));
    }
    let path = Path::root("volumeMode");
    validate_immutable_field(old["spec"].get("volumeMode"), new["spec"].get("volumeMode"), &path, errors);
    validate_volume_attributes_class_update(old, new, errors);
}

/// Resets the mutable fields of the updated spec to their stored values, so that only other changes remain.
fn reset_mutable_fields(
    old: &Value,
    new: &Value,
    before: &Map<String, Value>,
    after: &mut Map<String, Value>,
    errors: &mut Errors,
) {
    let mut reset = |field: &str, from: Option<&Value>| match from {
        Some(value) => drop(after.insert(field.to_owned(), value.clone())),
        None => drop(after.remove(field)),
    };
    if text(&old["spec"], "volumeName").is_empty() {
        reset("volumeName", before.get("volumeName"));
    }
    // An update can set the storage class of a claim without one, or move it from the beta annotation to the field.
    let annotated =
        |claim: &Value| Some(claim["metadata"]["annotations"].get(CLASS_ANNOTATION)?.as_str()?.to_owned());
    let (annotation, annotation_now) = (annotated(old), annotated(new));
    let class = new["spec"].get("storageClassName").and_then(Value::as_str);
    let had_none = before.get("storageClassName").is_none_or(Value::is_null);
    let fits = class.is_some() && annotation.as_deref().is_none_or(|annotation| class == Some(annotation));
    let is_class_moved = had_none && annotation.is_some() && fits;
    if !(is_class_moved && annotation_now.as_ref().is_none_or(|now| annotation.as_ref() == Some(now))) {
        let (was, is) = (annotation.unwrap_or_default(), annotation_now.unwrap_or_default());
        if was != is {
            let path = format!("metadata.annotations.{CLASS_ANNOTATION}");
            errors.push(FieldError::invalid(path, is, "field is immutable"));
        }
    }
    if had_none && fits {
        reset("storageClassName", None);
    }
    if text(&new["status"], "phase") != "Bound" {
        return;
    }
    reset("volumeAttributesClassName", before.get("volumeAttributesClassName"));
    if let Some(requests) = after.get_mut("resources").and_then(|resources| resources.get_mut("requests"))
        && requests.is_object()
    {
        let storage = before.get("resources").and_then(|resources| resources["requests"].get("storage"));
        requests["storage"] = storage.cloned().unwrap_or_else(|| "0".into());
    }
}

fn is_semantically_equal(one: &Map<String, Value>, other: &Map<String, Value>) -> bool {
    let schema = Schema::builtin();
    let claim = schema.kind("", "v1", "PersistentVolumeClaim");
    let spec = claim.and_then(|kind| schema.struct_behind(schema[kind.body].field("spec")?.ty));
    spec.map_or(one == other, |spec| {
        semantic::equal_structs(schema, spec, &Value::Object(one.clone()), &Value::Object(other.clone()))
    })
}

/// Validates that an update does not remove a volume attributes class that is applied.
fn validate_volume_attributes_class_update(old: &Value, new: &Value, errors: &mut Errors) {
    let class = |claim: &Value| {
        claim["spec"].get("volumeAttributesClassName").and_then(Value::as_str).map(str::to_owned)
    };
    let is_applied =
        old["status"].get("currentVolumeAttributesClassName").is_some_and(|class| !class.is_null());
    if !is_applied || class(old) == class(new) {
        return;
    }
    let to = match class(new).as_deref() {
        None => "nil",
        Some("") => "empty string",
        Some(_) => return,
    };
    let rule = format!("update to {to} is forbidden when status.currentVolumeAttributesClassName is not nil");
    errors.push(FieldError::forbidden("spec.volumeAttributesClassName", rule));
}

/// Validates an updated status of a claim.
pub(super) fn update_status(new: &Value, errors: &mut Errors) {
    const RESIZES: [&str; 5] = [
        "ControllerResizeInProgress",
        "ControllerResizeInfeasible",
        "NodeResizeInProgress",
        "NodeResizeInfeasible",
        "NodeResizePending",
    ];
    if is_empty(&new["spec"], "accessModes") {
        errors.push(FieldError::required("Spec.accessModes", ""));
    }
    let (root, status) = (Path::root("status"), &new["status"]);
    for (name, amount) in entries(status, "capacity") {
        validate_quantity(amount, &root.child("capacity").key(name), errors);
    }
    let path = root.child("allocatedResourceStatuses");
    for (name, resize) in entries(status, "allocatedResourceStatuses") {
        validate_resource_name(name, &path, errors);
        if !resize.as_str().is_some_and(|resize| RESIZES.contains(&resize)) {
            errors.push(FieldError::not_supported(path, name, &RESIZES));
        }
    }
    let path = root.child("allocatedResources");
    for (name, amount) in entries(status, "allocatedResources") {
        if validate_resource_name(name, &path, errors) {
            validate_quantity(amount, &path.key(name), errors);
        }
    }
}

fn validate_quantity(amount: &Value, path: &Path<'_>, errors: &mut Errors) {
    let quantity = amount.as_str().and_then(|text| text.parse::<Quantity>().ok());
    if let Some(units) = quantity.map(Quantity::saturating_units).filter(|units| *units < 0) {
        errors.push(FieldError::invalid(path, units, "must be a valid resource quantity"));
    }
}

/// Validates the name of a resource in the status of a claim: `storage` is the only native resource.
fn validate_resource_name(name: &str, path: &Path<'_>, errors: &mut Errors) -> bool {
    let before = errors.len();
    add_invalid(errors, path, name, format::qualified_name(name));
    let native = !name.contains('/') || name.contains("kubernetes.io/");
    if errors.len() == before && native && name != "storage" {
        errors.push(FieldError::not_supported(path, name, &["storage"]));
    }
    errors.len() == before
}

/// Validates the spec of a claim, of a volume claim template or of an ephemeral volume.
pub(in crate::registry) fn validate_claim_spec(
    spec: &PersistentVolumeClaimSpec,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    validate_claim_spec_with_options(spec, ClaimSpecOptions::default(), path, errors);
}

/// Which invalid values an update tolerates because the stored claim has them.
#[derive(Clone, Copy, Debug, Default)]
struct ClaimSpecOptions {
    /// API groups of data sources that are not DNS subdomains.
    allow_invalid_api_groups: bool,
    /// Label values in the selector that are not valid.
    allow_invalid_selector: bool,
}

impl ClaimSpecOptions {
    fn of_stored(old: &PersistentVolumeClaimSpec) -> Self {
        let source = old.data_source.as_ref().and_then(|source| source.api_group.as_ref());
        let reference = old.data_source_ref.as_ref().and_then(|source| source.api_group.as_ref());
        Self {
            // SPEC: kube-apiserver tests whether a group is set, not whether it is invalid.
            allow_invalid_api_groups: source.or(reference).is_some(),
            allow_invalid_selector: old
                .selector
                .as_ref()
                .is_some_and(|selector| !labels::is_valid_selector(selector)),
        }
    }
}

fn validate_claim_spec_with_options(
    spec: &PersistentVolumeClaimSpec,
    options: ClaimSpecOptions,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    const MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
    let modes = spec.access_modes.as_deref().unwrap_or_default();
    let modes_path = path.child("accessModes");
    if modes.is_empty() {
        errors.push(FieldError::required(modes_path, "at least 1 access mode is required"));
    }
    if let Some(selector) = spec.selector.as_ref().filter(|_| !options.allow_invalid_selector) {
        labels::validate_label_selector(selector, &path.child("selector"), errors);
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
    validate_class_name(spec.storage_class_name.as_deref(), &path.child("storageClassName"), errors);
    if let Some(mode) = spec.volume_mode.as_deref().filter(|mode| !["Block", "Filesystem"].contains(mode)) {
        errors.push(FieldError::not_supported(path.child("volumeMode"), mode, &["Block", "Filesystem"]));
    }
    validate_data_sources(spec, options, path, errors);
    let attributes = spec.volume_attributes_class_name.as_deref();
    validate_class_name(attributes, &path.child("volumeAttributesClassName"), errors);
}

fn validate_class_name(class: Option<&str>, path: &Path<'_>, errors: &mut Errors) {
    if let Some(class) = class.filter(|class| !class.is_empty()) {
        add_invalid(errors, path, class, format::dns_subdomain(class));
    }
}

fn validate_data_sources(
    spec: &PersistentVolumeClaimSpec,
    options: ClaimSpecOptions,
    path: &Path<'_>,
    errors: &mut Errors,
) {
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
        if !group.is_empty() && !options.allow_invalid_api_groups {
            add_invalid(errors, &path.child("apiGroup"), group, format::dns_subdomain(group));
        }
    }
    let elsewhere = spec.data_source_ref.as_ref().and_then(|source| source.namespace.as_deref());
    if let Some(namespace) = elsewhere.filter(|namespace| !namespace.is_empty()) {
        let path = path.child("dataSourceRef");
        add_invalid(errors, &path.child("namespace"), namespace, format::dns_label(namespace));
    }
    let (Some(source), Some(reference)) = (source, reference) else { return };
    // SPEC: kube-apiserver passes the path as the value, which prints as an empty object.
    let nothing = BadValue::Bare("{}".to_owned());
    if elsewhere.is_some_and(|namespace| !namespace.is_empty()) {
        let rule = "may not be specified when dataSourceRef.namespace is specified";
        errors.push(FieldError::invalid(path, nothing, rule));
    } else if (source.1, source.2, source.3) != (reference.1, reference.2, reference.3) {
        errors.push(FieldError::invalid(path, nothing, "must match dataSourceRef"));
    }
}

/// The names of the fields that differ, one per line.
fn changed_fields(before: &Map<String, Value>, after: &Map<String, Value>) -> String {
    let mut fields: Vec<&String> = before.keys().chain(after.keys()).collect();
    fields.sort_unstable();
    fields.dedup();
    let changed = fields.into_iter().filter(|field| before.get(*field) != after.get(*field));
    let changed: Vec<String> = changed.map(|field| format!("  spec.{field}\n")).collect();
    changed.concat()
}
