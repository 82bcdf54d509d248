//! The plugin `MutatingAdmissionPolicy`.
//!
//! The plugin matches policies against the object of the request and then applies them one after the other, each to the
//! result of the previous one. It reinvokes a policy with `reinvocationPolicy: IfNeeded` if the object changed after
//! it.

use std::sync::Arc;

use plumb_apischema::apply::{self, Types};
use plumb_apischema::schema::Kind;
use plumb_apischema::{Schema, json as schema_json, patch};
use plumb_cel::{Composition, Value as Cel};
use plumb_store::Store;
use serde_json::{Value, json};

use super::super::effort::{self, Effort, Interrupted, Pace};
use super::super::evaluation::{CONDITIONS_BUDGET, Inputs, POLICY_BUDGET, value_of};
use super::super::matching::{Invocation, Versions};
use super::super::{Attributes, Operation, Plugins, condition, patched};
use super::compiled::Mutation;
use super::index::{Binding, Mutating, Policies, Policy};
use super::is_exempt;
use super::params::{self, Parameters};
use crate::authz::followed::Followed;
use crate::error::{ApiError, Cause};
use crate::expression::Expression;
use crate::object::meta;

/// The name of the plugin.
const MUTATING: &str = "MutatingAdmissionPolicy";

/// The mutating admission policies.
pub(in crate::admission) struct MutatingPolicies(Option<Followed<Policies<Mutating>>>);

/// The state of an invocation and reinvocation of the policies.
#[derive(Default)]
pub(in crate::admission) struct Round {
    number: usize,
    /// The evaluations with `reinvocationPolicy: IfNeeded` since the last change.
    called: Vec<Key>,
    /// The evaluations to repeat.
    again: Vec<Key>,
    needed: bool,
    /// The object after the last round.
    left: Option<Value>,
}

/// A policy, a binding, and the namespace and name of the parameters.
type Key = (String, String, String);

impl Round {
    /// Whether a reinvocation is needed.
    pub(in crate::admission) fn is_needed(&self) -> bool {
        self.needed && self.number == 1
    }

    fn call_again(&mut self) {
        self.again.append(&mut self.called);
    }
}

/// A policy that matches the write.
#[derive(Clone)]
struct Evaluation {
    policy: Arc<Policy>,
    binding: Arc<Binding>,
    invocation: Invocation,
    params: Arc<Value>,
}

/// Why the evaluation of a policy failed.
struct Failure {
    message: String,
    reason: &'static str,
}

impl MutatingPolicies {
    pub(in crate::admission) fn new(on: &Plugins, store: &Store) -> Self {
        Self(on.is_on(MUTATING).then(|| Followed::of(store.clone())))
    }

    /// Applies the matching policies to the new object.
    pub(in crate::admission) async fn mutate(
        &self,
        round: &mut Round,
        attributes: &Attributes<'_>,
        new: &mut Value,
    ) -> Result<(), ApiError> {
        let Some(policies) = self.0.as_ref().filter(|_| !is_exempt(attributes)) else { return Ok(()) };
        if attributes.operation == Operation::Delete {
            return Ok(());
        }
        let bound = policies.ask(|policies| policies.about(attributes.row.plural()));
        if bound.is_empty() {
            return Ok(());
        }
        let mut failures = Vec::new();
        let mut evaluations = Vec::new();
        for (policy, bindings) in bound {
            let found = collect(&policy, &bindings, attributes, new, &mut evaluations, &mut failures);
            Box::pin(found).await;
        }
        if round.number > 0 && round.left.as_ref() != Some(&*new) {
            // Another plugin or a webhook changed the object after the last policy.
            round.call_again();
        }
        let (mut patched, mut pace) = (false, Pace::default());
        for evaluation in &evaluations {
            let evaluated = evaluate(evaluation, round, attributes, new, &mut failures, &mut pace);
            patched |= Box::pin(evaluated).await?;
        }
        if patched {
            // As upstream, a policy's own change also causes its reinvocation.
            round.call_again();
            round.needed = true;
        }
        round.left = Some(new.clone());
        round.number += 1;
        refusal(attributes, &failures)
    }
}

/// Finds the evaluations of a policy that a write needs.
async fn collect(
    policy: &Arc<Policy>,
    bindings: &[Arc<Binding>],
    attributes: &Attributes<'_>,
    new: &Value,
    evaluations: &mut Vec<Evaluation>,
    failures: &mut Vec<Failure>,
) {
    let mut fail = |binding: Option<&Binding>, why: &str| {
        let what = if binding.is_some() { "binding" } else { "policy" };
        let why = format!("failed to configure {what}: {why}");
        failures.extend(failure(policy, binding, &why, "Forbidden"));
    };
    let invocation = match policy.criteria.invocation(attributes, new) {
        Ok(Some(invocation)) => invocation,
        Ok(None) => return,
        Err(error) => return fail(None, &error.message),
    };
    let row = match params::resource(policy, attributes) {
        Ok(row) => row,
        Err(why) => return fail(None, &why),
    };
    let mut parameters = Parameters::of(row.as_ref());
    for binding in bindings {
        match parameters.of_binding(binding, attributes, new).await {
            Err(why) => fail(Some(binding), &why),
            Ok(all) => evaluations.extend(all.iter().map(|params| Evaluation {
                policy: policy.clone(),
                binding: binding.clone(),
                invocation: invocation.clone(),
                params: Arc::new(params.clone()),
            })),
        }
    }
}

fn failure(policy: &Policy, binding: Option<&Binding>, why: &str, reason: &'static str) -> Option<Failure> {
    let message = match binding {
        Some(binding) => {
            format!("policy '{}' with binding '{}' denied request: {why}", policy.name, binding.name)
        }
        None => format!("policy {:?} denied request: {why}", policy.name),
    };
    (!policy.ignores_failure).then_some(Failure { message, reason })
}

/// Applies one policy to the new object. Returns whether any of its mutations was applied.
async fn evaluate(
    evaluation: &Evaluation,
    round: &mut Round,
    attributes: &Attributes<'_>,
    new: &mut Value,
    failures: &mut Vec<Failure>,
    pace: &mut Pace,
) -> Result<bool, ApiError> {
    let Evaluation { policy, binding, invocation, params } = evaluation;
    let compiled = policy.compiled();
    attributes.in_time()?;
    let mut current = match invocation.clone().converted(attributes, new, &mut Versions::default()).await {
        Ok(invocation) => Evaluation { invocation, ..evaluation.clone() },
        Err(error) => {
            let why = format!("failed to configure policy: {}", error.message);
            failures.extend(failure(policy, None, &why, "Forbidden"));
            return Ok(false);
        }
    };
    if !compiled.conditions.is_empty() {
        match effort::evaluate(&current, attributes, new, pace, hold).await? {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(why) => {
                failures.extend(failure(policy, Some(binding), &why, "Invalid"));
                return Ok(false);
            }
        }
    }
    let of_params = format!("{}/{}", meta(params, "namespace"), meta(params, "name"));
    let key = (policy.name.clone(), binding.name.clone(), of_params);
    if round.number > 0 && !round.again.contains(&key) {
        return Ok(false);
    }
    let (before, mut patched) = (new.clone(), false);
    for index in 0..compiled.mutations.len() {
        if new.is_null() {
            break;
        }
        let change =
            move |evaluation: &Evaluation, attributes: &Attributes<'_>, new: &Value, effort: &mut Effort| {
                patch(evaluation, index, attributes, new, effort)
            };
        match effort::evaluate(&current, attributes, new, pace, change).await?? {
            Ok(None) => patched = true,
            Ok(Some(object)) => {
                *new = patched::accept(&current.invocation, attributes, object).await?;
                patched = true;
                let again = invocation.clone().converted(attributes, new, &mut Versions::default()).await;
                current.invocation = again.map_err(|error| ApiError::internal(error.message))?;
            }
            Err(why) => failures.extend(failure(policy, Some(binding), &why, "Invalid")),
        }
    }
    if *new != before {
        round.call_again();
        round.needed = true;
    }
    if policy.spec["reinvocationPolicy"] == "IfNeeded" {
        round.called.push(key);
    }
    Ok(patched)
}

/// Whether the match conditions of a policy are true, or the error of their evaluation.
fn hold(
    Evaluation { policy, invocation, params, .. }: &Evaluation,
    attributes: &Attributes<'_>,
    new: &Value,
    effort: &mut Effort,
) -> Result<Result<bool, String>, Interrupted> {
    let compiled = policy.compiled();
    let inputs = Inputs::of(attributes, invocation, new, compiled.used);
    let mut values = inputs.bindings(None, params);
    inputs.bind_authorizer(&mut values);
    let composition = compiled.composition(&values, CONDITIONS_BUDGET, effort);
    condition::hold_composed(&compiled.conditions, &values, &composition, effort)
}

/// The object after a mutation, in the version of the invocation; none if it does not change. The inner error is that
/// of the policy, the outer one aborts the write.
type Patched = Result<Result<Option<Value>, String>, ApiError>;

fn patch(
    Evaluation { policy, invocation, params, .. }: &Evaluation,
    index: usize,
    attributes: &Attributes<'_>,
    new: &Value,
    effort: &mut Effort,
) -> Result<Patched, Interrupted> {
    let compiled = policy.compiled();
    let mutation = &compiled.mutations[index];
    let inputs = Inputs::of(attributes, invocation, new, compiled.used);
    let namespace = match inputs.namespace() {
        Ok(namespace) => namespace,
        Err(error) => return Ok(Err(error)),
    };
    let mut values = inputs.bindings(Some(namespace), params);
    inputs.bind_authorizer(&mut values);
    let composition = compiled.composition(&values, POLICY_BUDGET, effort);
    Ok(match run(mutation.expression(), &values, &composition, effort)? {
        Ok(value) => apply_to(mutation, &value, attributes, invocation, new),
        Err(why) => Ok(Err(why)),
    })
}

/// Applies the value of a mutation's expression to the object.
fn apply_to(
    mutation: &Mutation,
    value: &Cel<'_>,
    attributes: &Attributes<'_>,
    invocation: &Invocation,
    new: &Value,
) -> Patched {
    let given = invocation.object(attributes, new);
    let patched = match mutation {
        Mutation::Apply(_) => applied(value, attributes, invocation, &given),
        Mutation::JsonPatch(_) => json_patched(value, &given),
    };
    if let (Mutation::JsonPatch(_), Ok(Some(patched))) = (mutation, &patched) {
        decode_strictly(attributes, invocation, patched)?;
    }
    Ok(patched)
}

fn run<'a>(
    expression: &'a Expression,
    values: &'a plumb_cel::Bindings<'a>,
    composition: &Composition<'a>,
    effort: &mut Effort,
) -> Result<Result<Cel<'a>, String>, Interrupted> {
    if let Some(error) = expression.compilation_error() {
        return Ok(Err(error.to_string()));
    }
    let mut left = POLICY_BUDGET;
    match value_of(expression, values, Some(composition), &mut left, effort) {
        Ok(value) => Ok(value),
        Err(ended) => ended.why().map(Err),
    }
}

fn type_mismatch(wrong: &[String]) -> Result<(), String> {
    if wrong.is_empty() { Ok(()) } else { Err(format!("type mismatch: {}", wrong.join("\n"))) }
}

/// Merges an apply configuration into an object.
fn applied(
    value: &Cel<'_>,
    attributes: &Attributes<'_>,
    invocation: &Invocation,
    given: &Value,
) -> Result<Option<Value>, String> {
    if !matches!(value, Cel::Message(_)) {
        let given = value.type_name();
        return Err(format!("unsupported return type from ApplyConfiguration expression: {given}"));
    }
    type_mismatch(&value.misnamed())?;
    let mut configuration = value.to_json().map_err(|error| error.to_string())?;
    for field in ["apiVersion", "kind"] {
        configuration[field] = given[field].clone();
    }
    let failed = |why: String| format!("error applying patch: {why}");
    let merge = |ty: apply::Type<'_>| {
        apply::validate(ty, &configuration)
            .map_err(|why| failed(format!("failed to convert patch object to typed object: {why}")))?;
        let atomics = apply::atomics(ty, &configuration);
        if !atomics.is_empty() {
            let why = format!("may not mutate atomic arrays, maps or structs: {}", atomics.join(", "));
            return Err(failed(format!("invalid ApplyConfiguration: {why}")));
        }
        apply::merge(ty, given, &configuration).map_err(|why| failed(format!("failed to merge patch: {why}")))
    };
    let row = &invocation.row;
    let version = row.api_version();
    let of_custom = row.custom().and_then(|custom| custom.types.iter().find(|(own, _)| *own == version));
    let merged = match (of_custom, builtin_kind(attributes, invocation)) {
        (Some((_, types)), _) => merge(types.root()),
        (None, Some(kind)) => merge(Types::for_kind(kind)),
        (None, _) => merge(Types::deduced().root()),
    };
    merged.map(Some)
}

/// The kind of the object as a policy sees it, if it is built in.
fn builtin_kind(attributes: &Attributes<'_>, invocation: &Invocation) -> Option<&'static Kind> {
    let row = &invocation.row;
    if row.custom().is_some() {
        None
    } else if attributes.is_whole() {
        Schema::builtin().kind(row.group(), row.version(), row.kind())
    } else {
        attributes.body()
    }
}

/// Rejects unknown fields. As upstream, that is an internal error, whatever the policy's `failurePolicy`; a custom
/// resource is pruned by its schema.
fn decode_strictly(
    attributes: &Attributes<'_>,
    invocation: &Invocation,
    patched: &Value,
) -> Result<(), ApiError> {
    let Some(kind) = builtin_kind(attributes, invocation) else { return Ok(()) };
    let decoded = schema_json::decode_value(Schema::builtin(), kind, patched.clone())
        .map_err(|error| ApiError::internal(error.to_string()))?;
    if decoded.strict.is_empty() {
        return Ok(());
    }
    Err(ApiError::internal(schema_json::strict_error(&decoded.strict)))
}

/// Applies a JSON patch to an object; none if a `test` operation of the patch fails, so that the object does not
/// change.
fn json_patched(value: &Cel<'_>, given: &Value) -> Result<Option<Value>, String> {
    let Cel::List(list) = value else {
        return Err("type mismatch: JSONPatchType.expression should evaluate to array".to_owned());
    };
    let mut operations = Vec::with_capacity(list.len());
    for operation in list.iter() {
        if let Cel::Message(message) = &operation
            && let Some(value) = message.fields.get("value")
        {
            type_mismatch(&value.misnamed())?;
        }
        operations.push(operation.to_json().map_err(|why| {
            format!("JSONPath valueExpression evaluated to a type that could not marshal to JSON: {why}")
        })?);
    }
    match patch::json::apply(given.clone(), json!(operations)) {
        Ok(patched) => Ok(Some(patched)),
        Err(patch::json::JsonPatchError::TestFailed(_)) => Ok(None),
        Err(error) => Err(format!("JSON Patch: {error}")),
    }
}

/// The error of a write for which the evaluation of policies failed.
fn refusal(attributes: &Attributes<'_>, failures: &[Failure]) -> Result<(), ApiError> {
    let Some(first) = failures.first() else { return Ok(()) };
    let mut error = attributes.forbidden("");
    error.message.clone_from(&first.message);
    error.reason = first.reason;
    for failure in failures {
        error = error.because(Cause { message: failure.message.clone(), ..Cause::default() });
    }
    Err(error)
}
