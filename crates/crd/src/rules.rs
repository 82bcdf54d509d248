//! CEL validation rules (`x-kubernetes-validations`): compilation with their schema, and evaluation.

mod declare;
mod evaluate;
mod field_path;

pub use declare::declare;
pub use evaluate::{Evaluation, Rules};
pub(crate) use field_path::field_path;

use std::sync::Arc;

use plumb_cel::{Decl, Env, Program, Type};

use crate::schema::Rule;

/// The cost limit of all rules for an object (`RuntimeCELCostBudget`).
pub const OBJECT_BUDGET: u64 = 10_000_000;
/// The cost limit of one evaluation (`PerCallLimit`).
pub const CALL_BUDGET: u64 = 1_000_000;
/// The maximum size of a request, from which the size of unbounded values is estimated.
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
pub(crate) enum CompileError {
    /// The rule does not compile; `uses_old` is set if it is known to use `oldSelf`.
    Rule { message: String, uses_old: bool },
    /// The rule compiles, but its message expression does not.
    MessageExpression(String, Box<Compiled>),
}

/// Compiles a rule for the values of a declaration.
pub(crate) fn compile(rule: &Rule, decl: &Arc<Decl>) -> Result<Compiled, CompileError> {
    let env = Env::kubernetes().with("self", decl.clone());
    let env = if rule.optional_old_self == Some(true) {
        env.with_optional("oldSelf", decl.clone())
    } else {
        env.with("oldSelf", decl.clone())
    };
    let program = Program::compile(&rule.rule, &env).map_err(|issues| CompileError::Rule {
        message: format!("compilation failed: {issues}"),
        uses_old: false,
    })?;
    if !matches!(program.output(), Type::Bool) {
        let message = "cel expression must evaluate to a bool".to_owned();
        return Err(CompileError::Rule { message, uses_old: false });
    }
    let uses_old = program.mentions("oldSelf");
    if let Some(error) = program.broken() {
        let message = format!("program instantiation failed: {error}");
        return Err(CompileError::Rule { message, uses_old });
    }
    let mut compiled = Compiled { rule: rule.clone(), program, message: None, uses_old };
    if rule.message_expression.is_empty() {
        return Ok(compiled);
    }
    match Program::compile(&rule.message_expression, &env) {
        Err(issues) => {
            let error = format!("messageExpression compilation failed: {issues}");
            Err(CompileError::MessageExpression(error, Box::new(compiled)))
        }
        Ok(message) if !matches!(message.output(), Type::Text) => {
            let error = "messageExpression must evaluate to a string".to_owned();
            Err(CompileError::MessageExpression(error, Box::new(compiled)))
        }
        Ok(message) if message.broken().is_some() => {
            let error = message.broken().unwrap_or_default();
            let error = format!("messageExpression instantiation failed: {error}");
            Err(CompileError::MessageExpression(error, Box::new(compiled)))
        }
        Ok(message) => {
            compiled.message = Some(message);
            Ok(compiled)
        }
    }
}
