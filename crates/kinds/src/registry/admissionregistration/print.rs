//! Print columns of the kinds of `admissionregistration.k8s.io`.

use serde_json::{Value, json};

use plumb_apiserver::table::PrintColumns;
use plumb_apiserver::table::column::{AGE, Column, NAME};
use plumb_apiserver::table::labels::selector;
use plumb_apiserver::table::view::View;

const WEBHOOKS: &[Column] = &[NAME, Column::integer("Webhooks", "how many webhooks are called"), AGE];
const PARAM_KIND: Column = Column::text("ParamKind", "the kind that holds the policy's parameters");
const BINDING: &[Column] = &[
    NAME,
    Column::text("PolicyName", "the policy that is bound"),
    Column::text("ParamRef", "the object that holds its parameters"),
    AGE,
];

/// The print columns of webhook configurations.
pub(super) static WEBHOOK_CONFIGURATION: PrintColumns = PrintColumns::new(WEBHOOKS, webhooks);

/// The print columns of `ValidatingAdmissionPolicies`.
pub(super) static VALIDATING_POLICY: PrintColumns = PrintColumns::new(
    &[NAME, Column::integer("Validations", "how many rules it has"), PARAM_KIND, AGE],
    |object| policy(object, "/spec/validations"),
);

/// The print columns of `MutatingAdmissionPolicies`.
pub(super) static MUTATING_POLICY: PrintColumns = PrintColumns::new(
    &[NAME, Column::integer("Mutations", "how many changes it makes"), PARAM_KIND, AGE],
    |object| policy(object, "/spec/mutations"),
);

/// The print columns of policy bindings.
pub(super) static POLICY_BINDING: PrintColumns = PrintColumns::new(BINDING, binding);

fn webhooks(object: View<'_>) -> Value {
    json!([object.name(), object.count("/webhooks"), object.age()])
}

fn policy(policy: View<'_>, rules: &str) -> Value {
    let kind = policy.at("/spec/paramKind");
    let kind = kind.map(|kind| format!("{}/{}", kind.text("/apiVersion"), kind.text("/kind")));
    json!([policy.name(), policy.count(rules), kind.unwrap_or_else(|| "<unset>".to_owned()), policy.age()])
}

fn binding(binding: View<'_>) -> Value {
    let (name, namespace) =
        (binding.text("/spec/paramRef/name"), binding.text_or("/spec/paramRef/namespace", "*"));
    let parameters = match name {
        "" if binding.has("/spec/paramRef/selector") => selector(binding, "/spec/paramRef/selector"),
        "" => "<unset>".to_owned(),
        name => format!("{namespace}/{name}"),
    };
    json!([binding.name(), binding.text("/spec/policyName"), parameters, binding.age()])
}
