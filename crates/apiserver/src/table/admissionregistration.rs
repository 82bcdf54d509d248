//! Who has a say in what is written.

use serde_json::{Value, json};

use super::column::{AGE, Column, NAME};
use super::labels::selector;
use super::layout::Layout;
use super::view::View;

const GROUP: &str = "admissionregistration.k8s.io";

const WEBHOOKS: &[Column] = &[NAME, Column::integer("Webhooks", "how many webhooks are called"), AGE];
const PARAM_KIND: Column = Column::text("ParamKind", "the kind that holds the policy's parameters");
const BINDING: &[Column] = &[
    NAME,
    Column::text("PolicyName", "the policy that is bound"),
    Column::text("ParamRef", "the object that holds its parameters"),
    AGE,
];

pub(super) const LAYOUTS: &[Layout] = &[
    Layout::new(GROUP, "MutatingWebhookConfiguration", WEBHOOKS, webhooks),
    Layout::new(GROUP, "ValidatingWebhookConfiguration", WEBHOOKS, webhooks),
    Layout::new(
        GROUP,
        "ValidatingAdmissionPolicy",
        &[NAME, Column::integer("Validations", "how many rules it has"), PARAM_KIND, AGE],
        |object| policy(object, "/spec/validations"),
    ),
    Layout::new(
        GROUP,
        "MutatingAdmissionPolicy",
        &[NAME, Column::integer("Mutations", "how many changes it makes"), PARAM_KIND, AGE],
        |object| policy(object, "/spec/mutations"),
    ),
    Layout::new(GROUP, "ValidatingAdmissionPolicyBinding", BINDING, binding),
    Layout::new(GROUP, "MutatingAdmissionPolicyBinding", BINDING, binding),
    Layout::dated("apiextensions.k8s.io", "CustomResourceDefinition"),
];

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
