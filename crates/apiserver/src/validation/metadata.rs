//! Validation of `metav1.ObjectMeta`.

use plumb_validation::field::{BadValue, FieldError, Path};
use serde_json::Value;

use super::format::{self, Messages};
use super::json::{int, internal, list, pairs, raw, raw_list, shown, text, texts};
use super::{Errors, add_invalid, labels, validate_immutable_field, validate_nonnegative_field};

const METADATA: Path<'_> = Path::root("metadata");

/// The format of the names of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameFormat {
    /// A DNS subdomain.
    DnsSubdomain,
    /// A DNS label.
    DnsLabel,
    /// A segment of the path of a URL.
    PathSegment,
    /// An IP address in its canonical form.
    IpAddress,
}

impl NameFormat {
    fn messages(self, name: &str) -> Messages {
        match self {
            Self::DnsSubdomain => format::dns_subdomain(name),
            Self::DnsLabel => format::dns_label(name),
            Self::PathSegment => format::path_segment(name),
            Self::IpAddress => format::ip_address_name(name),
        }
    }

    /// The error messages about `generateName`, the prefix of a name.
    fn prefix_errors(self, prefix: &str) -> Messages {
        match self {
            // SPEC: kube-apiserver replaces two characters, not only the dash, which matters for the length limit.
            Self::DnsSubdomain | Self::DnsLabel if prefix.len() > 1 && prefix.ends_with('-') => {
                let kept = prefix.get(..prefix.len() - 2).unwrap_or_default();
                self.messages(&format!("{kept}a"))
            }
            _ => self.messages(prefix),
        }
    }
}

/// Validates the metadata of an object by itself.
pub(crate) fn validate_object_meta(namespaced: bool, name: NameFormat, object: &Value, errors: &mut Errors) {
    let metadata = &object["metadata"];
    let prefix = text(metadata, "generateName");
    if !prefix.is_empty() {
        add_invalid(errors, &METADATA.child("generateName"), prefix, name.prefix_errors(prefix));
    }
    match text(metadata, "name") {
        "" => errors.push(FieldError::required(METADATA.child("name"), "name or generateName is required")),
        own => add_invalid(errors, &METADATA.child("name"), own, name.messages(own)),
    }
    match (namespaced, text(metadata, "namespace")) {
        (true, "") => errors.push(FieldError::required(METADATA.child("namespace"), "")),
        (true, namespace) => {
            add_invalid(errors, &METADATA.child("namespace"), namespace, format::dns_label(namespace));
        }
        (false, "") => {}
        (false, _) => {
            errors.push(FieldError::forbidden(METADATA.child("namespace"), "not allowed on this type"));
        }
    }
    validate_nonnegative_field(
        int(metadata, "generation").unwrap_or(0),
        &METADATA.child("generation"),
        errors,
    );
    validate_labels_annotations_and_owners(metadata, errors);
    validate_finalizers(metadata, errors);
    validate_managed_fields(metadata, errors);
}

/// Validates an update of the metadata.
pub(crate) fn validate_object_meta_update(old: &Value, new: &Value, errors: &mut Errors) {
    let (before, after) = (&old["metadata"], &new["metadata"]);
    if !before["deletionTimestamp"].is_null() {
        validate_no_new_finalizers(before, after, errors);
    }
    if text(after, "resourceVersion").is_empty() {
        let path = METADATA.child("resourceVersion");
        errors.push(FieldError::invalid(path, "", "must be specified for an update"));
    }
    let generation = int(after, "generation").unwrap_or(0);
    if generation < int(before, "generation").unwrap_or(0) {
        errors.push(FieldError::invalid(METADATA.child("generation"), generation, "must not be decremented"));
    }
    for field in ["name", "namespace", "uid"] {
        if text(before, field) != text(after, field) {
            errors.push(FieldError::invalid(METADATA.child(field), text(after, field), "field is immutable"));
        }
    }
    for field in ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        validate_immutable_field(before.get(field), after.get(field), &METADATA.child(field), errors);
    }
    validate_labels_annotations_and_owners(after, errors);
    validate_managed_fields(after, errors);
}

fn validate_labels_annotations_and_owners(metadata: &Value, errors: &mut Errors) {
    labels::validate_labels(pairs(metadata, "labels"), &METADATA.child("labels"), errors);
    labels::validate_annotations(pairs(metadata, "annotations"), &METADATA.child("annotations"), errors);
    validate_owner_references(metadata, errors);
}

fn validate_owner_references(metadata: &Value, errors: &mut Errors) {
    let path = METADATA.child("ownerReferences");
    let mut first: Option<String> = None;
    for owner in list(metadata, "ownerReferences") {
        let version = text(owner, "apiVersion");
        // Upstream parses `v1` and `apps/v1`; a value with more parts has an empty version.
        let parts = version.split('/').count();
        if version.is_empty() || version == "/" || parts > 2 {
            errors.push(FieldError::invalid(path.child("apiVersion"), version, "version must not be empty"));
        }
        for field in ["kind", "name", "uid"] {
            if text(owner, field).is_empty() {
                errors.push(FieldError::invalid(path.child(field), "", "must not be empty"));
            }
        }
        if version == "v1" && text(owner, "kind") == "Event" {
            let rule = "/v1, Kind=Event is disallowed from being an owner";
            errors.push(FieldError::invalid(path, BadValue::Bare(shown_owner(owner)), rule));
        }
        if owner["controller"] == true {
            let this = format!("{}/{}", text(owner, "kind"), text(owner, "name"));
            if let Some(first) = &first {
                let rule = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {this}"
                );
                let all = list(metadata, "ownerReferences").iter().map(shown_owner).collect();
                errors.push(FieldError::invalid(path, BadValue::Bare(raw_list(Some(all))), rule));
            } else {
                first = Some(this);
            }
        }
    }
}

/// An owner reference as error messages show it, with its fields in the order of the API's type.
fn shown_owner(owner: &Value) -> String {
    let fields = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];
    let given = fields.into_iter().filter_map(|field| Some((field, raw(owner.get(field)?))));
    internal(&given.collect::<Vec<_>>())
}

fn validate_finalizers(metadata: &Value, errors: &mut Errors) {
    let path = METADATA.child("finalizers");
    for finalizer in texts(metadata, "finalizers") {
        add_invalid(errors, &path, finalizer, format::qualified_name(finalizer));
    }
    let has = |name: &str| texts(metadata, "finalizers").any(|finalizer| finalizer == name);
    if has("orphan") && has("foregroundDeletion") {
        let rule = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid(path, shown(metadata.get("finalizers")), rule));
    }
}

/// Validates that finalizers without a prefix are standard ones.
pub(crate) fn validate_finalizer_names(object: &Value, errors: &mut Errors) {
    let metadata = &object["metadata"];
    for (i, finalizer) in texts(metadata, "finalizers").enumerate() {
        if !finalizer.contains('/') && !["kubernetes", "orphan", "foregroundDeletion"].contains(&finalizer) {
            let rule = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(METADATA.child("finalizers").index(i), finalizer, rule));
        }
    }
}

fn validate_no_new_finalizers(before: &Value, after: &Value, errors: &mut Errors) {
    let was = |name: &str| texts(before, "finalizers").any(|old| old == name);
    let mut added: Vec<&str> = texts(after, "finalizers").filter(|name| !was(name)).collect();
    if added.is_empty() {
        return;
    }
    added.sort_unstable();
    added.dedup();
    let names: Vec<String> = added.into_iter().map(|name| BadValue::from(name).to_string()).collect();
    let rule = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
        names.join(", ")
    );
    errors.push(FieldError::forbidden(METADATA.child("finalizers"), rule));
}

fn validate_managed_fields(metadata: &Value, errors: &mut Errors) {
    for (i, entry) in list(metadata, "managedFields").iter().enumerate() {
        let all = METADATA.child("managedFields");
        let path = all.index(i);
        let operation = text(entry, "operation");
        if !matches!(operation, "Apply" | "Update") {
            errors.push(FieldError::invalid(
                path.child("operation"),
                operation,
                "must be `Apply` or `Update`",
            ));
        }
        let form = text(entry, "fieldsType");
        if !matches!(form, "" | "FieldsV1") {
            errors.push(FieldError::invalid(path.child("fieldsType"), form, "must be `FieldsV1`"));
        }
        if text(entry, "manager").len() > 128 {
            errors.push(FieldError::too_long(path.child("manager"), 128));
        }
        if text(entry, "subresource").len() > 256 {
            errors.push(FieldError::too_long(path.child("subresource"), 256));
        }
    }
}
