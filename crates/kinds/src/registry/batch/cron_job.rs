//! `CronJobs`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use plumb_cron::Schedule;
use plumb_resize::rules::Rules;
use plumb_validation::field::{FieldError, Path};
use serde_json::{Value, json};

use super::SELECTOR;
use super::job::validation::validate_job_spec;
use super::job::warnings_of_spec;
use crate::registry::{StatusMetadataChecks, Strategy, pod_template};
use plumb_apiserver::table::PrintColumns;
use plumb_apiserver::table::column::{AGE, CONTAINERS, Column, IMAGES, NAME};
use plumb_apiserver::table::labels::selector;
use plumb_apiserver::table::view::View;
use plumb_apiserver::validation::json::{boolean, text};
use plumb_apiserver::validation::{Errors, labels, typed, validate_nonnegative_fields, validate_one_of};
use plumb_apiserver::warnings;

const SPEC: Path<'_> = Path::root("spec");

/// The strategy of `CronJobs`.
#[derive(Debug)]
pub(in crate::registry) struct CronJobStrategy;

impl Strategy for CronJobStrategy {
    fn status_metadata_checks(&self) -> StatusMetadataChecks {
        StatusMetadataChecks::None
    }

    fn print_columns(&self) -> &'static PrintColumns {
        &PRINT_COLUMNS
    }

    fn counts_generation(&self) -> bool {
        true
    }

    fn drop_disabled_fields(&self, old: Option<&Value>, new: &mut Value) {
        pod_template::drop_disabled_fields("/spec/jobTemplate/spec/template", old, new);
    }

    fn validate(&self, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validate_cron_job(new, errors);
    }

    fn validate_update(&self, old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validate_cron_job_spec(Some(&old["spec"]), &new["spec"], errors);
    }

    fn warnings(&self, new: &Value) -> Vec<String> {
        warnings_of_spec(new, "/spec/jobTemplate/spec")
    }

    fn warnings_on_create(&self, new: &Value) -> Vec<String> {
        let mut warnings = warnings::of_name(new, "Pod names and hostnames");
        warnings.extend(self.warnings(new));
        warnings
    }
}

fn validate_cron_job(object: &Value, errors: &mut Errors) {
    validate_cron_job_spec(None, &object["spec"], errors);
    let name = text(&object["metadata"], "name");
    if name.len() > 52 {
        errors.push(FieldError::invalid("metadata.name", name, "must be no more than 52 characters"));
    }
}

fn validate_cron_job_spec(old: Option<&Value>, spec: &Value, errors: &mut Errors) {
    let path = SPEC.child("schedule");
    let schedule = text(spec, "schedule");
    if schedule.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else {
        let parse_error = Schedule::parse(schedule).err();
        errors.extend(parse_error.map(|error| FieldError::invalid(path, schedule, error.to_string())));
        let had_zone = old.is_some_and(|old| text(old, "schedule").contains("TZ"));
        let names_zone = schedule.contains("TZ");
        let rule = match (had_zone, spec.get("timeZone").is_some()) {
            (true, true) => Some("cannot use both timeZone field and TZ or CRON_TZ in schedule"),
            (true, false) => None,
            (false, _) => Some("cannot use TZ or CRON_TZ in schedule, use timeZone field instead"),
        };
        errors.extend(rule.filter(|_| names_zone).map(|rule| FieldError::invalid(path, schedule, rule)));
    }
    validate_nonnegative_fields(spec, &["startingDeadlineSeconds"], &SPEC, errors);
    if old.is_none_or(|old| old.get("timeZone") != spec.get("timeZone")) {
        validate_time_zone(spec, errors);
    }
    let policies = ["Allow", "Forbid", "Replace"];
    validate_one_of(
        Some(text(spec, "concurrencyPolicy")),
        &policies,
        &SPEC.child("concurrencyPolicy"),
        errors,
    );
    let template = SPEC.child("jobTemplate");
    let path = template.child("spec");
    let inner = &spec["jobTemplate"]["spec"];
    validate_job_spec(inner, &path, errors);
    if let Some(selector) = inner.get("selector").filter(|selector| !selector.is_null())
        && let Some(selector) = typed::<LabelSelector>(selector, errors)
    {
        let rule = "`selector` will be auto-generated";
        errors.push(FieldError::invalid(path.child("selector"), labels::shown(&selector), rule));
    }
    if boolean(inner, "manualSelector") {
        errors.push(FieldError::not_supported(path.child("manualSelector"), true, &["nil", "false"]));
    }
    validate_nonnegative_fields(
        spec,
        &["successfulJobsHistoryLimit", "failedJobsHistoryLimit"],
        &SPEC,
        errors,
    );
}

/// Validates the format of a time zone's name. The `CronJob` controller knows which time zones exist.
fn validate_time_zone(spec: &Value, errors: &mut Errors) {
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

static PRINT_COLUMNS: PrintColumns = PrintColumns::new(
    &[
        NAME,
        Column::text("Schedule", "when jobs are started"),
        Column::text("Timezone", "where the schedule's hours are those of the clock"),
        Column::boolean("Suspend", "whether no jobs are started for now"),
        Column::integer("Active", "how many of its jobs run"),
        Column::text("Last Schedule", "how long ago a job was last started"),
        AGE,
        CONTAINERS.wide(),
        IMAGES.wide(),
        SELECTOR.wide(),
    ],
    cron_job,
);

fn cron_job(cron_job: View<'_>) -> Value {
    let (names, images) = cron_job.containers("/spec/jobTemplate/spec/template/spec/containers");
    let last = cron_job.at("/status/lastScheduleTime");
    let last = last.map_or_else(|| "<none>".to_owned(), |last| last.since(""));
    json!([
        cron_job.name(),
        cron_job.text("/spec/schedule"),
        cron_job.text_or("/spec/timeZone", "<none>"),
        if cron_job.flag("/spec/suspend") { "True" } else { "False" },
        cron_job.count("/status/active"),
        last,
        cron_job.age(),
        names,
        images,
        selector(cron_job, "/spec/jobTemplate/spec/selector"),
    ])
}
