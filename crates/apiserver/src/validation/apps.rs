//! Deployments, `ReplicaSets`, `StatefulSets`, `DaemonSets`.

use k8s_openapi::api::core::v1::{PersistentVolumeClaimVolumeSource, PodTemplateSpec, Volume};
use plumb_resize::rules::Rules;
use plumb_validation::field::{BadValue, FieldError, Path};
use serde_json::Value;

use super::json::{int, internal, list, map, raw, shown, text};
use super::template::Selection;
use super::{Errors, all_nonnegative, claim, complain, format, percent, pod, template, typed};

const SPEC: Path<'_> = Path::root("spec");
const STATUS: Path<'_> = Path::root("status");
/// The fields of a rolling update of a `StatefulSet`.
const STATEFUL: [&str; 2] = ["Partition", "MaxUnavailable"];
const OVER_REPLICAS: &str = "cannot be greater than status.replicas";

/// A new Deployment.
pub(super) fn deployment(object: &Value, _rules: &Rules, errors: &mut Errors) {
    let spec = &object["spec"];
    all_nonnegative(spec, &["replicas"], &SPEC, errors);
    replicated(spec, errors);
    strategy(&spec["strategy"], &SPEC.child("strategy"), errors);
    all_nonnegative(
        spec,
        &["minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"],
        &SPEC,
        errors,
    );
    if let Some(deadline) = int(spec, "progressDeadlineSeconds")
        && deadline <= int(spec, "minReadySeconds").unwrap_or(0)
    {
        let rule = "must be greater than minReadySeconds";
        errors.push(FieldError::invalid(SPEC.child("progressDeadlineSeconds"), deadline, rule));
    }
}

pub(super) fn deployment_update(old: &Value, new: &Value, rules: &Rules, errors: &mut Errors) {
    deployment(new, rules, errors);
    template::same_selector(old, new, errors);
}

/// A new `ReplicaSet`.
pub(super) fn replica_set(object: &Value, _rules: &Rules, errors: &mut Errors) {
    let spec = &object["spec"];
    all_nonnegative(spec, &["replicas", "minReadySeconds"], &SPEC, errors);
    replicated(spec, errors);
}

pub(super) fn replica_set_update(old: &Value, new: &Value, rules: &Rules, errors: &mut Errors) {
    replica_set(new, rules, errors);
    template::same_selector(old, new, errors);
}

/// A new `DaemonSet`.
pub(super) fn daemon_set(object: &Value, _rules: &Rules, errors: &mut Errors) {
    let spec = &object["spec"];
    let empty = "empty selector is invalid for daemonset";
    let selection = template::selector(spec, false, Some(empty), None, errors);
    if let Some(template) = template::selected(spec, &selection, errors) {
        pod::template(&template, &SPEC.child("template"), errors);
        template::always_restarts(&template, "DaemonSet", errors);
    }
    all_nonnegative(spec, &["minReadySeconds"], &SPEC, errors);
    daemon_strategy(&spec["updateStrategy"], &SPEC.child("updateStrategy"), errors);
    all_nonnegative(spec, &["revisionHistoryLimit"], &SPEC, errors);
}

pub(super) fn daemon_set_update(old: &Value, new: &Value, rules: &Rules, errors: &mut Errors) {
    template::same_selector(old, new, errors);
    daemon_set(new, rules, errors);
}

/// A new `StatefulSet`.
pub(super) fn stateful_set(object: &Value, _rules: &Rules, errors: &mut Errors) {
    stateful(&object["spec"], true, true, errors);
}

pub(super) fn stateful_set_update(old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
    const MUTABLE: [&str; 7] = [
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    ];
    // A set that was stored broken can still be scaled and deleted: its template is not looked at again.
    let mut before = Errors::new();
    stateful(&old["spec"], false, true, &mut before);
    stateful(&new["spec"], false, before.is_empty(), errors);
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

fn stateful(spec: &Value, new: bool, with_template: bool, errors: &mut Errors) {
    match text(spec, "podManagementPolicy") {
        "" => errors.push(FieldError::required(SPEC.child("podManagementPolicy"), "")),
        "OrderedReady" | "Parallel" => {}
        other => {
            let rule = "must be 'OrderedReady' or 'Parallel'";
            errors.push(FieldError::invalid(SPEC.child("podManagementPolicy"), other, rule));
        }
    }
    stateful_strategy(&spec["updateStrategy"], &SPEC.child("updateStrategy"), errors);
    if let Some(policy) = spec.get("persistentVolumeClaimRetentionPolicy") {
        for field in ["whenDeleted", "whenScaled"] {
            let word = text(policy, field);
            if !["Retain", "Delete"].contains(&word) {
                let path = SPEC.child("persistentVolumeClaimRetentionPolicy");
                errors.push(FieldError::not_supported(path.child(field), word, &["Retain", "Delete"]));
            }
        }
    }
    if new {
        for (i, claim) in list(spec, "volumeClaimTemplates").iter().enumerate() {
            if let Some(claim) = typed(&claim["spec"], errors) {
                let list = SPEC.child("volumeClaimTemplates");
                claim::spec(&claim, &list.index(i).child("spec"), errors);
            }
        }
    }
    all_nonnegative(spec, &["replicas", "minReadySeconds"], &SPEC, errors);
    if let Some(start) = int(&spec["ordinals"], "start") {
        super::nonnegative(start, &SPEC.child("ordinals.start"), errors);
    }
    let service = text(spec, "serviceName");
    if new && !service.is_empty() {
        complain(errors, &SPEC.child("serviceName"), service, format::dns_label(service));
    }
    let empty = "empty selector is invalid for statefulset";
    let selection = template::selector(spec, true, Some(empty), Some(""), errors);
    if matches!(selection, Selection::Unsound) {
        if let Some(template) = typed(&spec["template"], errors) {
            template::always_restarts(&template, "StatefulSet", errors);
        }
    } else if let Some(mut template) = template::selected(spec, &selection, errors) {
        add_claimed_volumes(spec, &mut template);
        if with_template {
            pod::template(&template, &SPEC.child("template"), errors);
        }
        let meta = template.metadata.clone().unwrap_or_default();
        let pod_spec = template.spec.clone().unwrap_or_default();
        pod::template_metadata(&meta, &pod_spec, &SPEC.child("template"), errors);
        template::always_restarts(&template, "StatefulSet", errors);
    }
}

/// The claims of a set become volumes of its pods, and containers may mount them.
fn add_claimed_volumes(spec: &Value, template: &mut PodTemplateSpec) {
    let claims =
        list(spec, "volumeClaimTemplates").iter().map(|claim| text(&claim["metadata"], "name").to_owned());
    let mut claims: Vec<String> = claims.collect();
    // The last of a name is the one that counts.
    let mut seen = std::collections::BTreeSet::new();
    claims.retain(|claim| seen.insert(claim.clone()));
    let Some(pod) = &mut template.spec else { return };
    // The set gives its pods names of their own.
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

fn replicated(spec: &Value, errors: &mut Errors) {
    let empty = "empty selector is invalid for deployment";
    let selection = template::selector(spec, true, Some(empty), Some("invalid label selector"), errors);
    if matches!(selection, Selection::Unsound) {
        return;
    }
    if let Some(template) = template::selected(spec, &selection, errors) {
        pod::template(&template, &SPEC.child("template"), errors);
        template::always_restarts(&template, "ReplicaSet", errors);
    }
}

/// A strategy as messages show it.
fn shown_strategy(strategy: &Value, fields: &[&str]) -> BadValue {
    let rolling = strategy.get("rollingUpdate");
    let rolling = rolling.map_or_else(|| "null".to_owned(), |rolling| shown_rolling(rolling, fields));
    BadValue::Bare(internal(&[("Type", raw(&text(strategy, "type"))), ("RollingUpdate", rolling)]))
}

fn shown_rolling(rolling: &Value, fields: &[&str]) -> String {
    let value = |field: &str| match rolling.get(field[..1].to_lowercase() + &field[1..]) {
        Some(value) => value.to_string(),
        // In Go, only what is optional can be absent.
        None if field == "MaxUnavailable" && fields == STATEFUL => "null".to_owned(),
        None => "0".to_owned(),
    };
    internal(&fields.iter().map(|field| (*field, value(field))).collect::<Vec<_>>())
}

fn strategy(strategy: &Value, path: &Path<'_>, errors: &mut Errors) {
    let rolling = strategy.get("rollingUpdate");
    let rolling_path = path.child("rollingUpdate");
    match (text(strategy, "type"), rolling) {
        ("Recreate", Some(_)) => {
            let rule = "may not be specified when strategy `type` is 'Recreate'";
            errors.push(FieldError::forbidden(rolling_path, rule));
        }
        ("Recreate", None) => {}
        ("RollingUpdate", None) => {
            errors.push(FieldError::required(rolling_path, "this should be defaulted and never be nil"));
        }
        ("RollingUpdate", Some(rolling)) => {
            let (unavailable, surge) = (&rolling["maxUnavailable"], &rolling["maxSurge"]);
            let unavailable_path = rolling_path.child("maxUnavailable");
            percent::number_or_percent(unavailable, &unavailable_path, errors);
            percent::number_or_percent(surge, &rolling_path.child("maxSurge"), errors);
            if percent::amount(unavailable) == 0 && percent::amount(surge) == 0 {
                let rule = "may not be 0 when `maxSurge` is 0";
                errors.push(FieldError::invalid(unavailable_path, shown(Some(unavailable)), rule));
            }
            percent::at_most_all(unavailable, &unavailable_path, errors);
        }
        _ => {
            let known = ["Recreate", "RollingUpdate"];
            errors.push(FieldError::not_supported(
                path,
                shown_strategy(strategy, &["MaxUnavailable", "MaxSurge"]),
                &known,
            ));
        }
    }
}

fn daemon_strategy(strategy: &Value, path: &Path<'_>, errors: &mut Errors) {
    let rolling_path = path.child("rollingUpdate");
    match (text(strategy, "type"), strategy.get("rollingUpdate")) {
        ("OnDelete", _) => {}
        ("RollingUpdate", None) => errors.push(FieldError::required(rolling_path, "")),
        ("RollingUpdate", Some(rolling)) => {
            let (unavailable, surge) = (&rolling["maxUnavailable"], &rolling["maxSurge"]);
            let (unavailable_path, surge_path) =
                (rolling_path.child("maxUnavailable"), rolling_path.child("maxSurge"));
            percent::number_or_percent(unavailable, &unavailable_path, errors);
            percent::number_or_percent(surge, &surge_path, errors);
            percent::at_most_all(unavailable, &unavailable_path, errors);
            percent::at_most_all(surge, &surge_path, errors);
            match (percent::amount(unavailable) != 0, percent::amount(surge) != 0) {
                (true, true) => {
                    let rule = "may not be set when maxUnavailable is non-zero";
                    errors.push(FieldError::invalid(surge_path, shown(Some(surge)), rule));
                }
                (false, false) => {
                    errors.push(FieldError::required(unavailable_path, "cannot be 0 when maxSurge is 0"));
                }
                _ => {}
            }
        }
        _ => {
            let known = ["RollingUpdate", "OnDelete"];
            errors.push(FieldError::not_supported(
                path,
                shown_strategy(strategy, &["MaxUnavailable", "MaxSurge"]),
                &known,
            ));
        }
    }
}

fn stateful_strategy(strategy: &Value, path: &Path<'_>, errors: &mut Errors) {
    let rolling_path = path.child("rollingUpdate");
    match (text(strategy, "type"), strategy.get("rollingUpdate")) {
        ("", _) => errors.push(FieldError::required(path, "")),
        ("OnDelete", Some(rolling)) => {
            let rule = "only allowed for updateStrategy 'RollingUpdate'";
            errors.push(FieldError::invalid(
                rolling_path,
                BadValue::Bare(shown_rolling(rolling, &STATEFUL)),
                rule,
            ));
        }
        ("RollingUpdate", Some(rolling)) => {
            all_nonnegative(rolling, &["partition"], &rolling_path, errors);
            if let Some(unavailable) = rolling.get("maxUnavailable") {
                let path = rolling_path.child("maxUnavailable");
                percent::number_or_percent(unavailable, &path, errors);
                if percent::amount(unavailable) == 0 {
                    errors.push(FieldError::invalid(path, shown(Some(unavailable)), "cannot be 0"));
                }
                percent::at_most_all(unavailable, &path, errors);
            }
        }
        ("OnDelete" | "RollingUpdate", None) => {}
        _ => {
            let rule = "must be 'RollingUpdate' or 'OnDelete'";
            errors.push(FieldError::invalid(path, shown_strategy(strategy, &STATEFUL), rule));
        }
    }
}

pub(super) fn deployment_status(old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
    let fields = [
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "terminatingReplicas",
        "collisionCount",
    ];
    let parts = ["updatedReplicas", "readyReplicas", "availableReplicas"];
    replicas_status(&new["status"], &fields, &parts, "cannot be greater than readyReplicas", errors);
    collisions(old, new, errors);
}

pub(super) fn replica_set_status(_old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
    let fields = [
        "replicas",
        "fullyLabeledReplicas",
        "readyReplicas",
        "availableReplicas",
        "observedGeneration",
        "terminatingReplicas",
    ];
    let parts = ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"];
    replicas_status(&new["status"], &fields, &parts, "cannot be greater than readyReplicas", errors);
}

pub(super) fn stateful_set_status(old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
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
    replicas_status(&new["status"], &fields, &parts, "cannot be greater than status.readyReplicas", errors);
    collisions(old, new, errors);
}

pub(super) fn daemon_set_status(old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
    let fields = [
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
        "observedGeneration",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
        "collisionCount",
    ];
    all_nonnegative(&new["status"], &fields, &STATUS, errors);
    collisions(old, new, errors);
}

/// Numbers of replicas: none negative, the parts no larger than the whole, no more available than ready.
fn replicas_status(status: &Value, fields: &[&str], parts: &[&str], over_ready: &str, errors: &mut Errors) {
    all_nonnegative(status, fields, &STATUS, errors);
    let number = |field: &str| int(status, field).unwrap_or(0);
    for part in parts {
        if number(part) > number("replicas") {
            errors.push(FieldError::invalid(STATUS.child(part), number(part), OVER_REPLICAS));
        }
    }
    let available = number("availableReplicas");
    if available > number("readyReplicas") {
        errors.push(FieldError::invalid(STATUS.child("availableReplicas"), available, over_ready));
    }
}

fn collisions(old: &Value, new: &Value, errors: &mut Errors) {
    let count = |object: &Value| int(&object["status"], "collisionCount");
    if let Some(before) = count(old)
        && count(new).is_none_or(|after| after < before)
    {
        let path = STATUS.child("collisionCount");
        errors.push(FieldError::invalid(path, count(new).unwrap_or(0), "cannot be decremented"));
    }
}
