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

    /// What is known of a variable.
    pub fn decl(&self, name: &str) -> Option<&Arc<Decl>> {
        self.variables.get(name).map(|variable| &variable.decl)
    }

    pub(crate) fn ty(&self, name: &str) -> Option<Type> {
        let variable = self.variables.get(name)?;
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
