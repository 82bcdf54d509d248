//! The evaluation of the expressions of webhooks and policies within budgets, and the values of their variables.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock, OnceLock};

use plumb_cel::{
    Access, AccessRequest, Authorizer, Bindings, Budget, Composition, Decision, Decl, EvalError,
    ResourceCheck, Value as Cel, Variables,
};
use serde_json::{Value, json};

use super::effort::{Effort, Interrupted};
use super::matching::{Invocation, name};
use super::{Attributes, request};
use crate::authz::{Ask, Objects};
use crate::error::ApiError;
use crate::expression::Expression;
use crate::selector::{FieldSelector, any_field};
use crate::stored;
use crate::user::User;

/// The cost limit of one evaluation.
pub(crate) const CALL_BUDGET: u64 = 1_000_000;
/// The cost limit of all evaluations of a policy for one write and one object of parameters.
pub(crate) const POLICY_BUDGET: u64 = 10_000_000;
/// The cost limit of all match conditions of a webhook or a policy.
pub(crate) const CONDITIONS_BUDGET: u64 = 2_500_000;

const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// The value of an expression, or its error. The outer error ends the evaluation of all expressions.
pub(super) fn value_of<'a>(
    expression: &'a Expression,
    values: &'a Bindings<'a>,
    composition: Option<&Composition<'a>>,
    left: &mut u64,
    effort: &mut Effort,
) -> Result<Result<Cel<'a>, String>, Ended> {
    let program = match expression.program() {
        Ok(program) => program,
        Err(error) => return Ok(Err(format!("compilation error: {error}"))),
    };
    let mut budget = Budget::new(effort.within(CALL_BUDGET));
    let answer = match composition {
        Some(composition) => program.evaluate_composed(values, composition, &mut budget),
        None => program.evaluate(values, &mut budget),
    };
    let spent = composition.map_or(0, Composition::take_spent).saturating_add(budget.spent());
    effort.spend(spent)?;
    *left = left.checked_sub(spent).ok_or(Ended::OutOfBudget)?;
    Ok(answer
        .map_err(|why: EvalError| format!("expression '{}' resulted in error: {why}", expression.text())))
}

/// Why no further expression is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The budget of all of them did not last.
    OutOfBudget,
    /// The effort did not last.
    Interrupted,
}

impl From<Interrupted> for Ended {
    fn from(_: Interrupted) -> Self {
        Self::Interrupted
    }
}

impl Ended {
    /// What is wrong with a policy or a webhook whose expressions are too expensive.
    pub(super) fn why(self) -> Result<String, Interrupted> {
        match self {
            Self::OutOfBudget => Ok(OUT_OF_BUDGET.to_owned()),
            Self::Interrupted => Err(Interrupted),
        }
    }
}

/// Which of the variables that cost something to make a set of expressions reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct UsedVariables {
    /// `request`.
    pub(super) request: bool,
    /// `namespaceObject`.
    pub(super) namespace: bool,
}

impl UsedVariables {
    /// What some expressions read, by themselves or through variables.
    pub(super) fn of<'a>(
        expressions: impl Iterator<Item = &'a Expression> + Clone,
        variables: Option<&Variables>,
    ) -> Self {
        let reads = |name: &str| {
            variables.is_some_and(|variables| variables.mention(name))
                || expressions.clone().any(|expression| expression.mentions(name))
        };
        Self { request: reads("request"), namespace: reads("namespaceObject") }
    }
}

/// What the expressions about one write read. What costs something to make is made when it is first read.
pub(super) struct Inputs<'a> {
    used: UsedVariables,
    attributes: &'a Attributes<'a>,
    invocation: &'a Invocation,
    new: &'a Value,
    object: OnceLock<Cow<'a, Value>>,
    old: OnceLock<Cow<'a, Value>>,
    request: OnceLock<Value>,
    namespace: OnceLock<Value>,
}

impl<'a> Inputs<'a> {
    pub(super) fn of(
        attributes: &'a Attributes<'a>,
        invocation: &'a Invocation,
        new: &'a Value,
        used: UsedVariables,
    ) -> Self {
        Self {
            used,
            attributes,
            invocation,
            new,
            object: OnceLock::new(),
            old: OnceLock::new(),
            request: OnceLock::new(),
            namespace: OnceLock::new(),
        }
    }

    /// The variables for an evaluation.
    pub(super) fn bindings<'b>(&'b self, namespace: Option<&'b Value>, params: &'b Value) -> Bindings<'b> {
        static DYNAMIC: LazyLock<Arc<Decl>> = LazyLock::new(Decl::dynamic);
        let (attributes, invocation) = (self.attributes, self.invocation);
        let object = self.object.get_or_init(|| invocation.object(attributes, self.new));
        let old = self.old.get_or_init(|| invocation.old_object(attributes));
        let mut values = Bindings::new();
        values.json("object", object, &DYNAMIC);
        values.json("oldObject", old, &DYNAMIC);
        if self.used.request {
            let request = self.request.get_or_init(|| request::of("", invocation, attributes, self.new));
            values.json("request", request, &DYNAMIC);
        }
        // Upstream reads these as plain data, whatever their declared types.
        values.json("namespaceObject", namespace.unwrap_or(&Value::Null), &DYNAMIC);
        values.json("params", params, &DYNAMIC);
        values
    }

    /// Adds the authorizer to the variables.
    pub(super) fn bind_authorizer<'b>(&'b self, values: &mut Bindings<'b>) {
        let attributes = self.attributes;
        let requested = attributes.request_row();
        let check = ResourceCheck {
            group: requested.group().to_owned(),
            resource: requested.plural().to_owned(),
            subresource: attributes.subresource.unwrap_or_default().to_owned(),
            namespace: attributes.namespace.unwrap_or_default().to_owned(),
            name: name(attributes, self.new).to_owned(),
            ..ResourceCheck::default()
        };
        values.set("authorizer", Cel::Access(Arc::new(Access::authorizer(self))));
        values
            .set("authorizer.requestResource", Cel::Access(Arc::new(Access::request_resource(self, check))));
    }

    /// The namespace of the object as `namespaceObject` has it: null for what is in none, and where it is not read.
    pub(super) fn namespace(&self) -> Result<&Value, ApiError> {
        if !self.used.namespace {
            return Ok(&Value::Null);
        }
        if let Some(known) = self.namespace.get() {
            return Ok(known);
        }
        let namespace = match self.attributes.namespace.filter(|_| !self.attributes.row.is_namespace()) {
            None => Value::Null,
            Some(name) => {
                let found = stored::one(self.attributes.cluster.store(), ("", "namespaces"), None, name)?;
                shown_namespace(&found.ok_or_else(|| ApiError::not_found("", "namespaces", name))?)
            }
        };
        Ok(self.namespace.get_or_init(|| namespace))
    }
}

/// A namespace with the fields that expressions may read.
fn shown_namespace(namespace: &Value) -> Value {
    const METADATA: [&str; 12] = [
        "name",
        "generateName",
        "namespace",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "labels",
        "annotations",
        "finalizers",
    ];
    let all = namespace["metadata"].as_object();
    let kept = all.into_iter().flatten().filter(|(name, _)| METADATA.contains(&name.as_str()));
    let metadata: serde_json::Map<String, Value> =
        kept.map(|(name, value)| (name.clone(), value.clone())).collect();
    let part = |name: &str| match &namespace[name] {
        Value::Null => json!({}),
        part => part.clone(),
    };
    json!({ "metadata": metadata, "spec": part("spec"), "status": part("status") })
}

impl Authorizer for Inputs<'_> {
    fn decide(&self, account: Option<(&str, &str)>, asked: &AccessRequest<'_>) -> Decision {
        let account = account.map(|(namespace, name)| {
            let groups = ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
            User::exactly(format!("system:serviceaccount:{namespace}:{name}"), "", groups)
        });
        let user = account.as_ref().unwrap_or(self.attributes.user);
        let fields;
        let ask = match asked {
            AccessRequest::Path { path, verb } => Ask::about_path(user, verb, path),
            AccessRequest::Resource { check, verb } => {
                // A selector that cannot be read is as if it were not there.
                fields = FieldSelector::parse(&check.field_selector, any_field).unwrap_or_default();
                let objects = Objects {
                    group: &check.group,
                    resource: &check.resource,
                    subresource: &check.subresource,
                    namespace: &check.namespace,
                    name: &check.name,
                    on_node: fields.exact("spec.nodeName"),
                };
                Ask::about_objects(user, verb, objects)
            }
        };
        let decision = self.attributes.cluster.authorizer().decide(&ask);
        Decision { allowed: decision.is_allowed(), reason: decision.reason(), error: None }
    }
}
