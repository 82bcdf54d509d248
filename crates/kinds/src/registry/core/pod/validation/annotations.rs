//! Validation of pod annotations that Kubernetes defines.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use plumb_validation::field::{FieldError, Path};

use super::{container, files};
use plumb_apiserver::validation::Errors;

const MIRROR: &str = "kubernetes.io/config.mirror";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

fn annotations_of(meta: &ObjectMeta) -> &BTreeMap<String, String> {
    static NONE: BTreeMap<String, String> = BTreeMap::new();
    meta.annotations.as_ref().unwrap_or(&NONE)
}

/// Validates the annotations of a pod or pod template.
pub(super) fn validate_pod_annotations(
    meta: &ObjectMeta,
    spec: &PodSpec,
    allow_invalid_deletion_cost: bool,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let annotations = annotations_of(meta);
    if let Some(value) = annotations.get(MIRROR)
        && spec.node_name.as_deref().unwrap_or_default().is_empty()
    {
        let rule = "must set spec.nodeName if mirror pod annotation is set";
        errors.push(FieldError::invalid(path.key(MIRROR), value, rule));
    }
    if !allow_invalid_deletion_cost && has_invalid_deletion_cost(meta) {
        let value = annotations.get(DELETION_COST);
        errors.push(FieldError::invalid(path.key(DELETION_COST), value, "must be a 32bit integer"));
    }
    if let Some(profile) = annotations.get(SECCOMP_POD) {
        validate_seccomp_annotation(profile, &path.child(SECCOMP_POD), errors);
    }
    for (key, profile) in annotations.iter().filter(|(key, _)| key.starts_with(SECCOMP_CONTAINER)) {
        validate_seccomp_annotation(profile, &path.child(key), errors);
    }
    for (key, profile) in annotations {
        let Some(name) = key.strip_prefix(APP_ARMOR) else { continue };
        let mut found = false;
        container::visit_containers(spec, path, |container, _| found |= container.name == name);
        if !found {
            errors.push(FieldError::invalid(path.key(key), name, "container not found"));
        }
        let known = ["", "runtime/default", "unconfined"].contains(&profile.as_str());
        if !known && !profile.starts_with("localhost/") {
            let rule = format!("invalid AppArmor profile name: {profile:?}");
            errors.push(FieldError::invalid(path.key(key), profile, rule));
        }
    }
}

/// Whether a pod has a pod deletion cost that is not a 32-bit integer.
pub(super) fn has_invalid_deletion_cost(meta: &ObjectMeta) -> bool {
    // Upstream rejects a plus sign and leading zeros, except after a minus sign.
    let is_number = |text: &str| {
        let begins = text == "0" || text.starts_with(|c: char| c == '-' || ('1'..='9').contains(&c));
        begins && text.parse::<i32>().is_ok()
    };
    annotations_of(meta).get(DELETION_COST).is_some_and(|cost| !is_number(cost))
}

/// Validates an update of a pod's annotations.
pub(super) fn validate_pod_annotations_update(old: &Pod, new: &Pod, errors: &mut Errors) {
    let metadata = Path::root("metadata");
    let path = metadata.child("annotations");
    let (before, after) = (annotations_of(&old.metadata), annotations_of(&new.metadata));
    for (key, _) in before.iter().filter(|(key, value)| after.get(*key) != Some(value)) {
        if key.starts_with(APP_ARMOR) {
            let rule = "may not remove or update AppArmor annotations";
            errors.push(FieldError::forbidden(path.key(key), rule));
        }
        if key == MIRROR {
            let rule = "may not remove or update mirror pod annotation";
            errors.push(FieldError::forbidden(path.key(key), rule));
        }
    }
    for key in after.keys().filter(|key| !before.contains_key(*key)) {
        if key.starts_with(APP_ARMOR) {
            errors.push(FieldError::forbidden(path.key(key), "may not add AppArmor annotations"));
        }
        if key == MIRROR {
            errors.push(FieldError::forbidden(path.key(key), "may not add mirror pod annotation"));
        }
    }
    let nothing = PodSpec::default();
    let spec = new.spec.as_ref().unwrap_or(&nothing);
    validate_pod_annotations(&new.metadata, spec, has_invalid_deletion_cost(&old.metadata), &path, errors);
}

/// Validates that the seccomp and `AppArmor` annotations match the fields.
pub(super) fn validate_annotations_match_fields(
    meta: &ObjectMeta,
    spec: &PodSpec,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let annotations = annotations_of(meta);
    let of_pod = spec.security_context.as_ref();
    let seccomp = of_pod.and_then(|context| context.seccomp_profile.as_ref());
    if let (Some(profile), Some(annotation)) = (seccomp, annotations.get(SECCOMP_POD)) {
        let fields = (profile.type_.as_str(), profile.localhost_profile.as_deref());
        let context = path.child("securityContext");
        validate_annotation_matches_field(
            "seccomp",
            annotation,
            fields,
            &context.child("seccompProfile"),
            errors,
        );
    }
    container::visit_containers(spec, path, |container, path| {
        let context = container.security_context.as_ref();
        let context_path = path.child("securityContext");
        if let Some(profile) = context.and_then(|context| context.seccomp_profile.as_ref())
            && let Some(annotation) = annotations.get(&format!("{SECCOMP_CONTAINER}{}", container.name))
        {
            let fields = (profile.type_.as_str(), profile.localhost_profile.as_deref());
            validate_annotation_matches_field(
                "seccomp",
                annotation,
                fields,
                &context_path.child("seccompProfile"),
                errors,
            );
        }
        let own = context.and_then(|context| context.app_armor_profile.as_ref());
        if let Some(profile) = own.or(of_pod.and_then(|context| context.app_armor_profile.as_ref()))
            && let Some(annotation) = annotations.get(&format!("{APP_ARMOR}{}", container.name))
            && spec.os.as_ref().is_none_or(|os| os.name != "windows")
        {
            let fields = (profile.type_.as_str(), profile.localhost_profile.as_deref());
            validate_annotation_matches_field(
                "apparmor",
                annotation,
                fields,
                &context_path.child("appArmorProfile"),
                errors,
            );
        }
    });
}

fn validate_annotation_matches_field(
    what: &str,
    annotation: &str,
    (kind, profile): (&str, Option<&str>),
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let same_kind = match kind {
        "Unconfined" => annotation == "unconfined",
        "RuntimeDefault" => {
            annotation == "runtime/default" || (what == "seccomp" && annotation == "docker/default")
        }
        "Localhost" => annotation.starts_with("localhost/"),
        _ => true,
    };
    if !same_kind {
        let rule = format!("{what} type in annotation and field must match");
        errors.push(FieldError::forbidden(path.child("type"), rule));
    } else if kind == "Localhost" && annotation.strip_prefix("localhost/") != profile {
        let rule = format!("{what} profile in annotation and field must match");
        errors.push(FieldError::forbidden(path.child("localhostProfile"), rule));
    }
}

fn validate_seccomp_annotation(profile: &str, path: &Path<'_>, errors: &mut Errors) {
    if ["runtime/default", "docker/default", "unconfined"].contains(&profile) {
        return;
    }
    match profile.strip_prefix("localhost/") {
        Some(file) => files::validate_local_descending_path(file, path, errors),
        None => errors.push(FieldError::invalid(path, profile, "must be a valid seccomp profile")),
    }
}
