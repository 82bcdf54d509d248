//! Rules in the expression language: compiled with the schema that carries them, asked of objects.

mod ask;
mod declare;
mod field_path;

pub use ask::{Asked, Rules};
pub use declare::declare;
pub(crate) use field_path::field_path;

use std::sync::Arc;

use plumb_cel::{Decl, Env, Program, Type};

use crate::schema::Rule;

/// What all the rules of an object may cost, and what one may.
pub const OBJECT_BUDGET: u64 = 10_000_000;
/// What one evaluation may cost.
pub const CALL_BUDGET: u64 = 1_000_000;
/// How large a request can be.
pub(crate) const MAX_REQUEST: u64 = 3 * 1024 * 1024;

/// A rule that was compiled.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub(crate) rule: Rule,
    pub(crate) program: Program,
    pub(crate) message: Option<Program>,
    /// Whether it compares with what was there before.
    pub(crate) uses_old: bool,
}

/// What is wrong with the text of a rule.
#[derive(Debug)]
pub(crate) enum Wrong {
    /// The rule has no program; whether it is known to compare with what was there before.
    Rule { why: String, uses_old: bool },
    /// The rule itself is fine, and costs this much.
    Message(String, Box<Compiled>),
}

/// Compiles a rule about values of which something is known.
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
