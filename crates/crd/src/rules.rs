//! CEL validation rules (`x-kubernetes-validations`): compilation with their schema, and evaluation.

mod ask;
mod declare;
mod field_path;

pub use ask::{Asked, Rules};
pub use declare::declare;
pub(crate) use field_path::field_path;

use std::sync::Arc;

use plumb_cel::{Decl, Env, Program, Type};

use crate::schema::Rule;

/// The cost limit of all rules for an object.
pub const OBJECT_BUDGET: u64 = 10_000_000;
/// The cost limit of one evaluation.
pub const CALL_BUDGET: u64 = 1_000_000;
/// The maximum size of a request.
pub(crate) const MAX_REQUEST: u64 = 3 * 1024 * 1024;

/// A compiled rule.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub(crate) rule: Rule,
    pub(crate) program: Program,
    pub(crate) message: Option<Program>,
    /// Whether the rule uses `oldSelf`.
    pub(crate) uses_old: bool,
}

/// Why a rule does not compile.
#[derive(Debug)]
pub(crate) enum Wrong {
    /// The rule does not compile; `uses_old` says whether it is known to use `oldSelf`.
    Rule { why: String, uses_old: bool },
    /// The rule compiles, but its message expression does not.
    Message(String, Box<Compiled>),
}

/// Compiles a rule about values with a declaration.
pub(crate) fn compile(rule: &Rule, decl: &Arc<Decl>) -> Result<Compiled, Wrong> {
    let env = Env::kubernetes().with("self", decl.clone());
    let env = if rule.optional_old_self == Some(true) {
        env.with_optional("oldSelf", decl.clone())
    } else {
        env.with("oldSelf", decl.clone())
    };
    let program = Program::compile(&rule.rule, &env)
        .map_err(|issues| Wrong::Rule { why: format!("compilation failed: {issues}"), uses_old: false })?;
    if !matches!(program.output(), Type::Bool) {
        let why = "cel expression must evaluate to a bool".to_owned();
        return Err(Wrong::Rule { why, uses_old: false });
    }
    let uses_old = program.mentions("oldSelf");
    if let Some(why) = program.broken() {
        return Err(Wrong::Rule { why: format!("program instantiation failed: {why}"), uses_old });
    }
    let mut compiled = Compiled { rule: rule.clone(), program, message: None, uses_old };
    if rule.message_expression.is_empty() {
        return Ok(compiled);
    }
    match Program::compile(&rule.message_expression, &env) {
        Err(issues) => {
            let why = format!("messageExpression compilation failed: {issues}");
            Err(Wrong::Message(why, Box::new(compiled)))
        }
        Ok(message) if !matches!(message.output(), Type::Text) => {
            let why = "messageExpression must evaluate to a string".to_owned();
            Err(Wrong::Message(why, Box::new(compiled)))
        }
        Ok(message) if message.broken().is_some() => {
            let why = message.broken().unwrap_or_default();
            let why = format!("messageExpression instantiation failed: {why}");
            Err(Wrong::Message(why, Box::new(compiled)))
        }
        Ok(message) => {
            compiled.message = Some(message);
            Ok(compiled)
        }
    }
}
