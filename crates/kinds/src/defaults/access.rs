//! Defaults of RBAC, admission registration, flow control and `CustomResourceDefinitions`.

use serde_json::{Value, json};

use super::plan::Fill::{Int, Object as Empty, Text};
use super::plan::Row;
use super::plan::Rule::{self, Do, Set};
use super::{Object, child, fill, fill_text, text};

const RBAC: &str = "api/rbac/v1";
const ADMISSION: &str = "api/admissionregistration/v1";
const FLOW: &str = "api/flowcontrol/v1";
const CRD: &str = "apiextensions-apiserver/pkg/apis/apiextensions/v1";

pub(super) const ROWS: &[Row] = &[
    (RBAC, "RoleRef", &[Set("apiGroup", Text("rbac.authorization.k8s.io"))]),
    (RBAC, "Subject", &[Do(subject)]),
    ("api/scheduling/v1", "PriorityClass", &[Set("preemptionPolicy", Text("PreemptLowerPriority"))]),
    (ADMISSION, "ValidatingWebhook", WEBHOOK),
    (ADMISSION, "MutatingWebhook", WEBHOOK),
    // Validating webhooks have no `reinvocationPolicy`.
    (ADMISSION, "MutatingWebhookConfiguration", &[Do(reinvocation)]),
    (ADMISSION, "RuleWithOperations", &[Set("scope", Text("*"))]),
    (ADMISSION, "NamedRuleWithOperations", &[Set("scope", Text("*"))]),
    (ADMISSION, "ServiceReference", &[Set("port", Int(443))]),
    (ADMISSION, "ValidatingAdmissionPolicySpec", &[Set("failurePolicy", Text("Fail"))]),
    (ADMISSION, "MutatingAdmissionPolicySpec", &[Set("failurePolicy", Text("Fail"))]),
    (
        ADMISSION,
        "MatchResources",
        &[
            Set("matchPolicy", Text("Equivalent")),
            Set("namespaceSelector", Empty),
            Set("objectSelector", Empty),
        ],
    ),
    (FLOW, "FlowSchemaSpec", &[Set("matchingPrecedence", Int(1000))]),
    (
        FLOW,
        "ExemptPriorityLevelConfiguration",
        &[Set("nominalConcurrencyShares", Int(0)), Set("lendablePercent", Int(0))],
    ),
    (
        FLOW,
        "LimitedPriorityLevelConfiguration",
        &[Set("nominalConcurrencyShares", Int(30)), Set("lendablePercent", Int(0))],
    ),
    (
        FLOW,
        "QueuingConfiguration",
        &[Set("handSize", Int(8)), Set("queues", Int(64)), Set("queueLengthLimit", Int(50))],
    ),
    (CRD, "CustomResourceDefinitionSpec", &[Do(custom_names), Do(conversion)]),
    (CRD, "ServiceReference", &[Set("port", Int(443))]),
    ("kube-aggregator/pkg/apis/apiregistration/v1", "ServiceReference", &[Set("port", Int(443))]),
];

const WEBHOOK: &[Rule] = &[
    Set("failurePolicy", Text("Fail")),
    Set("matchPolicy", Text("Equivalent")),
    Set("namespaceSelector", Empty),
    Set("objectSelector", Empty),
    Set("timeoutSeconds", Int(10)),
];

fn reinvocation(configuration: &mut Object) {
    for webhook in super::items(configuration, "webhooks") {
        fill(webhook, "reinvocationPolicy", "Never");
    }
}

/// The default API group of users and groups is that of RBAC; that of service accounts is the core group.
fn subject(subject: &mut Object) {
    if matches!(text(subject, "kind"), "User" | "Group") {
        fill_text(subject, "apiGroup", "rbac.authorization.k8s.io");
    }
}

fn custom_names(spec: &mut Object) {
    let Some(names) = child(spec, "names") else { return };
    let kind = text(names, "kind").to_owned();
    if kind.is_empty() {
        return;
    }
    fill_text(names, "singular", &kind.to_lowercase());
    fill_text(names, "listKind", &format!("{kind}List"));
}

fn conversion(spec: &mut Object) {
    if spec.get("conversion").is_none_or(Value::is_null) {
        spec.insert("conversion".to_owned(), json!({"strategy": "None"}));
    }
}
