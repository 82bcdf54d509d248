//! The plan of defaulting: the tables of defaults joined with the schema.

use std::collections::HashMap;
use std::sync::LazyLock;

use plumb_apischema::Schema;
use plumb_apischema::schema::{Shape, StructId, TypeId};
use plumb_resize::rules::Rules;
use serde_json::{Map, Value};

use super::{Object, TABLES, resources};

/// The defaults of one type: its Go package, its name, and its rules in the order of their application.
pub(super) type Row = (&'static str, &'static str, &'static [Rule]);

/// One default of a type.
#[derive(Clone, Copy)]
pub(super) enum Rule {
    /// Set a field that is missing, or that is zero where the Go type is not a pointer.
    Set(&'static str, Fill),
    /// Call a function that reads or sets more than one field.
    Do(fn(&mut Object)),
    /// Call a function that depends on the dialect.
    DoBy(fn(&mut Object, &Rules)),
}

/// The default value of a field.
#[derive(Clone, Copy)]
pub(super) enum Fill {
    Text(&'static str),
    Int(i64),
    Bool(bool),
    Object,
}

impl From<Fill> for Value {
    fn from(fill: Fill) -> Self {
        match fill {
            Fill::Text(text) => text.into(),
            Fill::Int(number) => number.into(),
            Fill::Bool(truth) => truth.into(),
            Fill::Object => Self::Object(Map::new()),
        }
    }
}

/// The plan for the built-in schema.
pub(super) static PLAN: LazyLock<Plan> = LazyLock::new(|| Plan::of(Schema::builtin()));

/// The defaults of each type, and the fields of it that lead to other types with defaults.
pub(super) struct Plan(HashMap<StructId, Stop>);

#[derive(Default)]
struct Stop {
    steps: Vec<Step>,
    next: Vec<Next>,
}

enum Step {
    Set { field: &'static str, fill: Fill, distinguishes_absence: bool },
    Do(fn(&mut Object)),
    DoBy(fn(&mut Object, &Rules)),
}

struct Next {
    field: &'static str,
    ty: TypeId,
    /// A struct that is not a pointer in Go, so it exists even if the object omits it.
    always: bool,
}

impl Plan {
    fn of(schema: &Schema) -> Self {
        let rows: HashMap<(&str, &str), &[Rule]> = TABLES
            .iter()
            .copied()
            .flatten()
            .map(|(package, name, rules)| ((*package, *name), *rules))
            .collect();
        let mut stops: HashMap<StructId, Stop> = HashMap::new();
        for id in schema.structs() {
            let this = &schema[id];
            if let Some(rules) = rows.get(&(this.package, this.name)) {
                let done = rules.iter().map(|rule| step(schema, id, *rule)).collect();
                stops.insert(id, Stop { steps: done, next: Vec::new() });
            }
        }
        // A type that contains a type with defaults is visited too. Types nest, so this repeats until a round adds no
        // type.
        loop {
            let found: Vec<StructId> = schema
                .structs()
                .filter(|id| !stops.contains_key(id))
                .filter(|id| schema[*id].fields().iter().any(|field| leads_on(schema, &stops, field.ty)))
                .collect();
            if found.is_empty() {
                break;
            }
            stops.extend(found.into_iter().map(|id| (id, Stop::default())));
        }
        let next: Vec<(StructId, Vec<Next>)> =
            stops.keys().map(|id| (*id, next(schema, &stops, *id))).collect();
        for (id, next) in next {
            stops.entry(id).or_default().next = next;
        }
        Self(stops)
    }

    /// Applies the defaults to an object, the outer types first.
    pub(super) fn visit(&self, schema: &Schema, id: StructId, object: &mut Object, rules: &Rules) {
        let Some(stop) = self.0.get(&id) else { return };
        for step in &stop.steps {
            match step {
                Step::Set { field, fill, distinguishes_absence } => {
                    let empty =
                        object.get(*field).is_none_or(|value| !distinguishes_absence && is_zero(value));
                    if empty || object[*field].is_null() {
                        object.insert((*field).to_owned(), (*fill).into());
                    }
                }
                Step::Do(act) => act(object),
                Step::DoBy(act) => act(object, rules),
            }
        }
        for next in &stop.next {
            if let Some(value) = object.get_mut(next.field) {
                self.descend(schema, next.ty, value, rules);
            } else if next.always {
                let mut value = Value::Object(Map::new());
                self.descend(schema, next.ty, &mut value, rules);
                if value.as_object().is_some_and(|filled| !filled.is_empty()) {
                    object.insert(next.field.to_owned(), value);
                }
            }
        }
    }

    fn descend(&self, schema: &Schema, ty: TypeId, value: &mut Value, rules: &Rules) {
        if is_resource_list(schema, ty) {
            return resources::round_up(value);
        }
        match (schema[ty].shape, value) {
            (Shape::Struct(id), Value::Object(object)) => self.visit(schema, id, object, rules),
            (Shape::Pointer(inner), value) => self.descend(schema, inner, value, rules),
            (Shape::List(inner) | Shape::WrappedList(inner), Value::Array(list)) => {
                for element in list {
                    self.descend(schema, inner, element, rules);
                }
            }
            (Shape::Map(inner), Value::Object(map)) => {
                for element in map.values_mut() {
                    self.descend(schema, inner, element, rules);
                }
            }
            _ => {}
        }
    }
}

fn step(schema: &Schema, id: StructId, rule: Rule) -> Step {
    match rule {
        Rule::Set(field, fill) => {
            let ty = schema[id].field(field).map(|field| schema[field.ty].shape);
            Step::Set { field, fill, distinguishes_absence: matches!(ty, Some(Shape::Pointer(_))) }
        }
        Rule::Do(act) => Step::Do(act),
        Rule::DoBy(act) => Step::DoBy(act),
    }
}

fn next(schema: &Schema, stops: &HashMap<StructId, Stop>, id: StructId) -> Vec<Next> {
    let fields = schema[id].fields().iter().filter(|field| leads_on(schema, stops, field.ty));
    fields
        .map(|field| {
            let always = matches!(schema[field.ty].shape, Shape::Struct(_));
            Next { field: field.json, ty: field.ty, always }
        })
        .collect()
}

fn leads_on(schema: &Schema, stops: &HashMap<StructId, Stop>, ty: TypeId) -> bool {
    is_resource_list(schema, ty)
        || match schema[ty].shape {
            Shape::Struct(id) => stops.contains_key(&id),
            Shape::Pointer(inner) | Shape::List(inner) | Shape::WrappedList(inner) | Shape::Map(inner) => {
                leads_on(schema, stops, inner)
            }
            _ => false,
        }
}

/// Resource lists have defaults (rounding), although they are maps and not structs.
fn is_resource_list(schema: &Schema, ty: TypeId) -> bool {
    schema[ty].go == "v1.ResourceList"
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(truth) => !truth,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_about_a_type_and_fields_that_exist() {
        let schema = Schema::builtin();
        for (package, name, rules) in TABLES.iter().copied().flatten() {
            let found =
                schema.structs().find(|id| (schema[*id].package, schema[*id].name) == (*package, *name));
            let id = found.unwrap_or_else(|| panic!("no type {name} in {package}"));
            for rule in *rules {
                if let Rule::Set(field, _) = rule {
                    assert!(schema[id].field(field).is_some(), "no field {field} in {name} of {package}");
                }
            }
        }
    }
}
