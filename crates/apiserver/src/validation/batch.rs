//! Jobs and `CronJobs`.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use plumb_resize::field::{BadValue, FieldError};
use plumb_resize::rules::{JobTemplate, Rules};
use serde_json::{Map, Value};

use super::json::{int, is_empty, list, shown, text, truth};
use super::path::Path;
use super::template::Selection;
use super::{Errors, all_nonnegative, complain, cron, format, immutable, one_of, pod, template, typed};

const SPEC: Path<'_> = Path::root("spec");

/// A new Job, with the selector that its strategy gave it.
pub(super) fn job(object: &Value, _rules: &Rules, errors: &mut Errors) {
    let spec = &object["spec"];
    job_spec(spec, &SPEC, errors);
    selection(spec, errors);
    let name = text(&object["metadata"], "name");
    if let Some(completions) = int(spec, "completions").filter(|n| *n > 0 && is_indexed(spec)) {
        let host = format!("{name}-{}", completions - 1);
        if !format::dns_label(&host).is_empty() {
            let rule = format!("will not able to create pod with invalid DNS label: {host}");
            errors.push(FieldError::invalid("metadata.name", name, rule));
        }
    }
}

pub(super) fn job_update(old: &Value, new: &Value, rules: &Rules, errors: &mut Errors) {
    job(new, rules, errors);
    let (before, after) = (&old["spec"], &new["spec"]);
    job_spec(after, &SPEC, errors);
    selection(after, errors);
    completions(before, after, errors);
    immutable(before.get("selector"), after.get("selector"), &SPEC.child("selector"), errors);
    template_update(old, new, rules, errors);
    for field in ["completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"]
    {
        immutable(before.get(field), after.get(field), &SPEC.child(field), errors);
    }
}

/// A new `CronJob`.
pub(super) fn cron_job(object: &Value, _rules: &Rules, errors: &mut Errors) {
    cron_spec(None, &object["spec"], errors);
    let name = text(&object["metadata"], "name");
    if name.len() > 52 {
        errors.push(FieldError::invalid("metadata.name", name, "must be no more than 52 characters"));
    }
}

pub(super) fn cron_job_update(old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
    cron_spec(Some(&old["spec"]), &new["spec"], errors);
}

fn cron_spec(old: Option<&Value>, spec: &Value, errors: &mut Errors) {
    let path = SPEC.child("schedule");
    let schedule = text(spec, "schedule");
    if schedule.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else {
        errors.extend(cron::complaint(schedule).map(|rule| FieldError::invalid(path, schedule, rule)));
        let had_zone = old.is_some_and(|old| text(old, "schedule").contains("TZ"));
        let names_zone = schedule.contains("TZ");
        let rule = match (had_zone, spec.get("timeZone").is_some()) {
            (true, true) => Some("cannot use both timeZone field and TZ or CRON_TZ in schedule"),
            (true, false) => None,
            (false, _) => Some("cannot use TZ or CRON_TZ in schedule, use timeZone field instead"),
        };
        errors.extend(rule.filter(|_| names_zone).map(|rule| FieldError::invalid(path, schedule, rule)));
    }
    all_nonnegative(spec, &["startingDeadlineSeconds"], &SPEC, errors);
    if old.is_none_or(|old| old.get("timeZone") != spec.get("timeZone")) {
        time_zone(spec, errors);
    }
    let policies = ["Allow", "Forbid", "Replace"];
    one_of(Some(text(spec, "concurrencyPolicy")), &policies, &SPEC.child("concurrencyPolicy"), errors);
    let template = SPEC.child("jobTemplate");
    let path = template.child("spec");
    let inner = &spec["jobTemplate"]["spec"];
    job_spec(inner, &path, errors);
    if let Some(selector) = inner.get("selector") {
        let rule = "`selector` will be auto-generated";
        errors.push(FieldError::invalid(path.child("selector"), shown(Some(selector)), rule));
    }
    if truth(inner, "manualSelector") {
        errors.push(FieldError::not_supported(path.child("manualSelector"), true, &["nil", "false"]));
    }
    all_nonnegative(spec, &["successfulJobsHistoryLimit", "failedJobsHistoryLimit"], &SPEC, errors);
}

/// The name of a time zone, as far as its form goes: which zones exist is known to who runs the job.
fn time_zone(spec: &Value, errors: &mut Errors) {
    let Some(zone) = spec.get("timeZone").and_then(Value::as_str) else { return };
    let path = SPEC.child("timeZone");
    let is_part = |part: &str| {
        let inside = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b'+');
        (1..=14).contains(&part.len())
            && part.bytes().all(inside)
            && !matches!(part, "." | "..")
            && !part.starts_with('-')
    };
    if zone.is_empty() {
        errors.push(FieldError::invalid(path, zone, "timeZone must be nil or non-empty string"));
    } else if !zone.split('/').all(is_part) {
        errors.push(FieldError::invalid(path, zone, format!("unknown time zone {zone}")));
    } else if zone.eq_ignore_ascii_case("local") {
        let rule = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        errors.push(FieldError::invalid(path, zone, rule));
    }
}

fn is_indexed(spec: &Value) -> bool {
    text(spec, "completionMode") == "Indexed"
}

fn selection(spec: &Value, errors: &mut Errors) {
    let selection = template::selector(spec, true, None, None, errors);
    if !matches!(selection, Selection::Unsound) {
        template::selected(spec, &selection, errors);
    }
}

fn job_spec(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let numbers = [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ];
    all_nonnegative(spec, &numbers, path, errors);
    let has = |field: &str| int(spec, field).is_some();
    if has("maxFailedIndexes") && !has("backoffLimitPerIndex") {
        let rule = "when maxFailedIndexes is specified";
        errors.push(FieldError::required(path.child("backoffLimitPerIndex"), rule));
    }
    managed_by(spec, &path.child("managedBy"), errors);
    if let Some(mode) = spec.get("completionMode").and_then(Value::as_str)
        && !["NonIndexed", "Indexed"].contains(&mode)
    {
        errors.push(FieldError::not_supported(
            path.child("completionMode"),
            mode,
            &["NonIndexed", "Indexed"],
        ));
    }
    if is_indexed(spec) {
        indexed(spec, path, errors);
    } else if matches!(text(spec, "completionMode"), "" | "NonIndexed") {
        for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            if let Some(number) = int(spec, field) {
                errors.push(FieldError::invalid(
                    path.child(field),
                    number,
                    "requires indexed completion mode",
                ));
            }
        }
    }
    let template: Option<PodTemplateSpec> = typed(&spec["template"], errors);
    if spec.get("podFailurePolicy").is_some() {
        failure_policy(spec, template.as_ref(), &path.child("podFailurePolicy"), errors);
    }
    if let Some(policy) = spec.get("successPolicy").filter(|_| !is_indexed(spec)) {
        let rule = "requires indexed completion mode";
        errors.push(FieldError::invalid(path.child("successPolicy"), shown(Some(policy)), rule));
    }
    replacement(spec, &path.child("podReplacementPolicy"), errors);
    if let Some(template) = template {
        let path = path.child("template");
        pod::template(&template, &path, errors);
        restarts(spec, &template, &path, errors);
    }
}

fn indexed(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    const MOST: i64 = 100_000;
    const MANY: i64 = 10_000;
    let number = |field: &str| int(spec, field);
    if number("completions").is_none() {
        errors.push(FieldError::required(path.child("completions"), "when completion mode is Indexed"));
    }
    let parallel = path.child("parallelism");
    let failed = path.child("maxFailedIndexes");
    if let Some(n) = number("parallelism").filter(|n| *n > MOST) {
        let rule = format!("must be less than or equal to {MOST} when completion mode is Indexed");
        errors.push(FieldError::invalid(parallel, n, rule));
    }
    if let (Some(completions), Some(n)) = (number("completions"), number("maxFailedIndexes"))
        && n > completions
    {
        errors.push(FieldError::invalid(failed, n, "must be less than or equal to completions"));
    }
    if let Some(n) = number("maxFailedIndexes").filter(|n| *n > MOST) {
        errors.push(FieldError::invalid(failed, n, format!("must be less than or equal to {MOST}")));
    }
    if number("completions").is_some_and(|n| n > MOST) && number("backoffLimitPerIndex").is_some() {
        let above = format!("when completions are above {MOST} and used with backoff limit per index");
        if number("maxFailedIndexes").is_none() {
            let rule = format!("must be specified when completions is above {MOST}");
            errors.push(FieldError::required(failed, rule));
        }
        for (path, n) in [(parallel, number("parallelism")), (failed, number("maxFailedIndexes"))] {
            if let Some(n) = n.filter(|n| *n > MANY) {
                let rule = format!("must be less than or equal to {MANY} {above}");
                errors.push(FieldError::invalid(path, n, rule));
            }
        }
    }
}

fn managed_by(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(manager) = spec.get("managedBy").and_then(Value::as_str) else { return };
    match manager.split_once('/') {
        _ if manager.is_empty() => errors.push(FieldError::required(path, "")),
        Some((host, name)) if !host.is_empty() && !name.is_empty() => {
            complain(errors, path, host, format::dns_subdomain(host));
            let inside = |b: u8| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b);
            if !name.bytes().all(inside) {
                let rule = format::form("Invalid path", r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+", &[]);
                errors.push(FieldError::invalid(path, name, rule));
            }
        }
        _ => {
            let rule = "must be a domain-prefixed path (such as \"acme.io/foo\")";
            errors.push(FieldError::invalid(path, manager, rule));
        }
    }
    if manager.len() > 63 {
        errors.push(FieldError::too_long(path, 63));
    }
}

fn failure_policy(spec: &Value, template: Option<&PodTemplateSpec>, path: &Path<'_>, errors: &mut Errors) {
    const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];
    let rules = list(&spec["podFailurePolicy"], "rules");
    let list_path = path.child("rules");
    if rules.len() > 20 {
        errors.push(FieldError::too_many(list_path, rules.len(), 20));
    }
    for (i, rule) in rules.iter().enumerate() {
        let path = list_path.index(i);
        match text(rule, "action") {
            "" => {
                let rule = r#"valid values: ["Count" "FailIndex" "FailJob" "Ignore"]"#;
                errors.push(FieldError::required(path.child("action"), rule));
            }
            "FailIndex" if int(spec, "backoffLimitPerIndex").is_none() => {
                let rule = "requires the backoffLimitPerIndex to be set";
                errors.push(FieldError::invalid(path.child("action"), "FailIndex", rule));
            }
            action if ACTIONS.contains(&action) => {}
            other => errors.push(FieldError::not_supported(path.child("action"), other, &ACTIONS)),
        }
        let codes = rule.get("onExitCodes");
        if let Some(codes) = codes {
            exit_codes(codes, template, &path.child("onExitCodes"), errors);
        }
        if !is_empty(rule, "onPodConditions") {
            pod_conditions(rule, &path.child("onPodConditions"), errors);
        }
        let rule = match (codes.is_some(), !is_empty(rule, "onPodConditions")) {
            (true, true) => "specifying both OnExitCodes and OnPodConditions is not supported",
            (false, false) => "specifying one of OnExitCodes and OnPodConditions is required",
            _ => continue,
        };
        errors.push(FieldError::invalid(path, BadValue::Omitted, rule));
    }
}

fn exit_codes(codes: &Value, template: Option<&PodTemplateSpec>, path: &Path<'_>, errors: &mut Errors) {
    let operator = text(codes, "operator");
    match operator {
        "" => errors.push(FieldError::required(path.child("operator"), r#"valid values: ["In" "NotIn"]"#)),
        "In" | "NotIn" => {}
        other => errors.push(FieldError::not_supported(path.child("operator"), other, &["In", "NotIn"])),
    }
    if let Some(name) = codes.get("containerName").and_then(Value::as_str) {
        let spec = template.and_then(|template| template.spec.as_ref());
        let known = spec.is_some_and(|spec| {
            let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
            containers.map(|container| &container.name).any(|known| known == name)
        });
        if !known {
            let rule = "must be one of the container or initContainer names in the pod template";
            errors.push(FieldError::invalid(path.child("containerName"), name, rule));
        }
    }
    let values: Vec<i64> = list(codes, "values").iter().filter_map(Value::as_i64).collect();
    let values_path = path.child("values");
    let shown_values =
        || BadValue::Bare(if values.is_empty() { "null".into() } else { codes["values"].to_string() });
    if values.is_empty() {
        errors.push(FieldError::invalid(values_path, shown_values(), "at least one value is required"));
    } else if values.len() > 255 {
        errors.push(FieldError::too_many(values_path, values.len(), 255));
    }
    for (i, value) in values.iter().enumerate() {
        if operator == "In" && *value == 0 {
            errors.push(FieldError::invalid(values_path.index(i), 0, "must not be 0 for the In operator"));
        }
        if values[..i].contains(value) {
            errors.push(FieldError::duplicate(values_path.index(i), *value));
        }
    }
    if !values.is_sorted() {
        errors.push(FieldError::invalid(values_path, shown_values(), "must be ordered"));
    }
}

fn pod_conditions(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    let patterns = list(rule, "onPodConditions");
    if patterns.len() > 20 {
        errors.push(FieldError::too_many(path, patterns.len(), 20));
    }
    for (i, pattern) in patterns.iter().enumerate() {
        let path = path.index(i);
        let condition = text(pattern, "type");
        complain(errors, &path.child("type"), condition, format::qualified_name(condition));
        match text(pattern, "status") {
            "" => {
                let rule = r#"valid values: ["False" "True" "Unknown"]"#;
                errors.push(FieldError::required(path.child("status"), rule));
            }
            "False" | "True" | "Unknown" => {}
            other => {
                let known = ["False", "True", "Unknown"];
                errors.push(FieldError::not_supported(path.child("status"), other, &known));
            }
        }
    }
}

fn replacement(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(policy) = spec.get("podReplacementPolicy").and_then(Value::as_str) else { return };
    let known: &[&str] =
        if spec.get("podFailurePolicy").is_some() { &["Failed"] } else { &["Failed", "TerminatingOrFailed"] };
    if !known.contains(&policy) {
        errors.push(FieldError::not_supported(path, policy, known));
    }
}

/// The pods of a Job end, so they do not always restart.
fn restarts(spec: &Value, template: &PodTemplateSpec, path: &Path<'_>, errors: &mut Errors) {
    let pod = path.child("spec");
    let path = pod.child("restartPolicy");
    let policy = template.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()).unwrap_or_default();
    match policy {
        "" | "Always" => {
            errors.push(FieldError::required(path, r#"valid values: "OnFailure", "Never""#));
        }
        "OnFailure" if spec.get("podFailurePolicy").is_some() => {
            let rule = "only \"Never\" is supported when podFailurePolicy is specified";
            errors.push(FieldError::invalid(path, policy, rule));
        }
        "Never" | "OnFailure" => {}
        other => errors.push(FieldError::not_supported(path, other, &["OnFailure", "Never"])),
    }
}

fn completions(before: &Value, after: &Value, errors: &mut Errors) {
    let path = SPEC.child("completions");
    if !is_indexed(after) {
        immutable(before.get("completions"), after.get("completions"), &path, errors);
        return;
    }
    let Some(completions) = int(after, "completions") else { return };
    if int(before, "completions") != Some(completions) && int(after, "parallelism") != Some(completions) {
        let rule = "can only be modified in tandem with spec.parallelism";
        errors.push(FieldError::invalid(path, completions, rule));
    }
}

/// The template of a Job is fixed, but for what a queue decides while the Job waits: where its pods go and,
/// where the rules let it, what they get.
fn template_update(old: &Value, new: &Value, rules: &Rules, errors: &mut Errors) {
    let waits = waits(old);
    let (mut before, after) = (old["spec"]["template"].clone(), &new["spec"]["template"]);
    let path = SPEC.child("template");
    if waits {
        take_directives(&mut before, after);
    }
    if waits && rules.job_template == JobTemplate::MutableWhileSuspended {
        take_resources(&mut before, after);
        immutable(before.get("spec"), after.get("spec"), &SPEC.child("template.spec"), errors);
    } else {
        immutable(Some(&before), Some(after), &path, errors);
    }
}

/// Whether a Job is suspended, and no pod of it runs or is on its way.
fn waits(job: &Value) -> bool {
    let status = &job["status"];
    let is_suspended =
        |condition: &Value| text(condition, "type") == "Suspended" && text(condition, "status") == "True";
    truth(&job["spec"], "suspend")
        && (status["startTime"].is_null() || list(status, "conditions").iter().any(is_suspended))
        && int(status, "active").unwrap_or(0) == 0
}

fn take_directives(before: &mut Value, after: &Value) {
    for field in ["nodeSelector", "tolerations", "schedulingGates"] {
        take(&mut before["spec"], &after["spec"], field);
    }
    for field in ["labels", "annotations"] {
        take(&mut before["metadata"], &after["metadata"], field);
    }
    let mut affinity = before["spec"]["affinity"].clone();
    take(&mut affinity, &after["spec"]["affinity"], "nodeAffinity");
    let affinity = affinity.as_object().filter(|affinity| !affinity.is_empty()).cloned();
    if let Some(spec) = before["spec"].as_object_mut() {
        match affinity {
            Some(affinity) => drop(spec.insert("affinity".to_owned(), affinity.into())),
            // An empty affinity and none are the same to a scheduler, but not to a comparison.
            None => take_whole(spec, &after["spec"], "affinity"),
        }
    }
    if before["metadata"].as_object().is_some_and(Map::is_empty) && after.get("metadata").is_none() {
        drop(before.as_object_mut().and_then(|template| template.remove("metadata")));
    }
}

fn take_whole(into: &mut Map<String, Value>, from: &Value, field: &str) {
    into.remove(field);
    if let Some(value) = from.get(field).filter(|value| value.as_object().is_some_and(Map::is_empty)) {
        into.insert(field.to_owned(), value.clone());
    }
}

fn take_resources(before: &mut Value, after: &Value) {
    for list_name in ["containers", "initContainers"] {
        let new = list(&after["spec"], list_name);
        let Some(old) = before["spec"].get_mut(list_name).and_then(Value::as_array_mut) else { continue };
        if old.len() == new.len() {
            for (old, new) in old.iter_mut().zip(new).filter(|(old, new)| old["name"] == new["name"]) {
                take(old, new, "resources");
            }
        }
    }
}

fn take(into: &mut Value, from: &Value, field: &str) {
    if into.is_null() {
        *into = Value::Object(Map::new());
    }
    let Some(into) = into.as_object_mut() else { return };
    match from.get(field) {
        Some(value) => drop(into.insert(field.to_owned(), value.clone())),
        None => drop(into.remove(field)),
    }
}
