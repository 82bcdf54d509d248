//! Jobs.

pub(super) mod validation;

use plumb_resize::rules::Rules;
use serde_json::{Value, json};

use super::SELECTOR;
use crate::registry::core::pod::warnings as pod_warnings;
use crate::registry::{Context, GarbageCollectionPolicy, MetadataChecks, Strategy, pod_template};
use plumb_apiserver::error::ApiError;
use plumb_apiserver::kinds::{FieldLabelError, Row};
use plumb_apiserver::object::{meta, metadata};
use plumb_apiserver::table::column::{AGE, CONTAINERS, Column, IMAGES, NAME};
use plumb_apiserver::table::labels::selector;
use plumb_apiserver::table::view::View;
use plumb_apiserver::table::{PrintColumns, human_duration};
use plumb_apiserver::validation::Errors;
use plumb_apiserver::warnings;

/// The strategy of Jobs.
#[derive(Debug)]
pub(in crate::registry) struct JobStrategy;

impl Strategy for JobStrategy {
    fn metadata_checks(&self) -> MetadataChecks {
        MetadataChecks::UpdateAndCreate
    }

    fn print_columns(&self) -> &'static PrintColumns {
        &PRINT_COLUMNS
    }

    fn selectable_fields(&self) -> Option<&'static [&'static str]> {
        Some(&["metadata.namespace", "status.successful"])
    }

    fn unsupported_field_label(&self, _row: &Row, label: &str) -> FieldLabelError {
        FieldLabelError::NotSupportedForJob(label.to_owned())
    }

    fn counts_generation(&self) -> bool {
        true
    }

    fn drop_disabled_fields(&self, old: Option<&Value>, new: &mut Value) {
        pod_template::drop_disabled_fields("/spec/template", old, new);
    }

    /// SPEC: a Job with `generateName` gets the labels that its pod template has in the request.
    fn takes_labels_of_pod_template(&self, new: &Value) -> bool {
        !meta(new, "name").is_empty() && gets_labels_of_template(new)
    }

    fn prepare_for_create(&self, _cx: Context<'_>, new: &mut Value) -> Result<Vec<String>, ApiError> {
        let gets_labels = gets_labels_of_template(new);
        generate_selector(new);
        if gets_labels {
            copy_labels_of_template(new);
        }
        Ok(Vec::new())
    }

    fn prepare_for_update(&self, _cx: Context<'_>, _old: &Value, new: &mut Value) -> Result<(), ApiError> {
        copy_labels_of_template(new);
        Ok(())
    }

    fn validate(&self, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validation::create(new, errors);
    }

    fn validate_update(&self, old: &Value, new: &Value, rules: &Rules, errors: &mut Errors) {
        validation::update(old, new, rules, errors);
    }

    fn validate_status_update(&self, old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validation::status::validate_job_status_update(old, new, errors);
    }

    fn warnings(&self, new: &Value) -> Vec<String> {
        warnings_of_spec(new, "/spec")
    }

    fn warnings_on_create(&self, new: &Value) -> Vec<String> {
        let mut warnings = warnings::of_name(new, "Pod names and hostnames");
        warnings.extend(self.warnings(new));
        warnings
    }

    fn default_garbage_collection_policy(&self) -> GarbageCollectionPolicy {
        GarbageCollectionPolicy::OrphanDependents
    }

    /// Upstream's defaulting copies the labels when it decodes the stored Job.
    fn canonicalize_new(&self, new: &mut Value) {
        copy_labels_of_template(new);
    }
}

fn has_labels(object: &Value) -> bool {
    object["metadata"]["labels"].as_object().is_some_and(|labels| !labels.is_empty())
}

/// Whether defaulting copies the labels of the pod template to a Job, which has none.
fn gets_labels_of_template(job: &Value) -> bool {
    !has_labels(job) && job["spec"]["template"]["metadata"]["labels"].is_object()
}

/// Copies the labels of the pod template to a Job without labels.
fn copy_labels_of_template(job: &mut Value) {
    let template = &job["spec"]["template"];
    if !has_labels(job) && has_labels(template) {
        let labels = template["metadata"]["labels"].clone();
        metadata(job).insert("labels".into(), labels);
    }
}

/// Sets the selector of a Job to the UID of the Job and labels its pod template accordingly, unless the Job has
/// `manualSelector`.
fn generate_selector(job: &mut Value) {
    if job["spec"]["manualSelector"] == true {
        return;
    }
    let (uid, name) = (meta(job, "uid").to_owned(), meta(job, "name").to_owned());
    // Labels of the request are not overwritten: validation rejects wrong ones.
    let set_default = |holder: &mut Value, key: String, value: &str| {
        if holder.get(&key).is_none() {
            holder[key] = json!(value);
        }
    };
    set_default(
        &mut job["spec"]["selector"]["matchLabels"],
        "batch.kubernetes.io/controller-uid".to_owned(),
        &uid,
    );
    let labels = metadata(&mut job["spec"]["template"]).entry("labels").or_insert_with(|| json!({}));
    for prefix in ["", "batch.kubernetes.io/"] {
        set_default(labels, format!("{prefix}controller-uid"), &uid);
        set_default(labels, format!("{prefix}job-name"), &name);
    }
}

/// Warnings about the spec of a Job, also in a `CronJob`, at a JSON pointer.
pub(super) fn warnings_of_spec(object: &Value, pointer: &str) -> Vec<String> {
    let Some(spec) = object.pointer(pointer) else { return Vec::new() };
    let mut warnings = Vec::new();
    let number = |field: &str| spec[field].as_i64().unwrap_or(0);
    if spec["completionMode"] == "Indexed"
        && number("completions") > 100_000
        && number("parallelism") > 10_000
    {
        let path = pointer.trim_start_matches('/').replace('/', ".");
        warnings.push(format!(
            "{path}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than \
             10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
        ));
    }
    warnings.extend(pod_warnings::template(object, &format!("{pointer}/template")));
    warnings
}

static PRINT_COLUMNS: PrintColumns = PrintColumns::new(
    &[
        NAME,
        Column::text("Status", "how far the job is"),
        Column::text("Completions", "how many pods have succeeded, of how many there are to be"),
        Column::text("Duration", "how long the job has run, or ran"),
        AGE,
        CONTAINERS.wide(),
        IMAGES.wide(),
        SELECTOR.wide(),
    ],
    job,
);

fn job(job: View<'_>) -> Value {
    let (names, images) = job.containers("/spec/template/spec/containers");
    json!([
        job.name(),
        status(job),
        completions(job),
        run_time(job),
        job.age(),
        names,
        images,
        selector(job, "/spec/selector"),
    ])
}

fn status(job: View<'_>) -> &'static str {
    let first = |conditions: &[&'static str]| conditions.iter().copied().find(|one| job.is_true(one));
    if let Some(end) = first(&["Complete", "Failed"]) {
        return end;
    }
    if job.is_deleting() {
        return "Terminating";
    }
    first(&["Suspended", "FailureTarget", "SuccessCriteriaMet"]).unwrap_or("Running")
}

fn completions(job: View<'_>) -> String {
    let succeeded = job.number("/status/succeeded");
    if job.has("/spec/completions") {
        return format!("{succeeded}/{}", job.number("/spec/completions"));
    }
    // Without `completions`, the success of one pod completes the Job.
    match job.number("/spec/parallelism") {
        parallelism @ 2.. => format!("{succeeded}/1 of {parallelism}"),
        _ => format!("{succeeded}/1"),
    }
}

fn run_time(job: View<'_>) -> String {
    match (job.time("/status/startTime"), job.time("/status/completionTime")) {
        (None, _) => String::new(),
        (started, None) => job.ago(started),
        (Some(started), Some(ended)) => human_duration(ended.duration_since(started).as_secs()),
    }
}
