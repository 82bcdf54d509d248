//! The validation of `FlowSchemas` and `PriorityLevelConfigurations`, with the messages of kube-apiserver 1.36.

use plumb_flowcontrol::GROUP;
use plumb_flowcontrol::bootstrap::{levels, schemas};
use plumb_kinds::defaults;
use plumb_kinds::registry::validate::{self as validation, Kind};
use plumb_resize::rules::Rules;
use serde_json::{Value, json};

fn errors(kind: &str, name: &str, mut spec: Value) -> Vec<String> {
    let mut object = json!({ "metadata": { "name": name }, "spec": spec.take() });
    defaults::apply(GROUP, "v1", kind, &mut object, &Rules::v1_36());
    let kind = Kind { group: GROUP, kind, namespaced: false };
    validation::create(kind, &object, &Rules::v1_36()).iter().map(ToString::to_string).collect()
}

fn level_errors(name: &str, spec: Value) -> Vec<String> {
    errors("PriorityLevelConfiguration", name, spec)
}

fn queued(queuing: &Value) -> Value {
    json!({ "type": "Limited", "limited": { "limitResponse": { "type": "Queue", "queuing": queuing } } })
}

#[test]
fn the_objects_of_every_cluster_are_valid_and_complete() {
    for (kind, all) in [("PriorityLevelConfiguration", levels()), ("FlowSchema", schemas())] {
        for boot in all {
            let mut object = boot.object.clone();
            defaults::apply(GROUP, "v1", kind, &mut object, &Rules::v1_36());
            assert_eq!(object, boot.object, "defaults change nothing");
            let kind = Kind { group: GROUP, kind, namespaced: false };
            assert_eq!(validation::create(kind, &object, &Rules::v1_36()), [], "{object}");
        }
    }
}

#[test]
fn priority_levels_that_contradict_themselves_are_rejected() {
    let at = "spec.limited.limitResponse";
    let reject = json!({ "type": "Reject" });
    let table = [
        (
            json!({ "type": "Exempt" }),
            vec!["spec.type: Invalid value: \"Exempt\": must be 'Exempt' if and only if `name` is 'exempt'".to_owned()],
        ),
        (json!({}), vec!["spec.type: Required value".to_owned()]),
        (
            json!({ "type": "Some" }),
            vec!["spec.type: Unsupported value: \"Some\": supported values: \"Exempt\", \"Limited\"".to_owned()],
        ),
        (
            json!({ "type": "Limited" }),
            vec!["spec.limited: Required value: must not be empty when type is Limited".to_owned()],
        ),
        (
            json!({ "type": "Limited", "exempt": {}, "limited": { "limitResponse": reject } }),
            vec!["spec.exempt: Forbidden: must be nil if the type is Limited".to_owned()],
        ),
        (
            json!({ "type": "Limited", "limited": {
                "nominalConcurrencyShares": -1, "lendablePercent": 101, "borrowingLimitPercent": -1,
                "limitResponse": {},
            } }),
            vec![
                "spec.limited.nominalConcurrencyShares: Invalid value: -1: must be a non-negative integer".to_owned(),
                format!("{at}.type: Required value"),
                "spec.limited.lendablePercent: Invalid value: 101: must be between 0 and 100, inclusive".to_owned(),
                "spec.limited.borrowingLimitPercent: Invalid value: -1: if specified, must be a non-negative integer"
                    .to_owned(),
            ],
        ),
        (
            json!({ "type": "Limited", "limited": { "limitResponse": { "type": "Queue" } } }),
            vec![format!(
                "{at}.queuing: Required value: must not be empty if limited.limitResponse.type is Limited"
            )],
        ),
        (
            json!({ "type": "Limited", "limited": { "limitResponse": { "type": "Reject", "queuing": {} } } }),
            vec![format!("{at}.queuing: Forbidden: must be nil if limited.limitResponse.type is not Limited")],
        ),
        (
            queued(&json!({ "queues": -1, "handSize": -1, "queueLengthLimit": -1 })),
            vec![
                format!("{at}.queuing.queueLengthLimit: Invalid value: -1: must be positive"),
                format!("{at}.queuing.queues: Invalid value: -1: must be positive"),
                format!("{at}.queuing.handSize: Invalid value: -1: must be positive"),
            ],
        ),
        (
            queued(&json!({ "queues": 4, "handSize": 5 })),
            vec![format!("{at}.queuing.handSize: Invalid value: 5: should not be greater than queues (4)")],
        ),
        (
            queued(&json!({ "queues": 20_000_000, "handSize": 1 })),
            vec![format!(
                "{at}.queuing.queues: Invalid value: 20000000: must not be greater than 10000000"
            )],
        ),
        (
            queued(&json!({ "queues": 1024, "handSize": 7 })),
            vec![format!(
                "{at}.queuing.handSize: Invalid value: 7: required entropy bits of deckSize 1024 and handSize 7 \
                 should not be greater than 60"
            )],
        ),
        (queued(&json!({ "queues": 1024, "handSize": 6 })), vec![]),
    ];
    for (spec, expected) in table {
        assert_eq!(level_errors("mine", spec.clone()), expected, "{spec}");
    }
}

#[test]
fn mandatory_objects_have_their_fixed_spec() {
    let shares =
        |name: &str, exempt: Value| level_errors(name, json!({ "type": "Exempt", "exempt": exempt }));
    assert_eq!(shares("exempt", json!({ "nominalConcurrencyShares": 7 })), [""; 0]);
    assert_eq!(
        shares("exempt", json!({ "nominalConcurrencyShares": -7, "lendablePercent": 200 })),
        [
            "spec.exempt.nominalConcurrencyShares: Invalid value: -7: must be a non-negative integer",
            "spec.exempt.lendablePercent: Invalid value: 200: must be between 0 and 100, inclusive",
        ]
    );
    let catch_all = level_errors("catch-all", queued(&json!({})));
    assert_eq!(catch_all.len(), 1, "{catch_all:?}");
    assert!(catch_all[0].ends_with("spec of 'catch-all' must equal the fixed value"), "{catch_all:?}");
    let spec = json!({ "priorityLevelConfiguration": { "name": "exempt" }, "matchingPrecedence": 1 });
    let exempt = errors("FlowSchema", "exempt", spec);
    assert_eq!(exempt.len(), 1, "{exempt:?}");
    assert!(exempt[0].ends_with("spec of 'exempt' must equal the fixed value"), "{exempt:?}");
}

fn schema_errors(rule: &Value) -> Vec<String> {
    let spec = json!({ "priorityLevelConfiguration": { "name": "l" }, "rules": [rule] });
    errors("FlowSchema", "mine", spec)
}

#[test]
fn schemas_without_a_level_or_with_a_reserved_precedence_are_rejected() {
    let table = [
        (json!({}), "spec.priorityLevelConfiguration.name: Required value: must reference a priority level"),
        (
            json!({ "priorityLevelConfiguration": { "name": "l" }, "matchingPrecedence": 1 }),
            "spec.matchingPrecedence: Invalid value: 1: only the schema named 'exempt' may have matchingPrecedence 1",
        ),
        (
            json!({ "priorityLevelConfiguration": { "name": "l" }, "matchingPrecedence": 10_001 }),
            "spec.matchingPrecedence: Invalid value: 10001: must not be greater than 10000",
        ),
        (
            json!({ "priorityLevelConfiguration": { "name": "l" }, "matchingPrecedence": -1 }),
            "spec.matchingPrecedence: Invalid value: -1: must be a positive value",
        ),
        (
            json!({ "priorityLevelConfiguration": { "name": "l" }, "distinguisherMethod": { "type": "ByGroup" } }),
            "spec.distinguisherMethod.type: Unsupported value: {\"Type\":\"ByGroup\"}: supported values: \
             \"ByNamespace\", \"ByUser\"",
        ),
    ];
    for (spec, expected) in table {
        assert_eq!(errors("FlowSchema", "mine", spec.clone()), [expected], "{spec}");
    }
}

#[test]
fn rules_that_can_match_nothing_are_rejected() {
    let users = json!([{ "kind": "User", "user": { "name": "alice" } }]);
    let everything = json!([{ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"] }]);
    let with = |rule: Value| json!({ "subjects": users, "resourceRules": [rule] });
    let at = "spec.rules[0].resourceRules[0]";
    let table = [
        (
            json!({}),
            vec![
                "spec.rules[0].subjects: Required value: subjects must contain at least one value".to_owned(),
                "spec.rules[0]: Required value: at least one of resourceRules and nonResourceRules has to be non-empty"
                    .to_owned(),
            ],
        ),
        (
            json!({ "subjects": [{ "kind": "Robot" }], "resourceRules": everything }),
            vec![
                "spec.rules[0].subjects[0].kind: Unsupported value: \"Robot\": supported values: \"Group\", \
                 \"ServiceAccount\", \"User\""
                    .to_owned(),
            ],
        ),
        (
            json!({ "subjects": [{ "kind": "User", "group": { "name": "g" } }], "resourceRules": everything }),
            vec![
                "spec.rules[0].subjects[0].user: Required value: user is required when subject kind is 'User'".to_owned(),
                "spec.rules[0].subjects[0].group: Forbidden: group is forbidden when subject kind is not 'Group'"
                    .to_owned(),
            ],
        ),
        (
            json!({ "subjects": [{ "kind": "ServiceAccount", "serviceAccount": { "name": "*" } }],
                    "resourceRules": everything }),
            vec![
                "spec.rules[0].subjects[0].serviceAccount.namespace: Required value: must specify namespace for \
                 service account"
                    .to_owned(),
            ],
        ),
        (
            with(json!({})),
            vec![
                format!("{at}.verbs: Required value: verbs must contain at least one value"),
                format!("{at}.apiGroups: Required value: resource rules must supply at least one api group"),
                format!("{at}.resources: Required value: resource rules must supply at least one resource"),
                format!(
                    "{at}.namespaces: Required value: resource rules that are not cluster scoped must supply at \
                     least one namespace"
                ),
            ],
        ),
        (
            with(json!({ "verbs": ["*", "get"], "apiGroups": [""], "resources": ["pods"], "clusterScope": true })),
            vec![format!(
                "{at}.verbs: Invalid value: [\"*\",\"get\"]: if '*' is present, must not specify other verbs"
            )],
        ),
        (
            with(json!({ "verbs": ["look"], "apiGroups": [""], "resources": ["pods"], "clusterScope": true })),
            vec![format!(
                "{at}.verbs: Unsupported value: [\"look\"]: supported values: \"create\", \"delete\", \
                 \"deletecollection\", \"get\", \"list\", \"patch\", \"proxy\", \"update\", \"watch\""
            )],
        ),
    ];
    for (rule, expected) in table {
        assert_eq!(schema_errors(&rule), expected, "{rule}");
    }
}

#[test]
fn wildcards_of_non_resource_urls_stand_at_the_end() {
    let table = [
        ("/", None),
        ("/healthz", None),
        ("/healthz/*", None),
        ("*", None),
        ("", Some("must not be empty")),
        ("healthz", Some("must start with slash")),
        ("/a b", Some("must not contain white-space")),
        ("/a//b", Some("must not contain double slash")),
        ("/a*", Some("wildcard can only do suffix matching")),
        ("/*/a", Some("wildcard can only do suffix matching")),
    ];
    for (url, rule) in table {
        let errors = schema_errors(&json!({
            "subjects": [{ "kind": "Group", "group": { "name": "g" } }],
            "nonResourceRules": [{ "verbs": ["get"], "nonResourceURLs": [url] }],
        }));
        let expected = rule.map(|rule| {
            format!("spec.rules[0].nonResourceRules[0].nonResourceURLs[0]: Invalid value: \"{url}\": {rule}")
        });
        assert_eq!(errors, expected.into_iter().collect::<Vec<_>>(), "{url}");
    }
}
