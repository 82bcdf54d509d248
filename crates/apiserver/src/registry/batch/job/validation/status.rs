//! Validation of updates of a Job's status.
//!
//! External controllers (`spec.managedBy`) write it too, and clients rely on it, so transitions are validated: terminal
//! conditions stay true, and counters do not decrease. A rule is checked only if a field that it reads has changed.

use jiff::Timestamp;
use plumb_validation::field::{BadValue, FieldError, Path};
use serde_json::Value;

use super::{indexes, is_indexed};
use crate::validation::json::{int, list, shown, text, truth};
use crate::validation::{Errors, all_nonnegative};

const STATUS: Path<'_> = Path::root("status");

/// The spec and the status of a Job.
#[derive(Clone, Copy)]
struct Report<'a> {
    spec: &'a Value,
    status: &'a Value,
}

impl<'a> Report<'a> {
    fn of(job: &'a Value) -> Self {
        Self { spec: &job["spec"], status: &job["status"] }
    }

    fn has(&self, condition: &str, value: &str) -> bool {
        let stands = |one: &Value| text(one, "type") == condition && text(one, "status") == value;
        list(self.status, "conditions").iter().any(stands)
    }

    fn is(&self, condition: &str) -> bool {
        self.has(condition, "True")
    }

    fn is_finished(&self) -> bool {
        self.is("Complete") || self.is("Failed")
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
pub(in crate::registry::batch) fn check(old: &Value, new: &Value, errors: &mut Errors) {
    let (old, new) = (Report::of(old), Report::of(new));
    all_nonnegative(new.status, &["active", "succeeded", "failed", "ready", "terminating"], &STATUS, errors);
    uncounted_pods(new, errors);
    ends(old, new, errors);
    finished(old, new, errors);
    indexes(old, new, errors);
    counts(old, new, errors);
    success(new, errors);
    goes_forward(old, new, errors);
}

fn conditions(rule: impl Into<String>) -> FieldError {
    FieldError::invalid(STATUS.child("conditions"), BadValue::Omitted, rule)
}

fn uncounted_pods(new: Report<'_>, errors: &mut Errors) {
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
fn ends(old: Report<'_>, new: Report<'_>, errors: &mut Errors) {
    let turned = |condition: &str| old.is(condition) != new.is(condition);
    let changed = |field: &str| old.field(field) != new.field(field);
    let (start, end) = (new.field("startTime"), new.field("completionTime"));
    let path = STATUS.child("completionTime");
    if (turned("Complete") || turned("Failed")) && new.is("Complete") && new.is("Failed") {
        errors.push(conditions("cannot set Complete=True and Failed=true conditions"));
    }
    if (turned("Complete") || turned("FailureTarget")) && new.is("Complete") && new.is("FailureTarget") {
        errors.push(conditions("cannot set Complete=True and FailureTarget=true conditions"));
    }
    if turned("Complete") || changed("completionTime") {
        if end.is_some() && !new.is("Complete") {
            let rule = "cannot set completionTime when there is no Complete=True condition";
            errors.push(FieldError::invalid(path, shown(end), rule));
        }
        if end.is_none() && new.is("Complete") {
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
    if (turned("Failed") || changed("failedIndexes")) && new.is("Failed") && !new.is("FailureTarget") {
        errors.push(conditions("cannot set Failed=True condition without the FailureTarget=true condition"));
    }
    if (turned("Complete") || turned("SuccessCriteriaMet"))
        && new.is("Complete")
        && !new.is("SuccessCriteriaMet")
    {
        let rule = "cannot set Complete=True condition without the SuccessCriteriaMet=true condition";
        errors.push(conditions(rule));
    }
}

/// Validates that a finished Job has a start time, no active pods and no uncounted pods.
fn finished(old: Report<'_>, new: Report<'_>, errors: &mut Errors) {
    if !new.is_finished() {
        return;
    }
    let turned = !old.is_finished();
    if (turned || old.number("active") != new.number("active")) && new.number("active") > 0 {
        let rule = "active>0 is invalid for finished job";
        errors.push(FieldError::invalid(STATUS.child("active"), new.number("active"), rule));
    }
    let waits_for_nothing = truth(new.spec, "suspend") && int(new.spec, "completions") == Some(0);
    let start = new.field("startTime");
    if (turned || old.field("startTime") != start) && !waits_for_nothing && start.is_none() {
        errors
            .push(FieldError::required(STATUS.child("startTime"), "startTime is required for finished job"));
    }
    let uncounted = new.uncounted();
    if (turned || old.uncounted() != uncounted) && uncounted.iter().any(|pods| !pods.is_empty()) {
        let path = STATUS.child("uncountedTerminatedPods");
        let list = |pods: &[Value]| if pods.is_empty() { Value::Null } else { pods.to_vec().into() };
        let [succeeded, failed] = uncounted.map(list);
        let value = BadValue::Bare(format!("{{\"Succeeded\":{succeeded},\"Failed\":{failed}}}"));
        errors.push(FieldError::invalid(path, value, "must be empty for finished job"));
    }
}

/// Validates `completedIndexes` and `failedIndexes`.
fn indexes(old: Report<'_>, new: Report<'_>, errors: &mut Errors) {
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

fn counts(old: Report<'_>, new: Report<'_>, errors: &mut Errors) {
    let changed = |field: &str| old.field(field) != new.field(field);
    let terminating = new.number("terminating");
    let turned = old.is_finished() != new.is_finished();
    if (turned || changed("terminating")) && terminating > 0 && new.is_finished() {
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
fn success(new: Report<'_>, errors: &mut Errors) {
    let met = new.is("SuccessCriteriaMet");
    if met && new.is("Failed") {
        errors.push(conditions("cannot set SuccessCriteriaMet=True and Failed=true conditions"));
    }
    if met && new.is("FailureTarget") {
        errors.push(conditions("cannot set SuccessCriteriaMet=True and FailureTarget=true conditions"));
    }
    let has_policy = new.spec.get("successPolicy").is_some_and(|policy| !policy.is_null());
    if has_policy && !met && new.is("Complete") {
        let rule = "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True";
        errors.push(conditions(rule));
    }
}

/// Validates transitions of the status: terminal conditions and times do not change, and counters do not decrease.
fn goes_forward(old: Report<'_>, new: Report<'_>, errors: &mut Errors) {
    for condition in ["Failed", "Complete", "FailureTarget"] {
        if old.is(condition) && !new.is(condition) {
            errors.push(conditions(format!("cannot disable the terminal {condition}=True condition")));
        }
    }
    // An elastic indexed Job can be scaled down, which lowers its count of succeeded indexes.
    let scales = is_indexed(new.spec) && new.spec.get("completions") == new.spec.get("parallelism");
    for (counter, may_shrink) in [("failed", false), ("succeeded", scales)] {
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
    let resumes = old.is("Suspended") && new.has("Suspended", "False");
    if began.is_some() && began != begins && !resumes && !truth(new.spec, "suspend") {
        let rule = "field is immutable for unsuspended job once set";
        errors.push(FieldError::invalid(STATUS.child("startTime"), shown(begins), rule));
    }
    let met = |report: Report<'_>| report.is("SuccessCriteriaMet");
    if met(old) && !met(new) {
        errors.push(conditions("cannot disable the SuccessCriteriaMet=True condition"));
    }
    if old.is("Complete") && !met(old) && met(new) {
        let rule = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions";
        errors.push(conditions(rule));
    }
}
