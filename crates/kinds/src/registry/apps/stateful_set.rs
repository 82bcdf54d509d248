//! `StatefulSets`.

use k8s_openapi::api::core::v1::{PersistentVolumeClaimVolumeSource, PodTemplateSpec, Volume};
use plumb_resize::rules::Rules;
use plumb_validation::field::{BadValue, FieldError, Path};
use serde_json::{Value, json};

use super::print::{CONTAINERS_OF_TEMPLATE, READY, ready};
use super::validation::{self, STATEFUL_SET_FIELDS};
use crate::registry::core::persistent_volume_claim::{validation as claim, warnings as claim_warnings};
use crate::registry::core::pod::{validation as pod, warnings as pod_warnings};
use crate::registry::{StatusMetadataChecks, Strategy, disabled_fields, pod_template};
use crate::validation::template::{self, Selection};
use plumb_apiserver::table::PrintColumns;
use plumb_apiserver::table::column::{AGE, CONTAINERS, IMAGES, NAME};
use plumb_apiserver::validation::json::{int, list, map, shown, text};
use plumb_apiserver::validation::{
    Errors, NameFormat, add_invalid, format, percent, typed, validate_nonnegative_field,
    validate_nonnegative_fields,
};
use plumb_apiserver::warnings;

const SPEC: Path<'_> = Path::root("spec");

const TEMPLATE: &str = "/spec/template";

/// The strategy of `StatefulSets`.
#[derive(Debug)]
pub(in crate::registry) struct StatefulSetStrategy;

impl Strategy for StatefulSetStrategy {
    fn name_format(&self) -> NameFormat {
        NameFormat::DnsLabel
    }

    fn status_metadata_checks(&self) -> StatusMetadataChecks {
        StatusMetadataChecks::AfterStatus
    }

    fn print_columns(&self) -> &'static PrintColumns {
        &PRINT_COLUMNS
    }

    fn counts_generation(&self) -> bool {
        true
    }

    fn warnings(&self, new: &Value) -> Vec<String> {
        pod_warnings::template(new, TEMPLATE)
    }

    fn drop_disabled_fields(&self, old: Option<&Value>, new: &mut Value) {
        let pointer = "/spec/updateStrategy/rollingUpdate";
        if let Some(update) = new.pointer_mut(pointer) {
            let old = old.and_then(|old| old.pointer(pointer));
            disabled_fields::drop_unless_used(old, update, &["maxUnavailable"]);
        }
        pod_template::drop_disabled_fields(TEMPLATE, old, new);
    }

    fn validate(&self, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validate_stateful_set_spec(&new["spec"], true, true, errors);
    }

    fn validate_update(&self, old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validate_stateful_set_update(old, new, errors);
    }

    fn validate_status_update(&self, old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validate_stateful_set_status(old, new, errors);
    }

    fn warnings_on_create(&self, new: &Value) -> Vec<String> {
        let mut warnings = self.warnings(new);
        add_warnings(new, "", &mut warnings);
        warnings
    }

    fn warnings_on_update(&self, old: &Value, new: &Value) -> Vec<String> {
        let mut warnings = if warnings::is_changed(old, new) { self.warnings(new) } else { Vec::new() };
        // SPEC: upstream's warnings name another path in an update than in a create.
        add_warnings(new, ".Spec", &mut warnings);
        warnings
    }
}

fn validate_stateful_set_update(old: &Value, new: &Value, errors: &mut Errors) {
    const MUTABLE: [&str; 7] = [
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    ];
    // A StatefulSet that was stored with an invalid template can still be scaled and deleted: an update of it skips
    // the validation of the template.
    let mut before = Errors::new();
    validate_stateful_set_spec(&old["spec"], false, true, &mut before);
    validate_stateful_set_spec(&new["spec"], false, before.is_empty(), errors);
    let fixed = |object: &Value| {
        let mut spec = map(object, "spec").cloned().unwrap_or_default();
        spec.retain(|field, value| !MUTABLE.contains(&field.as_str()) && !value.is_null());
        spec
    };
    if fixed(old) != fixed(new) {
        let rule = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                    'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and \
                    'minReadySeconds' are forbidden";
        errors.push(FieldError::forbidden(SPEC, rule));
    }
}

fn validate_stateful_set_spec(spec: &Value, new: bool, with_template: bool, errors: &mut Errors) {
    match text(spec, "podManagementPolicy") {
        "" => errors.push(FieldError::required(SPEC.child("podManagementPolicy"), "")),
        "OrderedReady" | "Parallel" => {}
        other => {
            let rule = "must be 'OrderedReady' or 'Parallel'";
            errors.push(FieldError::invalid(SPEC.child("podManagementPolicy"), other, rule));
        }
    }
    validate_update_strategy(&spec["updateStrategy"], &SPEC.child("updateStrategy"), errors);
    if let Some(policy) = spec.get("persistentVolumeClaimRetentionPolicy") {
        for field in ["whenDeleted", "whenScaled"] {
            let value = text(policy, field);
            if !["Retain", "Delete"].contains(&value) {
                let path = SPEC.child("persistentVolumeClaimRetentionPolicy");
                errors.push(FieldError::not_supported(path.child(field), value, &["Retain", "Delete"]));
            }
        }
    }
    if new {
        for (i, claim) in list(spec, "volumeClaimTemplates").iter().enumerate() {
            if let Some(claim) = typed(&claim["spec"], errors) {
                let list = SPEC.child("volumeClaimTemplates");
                claim::validate_claim_spec(&claim, &list.index(i).child("spec"), errors);
            }
        }
    }
    validate_nonnegative_fields(spec, &["replicas", "minReadySeconds"], &SPEC, errors);
    if let Some(start) = int(&spec["ordinals"], "start") {
        validate_nonnegative_field(start, &SPEC.child("ordinals.start"), errors);
    }
    let service = text(spec, "serviceName");
    if new && !service.is_empty() {
        add_invalid(errors, &SPEC.child("serviceName"), service, format::dns_label(service));
    }
    let empty = "empty selector is invalid for statefulset";
    let selection = template::validate_selector(spec, true, Some(empty), Some(""), errors);
    if matches!(selection, Selection::Invalid) {
        if let Some(template) = typed(&spec["template"], errors) {
            template::validate_always_restart_policy(&template, "StatefulSet", errors);
        }
    } else if let Some(mut template) = template::validate_template_labels(spec, &selection, errors) {
        add_volumes_of_claim_templates(spec, &mut template);
        if with_template {
            pod::validate_pod_template_spec(&template, &SPEC.child("template"), errors);
        }
        let meta = template.metadata.clone().unwrap_or_default();
        let pod_spec = template.spec.clone().unwrap_or_default();
        pod::validate_pod_template_metadata(&meta, &pod_spec, &SPEC.child("template"), errors);
        template::validate_always_restart_policy(&template, "StatefulSet", errors);
    }
}

/// Adds a volume per volume claim template, as the controller does in pods: containers may mount them.
fn add_volumes_of_claim_templates(spec: &Value, template: &mut PodTemplateSpec) {
    let claims =
        list(spec, "volumeClaimTemplates").iter().map(|claim| text(&claim["metadata"], "name").to_owned());
    let mut claims: Vec<String> = claims.collect();
    // Duplicate names count once.
    let mut seen = std::collections::BTreeSet::new();
    claims.retain(|claim| seen.insert(claim.clone()));
    let Some(pod) = &mut template.spec else { return };
    // The controller sets the hostname and subdomain of the pods.
    pod.subdomain = None;
    pod.hostname = None;
    if claims.is_empty() {
        return;
    }
    let others = pod.volumes.take().unwrap_or_default();
    let others = others.into_iter().filter(|volume| !claims.contains(&volume.name));
    let claimed = claims.iter().map(|name| Volume {
        name: name.clone(),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name: name.clone(),
            ..PersistentVolumeClaimVolumeSource::default()
        }),
        ..Volume::default()
    });
    pod.volumes = Some(claimed.chain(others).collect());
}

fn validate_update_strategy(strategy: &Value, path: &Path<'_>, errors: &mut Errors) {
    let rolling_path = path.child("rollingUpdate");
    match (text(strategy, "type"), strategy.get("rollingUpdate")) {
        ("", _) => errors.push(FieldError::required(path, "")),
        ("OnDelete", Some(rolling)) => {
            let rule = "only allowed for updateStrategy 'RollingUpdate'";
            errors.push(FieldError::invalid(
                rolling_path,
                BadValue::Bare(validation::shown_rolling_update(rolling, &STATEFUL_SET_FIELDS)),
                rule,
            ));
        }
        ("RollingUpdate", Some(rolling)) => {
            validate_nonnegative_fields(rolling, &["partition"], &rolling_path, errors);
            if let Some(unavailable) = rolling.get("maxUnavailable") {
                let path = rolling_path.child("maxUnavailable");
                percent::validate_nonnegative_int_or_percent(unavailable, &path, errors);
                if percent::int_or_percent_value(unavailable) == 0 {
                    errors.push(FieldError::invalid(path, shown(Some(unavailable)), "cannot be 0"));
                }
                percent::validate_not_more_than_100_percent(unavailable, &path, errors);
            }
        }
        ("OnDelete" | "RollingUpdate", None) => {}
        _ => {
            let rule = "must be 'RollingUpdate' or 'OnDelete'";
            errors.push(FieldError::invalid(
                path,
                validation::shown_strategy(strategy, &STATEFUL_SET_FIELDS),
                rule,
            ));
        }
    }
}

fn validate_stateful_set_status(old: &Value, new: &Value, errors: &mut Errors) {
    let fields = [
        "replicas",
        "readyReplicas",
        "currentReplicas",
        "updatedReplicas",
        "availableReplicas",
        "observedGeneration",
        "collisionCount",
    ];
    let parts = ["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"];
    validation::validate_replica_counts(
        &new["status"],
        &fields,
        &parts,
        "cannot be greater than status.readyReplicas",
        errors,
    );
    validation::validate_collision_count(old, new, errors);
}

/// Warnings other than those about the pod template. `suffix` follows the path of a volume claim template.
fn add_warnings(set: &Value, suffix: &str, warnings: &mut Vec<String>) {
    let claims = set["spec"]["volumeClaimTemplates"].as_array();
    for (i, claim) in claims.into_iter().flatten().enumerate() {
        claim_warnings::spec(&claim["spec"], &format!("spec.volumeClaimTemplates[{i}]{suffix}"), warnings);
    }
    if set["spec"]["revisionHistoryLimit"].as_i64().is_some_and(|limit| limit < 0) {
        warnings.push(
            "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is \
             recommended"
                .to_owned(),
        );
    }
}

static PRINT_COLUMNS: PrintColumns =
    PrintColumns::new(&[NAME, READY, AGE, CONTAINERS.wide(), IMAGES.wide()], |object| {
        let (names, images) = object.containers(CONTAINERS_OF_TEMPLATE);
        json!([object.name(), ready(object), object.age(), names, images])
    });
