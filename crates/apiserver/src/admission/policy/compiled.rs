//! The expressions of a policy, compiled.

use plumb_cel::{Bindings, Composition, Env, Type, Variables};
use serde_json::Value;

use super::super::effort::Effort;
use super::super::evaluation::{CALL_BUDGET, UsedVariables};
use crate::expression::{Expression, Reads, apply_configuration, condition, environment, json_patch};

/// The compiled expressions of a policy. An expression that does not compile fails when it is evaluated.
#[derive(Debug)]
pub(super) struct Compiled {
    pub(super) variables: Variables,
    pub(super) conditions: Vec<Expression>,
    pub(super) validations: Vec<Validation>,
    pub(super) annotations: Vec<Annotation>,
    pub(super) mutations: Vec<Mutation>,
    /// Which inputs of a write the expressions use.
    pub(super) used: UsedVariables,
}

/// An element of `validations`.
#[derive(Debug)]
pub(super) struct Validation {
    pub(super) expression: Expression,
    pub(super) message: String,
    pub(super) message_expression: Option<Expression>,
    pub(super) reason: Option<String>,
}

/// An element of `auditAnnotations`.
#[derive(Debug)]
pub(super) struct Annotation {
    pub(super) key: String,
    pub(super) value: Expression,
}

/// An element of `mutations`.
#[derive(Debug)]
pub(super) enum Mutation {
    /// `applyConfiguration`
    Apply(Expression),
    /// `jsonPatch`
    JsonPatch(Expression),
}

impl Mutation {
    pub(super) fn expression(&self) -> &Expression {
        let (Self::Apply(expression) | Self::JsonPatch(expression)) = self;
        expression
    }

    fn compile(mutation: &Value, env: &Env) -> Self {
        if mutation["patchType"] == "JSONPatch" {
            return Self::JsonPatch(json_patch(text(&mutation["jsonPatch"], "expression"), env));
        }
        Self::Apply(apply_configuration(text(&mutation["applyConfiguration"], "expression"), env))
    }
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object[field].as_str().unwrap_or_default()
}

fn list<'a>(spec: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    spec[field].as_array().into_iter().flatten()
}

/// Declares the variables of a policy in an environment, and compiles them.
pub(super) fn variables(spec: &Value, env: &mut Env) -> Variables {
    let mut variables = Variables::default();
    for variable in list(spec, "variables") {
        // A compilation error is reported where the variable is used.
        let _ = variables.compile(text(variable, "name"), text(variable, "expression"), env);
    }
    variables
}

impl Compiled {
    /// The variables of the policy, for evaluations within a shared budget.
    pub(super) fn composition<'a>(
        &'a self,
        values: &'a Bindings<'a>,
        total: u64,
        effort: &Effort,
    ) -> Composition<'a> {
        Composition::new(&self.variables, values, effort.within(CALL_BUDGET), effort.within(total))
    }

    pub(super) fn of(spec: &Value) -> Self {
        let params = spec["paramKind"].is_object();
        let mut env = environment(Reads { params, authorizer: true }).composed();
        let declared = variables(spec, &mut env);
        // Message expressions cannot use the authorizer.
        let mut message_env = environment(Reads { params, authorizer: false }).composed();
        message_env.declare_variables_of(&env);
        let conditions =
            list(spec, "matchConditions").map(|own| condition(text(own, "expression"), &env)).collect();
        let validations = list(spec, "validations").map(|validation| {
            let message = Some(text(validation, "messageExpression")).filter(|text| !text.is_empty());
            Validation {
                expression: Expression::compile(text(validation, "expression"), &env, &[Type::Bool]),
                message: text(validation, "message").to_owned(),
                message_expression: message
                    .map(|text| Expression::compile(text, &message_env, &[Type::Text])),
                reason: validation["reason"].as_str().map(str::to_owned),
            }
        });
        let annotations = list(spec, "auditAnnotations").map(|annotation| Annotation {
            key: text(annotation, "key").to_owned(),
            value: Expression::compile(text(annotation, "valueExpression"), &env, &[Type::Text, Type::Null]),
        });
        let patch_env = env.clone().with_patch_types();
        let mutations = list(spec, "mutations").map(|mutation| Mutation::compile(mutation, &patch_env));
        let validations: Vec<Validation> = validations.collect();
        let annotations: Vec<Annotation> = annotations.collect();
        let mutations: Vec<Mutation> = mutations.collect();
        let conditions: Vec<Expression> = conditions;
        let all = conditions
            .iter()
            .chain(validations.iter().map(|own| &own.expression))
            .chain(validations.iter().filter_map(|own| own.message_expression.as_ref()))
            .chain(annotations.iter().map(|own| &own.value))
            .chain(mutations.iter().map(Mutation::expression));
        let used = UsedVariables::of(all, Some(&declared));
        Self { variables: declared, conditions, validations, annotations, mutations, used }
    }
}
