//! The type checker.

use std::sync::Arc;

use crate::ast::{Expr, Fold, Kind, Literal, MessageField};
use crate::env::Env;
use crate::error::Issue;
use crate::functions::{Overload, overloads};
use crate::types::Type;

/// The results of the type checker, indexed by the ids of nodes.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) types: Vec<Type>,
    /// The ids of the overloads that a call may resolve to, by which costs are looked up.
    pub(crate) calls: Vec<Vec<&'static str>>,
    /// Errors of lists and maps whose elements have different types.
    pub(crate) mixed: Vec<Issue>,
}

/// Checks the types of a tree, and resolves the names of functions that contain dots.
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

/// The maximum depth of a type, which bounds the recursion of the checker. No schema of the API is nearly as deep.
const MAX_DEPTH: usize = 64;

struct Checker<'e> {
    env: &'e Env,
    scopes: Vec<(String, Type)>,
    /// What type parameters are bound to.
    bound: Vec<Option<Type>>,
    /// The previous bindings in the order of changes, so that a failed attempt can be undone.
    undo: Vec<(usize, Option<Type>)>,
    types: Vec<Type>,
    calls: Vec<Vec<&'static str>>,
    issues: Vec<Issue>,
    /// Errors of lists and maps whose elements have different types. They are reported only if there are no other issues.
    mixed: Vec<Issue>,
    /// How many calls of `format` the visited expression is an argument of.
    formats: usize,
}

/// The remaining size of a type that is resolved. A few levels of `{x: x}` make a type of any size, and recursion through a
/// deeply nested type would exhaust the stack.
struct Bounds {
    /// The remaining number of types.
    parts: usize,
    /// The remaining depth.
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

    /// What a type is bound to, without its element types.
    fn known(&self, ty: &Type) -> Type {
        match ty {
            Type::Param(number) => match self.bound.get(*number).and_then(Option::as_ref) {
                Some(bound) => self.known(bound),
                None => ty.clone(),
            },
            _ => ty.clone(),
        }
    }

    /// Resolves a type with its element types; unbound parameters become `dyn`.
    fn settled(&self, ty: &Type) -> Type {
        self.resolved(ty, &Type::is_param, &mut Bounds::default())
    }

    /// Resolves a type with its element types; unbound parameters remain.
    fn substituted(&self, ty: &Type) -> Type {
        self.resolved(ty, &|_| false, &mut Bounds::default())
    }

    /// Resolves a type with its element types. Types that `is_anything` selects, and types beyond the bounds, become `dyn`.
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
        // Limits the size of composed types.
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
                let test = *test;
                let field = field.clone();
                let of = self.visit(operand);
                let ty = self.select(at, &of, &field, false);
                if test { Type::Bool } else { ty }
            }
            Kind::List { elements, optional } => {
                let optional = optional.clone();
                let mut joined = None;
                let mut mixed = false;
                for (i, element) in elements.iter_mut().enumerate() {
                    let found = self.visit(element);
                    let found = self.unwrapped(element.at, found, optional.contains(&i));
                    // Like upstream, only the first error of a list is reported, and all errors of a map.
                    mixed |= self.join(element.at, &mut joined, found, !mixed);
                }
                let of = joined.map_or_else(|| self.fresh(), |joined| joined.all);
                Type::list(of)
            }
            Kind::Map(entries) => {
                let mut keys = None;
                let mut values = None;
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
                    let expected = self.settled(&expected);
                    let found = self.settled(&found);
                    let message = format!(
                        "expected type of field '{}' is '{expected}' but provided type is '{found}'",
                        field.name
                    );
                    self.issue(field.at, message);
                }
                // Like upstream, where the type of an undefined field has an empty name.
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
        if let Some((_, ty)) = self.scopes.iter().rev().find(|(scope, _)| scope == name) {
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

    /// Resolves the dotted name of a variable. Named expressions remain fields of `variables`, since that is how they are
    /// evaluated.
    fn declared(&mut self, expr: &mut Expr) -> Type {
        let Kind::Select { operand, field, test } = &mut expr.kind else { return Type::Error };
        let Kind::Ident(root) = &operand.kind else { return Type::Error };
        let test = *test;
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

    /// Joins the type of an element with the types before it. Returns whether it differs from the first.
    fn join(&mut self, at: usize, joined: &mut Option<Joined>, found: Type, report: bool) -> bool {
        let Some(Joined { first, all }) = joined.take() else {
            *joined = Some(Joined { first: found.clone(), all: found });
            return false;
        };
        let fits = self.assign(&all, &found);
        let expected = self.settled(&first);
        let given = self.settled(&found);
        // Only the arguments of `format` can have different types.
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
        let expected = self.settled(expected);
        let found = self.settled(found);
        self.issue(at, format!("expected type '{expected}' but found '{found}'"));
    }

    fn fold(&mut self, fold: &mut Fold) -> Type {
        let range = self.visit(&mut fold.range);
        let range = self.known(&range);
        let accumulator = self.visit(&mut fold.init);
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
        let outer_scopes = self.scopes.len();
        self.scopes.push((fold.result_name.clone(), accumulator.clone()));
        self.scopes.push((fold.variable.clone(), first));
        if let Some(name) = &fold.second {
            self.scopes.push((name.clone(), second));
        }
        let condition = self.visit(&mut fold.condition);
        self.expect(fold.condition.at, &Type::Bool, &condition);
        let step = self.visit(&mut fold.step);
        self.expect(fold.step.at, &accumulator, &step);
        self.scopes.truncate(outer_scopes + 1);
        let result = self.visit(&mut fold.result);
        self.scopes.truncate(outer_scopes);
        self.substituted(&result)
    }

    fn expect(&mut self, at: usize, expected: &Type, found: &Type) {
        if !self.assign(expected, found) {
            self.mismatch(at, expected, found);
        }
    }

    fn call(&mut self, expr: &mut Expr) -> Type {
        let at = expr.at;
        let id = expr.id;
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
            let is_undeclared = |name: &str| name.starts_with("jsonpatch.") && !self.env.has_patch_types();
            if let Some(full) = full.filter(|name| overloads(name).is_some() && !is_undeclared(name)) {
                *function = full;
                *target = None;
            } else {
                types.insert(0, self.visit(receiver));
            }
        }
        let Some(overload_list) = overloads(function) else {
            self.issue(at, format!("undeclared reference to '{function}' (in container '')"));
            return Type::Error;
        };
        if matches!(function.as_str(), "_&&_" | "_||_") {
            return self.logic(id, overload_list, args, &types);
        }
        if let Some((calls, result)) = self.resolve(overload_list, target.is_some(), &types) {
            self.calls[id] = calls;
            return result;
        }
        let names: Vec<String> = types.iter().map(|ty| self.settled(ty).to_string()).collect();
        let signature = match (target.is_some(), names.split_first()) {
            (true, Some((receiver, rest))) => format!("{receiver}.({})", rest.join(", ")),
            _ => format!("({})", names.join(", ")),
        };
        self.issue(at, format!("found no matching overload for '{function}' applied to '{signature}'"));
        Type::Error
    }

    fn optional_select(&mut self, at: usize, id: usize, args: &mut [Expr]) -> Type {
        let [operand, field] = args else { return Type::Error };
        let of = self.visit(operand);
        self.visit(field);
        if let Kind::Literal(Literal::Text(name)) = &field.kind
            && matches!(&operand.kind, Kind::Ident(root) if root == crate::composition::VARIABLES)
            && self.scopes.iter().all(|(scope, _)| scope != crate::composition::VARIABLES)
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

    fn logic(
        &mut self,
        id: usize,
        overload_list: &'static [Overload],
        args: &[Expr],
        types: &[Type],
    ) -> Type {
        let mut has_error = false;
        for (arg, ty) in args.iter().zip(types) {
            if !self.assign(ty, &Type::Bool) {
                self.mismatch(arg.at, &Type::Bool, ty);
                has_error = true;
            }
        }
        self.calls[id] = overload_list.iter().map(|overload| overload.id).collect();
        if has_error { Type::Error } else { Type::Bool }
    }

    fn resolve(
        &mut self,
        overload_list: &'static [Overload],
        member: bool,
        types: &[Type],
    ) -> Option<(Vec<&'static str>, Type)> {
        let mut calls = Vec::new();
        let mut result: Option<Type> = None;
        for overload in overload_list
            .iter()
            .filter(|overload| overload.member == member && overload.params.len() == types.len())
        {
            let open: Vec<Type> = (0..overload.open).map(|_| self.fresh()).collect();
            let params: Vec<Type> = overload.params.iter().map(|ty| substitute_params(ty, &open)).collect();
            if !self.assign_all(types, &params) {
                continue;
            }
            calls.push(overload.id);
            let returned = self.substituted(&substitute_params(&overload.result, &open));
            result = Some(match result {
                None => returned,
                Some(before) if before.is_open() || self.settled(&before).same(&self.settled(&returned)) => {
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
            for (number, previous) in self.undo.drain(before..).rev() {
                self.bound[number] = previous;
            }
        }
        fits
    }

    /// Whether a value of one type can be assigned to another; binds the type parameters of both.
    fn assign(&mut self, target: &Type, value: &Type) -> bool {
        self.assign_all(std::slice::from_ref(target), std::slice::from_ref(value))
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

    /// Binds a type parameter that was unified with `dyn` to `dyn`.
    fn widen(&mut self, ty: &Type, known: &Type) {
        if let Type::Param(number) = ty
            && !known.is_open()
            && *number < self.bound.len()
        {
            self.bind(*number, Type::Dyn);
        }
    }

    /// Binds a type parameter.
    fn bind(&mut self, number: usize, ty: Type) {
        let previous = self.bound[number].replace(ty);
        self.undo.push((number, previous));
    }

    fn contains(&self, ty: &Type, number: usize) -> bool {
        match self.known(ty) {
            Type::Param(other) => other == number,
            Type::List(of) | Type::Optional(of) => self.contains(&of, number),
            Type::Map(key, value) => self.contains(&key, number) || self.contains(&value, number),
            _ => false,
        }
    }
}

/// The type of a field of a message; `None` if the message has no such field.
fn field_of(message: &str, field: &str) -> Option<Type> {
    match (message, field) {
        ("JSONPatch", "op" | "path" | "from") => Some(Type::Text),
        ("JSONPatch", "value") => Some(Type::Dyn),
        ("JSONPatch", _) => None,
        _ => Some(Type::Dyn),
    }
}

/// Replaces the type parameters of an overload.
fn substitute_params(ty: &Type, open: &[Type]) -> Type {
    match ty {
        Type::Param(number) => open.get(*number).cloned().unwrap_or(Type::Dyn),
        Type::List(of) => Type::list(substitute_params(of, open)),
        Type::Optional(of) => Type::optional(substitute_params(of, open)),
        Type::Map(key, value) => {
            Type::Map(Arc::new(substitute_params(key, open)), Arc::new(substitute_params(value, open)))
        }
        other => other.clone(),
    }
}
