//! Validation errors, compared with those of kube-apiserver 1.36.4 for the same objects.

use plumb_apischema::{Schema, json};
use plumb_crd::definition;
use plumb_kinds::defaults;
use plumb_kinds::registry::validate::{self as validation, Kind};
use plumb_resize::rules::Rules;
use plumb_validation::field::FieldError;
use serde_json::{Value, json};

/// The cases whose errors differ, and why.
const KNOWN: &[(&str, &str)] = &[
    ("Pod: lifecycle", DROPPED),
    ("Pod: stop signal", DROPPED),
    ("Lease: numbers", DROPPED),
    ("Lease: strategy", DROPPED),
    ("Pod: profiles that disagree", "its strategy copies the annotation into the container first"),
    ("Service: headless node port", "its strategy fills clusterIPs first"),
    ("Service: headless", "its strategy fills clusterIPs first"),
    ("Service: cluster address", "its strategy fills clusterIPs first"),
    ("Pod: status addresses", "it also reports an internal error"),
    ("Node: ranges", "it also reports an internal error"),
    ("Service: node ports twice", "it allocates ports before it validates"),
    ("PersistentVolumeClaim: sources", "its strategy drops a source it does not know"),
    ("PersistentVolumeClaim: labels", "it shows a diff of its own types; we name the fields"),
    ("PersistentVolumeClaim: modes", "it shows a diff of its own types; we name the fields"),
];
const DROPPED: &str = "it drops fields of features that are off, before it validates";

fn text<'a>(case: &'a Value, field: &str) -> &'a str {
    case[field].as_str().unwrap_or_default()
}

fn kind(case: &Value) -> Kind<'_> {
    Kind { group: text(case, "group"), kind: text(case, "kind"), namespaced: case["namespaced"] == true }
}

fn complete(case: &Value, object: &Value) -> Value {
    let kind = kind(case);
    let schema = Schema::builtin();
    let known = schema.kind(kind.group, text(case, "version"), kind.kind).expect("a kind of the table");
    // An object that cannot be decoded is validated as it is.
    let decoded = json::decode_value(schema, known, object.clone());
    let mut object = decoded.map_or_else(|_| object.clone(), |decoded| decoded.value);
    defaults::apply(kind.group, text(case, "version"), kind.kind, &mut object, &Rules::v1_36());
    object
}

fn sorted(errors: impl Iterator<Item = String>) -> Vec<String> {
    let mut errors: Vec<String> = errors.collect();
    errors.sort_unstable();
    errors
}

fn check(cases: &str, validate: impl Fn(&Value) -> Vec<FieldError>) {
    let cases: Vec<Value> = serde_json::from_str(cases).expect("the cases are JSON");
    let mut differences = Vec::new();
    for case in &cases {
        let name = text(case, "name");
        let answers = case["errors"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let expected = sorted(answers.map(str::to_owned));
        let found = sorted(validate(case).iter().map(ToString::to_string));
        let known = KNOWN.iter().any(|(known, _)| *known == name);
        if (found == expected) == known {
            differences.push(format!("\n{name}\n  expected {expected:#?}\n  found {found:#?}\n"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.concat());
}

#[test]
fn invalid_new_objects_are_rejected_with_the_messages_of_kube_apiserver() {
    check(include_str!("validation/create.json"), |case| {
        let mut object = complete(case, &case["object"]);
        if kind(case).kind == "CustomResourceDefinition" {
            // Its strategy does this first.
            object["status"] = json!({});
            definition::add_stored_version(&mut object);
        }
        validation::create(kind(case), &object, &Rules::v1_36())
    });
}

#[test]
fn invalid_updates_are_rejected_with_the_messages_of_kube_apiserver() {
    check(include_str!("validation/update.json"), |case| {
        let (old, new) = (&case["old"], complete(case, &case["new"]));
        let rules = Rules::v1_36();
        match text(case, "sub") {
            "status" => validation::update_status(kind(case), old, &new, &rules),
            "resize" => validation::resize(old, &new, &rules),
            _ => validation::update(kind(case), old, &new, &rules),
        }
    });
}

#[test]
fn invalid_schedules_are_rejected_as_by_the_cronjob_controller() {
    // The table of `plumb-cron`, to which the controller is held too.
    let table =
        include_str!("../../../cron/tests/schedules.txt").lines().filter(|line| !line.starts_with('#'));
    let cron_job = Kind { group: "batch", kind: "CronJob", namespaced: true };
    for line in table {
        let (schedule, refusal) = line
            .split_once("=>")
            .map_or((line, None), |(schedule, refusal)| (schedule.trim_end(), Some(refusal.trim())));
        let object =
            json!({ "metadata": { "name": "a", "namespace": "b" }, "spec": { "schedule": schedule } });
        let errors = validation::create(cron_job, &object, &Rules::v1_36());
        let of_schedule = errors.into_iter().filter(|error| error.path == "spec.schedule");
        let refusals: Vec<String> = of_schedule.map(|error| error.detail).collect();
        assert_eq!(refusals, Vec::from_iter(refusal), "{schedule}");
    }
}

#[test]
fn an_object_that_is_too_large_is_rejected() {
    let map = Kind { group: "", kind: "ConfigMap", namespaced: true };
    let errors = |object: Value| {
        validation::create(map, &object, &Rules::v1_36()).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let heavy = "x".repeat(256 << 10);
    assert_eq!(
        errors(json!({"metadata": {"name": "a", "namespace": "b", "annotations": {"c": heavy}}})),
        ["metadata.annotations: Too long: may not be more than 262144 bytes"]
    );
    let heavy = "x".repeat((1 << 20) + 1);
    assert_eq!(
        errors(json!({"metadata": {"name": "a", "namespace": "b"}, "data": {"c": heavy}})),
        [": Too long: may not be more than 1048576 bytes"]
    );
}

#[test]
fn a_terminating_object_accepts_no_new_finalizers_and_keeps_its_identity() {
    let old = json!({"metadata": {
        "name": "a", "namespace": "b", "uid": "u", "resourceVersion": "1", "generation": 2,
        "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-02T00:00:00Z", "finalizers": ["x/y"],
    }});
    let new = json!({"metadata": {
        "name": "c", "namespace": "b", "uid": "v", "generation": 1,
        "creationTimestamp": "2026-01-03T00:00:00Z", "deletionTimestamp": "2026-01-02T00:00:00Z",
        "finalizers": ["x/y", "x/z"],
    }});
    let kind = Kind { group: "example.com", kind: "Any", namespaced: true };
    let mut errors: Vec<String> =
        validation::update(kind, &old, &new, &Rules::v1_36()).iter().map(ToString::to_string).collect();
    errors.sort_unstable();
    errors.dedup();
    assert_eq!(
        errors,
        [
            "metadata.creationTimestamp: Invalid value: \"2026-01-03T00:00:00Z\": field is immutable",
            "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, \
             found new finalizers []string{\"x/z\"}",
            "metadata.generation: Invalid value: 1: must not be decremented",
            "metadata.name: Invalid value: \"c\": field is immutable",
            "metadata.resourceVersion: Invalid value: \"\": must be specified for an update",
            "metadata.uid: Invalid value: \"v\": field is immutable",
        ]
    );
}

#[test]
fn the_template_of_a_job_is_mutable_only_while_suspended_and_by_dialect() {
    let job = |cpu: &str, suspended: bool| {
        let mut job = json!({
            "metadata": {"name": "a", "namespace": "b", "resourceVersion": "1", "labels": {"j": "a"}},
            "spec": {
                "suspend": suspended,
                "manualSelector": true,
                "selector": {"matchLabels": {"j": "a"}},
                "template": {
                    "metadata": {"labels": {"j": "a"}},
                    "spec": {
                        "restartPolicy": "Never",
                        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}],
                    },
                },
            },
        });
        defaults::apply("batch", "v1", "Job", &mut job, &Rules::v1_36());
        job
    };
    let kind = Kind { group: "batch", kind: "Job", namespaced: true };
    for (suspended, rules, allowed) in [
        (true, Rules::v1_36(), true),
        (true, Rules::kep(), false),
        (false, Rules::v1_36(), false),
        (false, Rules::kep(), false),
    ] {
        let errors = validation::update(kind, &job("1", suspended), &job("2", suspended), &rules);
        assert_eq!(errors.is_empty(), allowed, "suspended {suspended}: {errors:?}");
        assert!(
            errors.iter().all(|error| error.path == "spec.template" && error.detail == "field is immutable")
        );
    }
}

#[test]
fn a_resize_of_a_mirror_pod_has_one_error() {
    let mut pod = json!({
        "metadata": {
            "name": "a", "namespace": "b", "resourceVersion": "1",
            "annotations": {"kubernetes.io/config.mirror": "x"},
        },
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]},
    });
    defaults::apply("", "v1", "Pod", &mut pod, &Rules::v1_36());
    let errors = validation::resize(&pod, &pod, &Rules::v1_36());
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(errors, ["[]: Forbidden: static pods cannot be resized"]);
}

/// Every place in a value, as a JSON pointer.
fn places(value: &Value, here: &str, found: &mut Vec<String>) {
    found.push(here.to_owned());
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| {
            let key = key.replace('~', "~0").replace('/', "~1");
            places(value, &format!("{here}/{key}"), found);
        }),
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(i, value)| places(value, &format!("{here}/{i}"), found));
        }
        _ => {}
    }
}

#[test]
fn validation_does_not_panic_on_any_object() {
    let odd = [
        json!(null),
        json!(true),
        json!(-1),
        json!(i64::MAX),
        json!(0.5),
        json!(""),
        json!("\u{1F980} \u{0}/..%[']"),
        json!([]),
        json!([null, "x", {}]),
        json!({}),
        json!({"x": null}),
    ];
    let cases: Vec<Value> = serde_json::from_str(include_str!("validation/create.json")).unwrap();
    let changes: Vec<Value> = serde_json::from_str(include_str!("validation/update.json")).unwrap();
    let rules = Rules::kep();
    let mut turn = 0;
    for (case, object) in cases
        .iter()
        .map(|case| (case, &case["object"]))
        .chain(changes.iter().map(|case| (case, &case["new"])))
    {
        let mut all = Vec::new();
        places(object, "", &mut all);
        for place in all {
            turn += 1;
            let mut broken = object.clone();
            *broken.pointer_mut(&place).unwrap() = odd[turn % odd.len()].clone();
            let complete = complete(case, &broken);
            validation::create(kind(case), &complete, &rules);
            validation::update(kind(case), object, &complete, &rules);
            validation::update(kind(case), &complete, object, &rules);
            validation::update_status(kind(case), object, &complete, &rules);
            if kind(case).kind == "Pod" {
                validation::resize(object, &complete, &rules);
            }
        }
    }
}
