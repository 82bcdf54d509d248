//! CEL expressions of webhooks and policies: their environment, and their evaluation within budgets.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, OnceLock};

use plumb_cel::{
    AUTHORIZER, Access, AccessRequest, Authorizer, Bindings, Budget, Composition, Decision, Decl, DeclKind,
    Env, EvalError, Field, Program, RESOURCE_CHECK, ResourceCheck, Type, Value as Cel, Variables,
};
use plumb_validation::field::{FieldError, Path};
use serde_json::{Value, json};

use super::effort::{Effort, Interrupted};
use super::matching::{Invocation, name};
use super::{Attributes, request};
use crate::authz::{Ask, Objects};
use crate::error::ApiError;
use crate::selector::{FieldSelector, any_field};
use crate::stored;
use crate::user::User;

/// The cost limit of one evaluation.
pub(crate) const CALL_BUDGET: u64 = 1_000_000;
/// The cost limit of all evaluations of a policy for one write and one parameter object.
pub(crate) const POLICY_BUDGET: u64 = 10_000_000;
/// The cost limit of all match conditions of a webhook or a policy.
pub(crate) const CONDITIONS_BUDGET: u64 = 2_500_000;

const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// The optional variables of an environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reads {
    /// `params`: the policy has a `paramKind`.
    pub(crate) params: bool,
    /// `authorizer` and `authorizer.requestResource`.
    pub(crate) authorizer: bool,
}

/// The CEL environment of an expression.
pub(crate) fn environment(reads: Reads) -> Env {
    static BASE: LazyLock<Env> = LazyLock::new(|| {
        let dynamic = Decl::dynamic();
        Env::kubernetes()
            .with("object", dynamic.clone())
            .with("oldObject", dynamic)
            .with("request", request_type())
            .with("namespaceObject", namespace_type())
    });
    let mut env = BASE.clone();
    if reads.params {
        env = env.with("params", Decl::dynamic());
    }
    if reads.authorizer {
        env = env
            .with_type("authorizer", Type::Opaque(AUTHORIZER))
            .with_type("authorizer.requestResource", Type::Opaque(RESOURCE_CHECK));
    }
    env
}

fn object(name: &str, fields: &[(&str, &Arc<Decl>)]) -> Arc<Decl> {
    // Upstream does not escape these names, even those that are reserved words of CEL.
    let field = |(name, decl): &(&str, &Arc<Decl>)| {
        ((*name).to_owned(), Field { json: (*name).to_owned(), decl: (*decl).clone() })
    };
    let fields: BTreeMap<String, Field> = fields.iter().map(field).collect();
    Decl::simple(DeclKind::Object { name: name.to_owned(), fields }, u64::MAX, 1)
}

/// A declaration without bounds.
pub(super) fn simple(kind: DeclKind) -> Arc<Decl> {
    Decl::simple(kind, u64::MAX, 1)
}

fn request_type() -> Arc<Decl> {
    let text = simple(DeclKind::Text);
    let texts = simple(DeclKind::List(text.clone()));
    let kind =
        object("kubernetes.GroupVersionKind", &[("group", &text), ("version", &text), ("kind", &text)]);
    let resource = object(
        "kubernetes.GroupVersionResource",
        &[("group", &text), ("version", &text), ("resource", &text)],
    );
    let extra = simple(DeclKind::Map(texts.clone()));
    let user = object(
        "kubernetes.UserInfo",
        &[("username", &text), ("uid", &text), ("groups", &texts), ("extra", &extra)],
    );
    object(
        "kubernetes.AdmissionRequest",
        &[
            ("kind", &kind),
            ("resource", &resource),
            ("subResource", &text),
            ("requestKind", &kind),
            ("requestResource", &resource),
            ("requestSubResource", &text),
            ("name", &text),
            ("namespace", &text),
            ("operation", &text),
            ("userInfo", &user),
            ("dryRun", &simple(DeclKind::Bool)),
            ("options", &Decl::dynamic()),
        ],
    )
}

fn namespace_type() -> Arc<Decl> {
    let (text, time, number) = (simple(DeclKind::Text), simple(DeclKind::Timestamp), simple(DeclKind::Int));
    let texts = simple(DeclKind::List(text.clone()));
    let labels = simple(DeclKind::Map(text.clone()));
    let condition = object(
        "kubernetes.NamespaceCondition",
        &[
            ("status", &text),
            ("type", &text),
            ("lastTransitionTime", &time),
            ("message", &text),
            ("reason", &text),
        ],
    );
    let status = object(
        "kubernetes.NamespaceStatus",
        &[("conditions", &simple(DeclKind::List(condition))), ("phase", &text)],
    );
    let metadata = object(
        "kubernetes.NamespaceMetadata",
        &[
            ("name", &text),
            ("generateName", &text),
            ("namespace", &text),
            ("labels", &labels),
            ("annotations", &labels),
            ("UID", &text),
            ("creationTimestamp", &time),
            ("deletionGracePeriodSeconds", &number),
            ("deletionTimestamp", &time),
            ("generation", &number),
            ("resourceVersion", &text),
            ("finalizers", &texts),
        ],
    );
    let spec = object("kubernetes.NamespaceSpec", &[("finalizers", &texts)]);
    object("kubernetes.Namespace", &[("metadata", &metadata), ("spec", &spec), ("status", &status)])
}

/// Why an expression does not compile.
#[derive(Debug)]
pub(crate) struct Mistake {
    why: String,
    /// Whether the expression type checks, but no program can be built from it.
    is_internal: bool,
}

impl Mistake {
    fn of(why: String) -> Self {
        Self { why, is_internal: false }
    }

    /// The error of the field that has the expression.
    pub(crate) fn error(&self, path: Path<'_>, given: &str) -> FieldError {
        if self.is_internal {
            return FieldError::internal(path, &self.why);
        }
        FieldError::invalid(path, given, &self.why)
    }
}

impl std::fmt::Display for Mistake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.why)
    }
}

/// An expression, or why it does not compile.
#[derive(Debug)]
pub(crate) struct Expression {
    text: String,
    program: Result<Program, Mistake>,
}

impl Expression {
    /// Compiles an expression whose value must have one of these types; without types, any.
    pub(crate) fn compile(text: &str, env: &Env, types: &[Type]) -> Self {
        let program = Program::compile(text, env)
            .map_err(|issues| Mistake::of(format!("compilation failed: {issues}")))
            .and_then(|program| {
                let output = program.output();
                if let Some(why) = program.broken() {
                    let why = format!("program instantiation failed: {why}");
                    return Err(Mistake { why, is_internal: true });
                }
                if types.is_empty() || types.iter().any(|ty| ty.same(output)) {
                    return Ok(program);
                }
                let shown: Vec<String> = types.iter().map(Type::declared_name).collect();
                let wanted = match shown.as_slice() {
                    [one] => one.clone(),
                    many => format!("one of [{}]", many.join(" ")),
                };
                Err(Mistake::of(format!("must evaluate to {wanted} but got {}", output.declared_name())))
            });
        Self { text: text.to_owned(), program }
    }

    /// The compilation error.
    pub(crate) fn mistake(&self) -> Option<&Mistake> {
        self.program.as_ref().err()
    }

    /// Whether the expression uses a variable of the environment.
    fn mentions(&self, variable: &str) -> bool {
        self.program.as_ref().is_ok_and(|program| program.mentions(variable))
    }

    /// The source of the expression.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Evaluates the expression to its value or its error; the outer error aborts the evaluation of all expressions.
    pub(super) fn evaluate<'a>(
        &'a self,
        values: &'a Bindings<'a>,
        composition: Option<&Composition<'a>>,
        left: &mut u64,
        effort: &mut Effort,
    ) -> Result<Result<Cel<'a>, String>, Ended> {
        let program = match &self.program {
            Ok(program) => program,
            Err(mistake) => return Ok(Err(format!("compilation error: {}", mistake.why))),
        };
        let mut budget = Budget::of(effort.within(CALL_BUDGET));
        let answer = match composition {
            Some(composition) => program.evaluate_composed(values, composition, &mut budget),
            None => program.evaluate(values, &mut budget),
        };
        let spent = composition.map_or(0, Composition::take_spent).saturating_add(budget.spent());
        effort.spend(spent)?;
        *left = left.checked_sub(spent).ok_or(Ended::OutOfBudget)?;
        Ok(answer.map_err(|why: EvalError| format!("expression '{}' resulted in error: {why}", self.text)))
    }
}

/// Why no further expression is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The shared budget is exhausted.
    OutOfBudget,
    /// The work limit of the thread is reached.
    Interrupted,
}

impl From<Interrupted> for Ended {
    fn from(_: Interrupted) -> Self {
        Self::Interrupted
    }
}

impl Ended {
    /// The error of a policy or webhook whose expressions exceed their budget.
    pub(super) fn why(self) -> Result<String, Interrupted> {
        match self {
            Self::OutOfBudget => Ok(OUT_OF_BUDGET.to_owned()),
            Self::Interrupted => Err(Interrupted),
        }
    }
}

/// Which of the expensive variables a set of expressions uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reading {
    /// `request`.
    pub(super) request: bool,
    /// `namespaceObject`.
    pub(super) namespace: bool,
}

impl Reading {
    /// What some expressions use, directly or through variables.
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

/// The inputs of the expressions about one write. Expensive ones are computed when an expression first uses them.
pub(super) struct Inputs<'a> {
    reading: Reading,
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
        reading: Reading,
    ) -> Self {
        Self {
            reading,
            attributes,
            invocation,
            new,
            object: OnceLock::new(),
            old: OnceLock::new(),
            request: OnceLock::new(),
            namespace: OnceLock::new(),
        }
    }

    /// The variable bindings of an evaluation.
    pub(super) fn bindings<'b>(&'b self, namespace: Option<&'b Value>, params: &'b Value) -> Bindings<'b> {
        static DYNAMIC: LazyLock<Arc<Decl>> = LazyLock::new(Decl::dynamic);
        let (attributes, invocation) = (self.attributes, self.invocation);
        let object = self.object.get_or_init(|| invocation.object(attributes, self.new));
        let old = self.old.get_or_init(|| invocation.old_object(attributes));
        let mut values = Bindings::new();
        values.json("object", object, &DYNAMIC);
        values.json("oldObject", old, &DYNAMIC);
        if self.reading.request {
            let request = self.request.get_or_init(|| request::of("", invocation, attributes, self.new));
            values.json("request", request, &DYNAMIC);
        }
        // Upstream binds these as dynamic values, whatever their declared types.
        values.json("namespaceObject", namespace.unwrap_or(&Value::Null), &DYNAMIC);
        values.json("params", params, &DYNAMIC);
        values
    }

    /// Adds the authorizer to the bindings.
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

    /// The value of `namespaceObject`: null for a cluster-scoped object, and if no expression uses it.
    pub(super) fn namespace(&self) -> Result<&Value, ApiError> {
        if !self.reading.namespace {
            return Ok(&Value::Null);
        }
        if let Some(known) = self.namespace.get() {
            return Ok(known);
        }
        let namespace = match self.attributes.namespace.filter(|_| !self.attributes.row.is_namespace()) {
            None => Value::Null,
            Some(name) => {
                let found = stored::one(self.attributes.server, ("", "namespaces"), None, name)?;
                shown_namespace(&found.ok_or_else(|| ApiError::not_found("", "namespaces", name))?)
            }
        };
        Ok(self.namespace.get_or_init(|| namespace))
    }
}

/// A namespace with the fields that expressions can use.
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
                // An invalid selector is ignored.
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
        let decision = self.attributes.server.authorizer().decide(&ask);
        Decision { allowed: decision.is_allowed(), reason: decision.reason(), error: None }
    }
}
