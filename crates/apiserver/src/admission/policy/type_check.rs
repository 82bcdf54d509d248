//! Type checking of a policy's expressions against the kinds that the policy matches.
//!
//! Expressions are evaluated on dynamic values, so a wrong field name fails only when a write matches the policy. The
//! status of the policy reports it earlier.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use plumb_apischema::Schema;
use plumb_apischema::schema::{Shape, StructId, TypeId};
use plumb_cel::{AUTHORIZER, Decl, DeclKind, Env, Field, Program, Type, escape};
use plumb_crd::rules::declare;
use serde_json::{Value, json};

use super::super::matching::texts;
use super::compiled::variables;
use crate::expression::{Reads, environment, simple};
use crate::kinds::{Kinds, Row};

/// The maximum number of kinds that a policy is checked against.
const MOST_KINDS: usize = 10;

/// The `expressionWarnings` of a policy.
pub(crate) fn expression_warnings(spec: &Value, kinds: &Kinds) -> Vec<Value> {
    let mut declared = Declared::default();
    let rows: Vec<(String, Arc<Decl>)> = rows(spec, kinds)
        .into_iter()
        .filter_map(|row| {
            let name = format!("{}/{}, Kind={}", row.group(), row.version(), row.kind());
            Some((name, declared.row(row)?))
        })
        .collect();
    let params = param_row(spec, kinds).and_then(|row| declared.row(row));
    let environments: Vec<(String, Env)> = rows
        .into_iter()
        .map(|(name, decl)| {
            let mut env = typed(spec, decl, params.clone());
            variables(spec, &mut env);
            (name, env)
        })
        .collect();
    let mut warnings = Vec::new();
    for (index, validation) in spec["validations"].as_array().into_iter().flatten().enumerate() {
        for field in ["expression", "messageExpression"] {
            let text = validation[field].as_str().unwrap_or_default();
            let wrong: Vec<String> = environments
                .iter()
                .filter(|_| !text.is_empty())
                .filter_map(|(name, env)| {
                    let issues = Program::compile(text, env).err()?;
                    Some(format!("{name}: {issues}\n"))
                })
                .collect();
            if !wrong.is_empty() {
                let path = format!("spec.validations[{index}].{field}");
                warnings.push(json!({ "fieldRef": path, "warning": wrong.join("\n") }));
            }
        }
    }
    warnings
}

/// The environment of a policy with the types of `object` and `params`.
fn typed(spec: &Value, object: Arc<Decl>, params: Option<Arc<Decl>>) -> Env {
    let has_params = spec["paramKind"].is_object();
    let env = environment(Reads { params: has_params, authorizer: false })
        .with_type("authorizer", Type::Opaque(AUTHORIZER))
        .with("object", object.clone())
        .with("oldObject", object);
    match params {
        Some(params) => env.with("params", params).composed(),
        None => env.composed(),
    }
}

/// The kinds that the rules of a policy name without wildcards, in order.
fn rows<'k>(spec: &Value, kinds: &'k Kinds) -> Vec<&'k Row> {
    let mut found: BTreeMap<(&str, &str, &str), &Row> = BTreeMap::new();
    for rule in spec["matchConstraints"]["resourceRules"].as_array().into_iter().flatten() {
        let names = |field: &str| -> BTreeSet<String> { texts(&rule[field]).into_iter().collect() };
        let (groups, versions) = (names("apiGroups"), names("apiVersions"));
        if groups.iter().chain(&versions).any(|name| name.contains('*')) {
            continue;
        }
        let mut resources = names("resources");
        resources.retain(|name| !name.contains(['*', '/']));
        let mut count = 0;
        for (group, version) in groups.iter().flat_map(|group| versions.iter().map(move |own| (group, own))) {
            for resource in &resources {
                let is_named =
                    |row: &&Row| (row.group(), row.version(), row.plural()) == (group, version, resource);
                let Some(row) = kinds.iter().find(is_named) else { continue };
                found.insert((row.group(), row.version(), row.kind()), row);
                count += 1;
                if count == MOST_KINDS {
                    return found.into_values().collect();
                }
            }
        }
    }
    found.into_values().collect()
}

fn param_row<'k>(spec: &Value, kinds: &'k Kinds) -> Option<&'k Row> {
    let text = |field: &str| spec["paramKind"][field].as_str().unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    kinds.iter().find(|row| row.kind() == kind && row.api_version() == api_version)
}

/// Declarations of types by their schemas, each made once.
#[derive(Default)]
struct Declared {
    structs: HashMap<StructId, Option<Arc<Decl>>>,
}

impl Declared {
    fn row(&mut self, row: &Row) -> Option<Arc<Decl>> {
        let schema = Schema::builtin();
        let Some(custom) = row.custom() else {
            let kind = schema.kind(row.group(), row.version(), row.kind())?;
            return Some(self.structure(kind.body));
        };
        let own = declare(&custom.version.schema, true)?;
        let DeclKind::Object { name, fields } = &own.kind else { return Some(own) };
        let mut all: BTreeMap<String, Field> = fields
            .iter()
            .map(|(name, field)| (name.clone(), Field { json: field.json.clone(), decl: field.decl.clone() }))
            .collect();
        // Rules of a CRD can use only the name in the metadata, expressions of a policy all of it.
        let meta = schema.kind("meta.k8s.io", "v1", "PartialObjectMetadata");
        if let Some(field) = meta.and_then(|kind| schema[kind.body].field("metadata")) {
            let decl = self.of(field.ty);
            all.insert("metadata".to_owned(), Field { json: "metadata".to_owned(), decl });
        }
        Some(simple(DeclKind::Object { name: name.clone(), fields: all }))
    }

    fn structure(&mut self, id: StructId) -> Arc<Decl> {
        if let Some(known) = self.structs.get(&id) {
            // A recursive type is dynamic below itself.
            return known.clone().unwrap_or_else(Decl::dynamic);
        }
        self.structs.insert(id, None);
        let structure = &Schema::builtin()[id];
        let mut fields = BTreeMap::new();
        for field in structure.fields() {
            let Some(name) = escape(field.json) else { continue };
            fields.insert(name, Field { json: field.json.to_owned(), decl: self.of(field.ty) });
        }
        let name = format!("{}.{}", structure.package, structure.name);
        let decl = simple(DeclKind::Object { name, fields });
        self.structs.insert(id, Some(decl.clone()));
        decl
    }

    fn of(&mut self, ty: TypeId) -> Arc<Decl> {
        let schema = Schema::builtin();
        match schema[ty].shape {
            Shape::Text | Shape::Quantity | Shape::Duration => simple(DeclKind::Text),
            Shape::Bool => simple(DeclKind::Bool),
            Shape::Int32 | Shape::Int64 => simple(DeclKind::Int),
            Shape::Double => simple(DeclKind::Double),
            Shape::Bytes => simple(DeclKind::Bytes),
            Shape::Time | Shape::MicroTime => simple(DeclKind::Timestamp),
            Shape::Pointer(of) => self.of(of),
            Shape::List(of) | Shape::WrappedList(of) => simple(DeclKind::List(self.of(of))),
            Shape::Map(of) => simple(DeclKind::Map(self.of(of))),
            Shape::Struct(id) => self.structure(id),
            Shape::IntOrString
            | Shape::RawExtension
            | Shape::FieldsV1
            | Shape::Json
            | Shape::Any
            | Shape::SchemaOrArray(_)
            | Shape::SchemaOrBool(_)
            | Shape::SchemaOrStrings(_) => Decl::dynamic(),
        }
    }
}
