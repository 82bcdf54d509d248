use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use plumb_resize::rules::Rules;
use plumb_rollout::api::RolloutPolicySpec;
use plumb_rollout::engine::{Phase, RolloutOutcome, RolloutStatus};
use plumb_rollout::workloads::{
    AdmissionContext, Admitted, RECORD_ANNOTATION, STATUS_ANNOTATION, WorkloadKind, WorkloadRecord, admit,
};
use serde_json::{Value, json};

use crate::objects::at;

const IN_PLACE: &str = "rollout.plumb.dev/in-place";

fn workload(kind: WorkloadKind, cpu: &str) -> Value {
    let mut spec = json!({
        "replicas": 3,
        "selector": { "matchLabels": { "app": "web" } },
        "template": {
            "metadata": { "labels": { "app": "web" } },
            "spec": { "containers": [{ "name": "app", "image": "app:1", "resources": { "requests": { "cpu": cpu } } }] },
        },
    });
    match kind {
        WorkloadKind::Deployment => spec["strategy"] = json!({ "type": "RollingUpdate" }),
        WorkloadKind::StatefulSet => {
            spec["updateStrategy"] = json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": 1 } });
        }
        WorkloadKind::DaemonSet => {
            spec["updateStrategy"] =
                json!({ "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 2 } });
        }
        WorkloadKind::AdvancedStatefulSet | WorkloadKind::AdvancedDaemonSet => {
            spec["updateStrategy"] = json!({ "type": "RollingUpdate",
                "rollingUpdate": { "partition": 1, "maxUnavailable": 2 } });
        }
    }
    json!({
        "metadata": { "name": "web", "generation": 4, "annotations": { IN_PLACE: "true" } }, "spec": spec,
    })
}

fn with_cpu(object: &Value, cpu: &str) -> Value {
    let mut object = object.clone();
    object["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(cpu);
    object
}

fn admitted(kind: WorkloadKind, old: &Value, new: &Value) -> Admitted {
    let rules = Rules::v1_36();
    admit(kind, old, new, &AdmissionContext { enabled: true, policy: None, rules: &rules, now: at(0) })
}

/// The object that is stored.
fn stored(kind: WorkloadKind, old: &Value, new: &Value) -> Value {
    admitted(kind, old, new).object.unwrap_or_else(|| new.clone())
}

fn record(object: &Value) -> WorkloadRecord {
    serde_json::from_str(object["metadata"]["annotations"][RECORD_ANNOTATION].as_str().unwrap()).unwrap()
}

fn held_field(kind: WorkloadKind) -> &'static str {
    if kind == WorkloadKind::Deployment { "paused" } else { "updateStrategy" }
}

#[test]
fn a_resize_is_held_in_the_same_write_and_what_was_is_recorded() {
    let table = [
        (WorkloadKind::Deployment, json!(true), Value::Null),
        (
            WorkloadKind::StatefulSet,
            json!({ "type": "OnDelete" }),
            json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": 1 } }),
        ),
        (
            WorkloadKind::DaemonSet,
            json!({ "type": "OnDelete" }),
            json!({ "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 2 } }),
        ),
        (
            WorkloadKind::AdvancedStatefulSet,
            json!({ "type": "RollingUpdate",
                "rollingUpdate": { "partition": 1, "maxUnavailable": 2, "paused": true } }),
            json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": 1, "maxUnavailable": 2 } }),
        ),
        (
            WorkloadKind::AdvancedDaemonSet,
            json!({ "type": "RollingUpdate",
                "rollingUpdate": { "partition": 1, "maxUnavailable": 2, "paused": true } }),
            json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": 1, "maxUnavailable": 2 } }),
        ),
    ];
    for (kind, holding, before) in table {
        let old = workload(kind, "100m");
        let held = stored(kind, &old, &with_cpu(&old, "200m"));
        assert_eq!(held["spec"][held_field(kind)], holding, "{kind:?}");
        let record = record(&held);
        assert_eq!(record.hold.unwrap().restored[held_field(kind)], before, "{kind:?}");
        assert!(record.rollout.revision.ends_with("-5"), "{:?}", record.rollout);
        let previous = &record.previous_template.containers["app"];
        assert_eq!(json!(previous), json!({ "requests": { "cpu": "100m" } }));
    }
}

#[test]
fn nothing_is_held_without_opting_in_or_without_the_gate() {
    let kind = WorkloadKind::Deployment;
    let rules = Rules::v1_36();
    let old = workload(kind, "100m");
    let mut unmarked = old.clone();
    unmarked["metadata"]["annotations"] = json!({});
    let mut out = old.clone();
    out["metadata"]["annotations"][IN_PLACE] = json!("false");
    // The object, whether a policy selects it, the gate, and whether it is held.
    let table = [
        (&old, false, true, true),
        (&old, false, false, false),
        (&unmarked, false, true, false),
        (&unmarked, true, true, true),
        (&out, true, true, false),
    ];
    for (old, selected, enabled, held) in table {
        let policy = RolloutPolicySpec::default();
        let policy = selected.then_some(&policy);
        let context = AdmissionContext { enabled, policy, rules: &rules, now: at(0) };
        let admitted = admit(kind, old, &with_cpu(old, "200m"), &context);
        assert_eq!(admitted.object.is_some(), held, "{selected} {enabled}");
    }
}

#[test]
fn a_restart_is_left_to_a_controller_that_surges_if_no_pod_may_be_unavailable() {
    let rules = Rules::v1_36();
    let new = |kind: WorkloadKind, unavailable: Value, surge: Value, restart: &str| {
        let mut object = workload(kind, "100m");
        let field = if kind == WorkloadKind::Deployment { "strategy" } else { "updateStrategy" };
        let rolling = json!({ "maxUnavailable": unavailable, "maxSurge": surge });
        object["spec"][field] = json!({ "type": "RollingUpdate", "rollingUpdate": rolling });
        let policy = json!([{ "resourceName": "cpu", "restartPolicy": restart }]);
        object["spec"]["template"]["spec"]["containers"][0]["resizePolicy"] = policy;
        object
    };
    let (restarts, not) = ("RestartContainer", "NotRequired");
    let strict =
        RolloutPolicySpec { max_unavailable: Some(IntOrString::Int(0)), ..RolloutPolicySpec::default() };
    // The settings of the workload, whether cpu restarts a container, the policy, and whether the workload is held.
    let table = [
        (json!(0), json!(1), restarts, None, false),
        (json!("0%"), json!("25%"), restarts, None, false),
        (json!(0), json!(1), restarts, Some(RolloutPolicySpec::default()), false),
        (json!(0), json!(1), restarts, Some(strict), true),
        (json!(0), json!(1), not, None, true),
        (json!("25%"), json!(1), restarts, None, true),
        (json!(1), json!(0), restarts, None, true),
    ];
    for kind in [WorkloadKind::Deployment, WorkloadKind::DaemonSet] {
        for (unavailable, surge, restart, policy, held) in &table {
            let old = new(kind, unavailable.clone(), surge.clone(), restart);
            let context =
                AdmissionContext { enabled: true, policy: policy.as_ref(), rules: &rules, now: at(0) };
            let admitted = admit(kind, &old, &with_cpu(&old, "200m"), &context);
            assert_eq!(admitted.object.is_some(), *held, "{kind:?} {unavailable} {surge} {restart}");
            assert_eq!(admitted.warnings.is_empty(), *held);
        }
    }
    // A held workload is released, also if the hold has replaced its strategy.
    let kind = WorkloadKind::DaemonSet;
    let mut plain = new(kind, json!(0), json!(1), restarts);
    plain["spec"]["template"]["spec"]["containers"][0]["resizePolicy"][0]["resourceName"] = json!("memory");
    let held = stored(kind, &plain, &with_cpu(&plain, "200m"));
    assert_eq!(held["spec"]["updateStrategy"]["type"], "OnDelete");
    let mut larger = held.clone();
    larger["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["memory"] = json!("1Gi");
    let released = admitted(kind, &held, &larger);
    assert_eq!(released.object.unwrap()["spec"]["updateStrategy"], plain["spec"]["updateStrategy"]);
    let warning = "pods are recreated and not resized in place: container app restarts when its memory changes, and \
                   maxUnavailable is 0, but maxSurge is not";
    assert_eq!(released.warnings, [warning]);
}

#[test]
fn other_changes_are_left_to_the_controller_and_a_lost_resize_is_explained() {
    let kind = WorkloadKind::Deployment;
    let old = workload(kind, "100m");
    let mut image = old.clone();
    image["spec"]["template"]["spec"]["containers"][0]["image"] = json!("app:2");
    assert_eq!(admitted(kind, &old, &image), Admitted::default());
    let mut scaled = old.clone();
    scaled["spec"]["replicas"] = json!(9);
    assert_eq!(admitted(kind, &old, &scaled), Admitted::default());
    let both = admitted(kind, &old, &with_cpu(&image, "200m"));
    assert_eq!(
        (both.object, both.warnings),
        (
            None,
            vec!["pods are recreated and not resized in place: the image of container app changed".into()]
        )
    );
}

#[test]
fn an_edit_during_a_hold_keeps_what_was_before_the_first() {
    for kind in WorkloadKind::ALL {
        let old = workload(kind, "100m");
        let first = stored(kind, &old, &with_cpu(&old, "200m"));
        let second = stored(kind, &first, &with_cpu(&first, "300m"));
        let (first, second) = (record(&first), record(&second));
        assert_ne!(first.rollout.revision, second.rollout.revision);
        assert_eq!(first.rollout.base, second.rollout.base);
        assert_eq!(first.previous_template, second.previous_template);
        assert_eq!(first.hold, second.hold);
    }
}

#[test]
fn after_a_rollout_the_next_one_starts_from_it() {
    let kind = WorkloadKind::Deployment;
    let old = workload(kind, "100m");
    let mut done = stored(kind, &old, &with_cpu(&old, "200m"));
    let mut finished = record(&done);
    finished.hold = None;
    finished.rollout.outcome = Some(RolloutOutcome::Complete);
    done["metadata"]["annotations"][RECORD_ANNOTATION] = json!(finished.to_text());
    done["spec"]["paused"] = Value::Null;
    let next = record(&stored(kind, &done, &with_cpu(&done, "300m")));
    assert_eq!(next.rollout.base, finished.rollout.revision);
    let previous = &next.previous_template.containers["app"];
    assert_eq!(json!(previous), json!({ "requests": { "cpu": "200m" } }));
}

#[test]
fn a_change_of_more_than_resources_releases_a_held_workload() {
    for kind in WorkloadKind::ALL {
        let old = workload(kind, "100m");
        let held = stored(kind, &old, &with_cpu(&old, "200m"));
        let mut image = held.clone();
        image["spec"]["template"]["spec"]["containers"][0]["image"] = json!("app:2");
        let released = stored(kind, &held, &image);
        assert_eq!(released["spec"][held_field(kind)], old["spec"][held_field(kind)], "{kind:?}");
        let record = record(&released);
        assert_eq!((record.hold, record.rollout.outcome), (None, Some(RolloutOutcome::Recreated)));
    }
}

#[test]
fn a_stateful_set_that_an_earlier_version_held_by_a_partition_is_released_and_held_again() {
    let kind = WorkloadKind::StatefulSet;
    let old = workload(kind, "100m");
    let mut held = stored(kind, &old, &with_cpu(&old, "200m"));
    held["spec"]["updateStrategy"] = json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": 3 } });
    let mut image = held.clone();
    image["spec"]["template"]["spec"]["containers"][0]["image"] = json!("app:2");
    assert_eq!(stored(kind, &held, &image)["spec"]["updateStrategy"], old["spec"]["updateStrategy"]);
    let again = stored(kind, &held, &with_cpu(&held, "300m"));
    assert_eq!(again["spec"]["updateStrategy"], json!({ "type": "OnDelete" }));
    let restored = &record(&again).hold.unwrap().restored;
    assert_eq!(restored["updateStrategy"], old["spec"]["updateStrategy"]);
    // What the release patches.
    assert_eq!(kind.restoring(restored)["updateStrategy"], old["spec"]["updateStrategy"]);
}

#[test]
fn a_hold_survives_whatever_else_is_written() {
    for kind in WorkloadKind::ALL {
        let old = workload(kind, "100m");
        let held = stored(kind, &old, &with_cpu(&old, "200m"));
        // An HPA scales it.
        let mut scaled = held.clone();
        scaled["spec"]["replicas"] = json!(9);
        assert_eq!(admitted(kind, &held, &scaled), Admitted::default(), "{kind:?}");
        // A pipeline replaces it with what it knows: no annotations of ours, its own strategy, not paused.
        let mut reapplied = with_cpu(&old, "200m");
        reapplied["metadata"]["generation"] = json!(5);
        let kept = stored(kind, &held, &reapplied);
        assert_eq!(kept["spec"][held_field(kind)], held["spec"][held_field(kind)], "{kind:?}");
        assert_eq!(record(&kept).rollout.revision, record(&held).rollout.revision);
        assert_eq!(
            record(&kept).hold.unwrap().restored[held_field(kind)],
            old["spec"][held_field(kind)],
            "{kind:?}"
        );
    }
}

#[test]
fn a_user_who_resumes_a_held_deployment_does_not_release_it() {
    let kind = WorkloadKind::Deployment;
    let mut old = workload(kind, "100m");
    old["spec"]["paused"] = json!(true);
    // Paused by its user: the rollout waits.
    let held = stored(kind, &old, &with_cpu(&old, "200m"));
    assert!(record(&held).rollout.paused);
    let mut resumed = held.clone();
    resumed["spec"]["paused"] = json!(false);
    assert_eq!(admitted(kind, &held, &resumed).warnings, Vec::<String>::new(), "the rollout continues");
    let resumed = stored(kind, &held, &resumed);
    assert_eq!(resumed["spec"]["paused"], true);
    let record = record(&resumed);
    assert!(!record.rollout.paused);
    assert_eq!(record.hold.unwrap().restored, json!({ "paused": false }));
}

#[test]
fn a_write_of_what_holds_a_workload_is_answered_with_a_warning_that_it_applies_later() {
    for kind in WorkloadKind::ALL {
        let old = workload(kind, "100m");
        let held = stored(kind, &old, &with_cpu(&old, "200m"));
        // As `kubectl rollout resume` does.
        let mut written = held.clone();
        written["spec"][held_field(kind)] = old["spec"][held_field(kind)].clone();
        let warnings = admitted(kind, &held, &written).warnings;
        let [warning] = &warnings[..] else { panic!("{kind:?}: {warnings:?}") };
        let holds = format!("an in-place rollout holds spec.{} of this {}", held_field(kind), kind.name());
        assert!(warning.starts_with(&holds) && warning.contains("plumb rollout resume"), "{warning}");
    }
}

#[test]
fn the_warning_about_a_held_strategy_names_what_of_it_applies_at_once() {
    let with = |held: &Value, settings: Value| {
        let mut written = held.clone();
        written["spec"]["updateStrategy"] = json!({ "type": "RollingUpdate", "rollingUpdate": settings });
        written
    };
    // What the strategies of the table above become.
    let table = [
        (WorkloadKind::StatefulSet, json!({ "partition": 0 }), Some("partition")),
        (WorkloadKind::StatefulSet, json!({ "partition": 1 }), None),
        (
            WorkloadKind::StatefulSet,
            json!({ "partition": 2, "maxUnavailable": 2 }),
            Some("partition and maxUnavailable"),
        ),
        (WorkloadKind::DaemonSet, json!({ "maxUnavailable": 1 }), Some("maxUnavailable")),
        (
            WorkloadKind::AdvancedStatefulSet,
            json!({ "partition": 0, "maxUnavailable": 2 }),
            Some("partition"),
        ),
    ];
    for (kind, settings, applied) in table {
        let old = workload(kind, "100m");
        let held = stored(kind, &old, &with_cpu(&old, "200m"));
        let warnings = admitted(kind, &held, &with(&held, settings.clone())).warnings;
        let [warning] = &warnings[..] else { panic!("{kind:?}: {warnings:?}") };
        let at_once = applied.map(|applied| format!("its {applied} at once, to the pods that are resized"));
        assert_eq!(warning.contains("at once"), at_once.is_some(), "{kind:?} {settings}: {warning}");
        assert!(warning.contains(&at_once.unwrap_or_default()), "{kind:?} {settings}: {warning}");
        assert!(warning.contains("when the rollout ends"), "{warning}");
    }
}

#[test]
fn an_image_during_a_paused_rollout_pauses_the_controller_or_is_answered_with_a_warning() {
    for kind in WorkloadKind::ALL {
        let old = workload(kind, "100m");
        let mut held = stored(kind, &old, &with_cpu(&old, "200m"));
        let mut paused = record(&held);
        paused.rollout.paused = true;
        held["metadata"]["annotations"][RECORD_ANNOTATION] = json!(paused.to_text());
        let mut image = held.clone();
        image["spec"]["template"]["spec"]["containers"][0]["image"] = json!("app:2");
        let Admitted { object, warnings } = admitted(kind, &held, &image);
        let released = object.unwrap();
        assert!(record(&released).hold.is_none(), "{kind:?}");
        let [warning] = &warnings[..] else { panic!("{kind:?}: {warnings:?}") };
        assert!(warning.contains("the in-place rollout was paused"), "{warning}");
        let spec = &released["spec"];
        match kind {
            WorkloadKind::Deployment => {
                assert_eq!(spec["paused"], true);
                assert!(warning.contains("kubectl rollout resume"), "{warning}");
            }
            WorkloadKind::StatefulSet | WorkloadKind::DaemonSet => {
                assert_eq!(spec["updateStrategy"], old["spec"]["updateStrategy"]);
                assert!(warning.contains("recreated at once"), "{warning}");
            }
            WorkloadKind::AdvancedStatefulSet | WorkloadKind::AdvancedDaemonSet => {
                let mut rolling = old["spec"]["updateStrategy"]["rollingUpdate"].clone();
                rolling["paused"] = json!(true);
                assert_eq!(spec["updateStrategy"]["rollingUpdate"], rolling);
                assert!(warning.contains("spec.updateStrategy.rollingUpdate.paused"), "{warning}");
            }
        }
    }
}

#[test]
fn a_rollout_that_a_command_has_paused_stays_paused_whatever_else_is_written() {
    for kind in WorkloadKind::ALL {
        let old = workload(kind, "100m");
        let mut held = stored(kind, &old, &with_cpu(&old, "200m"));
        let mut paused = record(&held);
        paused.rollout.paused = true;
        held["metadata"]["annotations"][RECORD_ANNOTATION] = json!(paused.to_text());
        // The manifest of a pipeline, without what holds the workload, as it is and with other resources.
        for new in [with_cpu(&old, "200m"), with_cpu(&old, "300m"), with_cpu(&held, "300m")] {
            assert!(record(&stored(kind, &held, &new)).rollout.paused, "{kind:?}");
        }
    }
    // A user who resumes it by its own field does, with other resources in the same write, too.
    let kind = WorkloadKind::Deployment;
    let mut old = workload(kind, "100m");
    old["spec"]["paused"] = json!(true);
    let held = stored(kind, &old, &with_cpu(&old, "200m"));
    let mut resumed = with_cpu(&held, "300m");
    resumed["spec"]["paused"] = json!(false);
    assert!(!record(&stored(kind, &held, &resumed)).rollout.paused);
}

#[test]
fn changes_to_a_held_strategy_take_effect_after_the_hold() {
    for kind in WorkloadKind::ALL.into_iter().filter(|kind| *kind != WorkloadKind::Deployment) {
        let old = workload(kind, "100m");
        let held = stored(kind, &old, &with_cpu(&old, "200m"));
        let mut changed = held.clone();
        let rolling = if matches!(kind, WorkloadKind::StatefulSet | WorkloadKind::DaemonSet) {
            changed["spec"]["updateStrategy"]["type"] = json!("RollingUpdate");
            json!({ "maxUnavailable": 3 })
        } else {
            let mut rolling = old["spec"]["updateStrategy"]["rollingUpdate"].clone();
            rolling["maxUnavailable"] = json!(3);
            rolling
        };
        changed["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] = json!(3);
        // Alone, and together with a template: what holds the workload stays out of what is restored.
        for new in [changed.clone(), with_cpu(&changed, "300m")] {
            let kept = stored(kind, &held, &new);
            let record = record(&kept);
            let restored = &record.hold.unwrap().restored["updateStrategy"];
            assert_eq!(*restored, json!({ "type": "RollingUpdate", "rollingUpdate": rolling }), "{kind:?}");
            assert!(!record.rollout.paused, "{kind:?}");
        }
        let mut image = changed;
        image["spec"]["template"]["spec"]["containers"][0]["image"] = json!("app:2");
        let released = stored(kind, &held, &image);
        assert_eq!(released["spec"]["updateStrategy"]["rollingUpdate"], rolling, "{kind:?}");
    }
}

#[test]
fn an_advanced_set_that_only_its_controller_can_update_is_not_held() {
    let table = [
        (
            WorkloadKind::AdvancedStatefulSet,
            "lifecycle",
            json!({ "inPlaceUpdate": {} }),
            "lifecycle.inPlaceUpdate",
        ),
        (
            WorkloadKind::AdvancedDaemonSet,
            "updateStrategy",
            json!({ "type": "RollingUpdate", "rollingUpdate": { "selector": {} } }),
            "updateStrategy.rollingUpdate.selector",
        ),
    ];
    for (kind, field, value, path) in table {
        let mut old = workload(kind, "100m");
        old["spec"][field] = value;
        let admitted = admitted(kind, &old, &with_cpu(&old, "200m"));
        assert_eq!(admitted.object, None, "{kind:?}");
        assert!(admitted.warnings[0].contains(&format!("spec.{path} is set")), "{:?}", admitted.warnings);
    }
}

#[test]
fn a_set_that_updates_on_delete_is_left_to_its_user_with_a_warning() {
    for kind in WorkloadKind::ALL.into_iter().filter(|kind| *kind != WorkloadKind::Deployment) {
        let mut old = workload(kind, "100m");
        old["spec"]["updateStrategy"] = json!({ "type": "OnDelete" });
        let left = admitted(kind, &old, &with_cpu(&old, "200m"));
        assert_eq!(left.object, None, "{kind:?}");
        assert!(left.warnings[0].contains("spec.updateStrategy.type is OnDelete"), "{:?}", left.warnings);
        // The hold of a rollout is not the user's strategy.
        let held = stored(kind, &workload(kind, "100m"), &with_cpu(&workload(kind, "100m"), "200m"));
        let again = stored(kind, &held, &with_cpu(&held, "300m"));
        assert!(record(&again).hold.is_some(), "{kind:?}");
    }
}

#[test]
fn the_controller_and_the_commands_write_the_record_themselves() {
    let kind = WorkloadKind::Deployment;
    let old = workload(kind, "100m");
    let held = stored(kind, &old, &with_cpu(&old, "200m"));
    let mut released = with_cpu(&held, "100m");
    let mut done = record(&held);
    done.hold = None;
    released["metadata"]["annotations"][RECORD_ANNOTATION] = json!(done.to_text());
    released["spec"]["paused"] = json!(false);
    assert_eq!(admitted(kind, &held, &released), Admitted::default());
}

#[test]
fn a_copy_of_an_older_record_is_not_taken_for_a_write_of_the_controller() {
    let kind = WorkloadKind::Deployment;
    let old = workload(kind, "100m");
    // Two rollouts, both complete and released.
    let rolled_out = |before: &Value, cpu: &str, seconds: i64| {
        let rules = Rules::v1_36();
        let context = AdmissionContext { enabled: true, policy: None, rules: &rules, now: at(seconds) };
        let mut done = admit(kind, before, &with_cpu(before, cpu), &context).object.unwrap();
        let mut finished = record(&done);
        finished.hold = None;
        finished.rollout.outcome = Some(RolloutOutcome::Complete);
        let open = done.clone();
        done["metadata"]["annotations"][RECORD_ANNOTATION] = json!(finished.to_text());
        done["metadata"]["annotations"][STATUS_ANNOTATION] = json!(cpu);
        done["spec"]["paused"] = Value::Null;
        (open, done)
    };
    let (_, first) = rolled_out(&old, "200m", 0);
    let (open, second) = rolled_out(&first, "300m", 60);
    // Of the rollout before, and of the same rollout while it was held.
    for copied in [&first, &open] {
        let mut undone = with_cpu(&second, "200m");
        undone["metadata"]["annotations"] = copied["metadata"]["annotations"].clone();
        let held = stored(kind, &second, &undone);
        assert_eq!(held["spec"]["paused"], true);
        assert_eq!(held["metadata"]["annotations"][STATUS_ANNOTATION], "300m");
        let next = record(&held);
        assert_eq!(next.rollout.base, record(&second).rollout.revision);
        assert!(next.rollout.started_at >= record(&second).rollout.started_at, "whatever the clock says");
        // Nothing else than the annotations.
        let mut exported = second.clone();
        exported["metadata"]["annotations"] = copied["metadata"]["annotations"].clone();
        assert_eq!(stored(kind, &second, &exported), second);
    }
}

#[test]
fn a_change_that_the_controller_rolls_out_removes_the_status_of_the_rollout_before() {
    for kind in WorkloadKind::ALL {
        let old = workload(kind, "100m");
        let mut done = with_cpu(&stored(kind, &old, &with_cpu(&old, "200m")), "200m");
        let mut finished = record(&done);
        finished.hold = None;
        finished.rollout.outcome = Some(RolloutOutcome::Complete);
        done["metadata"]["annotations"][RECORD_ANNOTATION] = json!(finished.to_text());
        done["metadata"]["annotations"][STATUS_ANNOTATION] = json!("{}");
        let superseded = WorkloadRecord { superseded: true, ..finished };
        done["spec"][held_field(kind)] = old["spec"][held_field(kind)].clone();
        let mut image = done.clone();
        image["spec"]["template"]["spec"]["containers"][0]["image"] = json!("app:2");
        // Also if the update leaves all annotations out.
        let mut replaced = image.clone();
        replaced["metadata"]["annotations"] = json!({});
        for new in [image, replaced] {
            let stored = stored(kind, &done, &new);
            assert_eq!(stored["metadata"]["annotations"].get(STATUS_ANNOTATION), None, "{kind:?}");
            assert_eq!(record(&stored), superseded, "{kind:?}");
        }
        // What does not change the template leaves the status.
        let mut scaled = done.clone();
        scaled["spec"]["replicas"] = json!(9);
        assert_eq!(admitted(kind, &done, &scaled), Admitted::default(), "{kind:?}");
    }
}

#[test]
fn a_rollout_that_is_left_to_the_native_controller_says_of_how_many_pods_whatever_was_reported_before() {
    let counts = |status: &RolloutStatus| (status.pods.total, status.pods.pending, status.pods.done);
    let reported = |revision: &str, total: usize| {
        json!({ "revision": revision, "phase": "Complete", "pods": {
            "total": total, "pending": 0, "resizing": 0, "soaking": 0, "done": total, "stuck": 0,
            "rollingBack": 0, "rolledBack": 0, "rollbackFailed": 0,
        } })
        .to_string()
    };
    // What was reported: nothing yet, about an earlier rollout, about none of the pods, about all.
    for (before, expected) in [
        (None, (3, 3, 0)),
        (Some(reported("old", 4)), (3, 3, 0)),
        (Some(reported("new", 0)), (3, 3, 0)),
        (Some(reported("new", 4)), (4, 0, 4)),
    ] {
        let status = RolloutStatus::recreating(before.as_deref(), "new", "why", 3);
        assert_eq!((counts(&status), status.phase), (expected, Phase::Recreating), "{before:?}");
    }
    // An image, before anything is reported about the rollout of the resources.
    for kind in [WorkloadKind::Deployment, WorkloadKind::StatefulSet, WorkloadKind::DaemonSet] {
        let mut old = workload(kind, "100m");
        if kind == WorkloadKind::DaemonSet {
            old["spec"]["replicas"] = Value::Null;
            old["status"] = json!({ "desiredNumberScheduled": 3 });
        }
        let held = stored(kind, &old, &with_cpu(&old, "200m"));
        let mut new = held.clone();
        new["spec"]["template"]["spec"]["containers"][0]["image"] = json!("app:2");
        let released = stored(kind, &held, &new);
        let text = released["metadata"]["annotations"][STATUS_ANNOTATION].as_str().unwrap();
        let status: RolloutStatus = serde_json::from_str(text).unwrap();
        assert_eq!((counts(&status), status.phase), ((3, 3, 0), Phase::Recreating), "{kind:?}");
    }
}
