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
/// How deep a variable may reach: its own depth and that of the variables it reads. It bounds the recursion of an
/// evaluation, and how deep values can be nested.
const MAX_REACH: usize = 512;
/// What reading a variable adds to the depth of the expression.
const STEP: usize = 2;

/// Named expressions, compiled in order: each can read those before it.
#[derive(Debug, Default)]
pub struct Variables {
    list: Vec<Variable>,
    places: HashMap<String, usize>,
}

#[derive(Debug)]
struct Variable {
    compiled: Result<Program, Broken>,
    reach: usize,
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
    /// Compiles one more, and declares it in the environment for the expressions that come after. A variable that does
    /// not compile is declared too, with any type, and fails where it is read.
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
        let reach = compiled.as_ref().map_or(0, |program| self.reach(program));
        let compiled = if reach > MAX_REACH { Err(Broken::TooDeep) } else { compiled };
        let earlier = self.places.insert(name.to_owned(), self.list.len());
        let compiled = if earlier.is_some() { Err(Broken::Repeated) } else { compiled };
        self.list.push(Variable { compiled, reach });
        result
    }

    /// How deep an expression reaches through the variables that it reads.
    fn reach(&self, program: &Program) -> usize {
        let read = program.fields_of(VARIABLES).filter_map(|name| self.places.get(name));
        let below = read.map(|place| self.list[*place].reach + STEP).max();
        program.depth().saturating_add(below.unwrap_or_default())
    }

    /// Whether one of them reads a variable of the environment.
    pub fn mention(&self, variable: &str) -> bool {
        self.list.iter().flat_map(|own| &own.compiled).any(|program| program.mentions(variable))
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
    /// What each evaluation may cost.
    limit: u64,
    /// What all may cost together.
    total: u64,
    /// What all have cost.
    all: Cell<u64>,
    known: RefCell<Vec<Option<Answer<'a>>>>,
    spent: Cell<u64>,
}

impl<'a> Composition<'a> {
    /// None is evaluated yet. Each may cost `limit`, and all together `total`.
    pub fn new(variables: &'a Variables, values: &'a Bindings<'a>, limit: u64, total: u64) -> Self {
        let known = RefCell::new(vec![None; variables.list.len()]);
        Self { variables, values, limit, total, all: Cell::new(0), known, spent: Cell::new(0) }
    }

    /// What the variables cost since this was last asked.
    pub fn take_spent(&self) -> u64 {
        self.spent.take()
    }

    pub(crate) fn get(&self, name: &str) -> Answer<'a> {
        let Some(&place) = self.variables.places.get(name) else {
            return Err(EvalError::new(format!("no such key: {name}")));
        };
        if let Some(known) = &self.known.borrow()[place] {
            return known.clone();
        }
        let answer = self.evaluate(name, &self.variables.list[place].compiled);
        self.known.borrow_mut()[place] = Some(answer.clone());
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
        let left = self.total.saturating_add(1).saturating_sub(self.all.get());
        if left == 0 {
            return Err(EvalError::TooExpensive);
        }
        let mut budget = Budget::of(self.limit.min(left));
        let answer = program.evaluate_composed(self.values, self, &mut budget);
        self.spent.set(self.spent.get().saturating_add(budget.spent()));
        self.all.set(self.all.get().saturating_add(budget.spent()));
        if self.all.get() > self.total {
            // Everything that reads it ends.
            return Err(EvalError::TooExpensive);
        }
        answer.map_err(|why| EvalError::new(format!("composited variable {name:?} fails to evaluate: {why}")))
    }
}
