//! Which requests a policy records, and which policies are invalid.

use std::path::Path;

use plumb_audit::{Attributes, Decision, Level, Policy, PolicyError, Resource, Stage, Stages, Subject};

const PODS: Resource<'_> =
    Resource { group: "", resource: "pods", subresource: "", namespace: "a", name: "web" };
const NODES: Resource<'_> = Resource { resource: "nodes", namespace: "", name: "n1", ..PODS };
const LOG: Resource<'_> = Resource { subresource: "log", ..PODS };
const SCALE: Resource<'_> = Resource { group: "apps", resource: "deployments", subresource: "scale", ..PODS };

fn parse(text: &str) -> Result<Policy, PolicyError> {
    Policy::parse(&format!("apiVersion: audit.k8s.io/v1\nkind: Policy\n{text}"), Path::new("p.yaml"))
}

/// A policy whose only rule has these fields.
fn rule(fields: &str) -> Policy {
    parse(&format!("rules: [{{ level: Metadata, {fields} }}]")).unwrap()
}

fn decide(policy: &Policy, verb: &str, subject: Subject<'_>) -> Decision {
    let groups = ["dev".to_owned(), "system:authenticated".to_owned()];
    policy.decide(&Attributes { user: Some("alice"), groups: &groups, verb, subject })
}

fn matches(fields: &str, subject: Subject<'_>) -> bool {
    decide(&rule(fields), "get", subject).level == Level::Metadata
}

#[test]
fn a_rule_matches_requests_by_user_group_and_verb() {
    let table = [
        ("", true),
        ("users: [alice]", true),
        ("users: [bob, alice]", true),
        ("users: [bob]", false),
        ("users: ['*']", false),
        ("userGroups: [dev]", true),
        ("userGroups: [ops]", false),
        ("users: [alice], userGroups: [ops]", false),
        ("verbs: [get, list]", true),
        ("verbs: [list]", false),
        ("users: [], verbs: []", true),
    ];
    for (fields, expected) in table {
        assert_eq!(matches(fields, Subject::Resource(PODS)), expected, "{fields}");
        assert_eq!(matches(fields, Subject::Path("/version")), expected, "{fields}");
    }
}

#[test]
fn a_rule_matches_resources_by_group_name_subresource_and_namespace() {
    let table: [(&str, &[(Resource<'_>, bool)]); 15] = [
        ("resources: [{ group: '' }]", &[(PODS, true), (LOG, true), (SCALE, false), (NODES, true)]),
        ("resources: [{ group: '*' }]", &[(PODS, true), (SCALE, true)]),
        ("resources: [{ resources: [pods] }]", &[(PODS, true), (LOG, false), (NODES, false)]),
        ("resources: [{ resources: ['*'] }]", &[(PODS, true), (LOG, true), (SCALE, false)]),
        ("resources: [{ resources: [pods/log] }]", &[(PODS, false), (LOG, true)]),
        ("resources: [{ resources: ['pods/*'] }]", &[(PODS, true), (LOG, true), (NODES, false)]),
        ("resources: [{ resources: ['*/log'] }]", &[(PODS, false), (LOG, true)]),
        ("resources: [{ group: apps, resources: ['*/scale'] }]", &[(SCALE, true), (PODS, false)]),
        (
            "resources: [{ resources: [nodes] }, { group: apps }]",
            &[(NODES, true), (SCALE, true), (PODS, false)],
        ),
        ("resources: [{ resources: [pods], resourceNames: [web] }]", &[(PODS, true)]),
        ("resources: [{ resources: [pods], resourceNames: [db] }]", &[(PODS, false)]),
        ("namespaces: [a]", &[(PODS, true), (NODES, false), (SCALE, true)]),
        ("namespaces: ['']", &[(PODS, false), (NODES, true)]),
        ("namespaces: [a], resources: [{ resources: [pods] }]", &[(PODS, true), (SCALE, false)]),
        ("nonResourceURLs: ['*']", &[(PODS, false)]),
    ];
    for (fields, cases) in table {
        for (resource, expected) in cases {
            assert_eq!(matches(fields, Subject::Resource(*resource)), *expected, "{fields}: {resource:?}");
        }
    }
}

#[test]
fn a_rule_matches_paths_by_their_beginning() {
    let table = [
        ("nonResourceURLs: ['*']", "/healthz", true),
        ("nonResourceURLs: [/healthz]", "/healthz", true),
        ("nonResourceURLs: [/healthz]", "/healthz/ping", false),
        ("nonResourceURLs: ['/healthz*']", "/healthz/ping", true),
        ("nonResourceURLs: [/metrics, '/livez*']", "/livez", true),
        ("resources: [{ group: '' }]", "/healthz", false),
        ("namespaces: [a]", "/healthz", false),
    ];
    for (fields, path, expected) in table {
        assert_eq!(matches(fields, Subject::Path(path)), expected, "{fields}: {path}");
    }
}

#[test]
fn the_first_rule_that_matches_decides_and_without_one_nothing_is_recorded() {
    let policy = parse(
        "omitStages: [RequestReceived]
omitManagedFields: true
rules:
- { level: None, verbs: [watch] }
- { level: RequestResponse, users: [alice], resources: [{ resources: [pods] }], omitStages: [Panic] }
- { level: Request, userGroups: [dev], resources: [{}], omitManagedFields: false }",
    )
    .unwrap();
    let early: Stages = [Stage::RequestReceived].into_iter().collect();
    let both = early.union([Stage::Panic].into_iter().collect());
    let decision =
        |level, omit_stages, omit_managed_fields| Decision { level, omit_stages, omit_managed_fields };
    assert_eq!(decide(&policy, "watch", Subject::Resource(PODS)), decision(Level::None, early, true));
    assert_eq!(decide(&policy, "get", Subject::Resource(PODS)), decision(Level::RequestResponse, both, true));
    assert_eq!(decide(&policy, "get", Subject::Resource(NODES)), decision(Level::Request, early, false));
    assert_eq!(decide(&policy, "get", Subject::Path("/version")).level, Level::None);
    assert!(both.contains(Stage::Panic) && !both.contains(Stage::ResponseComplete));
}

#[test]
fn a_rule_with_users_does_not_match_a_request_whose_authentication_failed() {
    let unknown = Attributes { user: None, groups: &[], verb: "get", subject: Subject::Path("/version") };
    assert_eq!(rule("users: ['', alice]").decide(&unknown).level, Level::None);
    assert_eq!(rule("userGroups: ['']").decide(&unknown).level, Level::None);
    assert_eq!(rule("verbs: [get]").decide(&unknown).level, Level::Metadata);
}

#[test]
fn an_invalid_policy_has_the_messages_of_kubernetes() {
    let levels = r#"supported values: "None", "Metadata", "Request", "RequestResponse""#;
    let stages = "allowed stages are RequestReceived,ResponseStarted,ResponseComplete,Panic";
    let table = [
        ("rules: [{}]", "rules[0].level: Required value".to_owned()),
        ("rules: [{ level: All }]", format!(r#"rules[0].level: Unsupported value: "All": {levels}"#)),
        (
            "rules: [{ level: None, omitStages: [Panic, Later] }]",
            format!(r#"rules[0].omitStages[1]: Invalid value: "Later": {stages}"#),
        ),
        (
            "omitStages: ['']\nrules: [{ level: None }]",
            format!(r#"omitStages[0]: Invalid value: "": {stages}"#),
        ),
        (
            "rules: [{ level: None, nonResourceURLs: [healthz] }]",
            r#"rules[0].nonResourceURLs[0]: Invalid value: "healthz": non-resource URL rules must begin with a '/' character"#
                .to_owned(),
        ),
        (
            "rules: [{ level: None, nonResourceURLs: ['*', '/*/a'] }]",
            r#"rules[0].nonResourceURLs[1]: Invalid value: "/*/a": non-resource URL wildcards '*' must be the final character of the rule"#
                .to_owned(),
        ),
        (
            "rules: [{ level: None, nonResourceURLs: [/a], namespaces: [b] }]",
            r#"rules[0].nonResourceURLs: Invalid value: ["/a"]: rules cannot apply to both regular resources and non-resource URLs"#
                .to_owned(),
        ),
        (
            "rules: [{ level: None, resources: [{ resourceNames: [a] }] }]",
            r#"rules[0].resources.resourceNames: Invalid value: ["a"]: using resourceNames requires at least one resource"#
                .to_owned(),
        ),
    ];
    for (text, expected) in table {
        let error = parse(text).unwrap_err().to_string();
        assert_eq!(error, format!("the audit policy in p.yaml is invalid: {expected}"), "{text}");
    }
    let error = parse("rules: [{ level: None, resources: [{ group: apps/v1 }] }]").unwrap_err().to_string();
    assert!(
        error.contains(r#"rules[0].resources.group: Invalid value: "apps/v1": a lowercase RFC 1123"#),
        "{error}"
    );
}

#[test]
fn a_policy_without_rules_or_with_unknown_fields_is_refused() {
    let of = |text: &str| parse(text).unwrap_err().to_string();
    for text in ["", "rules: []", "rules:"] {
        assert_eq!(of(text), "loaded illegal policy with 0 rules: from file p.yaml");
    }
    for text in ["rules: [{ level: None, user: [a] }]", "rules: [{ level: None }]\nomitstages: []"] {
        let error = of(text);
        assert!(error.starts_with("cannot parse p.yaml: ") && error.contains("unknown field"), "{error}");
    }
    let other =
        Policy::parse("apiVersion: audit.k8s.io/v1beta1\nkind: Policy\nrules: []", Path::new("p.yaml"));
    assert!(other.unwrap_err().to_string().contains("audit.k8s.io/v1"));
    let missing = Policy::open(Path::new("/does/not/exist")).unwrap_err().to_string();
    assert!(missing.starts_with("cannot read /does/not/exist: "), "{missing}");
}
