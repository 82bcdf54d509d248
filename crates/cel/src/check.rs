//! Whether an expression makes sense, before there are values.

use std::sync::Arc;

use crate::ast::{Expr, Fold, Kind, Literal, MessageField};
use crate::env::Env;
use crate::error::Issue;
use crate::functions::{Overload, overloads};
use crate::types::Type;

/// What was found out about the nodes of a tree, by their numbers.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) types: Vec<Type>,
    /// The prices that may be due for a call.
    pub(crate) calls: Vec<Vec<&'static str>>,
    /// Elements of lists and maps whose type is not that of the first.
    pub(crate) mixed: Vec<Issue>,
}

/// Checks a tree; names of functions that contain dots are put together on the way.
pub(crate) fn check(expr: &mut Expr, count: usize, env: &Env) -> Result<Checked, Vec<Issue>> {
    let mut checker = Checker {
        env,
        scopes: Vec::new(),
        bound: Vec::new(),
        undo: Vec::new(),
        types: vec![Type::Dyn; count],
        calls: vec![Vec::new(); count],
        issues: Vec::new(),
        mixed: Vec::new(),
        formats: 0,
    };
    checker.visit(expr);
    if !checker.issues.is_empty() {
        return Err(checker.issues);
    }
    let types = checker.types.iter().map(|ty| checker.settled(ty)).collect();
    Ok(Checked { types, calls: checker.calls, mixed: checker.mixed })
}

/// How deep types nest.
const MAX_DEPTH: usize = 64;

struct Checker<'e> {
    env: &'e Env,
    scopes: Vec<(String, Type)>,
    /// What open types were found to be.
    bound: Vec<Option<Type>>,
    /// What they were before, in the order of changes: a failed attempt undoes its own.
    undo: Vec<(usize, Option<Type>)>,
    types: Vec<Type>,
    calls: Vec<Vec<&'static str>>,
    issues: Vec<Issue>,
    /// Elements of lists and maps whose type is not that of those before. They count if nothing else is wrong.
    mixed: Vec<Issue>,
    /// How many calls of `format` the visited expression is an argument of.
    formats: usize,
}

/// How much more of a type is known. A few levels of `{x: x}` make a type of any size, and what recurses through types that
/// nest deep exhausts the stack.
struct Bounds {
    /// How many more types it is composed of.
    parts: usize,
    /// How much deeper they nest.
    depth: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { parts: 256, depth: MAX_DEPTH }
    }
}

/// The types of the elements of a literal.
struct Joined {
    first: Type,
    all: Type,
}

impl Checker<'_> {
    fn issue(&mut self, at: usize, message: String) {
        self.issues.push(Issue { at, message });
    }

    fn fresh(&mut self) -> Type {
        self.bound.push(None);
        Type::Param(self.bound.len() - 1)
    }

    /// What a type is as far as it is known.
    fn known(&self, ty: &Type) -> Type {
        match ty {
            Type::Param(number) => match self.bound.get(*number).and_then(Option::as_ref) {
                Some(bound) => self.known(bound),
                None => ty.clone(),
            },
            _ => ty.clone(),
        }
    }

    /// The same, all the way down; what stayed open can be anything.
    fn settled(&self, ty: &Type) -> Type {
        self.resolved(ty, &Type::is_param, &mut Bounds::default())
    }

    /// The same, where what stayed open stays so.
    fn substituted(&self, ty: &Type) -> Type {
        self.resolved(ty, &|_| false, &mut Bounds::default())
    }

    /// A type all the way down, as far as it is within bounds. What is said to be anything, and what is beyond the bounds,
    /// can be anything.
    fn resolved(&self, ty: &Type, is_anything: &dyn Fn(&Type) -> bool, bounds: &mut Bounds) -> Type {
        let known = self.known(ty);
        if is_anything(&known) || bounds.parts == 0 || bounds.depth == 0 {
            return Type::Dyn;
        }
        bounds.parts -= 1;
        bounds.depth -= 1;
        let resolved = match known {
            Type::List(of) => Type::list(self.resolved(&of, is_anything, bounds)),
            Type::Optional(of) => Type::optional(self.resolved(&of, is_anything, bounds)),
            Type::Map(key, value) => {
                let key = self.resolved(&key, is_anything, bounds);
                Type::Map(Arc::new(key), Arc::new(self.resolved(&value, is_anything, bounds)))
            }
            other => other,
        };
        bounds.depth += 1;
        resolved
    }

    fn set(&mut self, expr: &Expr, ty: Type) -> Type {
        // What is composed of types stays within the bounds.
        let ty = match ty {
            Type::List(_) | Type::Optional(_) | Type::Map(..) => self.substituted(&ty),
            other => other,
        };
        self.types[expr.id] = ty.clone();
        ty
    }

    fn visit(&mut self, expr: &mut Expr) -> Type {
        let at = expr.at;
        if self.is_declared(expr) {
            let ty = self.declared(expr);
            return self.set(expr, ty);
        }
        let ty = match &mut expr.kind {
            Kind::Literal(literal) => match literal {
                Literal::Null => Type::Null,
                Literal::Bool(_) => Type::Bool,
                Literal::Int(_) => Type::Int,
                Literal::Uint(_) => Type::Uint,
                Literal::Double(_) => Type::Double,
                Literal::Text(_) => Type::Text,
                Literal::Bytes(_) => Type::Bytes,
            },
            Kind::Ident(name) => self.lookup(name).unwrap_or_else(|| {
                let message = format!("undeclared reference to '{name}' (in container '')");
                self.issue(at, message);
                Type::Error
            }),
            Kind::Select { operand, field, test } => {
                let (test, field) = (*test, field.clone());
                let of = self.visit(operand);
                let ty = self.select(at, &of, &field, false);
                if test { Type::Bool } else { ty }
            }
            Kind::List { elements, optional } => {
                let optional = optional.clone();
                let (mut joined, mut mixed) = (None, false);
                for (i, element) in elements.iter_mut().enumerate() {
                    let found = self.visit(element);
                    let found = self.unwrapped(element.at, found, optional.contains(&i));
                    // Of a list the first is reported, of a map all.
                    mixed |= self.join(element.at, &mut joined, found, !mixed);
                }
                let of = joined.map_or_else(|| self.fresh(), |joined| joined.all);
                Type::list(of)
            }
            Kind::Map(entries) => {
                let (mut keys, mut values) = (None, None);
                for entry in entries {
                    let key = self.visit(&mut entry.key);
                    self.join(entry.key.at, &mut keys, key, true);
                    let value = self.visit(&mut entry.value);
                    let value = self.unwrapped(entry.value.at, value, entry.optional);
                    self.join(entry.value.at, &mut values, value, true);
                }
                let key = keys.map_or_else(|| self.fresh(), |keys| keys.all);
                let value = values.map_or_else(|| self.fresh(), |values| values.all);
                Type::Map(Arc::new(key), Arc::new(value))
            }
            Kind::Message { name, fields } => self.message(at, name, fields),
            Kind::Fold(fold) => self.fold(fold),
            Kind::Call { .. } => self.call(expr),
        };
        self.set(expr, ty)
    }

    fn message(&mut self, at: usize, name: &str, fields: &mut [MessageField]) -> Type {
        if !self.env.makes(name) {
            self.issue(at, format!("undeclared reference to '{name}' (in container '')"));
        }
        let known = self.env.makes(name);
        for field in fields {
            let found = self.visit(&mut field.value);
            let found = self.unwrapped(field.value.at, found, field.optional);
            match field_of(name, &field.name) {
                _ if !known => {}
                Some(expected) if self.assign(&expected, &found) => {}
                Some(expected) => {
                    let (expected, found) = (self.settled(&expected), self.settled(&found));
                    let message = format!(
                        "expected type of field '{}' is '{expected}' but provided type is '{found}'",
                        field.name
                    );
                    self.issue(field.at, message);
                }
                // As upstream, whose type of such a field has no name.
                None => {
                    let found = self.settled(&found);
                    let message = format!(
                        "expected type of field '{}' is '' but provided type is '{found}'",
                        field.name
                    );
                    self.issue(field.at, message);
                }
            }
        }
        if known { Type::Message(name.into()) } else { Type::Error }
    }

    fn lookup(&self, name: &str) -> Option<Type> {
        if let Some((_, ty)) = self.scopes.iter().rev().find(|(own, _)| own == name) {
            return Some(ty.clone());
        }
        self.env.ty(name).or_else(|| crate::value::type_named(name).map(|_| Type::Type))
    }

    /// Whether an expression spells the name of a variable that contains dots.
    fn is_declared(&self, expr: &Expr) -> bool {
        let Kind::Select { operand, field, .. } = &expr.kind else { return false };
        let Kind::Ident(root) = &operand.kind else { return false };
        self.scopes.iter().all(|(name, _)| name != root) && self.env.ty(&format!("{root}.{field}")).is_some()
    }

    /// Resolves such a name. Named expressions stay fields of `variables`, which is how they are evaluated.
    fn declared(&mut self, expr: &mut Expr) -> Type {
        let Kind::Select { operand, field, test } = &mut expr.kind else { return Type::Error };
        let (Kind::Ident(root), test) = (&operand.kind, *test) else { return Type::Error };
        let name = format!("{root}.{field}");
        let ty = self.env.ty(&name).unwrap_or(Type::Dyn);
        if root == crate::composition::VARIABLES {
            self.visit(operand);
            return if test { Type::Bool } else { ty };
        }
        if !test {
            expr.kind = Kind::Ident(name);
            return ty;
        }
        Type::Bool
    }

    fn select(&mut self, at: usize, of: &Type, field: &str, optional: bool) -> Type {
        let of = self.known(of);
        let (target, is_optional) = match &of {
            Type::Optional(inner) => (self.known(inner), true),
            _ => (of, false),
        };
        let found = match &target {
            Type::Map(_, value) => (**value).clone(),
            Type::Object(decl) => decl.field(field).map_or_else(
                || {
                    self.issue(at, format!("undefined field '{field}'"));
                    Type::Error
                },
                |field| field.decl.ty(),
            ),
            Type::Param(_) => {
                self.assign(&Type::Dyn, &target);
                Type::Dyn
            }
            Type::Message(name) => field_of(name, field).unwrap_or_else(|| {
                self.issue(at, format!("undefined field '{field}'"));
                Type::Error
            }),
            Type::Opaque(name) => {
                self.issue(at, format!("unexpected failed resolution of '{name}'"));
                Type::Error
            }
            target => {
                if !target.is_open() {
                    self.issue(at, format!("type '{target}' does not support field selection"));
                }
                Type::Dyn
            }
        };
        if is_optional || optional { Type::optional(found) } else { found }
    }

    fn unwrapped(&mut self, at: usize, found: Type, optional: bool) -> Type {
        if !optional {
            return found;
        }
        match self.known(&found) {
            Type::Optional(inner) => (*inner).clone(),
            found => {
                if !matches!(found, Type::Dyn) {
                    self.mismatch(at, &Type::optional(found.clone()), &found);
                }
                found
            }
        }
    }

    /// Adds the type of an element to those before it, and answers whether it is another than the first.
    fn join(&mut self, at: usize, joined: &mut Option<Joined>, found: Type, report: bool) -> bool {
        let Some(Joined { first, all }) = joined.take() else {
            *joined = Some(Joined { first: found.clone(), all: found });
            return false;
        };
        let fits = self.assign(&all, &found);
        let (expected, given) = (self.settled(&first), self.settled(&found));
        // The arguments of `format` alone may be of any types.
        let mixed = self.formats == 0 && !expected.same(&given);
        if mixed && report {
            let message = format!("expected type '{expected}' but found '{given}'");
            self.mixed.push(Issue { at, message });
        }
        let all = if !fits {
            Type::Dyn
        } else if self.known(&found).is_open() {
            found
        } else {
            all
        };
        *joined = Some(Joined { first, all });
        mixed
    }

    fn mismatch(&mut self, at: usize, expected: &Type, found: &Type) {
        let (expected, found) = (self.settled(expected), self.settled(found));
        self.issue(at, format!("expected type '{expected}' but found '{found}'"));
    }

    fn fold(&mut self, fold: &mut Fold) -> Type {
        let range = self.visit(&mut fold.range);
        let range = self.known(&range);
        let gathered = self.visit(&mut fold.init);
        let two = fold.second.is_some();
        let (first, second) = match &range {
            Type::List(of) if two => (Type::Int, (**of).clone()),
            Type::List(of) => ((**of).clone(), Type::Dyn),
            Type::Map(key, value) => ((**key).clone(), (**value).clone()),
            Type::Dyn | Type::Error | Type::Param(_) => {
                self.assign(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.issue(fold.range.at, message);
                (Type::Error, Type::Error)
            }
        };
        let outside = self.scopes.len();
        self.scopes.push((fold.result_name.clone(), gathered.clone()));
        self.scopes.push((fold.variable.clone(), first));
        if let Some(name) = &fold.second {
            self.scopes.push((name.clone(), second));
        }
        let condition = self.visit(&mut fold.condition);
        self.expect(fold.condition.at, &Type::Bool, &condition);
        let step = self.visit(&mut fold.step);
        self.expect(fold.step.at, &gathered, &step);
        self.scopes.truncate(outside + 1);
        let result = self.visit(&mut fold.result);
        self.scopes.truncate(outside);
        self.substituted(&result)
    }

    fn expect(&mut self, at: usize, expected: &Type, found: &Type) {
        if !self.assign(expected, found) {
            self.mismatch(at, expected, found);
        }
    }

    fn call(&mut self, expr: &mut Expr) -> Type {
        let (at, id) = (expr.at, expr.id);
        let Kind::Call { function, target, args } = &mut expr.kind else { return Type::Error };
        if function == "_?._" {
            return self.optional_select(at, id, args);
        }
        let formats = usize::from(function == "format");
        self.formats += formats;
        let mut types: Vec<Type> = args.iter_mut().map(|arg| self.visit(arg)).collect();
        self.formats -= formats;
        if let Some(receiver) = target {
            let full = receiver.qualified_name().map(|name| format!("{name}.{function}"));
            let hidden = |name: &str| name.starts_with("jsonpatch.") && !self.env.has_patch_types();
            if let Some(full) = full.filter(|name| overloads(name).is_some() && !hidden(name)) {
                *function = full;
                *target = None;
            } else {
                types.insert(0, self.visit(receiver));
            }
        }
        let Some(ways) = overloads(function) else {
            self.issue(at, format!("undeclared reference to '{function}' (in container '')"));
            return Type::Error;
        };
        if matches!(function.as_str(), "_&&_" | "_||_") {
            return self.logic(id, ways, args, &types);
        }
        if let Some((calls, result)) = self.resolve(ways, target.is_some(), &types) {
            self.calls[id] = calls;
            return result;
        }
        let shown: Vec<String> = types.iter().map(|ty| self.settled(ty).to_string()).collect();
        let shown = match (target.is_some(), shown.split_first()) {
            (true, Some((receiver, rest))) => format!("{receiver}.({})", rest.join(", ")),
            _ => format!("({})", shown.join(", ")),
        };
        self.issue(at, format!("found no matching overload for '{function}' applied to '{shown}'"));
        Type::Error
    }

    fn optional_select(&mut self, at: usize, id: usize, args: &mut [Expr]) -> Type {
        let [operand, field] = args else { return Type::Error };
        let of = self.visit(operand);
        self.visit(field);
        if let Kind::Literal(Literal::Text(name)) = &field.kind
            && matches!(&operand.kind, Kind::Ident(root) if root == crate::composition::VARIABLES)
            && self.scopes.iter().all(|(own, _)| own != crate::composition::VARIABLES)
            && let Some(ty) = self.env.ty(&format!("{}.{name}", crate::composition::VARIABLES))
        {
            self.calls[id] = vec!["select_optional_field"];
            return Type::optional(ty);
        }
        let Kind::Literal(Literal::Text(name)) = &field.kind else { return Type::Error };
        self.calls[id] = vec!["select_optional_field"];
        let name = name.clone();
        self.select(at, &of, &name, true)
    }

    fn logic(&mut self, id: usize, ways: &'static [Overload], args: &[Expr], types: &[Type]) -> Type {
        let mut wrong = false;
        for (arg, ty) in args.iter().zip(types) {
            if !self.assign(ty, &Type::Bool) {
                self.mismatch(arg.at, &Type::Bool, ty);
                wrong = true;
            }
        }
        self.calls[id] = ways.iter().map(|way| way.id).collect();
        if wrong { Type::Error } else { Type::Bool }
    }

    fn resolve(
        &mut self,
        ways: &'static [Overload],
        member: bool,
        types: &[Type],
    ) -> Option<(Vec<&'static str>, Type)> {
        let mut calls = Vec::new();
        let mut result: Option<Type> = None;
        for way in ways.iter().filter(|way| way.member == member && way.params.len() == types.len()) {
            let open: Vec<Type> = (0..way.open).map(|_| self.fresh()).collect();
            let params: Vec<Type> = way.params.iter().map(|ty| opened(ty, &open)).collect();
            if !self.assign_all(types, &params) {
                continue;
            }
            calls.push(way.id);
            let answered = self.substituted(&opened(&way.result, &open));
            result = Some(match result {
                None => answered,
                Some(before) if before.is_open() || self.settled(&before).same(&self.settled(&answered)) => {
                    before
                }
                Some(_) => Type::Dyn,
            });
        }
        result.map(|result| (calls, result))
    }

    fn assign_all(&mut self, types: &[Type], params: &[Type]) -> bool {
        let before = self.undo.len();
        let fits = types.iter().zip(params).all(|(ty, param)| self.unify(ty, param, 0));
        if !fits {
            for (number, was) in self.undo.drain(before..).rev() {
                self.bound[number] = was;
            }
        }
        fits
    }

    /// Whether a place of one type takes a value of another; open types become what makes it so.
    fn assign(&mut self, place: &Type, value: &Type) -> bool {
        self.assign_all(std::slice::from_ref(place), std::slice::from_ref(value))
    }

    fn unify(&mut self, a: &Type, b: &Type, depth: usize) -> bool {
        if depth > MAX_DEPTH {
            return false;
        }
        match (self.known(a), self.known(b)) {
            (Type::Param(x), Type::Param(y)) if x == y => true,
            (Type::Param(x), other) | (other, Type::Param(x)) => {
                if self.contains(&other, x) {
                    return false;
                }
                self.bind(x, other);
                true
            }
            (Type::Dyn, other) if !matches!(other, Type::Error) => {
                self.widen(b, &other);
                true
            }
            (other, Type::Dyn) if !matches!(other, Type::Error) => {
                self.widen(a, &other);
                true
            }
            (Type::Error, _)
            | (_, Type::Error)
            | (
                Type::Null,
                Type::Object(_)
                | Type::Message(_)
                | Type::Opaque(_)
                | Type::Duration
                | Type::Timestamp
                | Type::Null,
            )
            | (
                Type::Object(_) | Type::Message(_) | Type::Opaque(_) | Type::Duration | Type::Timestamp,
                Type::Null,
            ) => true,
            (Type::List(of), Type::List(other)) | (Type::Optional(of), Type::Optional(other)) => {
                self.unify(&of, &other, depth + 1)
            }
            (Type::Map(key, value), Type::Map(other_key, other_value)) => {
                self.unify(&key, &other_key, depth + 1) && self.unify(&value, &other_value, depth + 1)
            }
            (one, other) => one.same(&other),
        }
    }

    /// An open type that has met anything can be anything.
    fn widen(&mut self, ty: &Type, known: &Type) {
        if let Type::Param(number) = ty
            && !known.is_open()
            && *number < self.bound.len()
        {
            self.bind(*number, Type::Dyn);
        }
    }

    /// Finds what an open type is.
    fn bind(&mut self, number: usize, ty: Type) {
        let was = self.bound[number].replace(ty);
        self.undo.push((number, was));
    }

    fn contains(&self, ty: &Type, number: usize) -> bool {
        match self.known(ty) {
            Type::Param(own) => own == number,
            Type::List(of) | Type::Optional(of) => self.contains(&of, number),
            Type::Map(key, value) => self.contains(&key, number) || self.contains(&value, number),
            _ => false,
        }
    }
}

/// The type of a field of an object that expressions make; nothing if it has no such field.
fn field_of(message: &str, field: &str) -> Option<Type> {
    match (message, field) {
        ("JSONPatch", "op" | "path" | "from") => Some(Type::Text),
        ("JSONPatch", "value") => Some(Type::Dyn),
        ("JSONPatch", _) => None,
        _ => Some(Type::Dyn),
    }
}

/// A type of the table with its letters replaced.
fn opened(ty: &Type, open: &[Type]) -> Type {
    match ty {
        Type::Param(number) => open.get(*number).cloned().unwrap_or(Type::Dyn),
        Type::List(of) => Type::list(opened(of, open)),
        Type::Optional(of) => Type::optional(opened(of, open)),
        Type::Map(key, value) => Type::Map(Arc::new(opened(key, open)), Arc::new(opened(value, open))),
        other => other.clone(),
    }
}
