//! Named expressions that other expressions read as `variables.NAME`.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::budget::Budget;
use crate::decl::{Decl, DeclKind};
use crate::env::{Bindings, Env};
use crate::error::{EvalError, Issues};
use crate::functions::Answer;
use crate::program::Program;
use crate::types::Type;

/// The variable that the named expressions are fields of.
pub(crate) const VARIABLES: &str = "variables";
/// The maximum depth of a variable: the depth of its expression and that of the variables that it reads. It bounds the
/// recursion of an evaluation, and how deep values can be nested.
const MAX_TOTAL_DEPTH: usize = 512;
/// The depth that reading a variable adds to an expression.
const READ_DEPTH: usize = 2;

/// Named expressions, compiled in order: each can read the previous ones.
#[derive(Debug, Default)]
pub struct Variables {
    list: Vec<Variable>,
    /// The index of each variable in `list`.
    indexes: HashMap<String, usize>,
}

#[derive(Debug)]
struct Variable {
    compiled: Result<Program, Broken>,
    /// The depth of the expression together with the variables that it reads.
    total_depth: usize,
}

/// Why a variable has no value.
#[derive(Debug)]
enum Broken {
    Compilation(String),
    TooDeep,
    /// Another variable has its name. Upstream evaluates the last of them, without end if it reads its own name.
    Repeated,
}

impl Variables {
    /// Compiles a variable, and declares it in the environment for the expressions after it. A variable that does not
    /// compile is declared with the type `dyn`; reading it fails.
    pub fn compile(&mut self, name: &str, text: &str, env: &mut Env) -> Result<(), Issues> {
        let compiled = Program::compile(text, env);
        let ty = compiled.as_ref().map_or(Type::Dyn, |program| program.output().declarable());
        env.declare(&format!("{VARIABLES}.{name}"), ty);
        let (compiled, result) = match compiled {
            Ok(program) if program.broken().is_some() => {
                let why = program.broken().unwrap_or_default();
                (Err(Broken::Compilation(format!("program instantiation failed: {why}"))), Ok(()))
            }
            Ok(program) => (Ok(program), Ok(())),
            Err(issues) => (Err(Broken::Compilation(format!("compilation failed: {issues}"))), Err(issues)),
        };
        let total_depth = compiled.as_ref().map_or(0, |program| self.total_depth(program));
        let compiled = if total_depth > MAX_TOTAL_DEPTH { Err(Broken::TooDeep) } else { compiled };
        let earlier = self.indexes.insert(name.to_owned(), self.list.len());
        let compiled = if earlier.is_some() { Err(Broken::Repeated) } else { compiled };
        self.list.push(Variable { compiled, total_depth });
        result
    }

    /// The depth of an expression together with the variables that it reads.
    fn total_depth(&self, program: &Program) -> usize {
        let read = program.fields_of(VARIABLES).filter_map(|name| self.indexes.get(name));
        let deepest = read.map(|index| self.list[*index].total_depth + READ_DEPTH).max();
        program.depth().saturating_add(deepest.unwrap_or_default())
    }

    /// Whether one of the expressions reads a variable of the environment.
    pub fn mention(&self, variable: &str) -> bool {
        self.list.iter().flat_map(|named| &named.compiled).any(|program| program.mentions(variable))
    }
}

impl Env {
    /// An environment in which named expressions can be declared.
    #[must_use]
    pub fn composed(self) -> Self {
        let kind = DeclKind::Object { name: "kubernetes.variables".to_owned(), fields: BTreeMap::new() };
        let decl: Arc<Decl> = Decl::simple(kind, u64::MAX, 1);
        self.with(VARIABLES, decl)
    }
}

/// The values of named expressions in one evaluation of a policy: each is evaluated when it is first read, and once.
#[derive(Debug)]
pub struct Composition<'a> {
    variables: &'a Variables,
    values: &'a Bindings<'a>,
    /// The cost limit of each evaluation.
    limit: u64,
    /// The cost limit of all evaluations together.
    total: u64,
    /// The cost of all evaluations so far.
    all: Cell<u64>,
    /// The results of the evaluations so far.
    known: RefCell<Vec<Option<Answer<'a>>>>,
    /// The cost since the last call of `take_spent`.
    spent: Cell<u64>,
}

impl<'a> Composition<'a> {
    /// Evaluates no variable yet. `limit` is the cost limit of each variable, and `total` that of all together.
    pub fn new(variables: &'a Variables, values: &'a Bindings<'a>, limit: u64, total: u64) -> Self {
        let known = RefCell::new(vec![None; variables.list.len()]);
        Self { variables, values, limit, total, all: Cell::new(0), known, spent: Cell::new(0) }
    }

    /// The cost of the variables since the last call.
    pub fn take_spent(&self) -> u64 {
        self.spent.take()
    }

    pub(crate) fn get(&self, name: &str) -> Answer<'a> {
        let Some(&index) = self.variables.indexes.get(name) else {
            return Err(EvalError::new(format!("no such key: {name}")));
        };
        if let Some(known) = &self.known.borrow()[index] {
            return known.clone();
        }
        let answer = self.evaluate(name, &self.variables.list[index].compiled);
        self.known.borrow_mut()[index] = Some(answer.clone());
        answer
    }

    fn evaluate(&self, name: &str, compiled: &'a Result<Program, Broken>) -> Answer<'a> {
        let program = compiled.as_ref().map_err(|broken| {
            EvalError::new(match broken {
                Broken::Compilation(why) => format!("composited variable {name:?} fails to compile: {why}"),
                Broken::TooDeep => format!("composited variable {name:?} is nested too deep"),
                Broken::Repeated => format!("composited variable {name:?} is declared twice"),
            })
        })?;
        let remaining = self.total.saturating_add(1).saturating_sub(self.all.get());
        if remaining == 0 {
            return Err(EvalError::TooExpensive);
        }
        let mut budget = Budget::new(self.limit.min(remaining));
        let answer = program.evaluate_composed(self.values, self, &mut budget);
        self.spent.set(self.spent.get().saturating_add(budget.spent()));
        self.all.set(self.all.get().saturating_add(budget.spent()));
        if self.all.get() > self.total {
            // The error is not wrapped, so that every expression that reads the variable ends.
            return Err(EvalError::TooExpensive);
        }
        answer.map_err(|why| EvalError::new(format!("composited variable {name:?} fails to evaluate: {why}")))
    }
}
