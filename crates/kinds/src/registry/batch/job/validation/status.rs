//! Validation of updates of a Job's status.
//!
//! External controllers (`spec.managedBy`) write it too, and clients rely on it, so transitions are validated: terminal
//! conditions stay true, and counters do not decrease. A rule is checked only if a field that it reads has changed.

use jiff::Timestamp;
use plumb_validation::field::{BadValue, FieldError, Path};
use serde_json::Value;

use super::{indexes, is_indexed};
use plumb_apiserver::validation::json::{boolean, int, list, shown, text};
use plumb_apiserver::validation::{Errors, validate_nonnegative_fields};

const STATUS: Path<'_> = Path::root("status");

/// The spec and the status of a Job.
#[derive(Clone, Copy)]
struct Job<'a> {
    spec: &'a Value,
    status: &'a Value,
}

impl<'a> Job<'a> {
    fn of(job: &'a Value) -> Self {
        Self { spec: &job["spec"], status: &job["status"] }
    }

    fn has_condition(&self, condition: &str, value: &str) -> bool {
        let matches = |one: &Value| text(one, "type") == condition && text(one, "status") == value;
        list(self.status, "conditions").iter().any(matches)
    }

    fn is_condition_true(&self, condition: &str) -> bool {
        self.has_condition(condition, "True")
    }

    fn is_finished(&self) -> bool {
        self.is_condition_true("Complete") || self.is_condition_true("Failed")
    }

    fn number(&self, field: &str) -> i64 {
        int(self.status, field).unwrap_or(0)
    }

    fn field(&self, field: &str) -> Option<&'a Value> {
        self.status.get(field).filter(|value| !value.is_null())
    }

    fn uncounted(&self) -> [&'a [Value]; 2] {
        ["succeeded", "failed"].map(|field| list(&self.status["uncountedTerminatedPods"], field))
    }
}

/// Validates an updated status.
pub(in crate::registry::batch) fn validate_job_status_update(old: &Value, new: &Value, errors: &mut Errors) {
    let (old, new) = (Job::of(old), Job::of(new));
    validate_nonnegative_fields(
        new.status,
        &["active", "succeeded", "failed", "ready", "terminating"],
        &STATUS,
        errors,
    );
    validate_uncounted_terminated_pods(new, errors);
    validate_terminal_conditions(old, new, errors);
    validate_finished_job(old, new, errors);
    validate_indexes(old, new, errors);
    validate_counters(old, new, errors);
    validate_success_criteria(new, errors);
    validate_transitions(old, new, errors);
}

fn condition_error(rule: impl Into<String>) -> FieldError {
    FieldError::invalid(STATUS.child("conditions"), BadValue::Omitted, rule)
}

fn validate_uncounted_terminated_pods(new: Job<'_>, errors: &mut Errors) {
    let mut seen: Vec<&str> = Vec::new();
    let path = STATUS.child("uncountedTerminatedPods");
    for (field, pods) in ["succeeded", "failed"].into_iter().zip(new.uncounted()) {
        for (i, pod) in pods.iter().map(|pod| pod.as_str().unwrap_or_default()).enumerate() {
            let path = path.child(field);
            if pod.is_empty() {
                errors.push(FieldError::invalid(path.index(i), pod, "must not be empty"));
            } else if seen.contains(&pod) {
                errors.push(FieldError::duplicate(path.index(i), pod));
            } else {
                seen.push(pod);
            }
        }
    }
}

/// Validates the terminal conditions and `completionTime`: a Job is either complete or failed, and before that it has
/// `SuccessCriteriaMet` or `FailureTarget`.
fn validate_terminal_conditions(old: Job<'_>, new: Job<'_>, errors: &mut Errors) {
    let changed_condition =
        |condition: &str| old.is_condition_true(condition) != new.is_condition_true(condition);
    let changed = |field: &str| old.field(field) != new.field(field);
    let (start, end) = (new.field("startTime"), new.field("completionTime"));
    let path = STATUS.child("completionTime");
    if (changed_condition("Complete") || changed_condition("Failed"))
        && new.is_condition_true("Complete")
        && new.is_condition_true("Failed")
    {
        errors.push(condition_error("cannot set Complete=True and Failed=true conditions"));
    }
    if (changed_condition("Complete") || changed_condition("FailureTarget"))
        && new.is_condition_true("Complete")
        && new.is_condition_true("FailureTarget")
    {
        errors.push(condition_error("cannot set Complete=True and FailureTarget=true conditions"));
    }
    if changed_condition("Complete") || changed("completionTime") {
        if end.is_some() && !new.is_condition_true("Complete") {
            let rule = "cannot set completionTime when there is no Complete=True condition";
            errors.push(FieldError::invalid(path, shown(end), rule));
        }
        if end.is_none() && new.is_condition_true("Complete") {
            errors.push(FieldError::required(path, "completionTime is required for Complete jobs"));
        }
    }
    let moment = |time: Option<&Value>| time?.as_str()?.parse::<Timestamp>().ok();
    if (changed("startTime") || changed("completionTime"))
        && let (Some(start), Some(ended)) = (moment(start), moment(end))
        && ended < start
    {
        errors.push(FieldError::invalid(path, shown(end), "must be equal to or after `startTime`"));
    }
    if (changed_condition("Failed") || changed("failedIndexes"))
        && new.is_condition_true("Failed")
        && !new.is_condition_true("FailureTarget")
    {
        errors.push(condition_error(
            "cannot set Failed=True condition without the FailureTarget=true condition",
        ));
    }
    if (changed_condition("Complete") || changed_condition("SuccessCriteriaMet"))
        && new.is_condition_true("Complete")
        && !new.is_condition_true("SuccessCriteriaMet")
    {
        let rule = "cannot set Complete=True condition without the SuccessCriteriaMet=true condition";
        errors.push(condition_error(rule));
    }
}

/// Validates that a finished Job has a start time, no active pods and no uncounted pods.
fn validate_finished_job(old: Job<'_>, new: Job<'_>, errors: &mut Errors) {
    if !new.is_finished() {
        return;
    }
    let changed_condition = !old.is_finished();
    if (changed_condition || old.number("active") != new.number("active")) && new.number("active") > 0 {
        let rule = "active>0 is invalid for finished job";
        errors.push(FieldError::invalid(STATUS.child("active"), new.number("active"), rule));
    }
    let is_suspended_without_completions =
        boolean(new.spec, "suspend") && int(new.spec, "completions") == Some(0);
    let start = new.field("startTime");
    if (changed_condition || old.field("startTime") != start)
        && !is_suspended_without_completions
        && start.is_none()
    {
        errors
            .push(FieldError::required(STATUS.child("startTime"), "startTime is required for finished job"));
    }
    let uncounted = new.uncounted();
    if (changed_condition || old.uncounted() != uncounted) && uncounted.iter().any(|pods| !pods.is_empty()) {
        let path = STATUS.child("uncountedTerminatedPods");
        let list = |pods: &[Value]| if pods.is_empty() { Value::Null } else { pods.to_vec().into() };
        let [succeeded, failed] = uncounted.map(list);
        let value = BadValue::Bare(format!("{{\"Succeeded\":{succeeded},\"Failed\":{failed}}}"));
        errors.push(FieldError::invalid(path, value, "must be empty for finished job"));
    }
}

/// Validates `completedIndexes` and `failedIndexes`.
fn validate_indexes(old: Job<'_>, new: Job<'_>, errors: &mut Errors) {
    let completions = int(new.spec, "completions");
    let completed = text(new.status, "completedIndexes");
    let failed = new.field("failedIndexes").and_then(Value::as_str);
    let by_index = new.spec.get("backoffLimitPerIndex").is_some_and(|limit| !limit.is_null());
    let completed_changed = completed != text(old.status, "completedIndexes");
    let failed_changed = failed != old.field("failedIndexes").and_then(Value::as_str);
    let (completed_path, failed_path) = (STATUS.child("completedIndexes"), STATUS.child("failedIndexes"));
    if let Some(Err(why)) =
        completions.filter(|_| completed_changed).map(|completions| indexes::count(completed, completions))
    {
        let rule = format!("error parsing completedIndexes: {why}");
        errors.push(FieldError::invalid(completed_path, completed, rule));
    }
    if let (Some(completions), Some(failed), true) = (completions, failed, by_index && failed_changed)
        && let Err(why) = indexes::count(failed, completions)
    {
        let rule = format!("error parsing failedIndexes: {why}");
        errors.push(FieldError::invalid(failed_path, failed, rule));
    }
    if completed_changed && !completed.is_empty() && !is_indexed(new.spec) {
        let rule = "cannot set non-empty completedIndexes when non-indexed completion mode";
        errors.push(FieldError::invalid(completed_path, completed, rule));
    }
    let Some(failed) = failed else { return };
    if failed_changed && !by_index {
        let rule = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
        errors.push(FieldError::invalid(failed_path, failed, rule));
    }
    if (failed_changed || completed_changed)
        && let Some(index) =
            completions.and_then(|completions| indexes::overlap(completed, failed, completions))
    {
        let rule = format!("failedIndexes and completedIndexes overlap at index: {index}");
        errors.push(FieldError::invalid(failed_path, failed, rule));
    }
}

fn validate_counters(old: Job<'_>, new: Job<'_>, errors: &mut Errors) {
    let changed = |field: &str| old.field(field) != new.field(field);
    let terminating = new.number("terminating");
    let changed_condition = old.is_finished() != new.is_finished();
    if (changed_condition || changed("terminating")) && terminating > 0 && new.is_finished() {
        let rule = "terminating>0 is invalid for finished job";
        errors.push(FieldError::invalid(STATUS.child("terminating"), terminating, rule));
    }
    let recounted = changed("ready") || old.number("active") != new.number("active");
    if let Some(ready) = int(new.status, "ready").filter(|ready| recounted && *ready > new.number("active")) {
        let rule = "cannot set more ready pods than active";
        errors.push(FieldError::invalid(STATUS.child("ready"), ready, rule));
    }
}

/// Validates the condition `SuccessCriteriaMet`.
fn validate_success_criteria(new: Job<'_>, errors: &mut Errors) {
    let met = new.is_condition_true("SuccessCriteriaMet");
    if met && new.is_condition_true("Failed") {
        errors.push(condition_error("cannot set SuccessCriteriaMet=True and Failed=true conditions"));
    }
    if met && new.is_condition_true("FailureTarget") {
        errors.push(condition_error("cannot set SuccessCriteriaMet=True and FailureTarget=true conditions"));
    }
    let has_policy = new.spec.get("successPolicy").is_some_and(|policy| !policy.is_null());
    if has_policy && !met && new.is_condition_true("Complete") {
        let rule = "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True";
        errors.push(condition_error(rule));
    }
}

/// Validates transitions of the status: terminal conditions and times do not change, and counters do not decrease.
fn validate_transitions(old: Job<'_>, new: Job<'_>, errors: &mut Errors) {
    for condition in ["Failed", "Complete", "FailureTarget"] {
        if old.is_condition_true(condition) && !new.is_condition_true(condition) {
            errors.push(condition_error(format!("cannot disable the terminal {condition}=True condition")));
        }
    }
    // An elastic indexed Job can be scaled down, which lowers its count of succeeded indexes.
    let is_elastic = is_indexed(new.spec) && new.spec.get("completions") == new.spec.get("parallelism");
    for (counter, may_shrink) in [("failed", false), ("succeeded", is_elastic)] {
        if !may_shrink && new.number(counter) < old.number(counter) {
            let rule = format!("cannot decrease the {counter} counter");
            errors.push(FieldError::invalid(STATUS.child(counter), new.number(counter), rule));
        }
    }
    let (ended, ends) = (old.field("completionTime"), new.field("completionTime"));
    if ended.is_some() && ends.is_some() && ended != ends {
        errors.push(FieldError::invalid(STATUS.child("completionTime"), shown(ends), "field is immutable"));
    }
    let (began, begins) = (old.field("startTime"), new.field("startTime"));
    let resumes = old.is_condition_true("Suspended") && new.has_condition("Suspended", "False");
    if began.is_some() && began != begins && !resumes && !boolean(new.spec, "suspend") {
        let rule = "field is immutable for unsuspended job once set";
        errors.push(FieldError::invalid(STATUS.child("startTime"), shown(begins), rule));
    }
    let met = |job: Job<'_>| job.is_condition_true("SuccessCriteriaMet");
    if met(old) && !met(new) {
        errors.push(condition_error("cannot disable the SuccessCriteriaMet=True condition"));
    }
    if old.is_condition_true("Complete") && !met(old) && met(new) {
        let rule = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions";
        errors.push(condition_error(rule));
    }
}
