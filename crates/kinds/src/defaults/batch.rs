//! Defaults of Jobs and `CronJobs`.

use serde_json::{Map, Value};

use super::plan::Fill::{Bool, Int, Text};
use super::plan::Row;
use super::plan::Rule::{Do, Set};
use super::{Object, child, fill};

const BATCH: &str = "api/batch/v1";

pub(super) const ROWS: &[Row] = &[
    // These apply to Jobs and not to the JobSpec in the template of a CronJob.
    (BATCH, "Job", &[Do(job)]),
    (
        BATCH,
        "CronJobSpec",
        &[
            Set("concurrencyPolicy", Text("Allow")),
            Set("suspend", Bool(false)),
            Set("successfulJobsHistoryLimit", Int(3)),
            Set("failedJobsHistoryLimit", Int(1)),
        ],
    ),
    (BATCH, "PodFailurePolicyOnPodConditionsPattern", &[Set("status", Text("True"))]),
];

fn job(job: &mut Object) {
    let Some(spec) = child(job, "spec") else { return };
    let absent = |spec: &Object, field: &str| spec.get(field).is_none_or(Value::is_null);
    if absent(spec, "completions") && absent(spec, "parallelism") {
        fill(spec, "completions", 1);
    }
    fill(spec, "parallelism", 1);
    fill(spec, "backoffLimit", if absent(spec, "backoffLimitPerIndex") { 6 } else { i32::MAX });
    fill(spec, "completionMode", "NonIndexed");
    fill(spec, "suspend", false);
    let replaces = if absent(spec, "podFailurePolicy") { "TerminatingOrFailed" } else { "Failed" };
    fill(spec, "podReplacementPolicy", replaces);
    fill(spec, "manualSelector", false);

    let labels = job.get("spec").and_then(|spec| spec.pointer("/template/metadata/labels"));
    let Some(labels) = labels.filter(|labels| labels.is_object()).cloned() else { return };
    if let Some(metadata) = child(job, "metadata")
        && metadata.get("labels").and_then(Value::as_object).is_none_or(Map::is_empty)
    {
        metadata.insert("labels".to_owned(), labels);
    }
}
