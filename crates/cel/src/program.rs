//! Compiled expressions.

use crate::ast::{Expr, Kind, Literal};
use crate::budget::Budget;
use crate::check::{Checked, check};
use crate::composition::Composition;
use crate::cost::estimate;
use crate::env::{Bindings, Env};
use crate::error::{EvalError, Issues};
use crate::eval::{Evaluation, literal_value};
use crate::functions::{Regexes, call};
use crate::literals;
use crate::parse::parse;
use crate::types::Type;
use crate::value::Value;

/// A compiled expression.
#[derive(Debug)]
pub struct Program {
    expr: Expr,
    output: Type,
    worst: u64,
    regexes: Regexes,
    broken: Option<String>,
}

impl Program {
    /// Parses and checks an expression.
    pub fn compile(text: &str, env: &Env) -> Result<Self, Issues> {
        let (mut expr, count) = parse(text).map_err(|issue| Issues::new(text, vec![issue]))?;
        let checked = check(&mut expr, count, env).map_err(|list| Issues::new(text, list))?;
        let mut regexes = Regexes::default();
        let Checked { types, mixed, .. } = &checked;
        let mut issues = literals::check(&expr, types, &mut regexes);
        issues.extend(mixed.iter().cloned());
        if !issues.is_empty() {
            return Err(Issues::new(text, issues));
        }
        let output = types.get(expr.id).cloned().unwrap_or(Type::Dyn);
        let worst = estimate(&expr, &checked, env);
        let broken = conversion_error(&expr, &regexes);
        Ok(Self { expr, output, worst, regexes, broken })
    }

    /// Why the program cannot be instantiated, although it compiles: upstream converts literals when it creates a program,
    /// and fails if a literal cannot be converted.
    pub fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    /// The type of the value.
    pub fn output(&self) -> &Type {
        &self.output
    }

    /// The estimated worst-case cost for the declared bounds of variables.
    pub fn worst_cost(&self) -> u64 {
        self.worst
    }

    /// Whether the expression uses a variable.
    pub fn mentions(&self, variable: &str) -> bool {
        self.expr.mentions(variable)
    }

    /// The fields of a variable that the expression reads.
    pub(crate) fn fields_of<'a>(&'a self, variable: &str) -> impl Iterator<Item = &'a str> {
        self.expr.fields_of(variable)
    }

    /// The depth of the tree.
    pub(crate) fn depth(&self) -> usize {
        self.expr.depth
    }

    /// Evaluates the expression within a budget.
    pub fn evaluate<'a>(
        &'a self,
        values: &'a Bindings<'a>,
        budget: &mut Budget,
    ) -> Result<Value<'a>, EvalError> {
        Evaluation::new(values, &self.regexes, budget).run(&self.expr)
    }

    /// Evaluates the expression with named expressions within a budget.
    pub fn evaluate_composed<'a>(
        &'a self,
        values: &'a Bindings<'a>,
        composition: &Composition<'a>,
        budget: &mut Budget,
    ) -> Result<Value<'a>, EvalError> {
        Evaluation::new(values, &self.regexes, budget).composed(composition).run(&self.expr)
    }
}

/// The error of the first conversion of a literal, or of a converted literal, that fails.
fn conversion_error(expr: &Expr, regexes: &Regexes) -> Option<String> {
    let mut pending = vec![expr];
    while let Some(expr) = pending.pop() {
        if let Some(Err(error)) = constant(expr, regexes) {
            return Some(error.to_string());
        }
        // Upstream compiles patterns then too; those of `matches` have already been validated.
        if let Kind::Call { function, args, target: Some(_) } = &expr.kind
            && matches!(function.as_str(), "find" | "findAll")
            && let Some(Kind::Literal(Literal::Text(pattern))) = args.first().map(|arg| &arg.kind)
            && let Err(why) = Regexes::compile(pattern)
        {
            return Some(why);
        }
        let before = pending.len();
        expr.children(|child| pending.push(child));
        pending[before..].reverse();
    }
    None
}

/// The value of a literal or of a conversion of one.
fn constant<'a>(expr: &'a Expr, regexes: &Regexes) -> Option<Result<Value<'a>, EvalError>> {
    const CONVERSIONS: [&str; 9] =
        ["bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "uint"];
    match &expr.kind {
        Kind::Literal(literal) => Some(Ok(literal_value(literal))),
        Kind::Call { function, args, target: None } if CONVERSIONS.contains(&function.as_str()) => {
            let [arg] = args.as_slice() else { return None };
            Some(constant(arg, regexes)?.and_then(|value| call(function, &[value], regexes)))
        }
        _ => None,
    }
}
