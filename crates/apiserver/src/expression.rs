//! The CEL expressions of admission policies and webhooks: their environments, and their compilation.
//!
//! The strategies of these kinds compile expressions to validate them, and admission compiles and evaluates them.

pub mod environment;

use plumb_cel::{Env, Program, Type};
use plumb_validation::field::{FieldError, Path};

pub use environment::{Reads, environment, simple, webhook_environment};

/// Why an expression does not compile.
#[derive(Debug)]
pub struct CompilationError {
    why: String,
    /// Whether its types are right, but no program can be made of it.
    is_internal: bool,
}

impl CompilationError {
    fn of(why: String) -> Self {
        Self { why, is_internal: false }
    }

    /// The error of the field that has the expression.
    pub fn field_error(&self, path: Path<'_>, given: &str) -> FieldError {
        if self.is_internal {
            return FieldError::internal(path, &self.why);
        }
        FieldError::invalid(path, given, &self.why)
    }
}

impl std::fmt::Display for CompilationError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.why)
    }
}

/// An expression, or why it does not compile.
#[derive(Debug)]
pub struct Expression {
    text: String,
    program: Result<Program, CompilationError>,
}

impl Expression {
    /// Compiles an expression whose value has one of these types; no types stand for any.
    pub fn compile(text: &str, env: &Env, types: &[Type]) -> Self {
        let program = Program::compile(text, env)
            .map_err(|issues| CompilationError::of(format!("compilation failed: {issues}")))
            .and_then(|program| {
                let output = program.output();
                if let Some(why) = program.broken() {
                    let why = format!("program instantiation failed: {why}");
                    return Err(CompilationError { why, is_internal: true });
                }
                if types.is_empty() || types.iter().any(|ty| ty.same(output)) {
                    return Ok(program);
                }
                let shown: Vec<String> = types.iter().map(Type::declared_name).collect();
                let wanted = match shown.as_slice() {
                    [one] => one.clone(),
                    many => format!("one of [{}]", many.join(" ")),
                };
                Err(CompilationError::of(format!(
                    "must evaluate to {wanted} but got {}",
                    output.declared_name()
                )))
            });
        Self { text: text.to_owned(), program }
    }

    /// Why it does not compile.
    pub fn compilation_error(&self) -> Option<&CompilationError> {
        self.program.as_ref().err()
    }

    /// Whether it reads a variable of the environment.
    pub(crate) fn mentions(&self, variable: &str) -> bool {
        self.program.as_ref().is_ok_and(|program| program.mentions(variable))
    }

    /// The program, if the expression compiles.
    pub(crate) fn program(&self) -> Result<&Program, &CompilationError> {
        self.program.as_ref()
    }

    /// Its text.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

/// Compiles a match condition.
pub fn condition(expression: &str, env: &Env) -> Expression {
    Expression::compile(expression, env, &[Type::Bool])
}

/// Compiles the expression of a JSON patch.
pub fn json_patch(expression: &str, env: &Env) -> Expression {
    Expression::compile(expression, env, &[Type::List(Type::Message("JSONPatch".into()).into())])
}

/// Compiles the expression of an apply configuration.
pub fn apply_configuration(expression: &str, env: &Env) -> Expression {
    Expression::compile(expression, env, &[Type::Message("Object".into())])
}
