//! What expressions can speak of.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value as Json;

use crate::decl::Decl;
use crate::types::Type;
use crate::value::Value;

/// The variables that expressions can speak of, beside the functions of Kubernetes.
#[derive(Clone, Debug, Default)]
pub struct Env {
    variables: BTreeMap<String, Variable>,
    /// Variables of which only the type is known. Their names may contain dots.
    typed: BTreeMap<String, Type>,
    /// Whether expressions can make objects and patches.
    patches: bool,
}

#[derive(Clone, Debug)]
struct Variable {
    decl: Arc<Decl>,
    optional: bool,
}

impl Env {
    /// No variables yet.
    pub fn kubernetes() -> Self {
        Self::default()
    }

    /// One more variable.
    #[must_use]
    pub fn with(mut self, name: &str, decl: Arc<Decl>) -> Self {
        self.variables.insert(name.to_owned(), Variable { decl, optional: false });
        self
    }

    /// One more variable, which may have no value.
    #[must_use]
    pub fn with_optional(mut self, name: &str, decl: Arc<Decl>) -> Self {
        self.variables.insert(name.to_owned(), Variable { decl, optional: true });
        self
    }

    /// One more variable, of which only the type is known.
    #[must_use]
    pub fn with_type(mut self, name: &str, ty: Type) -> Self {
        self.declare(name, ty);
        self
    }

    /// An environment in which expressions make parts of objects (`Object.spec{…}`) and patches (`JSONPatch{…}`).
    #[must_use]
    pub fn with_patch_types(mut self) -> Self {
        self.patches = true;
        self
    }

    /// Whether expressions can make objects of a type.
    pub(crate) fn makes(&self, name: &str) -> bool {
        self.patches && (name == "JSONPatch" || name == "Object" || name.starts_with("Object."))
    }

    /// Whether expressions can make objects and patches.
    pub(crate) fn has_patch_types(&self) -> bool {
        self.patches
    }

    /// Declares the named expressions of another environment.
    pub fn declare_variables_of(&mut self, other: &Self) {
        let prefix = format!("{}.", crate::composition::VARIABLES);
        let variables = other.typed.iter().filter(|(name, _)| name.starts_with(&prefix));
        self.typed.extend(variables.map(|(name, ty)| (name.clone(), ty.clone())));
    }

    pub(crate) fn declare(&mut self, name: &str, ty: Type) {
        self.typed.insert(name.to_owned(), ty);
    }

    /// What is known of a variable.
    pub fn decl(&self, name: &str) -> Option<&Arc<Decl>> {
        self.variables.get(name).map(|variable| &variable.decl)
    }

    pub(crate) fn ty(&self, name: &str) -> Option<Type> {
        let Some(variable) = self.variables.get(name) else { return self.typed.get(name).cloned() };
        let ty = variable.decl.ty();
        Some(if variable.optional { Type::optional(ty) } else { ty })
    }
}

/// The values of variables in one evaluation.
#[derive(Clone, Debug, Default)]
pub struct Bindings<'a> {
    values: Vec<(&'a str, Value<'a>)>,
}

impl<'a> Bindings<'a> {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives a variable a value.
    pub fn set(&mut self, name: &'a str, value: Value<'a>) {
        self.values.push((name, value));
    }

    /// Gives a variable data as its value; it is read where an expression looks, not before.
    pub fn json(&mut self, name: &'a str, data: &'a Json, decl: &'a Decl) {
        self.set(name, Value::of_json(data, decl));
    }

    /// Gives an optional variable data, or nothing.
    pub fn optional_json(&mut self, name: &'a str, data: Option<&'a Json>, decl: &'a Decl) {
        let value = data.map(|data| Box::new(Value::of_json(data, decl)));
        self.set(name, Value::Optional(value));
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Value<'a>> {
        self.values.iter().rev().find(|(own, _)| *own == name).map(|(_, value)| value)
    }
}
