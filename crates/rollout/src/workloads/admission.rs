//! The hold, added to the write of a user who changes a template. Pure.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use plumb_resize::rules::Rules;
use serde_json::{Value, json};

use super::kind::{WorkloadKind, rolling_setting, template};
use super::record::{Hold, TemplateResources, WorkloadRecord, intent, revision_of};
use super::{IN_PLACE_ANNOTATION, RECORD_ANNOTATION, STATUS_ANNOTATION};
use crate::api::RolloutPolicySpec;
use crate::engine::{Reason, RolloutOutcome, RolloutStatus, TemplateChange, can_update, merged, restarted};

/// The input of an admission besides the objects.
#[derive(Clone, Copy, Debug)]
pub struct AdmissionContext<'a> {
    /// Whether the feature gate is on.
    pub enabled: bool,
    /// The policy that binds the workload, if one selects it.
    pub policy: Option<&'a RolloutPolicySpec>,
    /// The rules of the API server.
    pub rules: &'a Rules,
    /// The current time.
    pub now: Timestamp,
}

/// The result of an admission.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Admitted {
    /// The object as it is to be stored; none if it is to be stored as it came.
    pub object: Option<Value>,
    /// The warnings for the user.
    pub warnings: Vec<String>,
}

/// Decides about the update of a workload.
///
/// - A change of only cpu and memory is held, if the workload opted in. It is not, if it restarts a container, no pod
///   may be unavailable, and the workload's own controller surges instead.
/// - Any other change of the template releases a workload that is held: its controller recreates the pods. If a user has paused
///   the rollout, the workload is paused then, where its kind can be. The status of a rollout that has ended is removed, because
///   the controller rolls out another template.
/// - While it is held, the fields that hold it stay; the values that a user sets are restored at the end. A partition and a
///   `maxUnavailable` among them bind the rollout at once.
/// - The record stays, even if an update omits it or has an older one: `kubectl
///   rollout undo` copies that of a ReplicaSet, and an exported manifest may have one. Any other write that changes the
///   record is one of the controller or of `plumb`, and passes as it is.
pub fn admit(kind: WorkloadKind, old: &Value, new: &Value, context: &AdmissionContext<'_>) -> Admitted {
    let read = |text: &str| serde_json::from_str::<WorkloadRecord>(text).ok();
    let (recorded, written) = (annotation(old, RECORD_ANNOTATION), annotation(new, RECORD_ANNOTATION));
    let record = recorded.and_then(read);
    let changes_record = written.is_some() && written != recorded;
    let is_older = || {
        written
            .and_then(read)
            .zip(record.as_ref())
            .is_some_and(|(written, record)| written.is_older_than(record))
    };
    if changes_record && !is_older() {
        return Admitted::default();
    }
    let (Some(before), Some(after)) = (template(old), template(new)) else { return Admitted::default() };
    let mut change = can_update(&before, &after, context.rules);
    if change.is_vertical() {
        let spec = unheld(kind, old, new, record.as_ref());
        change.reasons.extend(kind.left_to_controller(&spec));
        change.reasons.extend(surge_instead(kind, (&before, &after), &spec, context));
    }
    let old_fields = kind.held_fields(&old["spec"]);
    let mut admission = Admission { kind, new: new.clone(), old_fields, record, warnings: Vec::new() };
    admission.preserve(old, changes_record);
    if change.is_none() {
        admission.keep_hold();
    } else if change.is_vertical() && context.enabled && opted_in(new, context.policy.is_some()) {
        let generation = old["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
        admission.hold((&before, &after), generation, context);
    } else {
        admission.release(&change, context);
        admission.explain(&change, opted_in(new, context.policy.is_some()) && context.enabled);
    }
    let object = (admission.new != *new).then_some(admission.new);
    Admitted { object, warnings: admission.warnings }
}

/// The spec of a workload without its hold: what the hold has replaced is as it is restored, with the changes of the write.
fn unheld(kind: WorkloadKind, old: &Value, new: &Value, record: Option<&WorkloadRecord>) -> Value {
    let mut spec = new["spec"].clone();
    if let Some(hold) = record.and_then(|record| record.hold.as_ref()) {
        let (before, after) = (kind.held_fields(&old["spec"]), kind.held_fields(&new["spec"]));
        spec = merged(spec, Some(kind.restoring(&changed_as(&hold.restored, &before, &after))));
    }
    spec
}

/// Why the controller of a workload updates its pods though a resize could: it surges, where a resize would make pods
/// unavailable and none may be. What a policy says about that comes first.
fn surge_instead(
    kind: WorkloadKind,
    (before, after): (&PodTemplateSpec, &PodTemplateSpec),
    spec: &Value,
    context: &AdmissionContext<'_>,
) -> Option<Reason> {
    let is_decided = context.policy.is_some_and(|policy| policy.max_unavailable.is_some());
    if is_decided || !kind.surges_only(spec) {
        return None;
    }
    // What cannot be read is a reason of its own.
    let (container, resource) = restarted(before, after, context.rules).ok()??;
    Some(Reason::Restart { container, resource: resource.name().to_owned() })
}

/// Whether a workload opts in: by its annotation, else because a policy selects it.
fn opted_in(workload: &Value, selected: bool) -> bool {
    match annotation(workload, IN_PLACE_ANNOTATION) {
        Some(value) => value == "true",
        None => selected,
    }
}

fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["metadata"]["annotations"].get(key)?.as_str()
}

struct Admission {
    kind: WorkloadKind,
    new: Value,
    /// The fields that hold the workload, before the write.
    old_fields: Value,
    record: Option<WorkloadRecord>,
    warnings: Vec<String>,
}

impl Admission {
    fn annotate(&mut self, key: &str, value: &str) {
        let annotations = &mut self.new["metadata"]["annotations"];
        if annotations.is_null() {
            *annotations = json!({});
        }
        annotations[key] = json!(value);
    }

    fn remove_annotation(&mut self, key: &str) {
        if let Some(annotations) = self.new["metadata"]["annotations"].as_object_mut() {
            annotations.remove(key);
        }
    }

    fn record(&mut self, record: WorkloadRecord) {
        self.annotate(RECORD_ANNOTATION, &record.to_text());
        self.record = Some(record);
    }

    /// Restores the record, where an update omits it (`kubectl replace` does) or has it from an older rollout.
    fn preserve(&mut self, old: &Value, is_older: bool) {
        for key in [RECORD_ANNOTATION, STATUS_ANNOTATION] {
            match (annotation(old, key), annotation(&self.new, key)) {
                (Some(before), after) if is_older || after.is_none() => self.annotate(key, before),
                (None, Some(_)) if is_older => self.remove_annotation(key),
                _ => {}
            }
        }
    }

    /// A write that does not change the template of a held workload.
    fn keep_hold(&mut self) {
        let Some(mut record) = self.record.clone() else { return };
        let Some(hold) = &mut record.hold else { return };
        if self.kind.held_fields(&self.new["spec"]) == self.old_fields {
            return;
        }
        // A user has resumed it, or chosen another strategy: that is for afterwards.
        let restored = self.restored(&hold.restored);
        let paused = self.paused(record.rollout.paused, &hold.restored, &restored);
        if paused == record.rollout.paused {
            let warning = self.held_warning(&hold.restored, &restored);
            self.warnings.push(warning);
        }
        record.rollout.paused = paused;
        hold.restored = restored;
        self.apply_hold();
        self.record(record);
    }

    /// The warning that a write of the fields that hold the workload, such as that of `kubectl rollout resume`, applies later,
    /// with the settings of it that bind the rollout at once.
    fn held_warning(&self, before: &Value, after: &Value) -> String {
        let (kind, field) = (self.kind.name(), self.kind.held_field());
        let settings = self.kind.paced_by().iter().copied();
        let paced: Vec<&str> =
            settings.filter(|one| rolling_setting(before, one) != rolling_setting(after, one)).collect();
        let at_once = if paced.is_empty() {
            String::new()
        } else {
            format!(", and its {} at once, to the pods that are resized", paced.join(" and "))
        };
        format!(
            "an in-place rollout holds spec.{field} of this {kind}: this write of it applies when the rollout ends{at_once}; plumb \
             rollout resume continues a rollout that is paused"
        )
    }

    /// Says what becomes of a rollout that a user has paused when another change of the template releases the workload.
    fn paused_warning(&self) -> String {
        let kind = self.kind.name();
        let becomes = match (self.kind, self.kind.pause_field()) {
            (WorkloadKind::Deployment, _) => {
                format!(
                    "so this {kind} is paused now; kubectl rollout resume has its controller recreate the pods"
                )
            }
            (_, Some(field)) => {
                format!(
                    "so spec.{field} of this {kind} is true now; its controller recreates the pods once it is false"
                )
            }
            (_, None) => format!("but a {kind} cannot be paused: its pods are recreated at once"),
        };
        format!("the in-place rollout was paused, {becomes}")
    }

    /// The values to restore of the fields that hold the workload: the former ones, with the changes of the write.
    fn restored(&self, restored: &Value) -> Value {
        changed_as(restored, &self.old_fields, &self.kind.held_fields(&self.new["spec"]))
    }

    /// Whether a rollout is paused after a write that changes the values to restore: as before, unless the write
    /// pauses or resumes the workload. `plumb rollout pause` sets no field of it.
    fn paused(&self, paused: bool, before: &Value, after: &Value) -> bool {
        let is_paused = self.kind.is_paused(after);
        if self.kind.is_paused(before) == is_paused { paused } else { is_paused }
    }

    fn apply_hold(&mut self) {
        let fields = self.kind.holding(&self.new["spec"]);
        // The strategy is replaced, not merged: a type does not allow the settings of another.
        for (field, value) in fields.as_object().into_iter().flatten() {
            self.new["spec"][field] = value.clone();
        }
    }

    fn hold(
        &mut self,
        (before, after): (&PodTemplateSpec, &PodTemplateSpec),
        generation: i64,
        context: &AdmissionContext<'_>,
    ) {
        let earlier = self.record.clone();
        // While it is held the fields are ours, except for those that a user changes in the same write.
        let held = earlier.as_ref().and_then(|record| Some((record, record.hold.as_ref()?)));
        let (restored, paused) = if let Some((record, held)) = held {
            let restored = self.restored(&held.restored);
            let paused = self.paused(record.rollout.paused, &held.restored, &restored);
            (restored, paused)
        } else {
            let restored = self.kind.held_fields(&self.new["spec"]);
            let paused = self.kind.is_paused(&restored);
            (restored, paused)
        };
        let hold = Hold { restored };
        let revision = revision_of(&self.new["spec"]["template"], generation);
        // Records are ordered by when they began, also if the clocks of two webhooks differ.
        let now = earlier.as_ref().map_or(context.now, |earlier| context.now.max(earlier.rollout.started_at));
        let open = earlier.filter(WorkloadRecord::is_open);
        let revert = open.as_ref().is_some_and(|open| open.is_revert(after));
        // An undo returns to the template that was rolled out last.
        let (base, previous) = if let Some(open) = open {
            (open.rollout.base, open.previous_template)
        } else {
            let last = self.record.as_ref().map(|record| record.rollout.pod_revision());
            (last.unwrap_or_else(|| format!("{revision}-before")), TemplateResources::of(before))
        };
        let mut record = intent(revision, base, previous, (before, after), hold, context.rules, now);
        record.rollout.paused = paused;
        record.rollout.revert = revert;
        self.apply_hold();
        self.record(record);
    }

    /// Gives a workload back to its controller, because of a change that is more than a resize.
    fn release(&mut self, change: &TemplateChange, context: &AdmissionContext<'_>) {
        let Some(mut record) = self.record.clone() else { return };
        let Some(hold) = record.hold.take() else {
            // The status is that of a template that the controller replaces now.
            record.superseded = true;
            self.remove_annotation(STATUS_ANNOTATION);
            self.record(record);
            return;
        };
        let mut restored = self.restored(&hold.restored);
        // A user who has paused the rollout does not expect that another change of the template replaces pods.
        let is_paused = self.paused(record.rollout.paused, &hold.restored, &restored);
        let is_on_delete = restored["updateStrategy"]["type"] == "OnDelete";
        if is_paused && !self.kind.is_paused(&restored) && !is_on_delete {
            restored = self.kind.paused(restored);
            let warning = self.paused_warning();
            self.warnings.push(warning);
        }
        let waits = self.kind.is_paused(&restored);
        let restored = self.kind.restoring(&restored);
        let spec = merged(self.new["spec"].take(), Some(restored));
        self.new["spec"] = without_nulls(spec);
        record.rollout.outcome = Some(RolloutOutcome::Recreated);
        record.ended = None;
        let reasons: Vec<String> = change.reasons.iter().map(ToString::to_string).collect();
        let mut why = match (reasons.is_empty(), context.enabled) {
            (false, _) => reasons.join("; "),
            (true, true) => "the workload opted out".to_owned(),
            (true, false) => "the feature gate is off".to_owned(),
        };
        if waits {
            why.push_str("; the workload is paused");
        }
        let reported = annotation(&self.new, STATUS_ANNOTATION);
        let replicas = [&self.new["spec"]["replicas"], &self.new["status"]["desiredNumberScheduled"]];
        let replicas = replicas.into_iter().find_map(Value::as_u64).unwrap_or(0);
        let replicas = usize::try_from(replicas).unwrap_or(usize::MAX);
        let status = RolloutStatus::recreating(reported, &record.rollout.revision, &why, replicas);
        // A status is plain data: it can be written.
        self.annotate(STATUS_ANNOTATION, &serde_json::to_string(&status).unwrap_or_default());
        self.record(record);
    }

    fn explain(&mut self, change: &TemplateChange, wanted: bool) {
        let is_about_resources = change.resizes() || change.reasons.iter().any(Reason::is_about_resources);
        if wanted && is_about_resources {
            let reasons: Vec<String> = change.reasons.iter().map(ToString::to_string).collect();
            self.warnings
                .push(format!("pods are recreated and not resized in place: {}", reasons.join("; ")));
        }
    }
}

/// Applies the difference between two values to a third.
fn changed_as(value: &Value, from: &Value, to: &Value) -> Value {
    match (value, from, to) {
        (_, from, to) if from == to => value.clone(),
        (Value::Object(fields), Value::Object(from), Value::Object(to)) => {
            let mut fields = fields.clone();
            for key in from.keys().chain(to.keys()) {
                let before = from.get(key).unwrap_or(&Value::Null);
                let Some(after) = to.get(key) else {
                    fields.remove(key);
                    continue;
                };
                if before != after {
                    let field = fields.get(key).unwrap_or(&Value::Null);
                    fields.insert(key.clone(), changed_as(field, before, after));
                }
            }
            Value::Object(fields)
        }
        (_, _, to) => to.clone(),
    }
}

/// The fields of an object that are not null.
fn without_nulls(mut value: Value) -> Value {
    if let Value::Object(fields) = &mut value {
        fields.retain(|_, value| !value.is_null());
        for value in fields.values_mut() {
            if value.is_object() {
                *value = without_nulls(value.take());
            }
        }
    }
    value
}
