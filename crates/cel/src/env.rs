//! The variables of expressions, and their values.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value as Json;

use crate::decl::Decl;
use crate::types::Type;
use crate::value::Value;

/// The declared variables. The functions of Kubernetes are always declared.
#[derive(Clone, Debug, Default)]
pub struct Env {
    variables: BTreeMap<String, Variable>,
    /// Variables with a type and no declaration. Their names can contain dots.
    typed: BTreeMap<String, Type>,
    /// Whether expressions can create objects and patches.
    patches: bool,
}

#[derive(Clone, Debug)]
struct Variable {
    decl: Arc<Decl>,
    optional: bool,
}

impl Env {
    /// Creates an environment without variables.
    pub fn kubernetes() -> Self {
        Self::default()
    }

    /// Adds a variable.
    #[must_use]
    pub fn with(mut self, name: &str, decl: Arc<Decl>) -> Self {
        self.variables.insert(name.to_owned(), Variable { decl, optional: false });
        self
    }

    /// Adds a variable with an optional value.
    #[must_use]
    pub fn with_optional(mut self, name: &str, decl: Arc<Decl>) -> Self {
        self.variables.insert(name.to_owned(), Variable { decl, optional: true });
        self
    }

    /// Adds a variable with a type and no declaration.
    #[must_use]
    pub fn with_type(mut self, name: &str, ty: Type) -> Self {
        self.declare(name, ty);
        self
    }

    /// Lets expressions create parts of objects (`Object.spec{…}`) and patches (`JSONPatch{…}`).
    #[must_use]
    pub fn with_patch_types(mut self) -> Self {
        self.patches = true;
        self
    }

    /// Whether expressions can create messages of a type.
    pub(crate) fn makes(&self, name: &str) -> bool {
        self.patches && (name == "JSONPatch" || name == "Object" || name.starts_with("Object."))
    }

    /// Whether expressions can create objects and patches.
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

    /// The declaration of a variable.
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
    /// Creates an empty set of values.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the value of a variable.
    pub fn set(&mut self, name: &'a str, value: Value<'a>) {
        self.values.push((name, value));
    }

    /// Sets the value of a variable to JSON, which is converted lazily as an expression reads it.
    pub fn json(&mut self, name: &'a str, data: &'a Json, decl: &'a Decl) {
        self.set(name, Value::from_json(data, decl));
    }

    /// Sets the value of an optional variable to JSON, or to none.
    pub fn optional_json(&mut self, name: &'a str, data: Option<&'a Json>, decl: &'a Decl) {
        let value = data.map(|data| Box::new(Value::from_json(data, decl)));
        self.set(name, Value::Optional(value));
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Value<'a>> {
        self.values.iter().rev().find(|(other, _)| *other == name).map(|(_, value)| value)
    }
}
