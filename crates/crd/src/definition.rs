//! Validation of `CustomResourceDefinitions`, with the messages of kube-apiserver 1.36.
//!
//! Upstream validates its internal type, in which fields that are equal in all versions are fields of the spec: an
//! error in the schema of the only version has the path `spec.validation`. Error paths here are the same.

mod conversion;
mod cost;
mod defaults;
mod schema;
mod structural;

use plumb_validation::field::{BadValue, FieldError, Path};
use plumb_validation::names::{dns_1035_label, dns_subdomain};
use serde_json::{Value, json};

use crate::names::is_condition_true;
use crate::rules::field_path;
use crate::schema::Schema;

/// The errors of a definition.
type Errors = Vec<FieldError>;

const SPEC: Path<'_> = Path::root("spec");

/// The annotation that definitions in the API groups of Kubernetes require.
const APPROVED: &str = "api-approved.kubernetes.io";

/// The maximum number of selectable fields (`MaxSelectableFields`).
const MAX_SELECTABLE_FIELDS: usize = 8;

/// Adds the storage version to `status.storedVersions`.
pub fn add_stored_version(definition: &mut Value) {
    let stored = versions(definition).iter().find(|version| version["storage"] == true);
    let Some(name) = stored.map(|version| version["name"].clone()) else { return };
    let list = &mut definition["status"]["storedVersions"];
    if !list.is_array() {
        *list = json!([]);
    }
    if let Some(list) = list.as_array_mut()
        && !list.contains(&name)
    {
        list.push(name);
    }
}

/// Warns about the unrecognized formats that an update adds, or that a new definition has.
pub fn warnings(definition: &Value, old: Option<&Value>) -> Vec<String> {
    let old_formats: Vec<String> = old.map(unrecognized_formats).unwrap_or_default();
    let mut formats = unrecognized_formats(definition);
    formats.retain(|format| !old_formats.contains(format));
    formats.into_iter().map(|format| format!("unrecognized format {format:?}")).collect()
}

fn unrecognized_formats(definition: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let mut pending: Vec<Schema> = Vec::new();
    let all: Vec<Schema> = versions(definition)
        .iter()
        .map(|version| Schema::from_json(&version["schema"]["openAPIV3Schema"]))
        .collect();
    // Upstream's internal type has one schema if all versions are equal, so each format is reported once.
    let shared = all.windows(2).all(|pair| pair[0] == pair[1]);
    pending.extend(all.into_iter().take(if shared { 1 } else { usize::MAX }));
    while let Some(schema) = pending.pop() {
        if crate::format::is_unrecognized(&schema.ty, &schema.format) {
            found.push(schema.format.clone());
        }
        pending.extend(schema.properties.into_values());
        pending.extend(schema.items.map(|items| *items));
        if let Some(crate::schema::Additional::Schema(other)) = schema.additional {
            pending.push(*other);
        }
    }
    found
}

/// Validates a new definition, except for its metadata.
pub fn create(definition: &Value) -> Errors {
    let mut errors = Errors::new();
    check_name(definition, &mut errors);
    check_spec(definition, None, &mut errors);
    check_stored_versions(definition, &mut errors);
    check_approval(definition, None, &mut errors);
    check_preserve_unknown_fields(definition, None, &mut errors);
    errors
}

/// Validates an updated definition.
pub fn update(old: &Value, new: &Value) -> Errors {
    let mut errors = Errors::new();
    check_spec(new, Some(old), &mut errors);
    if is_condition_true(old, "Established") {
        for (pointer, path) in [("/spec/scope", "scope"), ("/spec/names/kind", "names.kind")] {
            check_immutable(old, new, pointer, &SPEC.child(path), &mut errors);
        }
    }
    check_immutable(old, new, "/spec/group", &SPEC.child("group"), &mut errors);
    check_immutable(old, new, "/spec/names/plural", &SPEC.child("names.plural"), &mut errors);
    status(new, &mut errors);
    check_stored_versions(new, &mut errors);
    check_approval(new, Some(old), &mut errors);
    check_preserve_unknown_fields(new, Some(old), &mut errors);
    errors
}

/// Validates the status of a definition.
pub fn status(definition: &Value, errors: &mut Errors) {
    let root = Path::root("status");
    check_names(&definition["status"]["acceptedNames"], &root.child("acceptedNames"), errors);
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The versions of a definition.
pub fn versions(definition: &Value) -> &[Value] {
    definition["spec"]["versions"].as_array().map_or(&[], Vec::as_slice)
}

fn check_immutable(old: &Value, new: &Value, pointer: &str, path: &Path<'_>, errors: &mut Errors) {
    let new_value = new.pointer(pointer);
    if old.pointer(pointer) != new_value {
        errors.push(FieldError::invalid(path, text(new_value.unwrap_or(&Value::Null)), "field is immutable"));
    }
}

/// Validates that the name of a definition is made of its plural and its group.
fn check_name(definition: &Value, errors: &mut Errors) {
    let spec = &definition["spec"];
    let name = text(&definition["metadata"]["name"]);
    if name != format!("{}.{}", text(&spec["names"]["plural"]), text(&spec["group"])) {
        let rule = "must be spec.names.plural+\".\"+spec.group";
        errors.push(FieldError::invalid("metadata.name", name, rule));
    }
}

/// Whether a field is equal in all versions, so that it is a field of the spec in upstream's internal type.
fn is_shared(versions: &[Value], field: &str) -> bool {
    versions.windows(2).all(|pair| pair[0].get(field) == pair[1].get(field))
}

/// The value of a field that is equal in all versions.
fn shared<'a>(versions: &'a [Value], field: &str) -> Option<&'a Value> {
    versions.first().filter(|_| is_shared(versions, field))?.get(field)
}

fn check_spec(definition: &Value, old: Option<&Value>, errors: &mut Errors) {
    let spec = &definition["spec"];
    let versions = versions(definition);
    let group = text(&spec["group"]);
    let path = SPEC.child("group");
    if group.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else {
        let wrong = dns_subdomain(group);
        if !wrong.is_empty() {
            errors.push(FieldError::invalid(path, group, wrong.join(",")));
        } else if !group.contains('.') {
            errors.push(FieldError::invalid(path, group, "should be a domain with at least one dot"));
        }
    }
    match text(&spec["scope"]) {
        "" => errors.push(FieldError::required(SPEC.child("scope"), "")),
        "Cluster" | "Namespaced" => {}
        other => {
            let all = ["Cluster", "Namespaced"];
            errors.push(FieldError::not_supported(SPEC.child("scope"), other, &all));
        }
    }
    // A definition that was stored without a schema, as v1beta1 allowed, can still be updated.
    let missing = |version: &Value| !version["schema"]["openAPIV3Schema"].is_object();
    let old_missing = old.is_some_and(|old| self::versions(old).iter().any(missing));
    for (i, _) in versions.iter().enumerate().filter(|(_, version)| missing(version) && !old_missing) {
        let list = SPEC.child("versions");
        let path = list.index(i);
        errors.push(FieldError::required(path.child("schema.openAPIV3Schema"), ""));
    }
    check_each_version(definition, old, errors);
    check_version_list(versions, errors);
    let first = versions.first().map_or("", |version| text(&version["name"]));
    let wrong = dns_1035_label(first);
    if !versions.is_empty() && !first.is_empty() && !wrong.is_empty() {
        errors.push(FieldError::invalid(SPEC.child("version"), first, wrong.join(",")));
    }
    for field in ["plural", "singular", "kind", "listKind"] {
        if text(&spec["names"][field]).is_empty() {
            errors.push(FieldError::required(SPEC.child("names").child(field), ""));
        }
    }
    check_names(&spec["names"], &SPEC.child("names"), errors);
    check_shared_fields(definition, old, errors);
    if !matches!(text(&spec["conversion"]["strategy"]), "" | "None") && spec["preserveUnknownFields"] == true
    {
        let rule = "must be None if spec.preserveUnknownFields is true";
        let given = text(&spec["conversion"]["strategy"]);
        errors.push(FieldError::invalid(SPEC.child("conversion").child("strategy"), given, rule));
    }
    conversion::check(definition, old, errors);
}

/// Validates the fields of versions that are not equal in all of them.
fn check_each_version(definition: &Value, old: Option<&Value>, errors: &mut Errors) {
    let list = SPEC.child("versions");
    let versions = versions(definition);
    let differs = |field: &str| !is_shared(versions, field);
    for (i, version) in versions.iter().enumerate() {
        let path = list.index(i);
        let name = text(&version["name"]);
        let wrong = dns_1035_label(name);
        if !wrong.is_empty() {
            errors.push(FieldError::invalid(path.child("name"), name, wrong.join(",")));
        }
        check_deprecation_warning(version, &path, errors);
        if differs("schema") {
            let unchanged = unchanged(definition, old, name);
            let has_status = version["subresources"].get("status").is_some_and(|status| !status.is_null());
            schema::check(&version["schema"], has_status, unchanged, &path.child("schema"), errors);
        }
        if differs("subresources") {
            check_scale(&version["subresources"], &path.child("subresources"), errors);
        }
        if differs("additionalPrinterColumns") {
            check_printer_columns(
                &version["additionalPrinterColumns"],
                &path.child("additionalPrinterColumns"),
                errors,
            );
        }
        if differs("selectableFields") {
            check_selectable_fields(version, &path.child("selectableFields"), errors);
        }
    }
}

/// Validates the fields that are equal in all versions.
fn check_shared_fields(definition: &Value, old: Option<&Value>, errors: &mut Errors) {
    let versions = versions(definition);
    if let Some(schema) = shared(versions, "schema") {
        let has_status =
            |version: &Value| version["subresources"].get("status").is_some_and(|status| !status.is_null());
        let first = versions.first().map_or("", |version| text(&version["name"]));
        let unchanged = unchanged(definition, old, first);
        let any = versions.iter().any(has_status);
        schema::check(schema, any, unchanged, &SPEC.child("validation"), errors);
    }
    if let Some(subresources) = shared(versions, "subresources") {
        check_scale(subresources, &SPEC.child("subresources"), errors);
    }
    if let Some(list) = shared(versions, "additionalPrinterColumns") {
        check_printer_columns(list, &SPEC.child("additionalPrinterColumns"), errors);
    }
    if let (Some(_), Some(first)) = (shared(versions, "selectableFields"), versions.first()) {
        check_selectable_fields(first, &SPEC.child("selectableFields"), errors);
    }
}

/// Whether an update does not change the schema of a version. Such a schema may exceed the cost limits of CEL rules, so that
/// lower estimates in a new release do not block updates of stored definitions.
fn unchanged(definition: &Value, old: Option<&Value>, name: &str) -> bool {
    let schema = |definition: &Value| {
        let version = versions(definition).iter().find(|version| version["name"] == name);
        version.map(|version| version["schema"].clone())
    };
    old.is_some_and(|old| schema(old).is_some() && schema(old) == schema(definition))
}

/// Validates that version names are unique and that one version is the storage version.
fn check_version_list(versions: &[Value], errors: &mut Errors) {
    let path = SPEC.child("versions");
    let mut names: Vec<&str> = versions.iter().map(|version| text(&version["name"])).collect();
    names.sort_unstable();
    let all = names.len();
    names.dedup();
    if names.len() != all {
        errors.push(FieldError::invalid(
            path,
            internal_versions(versions),
            "must contain unique version names",
        ));
    }
    if versions.iter().filter(|version| version["storage"] == true).count() != 1 {
        let rule = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid(path, internal_versions(versions), rule));
    }
}

/// The JSON of the versions in upstream's internal type, which error messages display.
fn internal_versions(versions: &[Value]) -> BadValue {
    let differs = |field: &str| !is_shared(versions, field);
    let all: Vec<String> = versions
        .iter()
        .map(|version| {
            let field = |name: &str| match version.get(name).filter(|_| differs(name)) {
                Some(value) => value.to_string(),
                None => "null".to_owned(),
            };
            format!(
                r#"{{"Name":{},"Served":{},"Storage":{},"Deprecated":{},"DeprecationWarning":{},"Schema":{},"Subresources":{},"AdditionalPrinterColumns":{},"SelectableFields":{}}}"#,
                version["name"],
                version["served"] == true,
                version["storage"] == true,
                version["deprecated"] == true,
                version["deprecationWarning"],
                field("schema"),
                field("subresources"),
                field("additionalPrinterColumns"),
                field("selectableFields"),
            )
        })
        .collect();
    BadValue::Bare(if versions.is_empty() { "null".to_owned() } else { format!("[{}]", all.join(",")) })
}

fn check_deprecation_warning(version: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(warning) = version["deprecationWarning"].as_str() else { return };
    let path = path.child("deprecationWarning");
    let mut add = |rule: String| errors.push(FieldError::invalid(path, warning, rule));
    if version["deprecated"] != true {
        return add("can only be set for deprecated versions".to_owned());
    }
    if warning.len() > 256 {
        add("must be <= 256 characters long".to_owned());
    }
    if warning.is_empty() {
        add("must not be an empty string".to_owned());
    }
    if let Some((at, _)) = warning.char_indices().find(|(_, letter)| letter.is_control()) {
        add(format!(
            "must only contain printable UTF-8 characters; non-printable character found at index {at}"
        ));
    }
}

fn check_names(names: &Value, path: &Path<'_>, errors: &mut Errors) {
    for field in ["plural", "singular"] {
        let name = text(&names[field]);
        let wrong = dns_1035_label(name);
        if !name.is_empty() && !wrong.is_empty() {
            errors.push(FieldError::invalid(path.child(field), name, wrong.join(",")));
        }
    }
    for field in ["kind", "listKind"] {
        let name = text(&names[field]);
        let wrong = dns_1035_label(&name.to_lowercase());
        if !name.is_empty() && !wrong.is_empty() {
            let rule = format!("may have mixed case, but should otherwise match: {}", wrong.join(","));
            errors.push(FieldError::invalid(path.child(field), name, rule));
        }
    }
    let each = |field: &str, errors: &mut Errors| {
        for (i, name) in names[field].as_array().into_iter().flatten().enumerate() {
            let wrong = dns_1035_label(text(name));
            if !wrong.is_empty() {
                let list = path.child(field);
                errors.push(FieldError::invalid(list.index(i), text(name), wrong.join(",")));
            }
        }
    };
    each("shortNames", errors);
    let kind = text(&names["kind"]);
    if !kind.is_empty() && names["kind"] == names["listKind"] {
        let rule = "kind and listKind may not be the same";
        errors.push(FieldError::invalid(path.child("listKind"), kind, rule));
    }
    each("categories", errors);
}

/// Validates that a JSON path begins with a dot.
fn check_json_path(value: &str, path: &str, errors: &mut Errors) -> bool {
    if value.starts_with('.') {
        return true;
    }
    errors.push(FieldError::invalid(path, value, "must be a simple json path starting with ."));
    false
}

/// Validates the paths of the scale subresource.
fn check_scale(subresources: &Value, path: &Path<'_>, errors: &mut Errors) {
    let scale = &subresources["scale"];
    if !scale.is_object() {
        return;
    }
    for (field, root) in [("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")] {
        let path = path.child("scale").child(field).to_string();
        match text(&scale[field]) {
            "" => errors.push(FieldError::required(path, "")),
            value => {
                if check_json_path(value, &path, errors) && !value.starts_with(root) {
                    let rule = format!("should be a json path under {}", root.trim_end_matches('.'));
                    errors.push(FieldError::invalid(path, value, rule));
                }
            }
        }
    }
    let selector_path = text(&scale["labelSelectorPath"]);
    let path = path.child("scale.labelSelectorPath").to_string();
    let in_spec_or_status = selector_path.starts_with(".spec.") || selector_path.starts_with(".status.");
    if !selector_path.is_empty() && check_json_path(selector_path, &path, errors) && !in_spec_or_status {
        let rule = "should be a json path under either .spec or .status";
        errors.push(FieldError::invalid(path, selector_path, rule));
    }
}

fn check_printer_columns(list: &Value, path: &Path<'_>, errors: &mut Errors) {
    const TYPES: &str = "must be one of boolean,date,integer,number,string";
    const FORMATS: [&str; 8] = ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
    for (i, column) in list.as_array().into_iter().flatten().enumerate() {
        let path = path.index(i);
        if text(&column["name"]).is_empty() {
            errors.push(FieldError::required(path.child("name"), ""));
        }
        match text(&column["type"]) {
            "" => errors.push(FieldError::required(path.child("type"), TYPES)),
            "integer" | "number" | "string" | "boolean" | "date" => {}
            other => errors.push(FieldError::invalid(path.child("type"), other, TYPES)),
        }
        let format = text(&column["format"]);
        if !format.is_empty() && !FORMATS.contains(&format) {
            let rule = format!("must be one of {}", FORMATS.join(","));
            errors.push(FieldError::invalid(path.child("format"), format, rule));
        }
        // The field has this name in upstream's internal type.
        let path = path.child("JSONPath").to_string();
        match text(&column["jsonPath"]) {
            "" => errors.push(FieldError::required(path, "")),
            value => {
                check_json_path(value, &path, errors);
            }
        }
    }
}

fn check_selectable_fields(version: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(fields) = version["selectableFields"].as_array() else { return };
    let schema = Schema::from_json(&version["schema"]["openAPIV3Schema"]);
    let mut names: Vec<String> = Vec::new();
    for (i, field) in fields.iter().enumerate() {
        let path = path.index(i).child("jsonPath").to_string();
        let json_path = text(&field["jsonPath"]);
        if json_path.is_empty() {
            errors.push(FieldError::required(path, ""));
            continue;
        }
        let resolved = match field_path(json_path, &schema, false) {
            Ok(resolved) => resolved,
            Err(error) => {
                errors.push(FieldError::invalid(path, json_path, format!("is an invalid path: {error}")));
                continue;
            }
        };
        if resolved.first_name == "metadata" {
            errors.push(FieldError::invalid(&path, json_path, "must not point to fields in metadata"));
        }
        if !matches!(resolved.schema.ty.as_str(), "string" | "boolean" | "integer") {
            let rule = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
            errors.push(FieldError::invalid(&path, json_path, rule));
        }
        if names.contains(&resolved.path) {
            errors.push(FieldError::duplicate(path, json_path));
        } else {
            names.push(resolved.path);
        }
    }
    if names.len() > MAX_SELECTABLE_FIELDS {
        errors.push(FieldError::too_many(path, names.len(), MAX_SELECTABLE_FIELDS));
    }
}

fn check_stored_versions(definition: &Value, errors: &mut Errors) {
    let path = Path::root("status");
    let path = path.child("storedVersions");
    let list = definition["status"]["storedVersions"].as_array().map_or(&[][..], Vec::as_slice);
    let bad_value = || {
        let names: Vec<String> = list.iter().map(Value::to_string).collect();
        BadValue::Bare(if list.is_empty() { "null".to_owned() } else { format!("[{}]", names.join(",")) })
    };
    if list.is_empty() {
        errors.push(FieldError::invalid(path, bad_value(), "must have at least one stored version"));
        return;
    }
    let versions = versions(definition);
    for version in versions.iter().filter(|version| version["storage"] == true) {
        if !list.contains(&version["name"]) {
            let rule = format!("must have the storage version {}", text(&version["name"]));
            errors.push(FieldError::invalid(path, bad_value(), rule));
        }
    }
    for (i, name) in list.iter().enumerate() {
        if !versions.iter().any(|version| version["name"] == *name) {
            let name = text(name);
            let rule = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
            );
            errors.push(FieldError::invalid(path.index(i), name, rule));
        }
    }
}

/// The API approval of a definition in an API group of Kubernetes.
#[derive(PartialEq)]
enum Approval {
    Missing,
    Given,
    Invalid,
}

/// The API approval in the annotation of a definition.
fn approval(definition: &Value) -> Approval {
    let given = text(&definition["metadata"]["annotations"][APPROVED]);
    let url = given.split_once("://").is_some_and(|(scheme, rest)| {
        !scheme.is_empty() && !rest.is_empty() && !rest.starts_with('/') && !given.contains(' ')
    });
    match given {
        "" => Approval::Missing,
        _ if given.starts_with("unapproved") || url => Approval::Given,
        _ => Approval::Invalid,
    }
}

fn check_approval(definition: &Value, old: Option<&Value>, errors: &mut Errors) {
    let group = text(&definition["spec"]["group"]);
    let is_protected = ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|suffix| group == *suffix || group.ends_with(&format!(".{suffix}")));
    let state = approval(definition);
    // Upstream ratchets: an update may keep the state of the approval that the stored definition has.
    if !is_protected || old.is_some_and(|old| approval(old) == state) {
        return;
    }
    let path = format!("metadata.annotations[{APPROVED}]");
    match state {
        Approval::Given => {}
        Approval::Missing => {
            let rule = format!(
                "protected groups must have approval annotation {APPROVED:?}, see https://github.com/kubernetes/enhancements/pull/1111"
            );
            errors.push(FieldError::required(path, rule));
        }
        Approval::Invalid => {
            let given = text(&definition["metadata"]["annotations"][APPROVED]);
            let rule = format!(
                "protected groups must have approval annotation {APPROVED:?} with either a URL or a reason starting with \"unapproved\", see https://github.com/kubernetes/enhancements/pull/1111"
            );
            errors.push(FieldError::invalid(path, given, rule));
        }
    }
}

fn check_preserve_unknown_fields(definition: &Value, old: Option<&Value>, errors: &mut Errors) {
    let preserves = |definition: &Value| definition["spec"]["preserveUnknownFields"] == true;
    if preserves(definition) && !old.is_some_and(preserves) {
        let rule = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        errors.push(FieldError::invalid(SPEC.child("preserveUnknownFields"), true, rule));
    }
}
