//! The plugin `ValidatingAdmissionPolicy`.
//!
//! ```text
//!   policies and bindings in the store ──▶ index by resource, updated by every write
//!                                             │ policies that may match the resource and have a binding
//!   write ────────────────────────────────────┤
//!                                             ▼
//!       matchConstraints ▸ per binding: matchResources ▸ paramRef ▸ per parameter object:
//!       matchConditions ▸ validations ▸ messages ▸ auditAnnotations ──▶ Deny, Warn
//! ```
//!
//! Expressions are compiled when a write first needs them, once per change of their policy, and evaluated without any
//! lock; expensive ones on a thread for blocking work ([`super::effort`]). Policies do not apply to policies and their
//! bindings, so that a broken policy can be repaired.

mod compiled;
mod decide;
mod index;
mod mutate;
mod params;
mod permission;
mod type_check;

use std::collections::BTreeMap;
use std::sync::Arc;

use http::StatusCode;
use plumb_store::Store;
use serde_json::{Value, json};

pub(super) use mutate::{MutatingPolicies, Round};
pub(super) use permission::ParameterPermission;
pub(crate) use type_check::expression_warnings;

use super::effort::{Effort, Pace, evaluate_long};
use super::evaluation::Inputs;
use super::matching::{Invocation, Versions};
use super::snapshot::Snapshot;
use super::{Attributes, Plugins};
use crate::authz::followed::Followed;
use crate::error::{ApiError, Cause};
use decide::{Decided, Denial, decide};
use index::{Binding, Bound, Policies, Policy, Validating};
use params::Parameters;

/// The audit annotation of a write that violates a policy.
const VALIDATION_FAILURE: &str = "validation.policy.admission.k8s.io/validation_failure";
/// The name of the plugin.
const VALIDATING: &str = "ValidatingAdmissionPolicy";

/// The validating admission policies.
pub(super) struct ValidatingPolicies(Option<Followed<Policies<Validating>>>);

impl ValidatingPolicies {
    pub(super) fn new(on: &Plugins, store: &Store) -> Self {
        Self(on.is_on(VALIDATING).then(|| Followed::of(store.clone())))
    }

    /// Validates a write by all matching policies.
    pub(super) async fn validate(&self, attributes: &Attributes<'_>, new: &Value) -> Result<(), ApiError> {
        let Some(policies) = self.0.as_ref().filter(|_| !is_exempt(attributes)) else { return Ok(()) };
        let bound = policies.ask(|policies| policies.about(attributes.row.plural()));
        let mut refusal = None;
        let (mut versions, mut pace) = (Versions::default(), Pace::default());
        for policy in &bound {
            // The response has the warnings of all policies and the first denial.
            let denied = Box::pin(judge(policy, attributes, new, &mut versions, &mut pace)).await?;
            refusal = refusal.or(denied);
        }
        refusal.map_or(Ok(()), Err)
    }
}

/// Whether the write is one of a policy or binding, to which policies do not apply.
fn is_exempt(attributes: &Attributes<'_>) -> bool {
    attributes.row.group() == "admissionregistration.k8s.io"
        && matches!(
            attributes.row.kind(),
            "ValidatingAdmissionPolicy"
                | "ValidatingAdmissionPolicyBinding"
                | "MutatingAdmissionPolicy"
                | "MutatingAdmissionPolicyBinding"
        )
}

/// The error of a write that a policy denies.
async fn judge(
    (policy, bindings): &Bound,
    attributes: &Attributes<'_>,
    new: &Value,
    versions: &mut Versions,
    pace: &mut Pace,
) -> Result<Option<ApiError>, ApiError> {
    let misconfigured = |binding: Option<&Binding>, why: String| {
        let what = if binding.is_some() { "binding" } else { "policy" };
        let denial = Denial {
            message: format!("failed to configure {what}: {why}"),
            index: 0,
            reason: None,
            always: true,
        };
        (!policy.ignores_failure).then(|| refused(policy, binding, attributes, &denial))
    };
    let invocation = match policy.criteria.invocation(attributes, new) {
        Ok(Some(invocation)) => invocation,
        Ok(None) => return Ok(None),
        Err(error) => return Ok(misconfigured(None, error.message)),
    };
    let row = match params::resource(policy, attributes) {
        Ok(row) => row,
        Err(why) => return Ok(misconfigured(None, why)),
    };
    let mut refusal = None;
    let mut annotations: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut parameters = Parameters::of(row.as_ref());
    for binding in bindings {
        let params = match parameters.of_binding(binding, attributes, new).await {
            Ok(params) => params,
            Err(why) => {
                refusal = refusal.or_else(|| misconfigured(Some(binding), why));
                continue;
            }
        };
        if params.is_empty() {
            continue;
        }
        let invocation = match invocation.clone().converted(attributes, new, versions).await {
            Ok(invocation) => invocation,
            Err(error) => {
                let why = format!("failed to convert object version: {}", error.message);
                refusal = refusal.or_else(|| misconfigured(Some(binding), why));
                continue;
            }
        };
        let inputs = Inputs::of(attributes, &invocation, new, policy.compiled().used);
        let mut unmet = 0_usize;
        for params in &*params {
            attributes.in_time()?;
            let mut effort = Effort::short();
            let decided = decide(policy.compiled(), policy.ignores_failure, &inputs, params, &mut effort);
            let decided = if let Ok(decided) = decided {
                decided
            } else {
                let snapshot = Snapshot::of(attributes, new);
                decide_long(policy.clone(), snapshot, invocation.clone(), params.clone()).await
            };
            pace.after(&effort).await;
            let Decided { denials, annotations: made } = decided?;
            for (key, value) in made {
                let values = annotations.entry(key).or_default();
                if !values.contains(&value) {
                    values.push(value);
                }
            }
            for denial in denials {
                unmet += usize::from(!denial.always);
                let own = enforce(policy, binding, attributes, &denial);
                refusal = refusal.or(own);
            }
        }
        // Messages can contain data of the object, such as of Secrets, and are not logged.
        if unmet > 0 && binding.asks("Audit") {
            tracing::info!(
                policy = policy.name,
                binding = binding.name,
                unmet,
                "a write does not comply with a policy"
            );
        }
    }
    // Bindings and parameters may make several values of one key.
    for (key, values) in annotations {
        attributes.annotate(&format!("{}/{key}", policy.name), || values.join(", "));
    }
    Ok(refusal)
}

/// What a policy decides whose evaluation needs a thread for blocking work.
async fn decide_long(
    policy: Arc<Policy>,
    write: Snapshot,
    invocation: Invocation,
    params: Value,
) -> Result<Decided, ApiError> {
    let deadline = write.attributes().deadline;
    let decided = evaluate_long(deadline, move |effort| {
        let (attributes, compiled) = (write.attributes(), policy.compiled());
        let inputs = Inputs::of(&attributes, &invocation, write.new_object(), compiled.used);
        decide(compiled, policy.ignores_failure, &inputs, &params, effort)
    });
    decided.await?
}

/// Enforces the `validationActions` of a binding for a denial: warns, annotates the audit events, or returns the error.
fn enforce(
    policy: &Policy,
    binding: &Binding,
    attributes: &Attributes<'_>,
    denial: &Denial,
) -> Option<ApiError> {
    let (name, by) = (&policy.name, &binding.name);
    if !denial.always && binding.asks("Warn") {
        attributes.warnings.add(format!(
            "Validation failed for ValidatingAdmissionPolicy '{name}' with binding '{by}': {}",
            denial.message
        ));
    }
    if !denial.always && binding.asks("Audit") {
        attributes.annotate(VALIDATION_FAILURE, || {
            // The fields are in upstream's order.
            let [message, policy, binding_name] = [&denial.message, name, by].map(|text| json!(text));
            let (index, actions) = (denial.index, json!(binding.actions));
            format!(
                "[{{\"message\":{message},\"policy\":{policy},\"binding\":{binding_name},\"expressionIndex\":{index},\
                 \"validationActions\":{actions}}}]"
            )
        });
    }
    (denial.always || binding.asks("Deny")).then(|| refused(policy, Some(binding), attributes, denial))
}

fn refused(
    policy: &Policy,
    binding: Option<&Binding>,
    attributes: &Attributes<'_>,
    denial: &Denial,
) -> ApiError {
    let by = binding.map(|binding| format!(" with binding '{}'", binding.name)).unwrap_or_default();
    let message =
        format!("ValidatingAdmissionPolicy '{}'{by} denied request: {}", policy.name, denial.message);
    let mut error = attributes.forbidden(&message).because(Cause { message, ..Cause::default() });
    (error.reason, error.code) = match denial.reason.as_deref() {
        Some("Forbidden") => ("Forbidden", StatusCode::FORBIDDEN),
        Some("Unauthorized") => ("Unauthorized", StatusCode::UNAUTHORIZED),
        Some("RequestEntityTooLarge") => ("RequestEntityTooLarge", StatusCode::PAYLOAD_TOO_LARGE),
        _ => ("Invalid", StatusCode::UNPROCESSABLE_ENTITY),
    };
    error
}
