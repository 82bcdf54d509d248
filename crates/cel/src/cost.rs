//! The cost of expressions: the worst case, estimated from declarations, and the actual cost of each evaluated step.
//!
//! A unit is about the cost of reading a variable. The estimate decides whether a rule can be stored, so both costs are
//! exactly those of cel-go and the Kubernetes libraries where possible.

mod actual;
mod call;
mod range;

pub(crate) use actual::call_cost;

use std::collections::HashMap;

use crate::ast::{Expr, Fold, Kind, Literal};
use crate::check::Checked;
use crate::decl::{Decl, DeclKind};
use crate::env::Env;
use crate::types::Type;
use range::Range;

// The costs are those of cel-go (`common/cost.go`) and of kube-apiserver (`apiserver/pkg/cel/library/cost.go`).
/// The cost of creating a list.
pub(crate) const LIST: u64 = 10;
/// The cost of creating a map.
pub(crate) const MAP: u64 = 30;
/// The cost of creating a message.
pub(crate) const MESSAGE: u64 = 40;
/// The cost of a call without a specific cost.
pub(super) const CALL: u64 = 1;
/// The cost of traversing a string, per character.
pub(super) const TRAVERSAL: f64 = 0.1;
/// The cost of an authorization check.
pub(super) const AUTHORIZATION: u64 = 350_000;
/// The cost of a regular expression, per character.
pub(super) const PATTERN: f64 = 0.25;

const ONE: Range = Range::exactly(1);

/// Estimates the worst-case cost of an expression.
pub(crate) fn estimate(expr: &Expr, checked: &Checked, env: &Env) -> u64 {
    let mut estimator = Estimator {
        checked,
        env,
        paths: HashMap::new(),
        sizes: HashMap::new(),
        entries: HashMap::new(),
        locals: Vec::new(),
    };
    estimator.cost(expr).max
}

/// The sizes of the elements of a list, or of the keys and values of a map.
#[derive(Clone, Copy)]
struct Entries {
    list: bool,
    key: Range,
    value: Range,
}

impl Entries {
    fn union(a: Option<Self>, b: Option<Self>) -> Option<Self> {
        let a = a?;
        let b = b?;
        Some(Self { list: a.list, key: a.key.union(b.key), value: a.value.union(b.value) })
    }
}

/// A variable of a comprehension.
struct Local<'e> {
    name: &'e str,
    path: Path,
    size: Option<Range>,
    entries: Option<Entries>,
}

/// The path from a variable to data: names of fields, `@items`, `@keys`, `@values`, `@indices`.
type Path = Option<Vec<String>>;

/// Appends a step to a path. Like upstream, a step from an expression without a path begins a new path.
fn append_step(path: Path, step: &str) -> Vec<String> {
    let mut path = path.unwrap_or_default();
    path.push(step.to_owned());
    path
}

struct Estimator<'e> {
    checked: &'e Checked,
    env: &'e Env,
    paths: HashMap<usize, Vec<String>>,
    sizes: HashMap<usize, Range>,
    entries: HashMap<usize, Entries>,
    locals: Vec<Local<'e>>,
}

impl<'e> Estimator<'e> {
    fn ty(&self, expr: &Expr) -> &Type {
        self.checked.types.get(expr.id).unwrap_or(&Type::Dyn)
    }

    fn local(&self, name: &str) -> Option<&Local<'e>> {
        self.locals.iter().rev().find(|local| local.name == name)
    }

    fn path(&self, expr: &Expr) -> Path {
        if let Kind::Ident(name) = &expr.kind
            && let Some(local) = self.local(name)
        {
            return local.path.clone();
        }
        self.paths.get(&expr.id).cloned()
    }

    fn set_path(&mut self, expr: &Expr, path: Path) {
        if let Some(path) = path {
            self.paths.insert(expr.id, path);
        }
    }

    /// The size of the data at a path, if it is declared.
    fn size_at(&self, path: &[String]) -> Option<Range> {
        let (variable, steps) = path.split_first()?;
        // Like upstream, an identifier that is not a variable, such as a type, has the size of `self`.
        let mut current: &Decl = self.env.decl(variable).or_else(|| self.env.decl("self"))?;
        for (i, step) in steps.iter().enumerate() {
            current = match step.as_str() {
                "@items" | "@values" => current.element()?,
                // Upstream declares no bound for keys, and takes 0 for it.
                "@keys" => {
                    let last = matches!(current.kind, DeclKind::Map(_)) && i + 1 == steps.len();
                    return last.then_some(Range::exactly(0));
                }
                name => &current.field(name)?.decl,
            };
        }
        Some(Range { min: 0, max: current.max_elements })
    }

    fn size(&self, expr: &Expr) -> Option<Range> {
        if let Some(size) = self.sizes.get(&expr.id) {
            return Some(*size);
        }
        if let Some(size) = literal_size(expr) {
            return Some(size);
        }
        if let Some(size) = self.path(expr).and_then(|path| self.size_at(&path)) {
            return Some(size);
        }
        if self.ty(expr).is_scalar() {
            return Some(ONE);
        }
        match &expr.kind {
            Kind::Ident(name) => self.local(name)?.size,
            _ => None,
        }
    }

    fn size_or_unknown(&self, expr: &Expr) -> Range {
        self.size(expr).unwrap_or(Range::UNKNOWN)
    }

    fn entries_of(&self, expr: &Expr) -> Option<Entries> {
        if let Some(entries) = self.entries.get(&expr.id) {
            return Some(*entries);
        }
        match &expr.kind {
            Kind::Ident(name) => self.local(name)?.entries,
            _ => None,
        }
    }

    fn cost(&mut self, expr: &'e Expr) -> Range {
        match &expr.kind {
            Kind::Literal(_) => Range::exactly(0),
            Kind::Ident(name) => {
                let path = match self.local(name) {
                    Some(local) => local.path.clone(),
                    None => Some(vec![name.clone()]),
                };
                self.set_path(expr, path);
                ONE
            }
            Kind::Select { operand, field, test } => {
                let cost = self.cost(operand);
                if *test {
                    return cost;
                }
                let path = append_step(self.path(operand), field);
                self.set_path(expr, Some(path));
                let reads = matches!(self.ty(operand), Type::Map(..) | Type::Object(_) | Type::Param(_));
                if reads { cost.add(ONE) } else { cost }
            }
            Kind::Call { function, target, args } => self.call(expr, function, target.as_deref(), args),
            Kind::List { elements, .. } => {
                let mut sum = Range::exactly(LIST);
                let mut value: Option<Range> = None;
                for element in elements {
                    sum = sum.add(self.cost(element));
                    let size = self.size_or_unknown(element);
                    value = Some(value.map_or(size, |before| before.union(size)));
                }
                let value = value.unwrap_or(Range::exactly(0));
                self.entries.insert(expr.id, Entries { list: true, key: ONE, value });
                sum
            }
            Kind::Map(entries) => {
                let mut sum = Range::exactly(MAP);
                let mut keys = None::<Range>;
                let mut values = None::<Range>;
                for entry in entries {
                    sum = sum.add(self.cost(&entry.key)).add(self.cost(&entry.value));
                    let key = self.size_or_unknown(&entry.key);
                    let value = self.size_or_unknown(&entry.value);
                    keys = Some(keys.map_or(key, |before| before.union(key)));
                    values = Some(values.map_or(value, |before| before.union(value)));
                }
                let zero = Range::exactly(0);
                let key = keys.unwrap_or(zero);
                let value = values.unwrap_or(zero);
                self.entries.insert(expr.id, Entries { list: false, key, value });
                sum
            }
            Kind::Message { fields, .. } => {
                let mut sum = Range::exactly(MESSAGE);
                for field in fields {
                    sum = sum.add(self.cost(&field.value));
                }
                sum
            }
            Kind::Fold(fold) if fold.is_bind() => self.bind(expr, fold),
            Kind::Fold(fold) => self.fold(expr, fold),
        }
    }

    fn bind(&mut self, expr: &Expr, fold: &'e Fold) -> Range {
        let mut sum = self.cost(&fold.range).add(self.cost(&fold.init));
        self.push(&fold.result_name, &fold.init);
        sum = sum.add(self.cost(&fold.result));
        // Upstream computes the sizes of the result after its variable has gone out of scope.
        self.locals.pop();
        self.copy_sizes(expr, &fold.result);
        sum
    }

    fn copy_sizes(&mut self, to: &Expr, from: &Expr) {
        if let Some(size) = self.size(from) {
            self.sizes.insert(to.id, size);
        }
        if let Some(entries) = self.entries_of(from) {
            self.entries.insert(to.id, entries);
        }
    }

    fn push(&mut self, name: &'e str, value: &Expr) {
        let path = self.path(value);
        let size = self.size(value);
        let entries = self.entries_of(value);
        self.locals.push(Local { name, path, size, entries });
    }

    fn push_iterated(&mut self, name: &'e str, range: &Expr, key: bool) {
        let entries = self.entries_of(range);
        let list = entries.map_or(matches!(self.ty(range), Type::List(_)), |entries| entries.list);
        let step = match (key, list) {
            (true, true) => "@indices",
            (true, false) => "@keys",
            (false, true) => "@items",
            (false, false) => "@values",
        };
        let size = entries.map(|entries| if key { entries.key } else { entries.value });
        let path = Some(append_step(self.path(range), step));
        self.locals.push(Local { name, path, size, entries: None });
    }

    fn fold(&mut self, expr: &Expr, fold: &'e Fold) -> Range {
        let mut sum = self.cost(&fold.range).add(self.cost(&fold.init));
        let outer_scopes = self.locals.len();
        self.push(&fold.result_name, &fold.init);
        let list = matches!(self.ty(&fold.range), Type::List(_))
            || self.entries_of(&fold.range).is_some_and(|entries| entries.list);
        match &fold.second {
            Some(second) => {
                self.push_iterated(&fold.variable, &fold.range, true);
                self.push_iterated(second, &fold.range, false);
            }
            None => self.push_iterated(&fold.variable, &fold.range, !list),
        }
        let iteration = self.cost(&fold.condition).add(self.cost(&fold.step));
        self.locals.truncate(outer_scopes + 1);
        sum = sum.add(self.cost(&fold.result));
        self.locals.truncate(outer_scopes);
        let times = self.size_or_unknown(&fold.range);
        match &fold.init.kind {
            Kind::Literal(_) => {
                if let Some(size) = self.size(&fold.init) {
                    self.sizes.insert(expr.id, size);
                }
            }
            Kind::List { .. } | Kind::Map(_) => {
                self.sizes.insert(expr.id, times);
                if let Some(entries) = self.entries_of(&fold.step) {
                    self.entries.insert(expr.id, entries);
                }
            }
            _ => {}
        }
        sum.add(times.multiply(iteration))
    }
}

/// The size of a literal; `None` for other expressions.
fn literal_size(expr: &Expr) -> Option<Range> {
    let size = match &expr.kind {
        Kind::Literal(Literal::Text(text)) => text.chars().count(),
        Kind::Literal(Literal::Bytes(bytes)) => bytes.len(),
        Kind::Literal(_) => 1,
        Kind::List { elements, .. } => elements.len(),
        Kind::Map(entries) => entries.len(),
        _ => return None,
    };
    Some(Range::exactly(size as u64))
}
