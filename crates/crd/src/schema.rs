//! Structural schemas: an OpenAPI schema in which the shape of an object stands apart from what is asked of it.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// A schema, or a part of one.
#[expect(clippy::struct_excessive_bools, reason = "these are the words of OpenAPI")]
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schema {
    /// `object`, `array`, `string`, `integer`, `number`, `boolean`, or nothing.
    pub ty: String,
    /// The form of a text or a number.
    pub format: String,
    /// Whether null is a value.
    pub nullable: bool,
    /// For people.
    pub title: String,
    /// For people.
    pub description: String,
    /// What is put where nothing is.
    pub default: Option<Value>,
    /// The fields of an object.
    pub properties: BTreeMap<String, Schema>,
    /// What the other fields of an object are.
    pub additional: Option<Additional>,
    /// The elements of a list.
    pub items: Option<Box<Schema>>,
    /// Fields that must be there.
    pub required: Vec<String>,
    /// The only values there are.
    pub values: Option<Vec<Value>>,
    /// What texts match.
    pub pattern: String,
    /// Bounds of numbers.
    pub maximum: Option<f64>,
    /// Whether the bound itself is out of bounds.
    pub exclusive_maximum: bool,
    /// Bounds of numbers.
    pub minimum: Option<f64>,
    /// Whether the bound itself is out of bounds.
    pub exclusive_minimum: bool,
    /// Numbers are a multiple of this.
    pub multiple_of: Option<f64>,
    /// Bounds of texts, in characters.
    pub max_length: Option<i64>,
    /// Bounds of texts, in characters.
    pub min_length: Option<i64>,
    /// Bounds of lists.
    pub max_items: Option<i64>,
    /// Bounds of lists.
    pub min_items: Option<i64>,
    /// Bounds of objects.
    pub max_properties: Option<i64>,
    /// Bounds of objects.
    pub min_properties: Option<i64>,
    /// Whether elements are all different.
    pub unique_items: bool,
    /// All of these hold.
    pub all_of: Vec<Schema>,
    /// At least one of these holds.
    pub any_of: Vec<Schema>,
    /// Exactly one of these holds.
    pub one_of: Vec<Schema>,
    /// This does not hold.
    pub not: Option<Box<Schema>>,
    /// Whether fields that are not named are kept.
    pub preserves: Option<bool>,
    /// Whether it is an object of the API itself.
    pub embedded: bool,
    /// Whether it is a number or a text.
    pub int_or_string: bool,
    /// `atomic`, `set` or `map`.
    pub list_type: Option<String>,
    /// What tells the elements of a `map` apart.
    pub list_keys: Vec<String>,
    /// `atomic` or `granular`.
    pub map_type: Option<String>,
    /// Rules in the expression language.
    pub rules: Vec<Rule>,
    /// Words of JSON schemas that are not for structural ones, and others that matter only to whoever judges a
    /// definition.
    pub foreign: Foreign,
}

/// What the fields are that are not named.
#[derive(Clone, Debug, PartialEq)]
pub enum Additional {
    /// Anything, or nothing.
    Allowed(bool),
    /// These.
    Schema(Box<Schema>),
}

/// A rule in the expression language.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rule {
    /// What must hold.
    pub rule: String,
    /// What is said if it does not.
    pub message: String,
    /// What is said, as an expression.
    pub message_expression: String,
    /// The machine's word for it.
    pub reason: Option<String>,
    /// Where it is said to be wrong.
    pub field_path: String,
    /// Whether the rule is asked of new values too.
    pub optional_old_self: Option<bool>,
}

impl Rule {
    /// How errors of its evaluation name the rule.
    pub fn name(&self) -> &str {
        if self.message.is_empty() { self.rule.trim() } else { self.message.trim() }
    }
}

/// Words of JSON schemas that structural ones do not have.
#[expect(clippy::struct_excessive_bools, reason = "each is a word that is there or not")]
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Foreign {
    /// `id`.
    pub id: bool,
    /// `$ref`.
    pub reference: bool,
    /// `additionalItems`.
    pub additional_items: bool,
    /// `patternProperties`.
    pub pattern_properties: bool,
    /// `definitions`.
    pub definitions: bool,
    /// `dependencies`.
    pub dependencies: bool,
    /// `items` with a list of schemas.
    pub many_items: bool,
}

fn text(object: &Map<String, Value>, field: &str) -> String {
    object.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn texts(object: &Map<String, Value>, field: &str) -> Vec<String> {
    let list = object.get(field).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn truth(object: &Map<String, Value>, field: &str) -> bool {
    object.get(field).and_then(Value::as_bool).unwrap_or_default()
}

fn schemas(object: &Map<String, Value>, field: &str) -> Vec<Schema> {
    let list = object.get(field).and_then(Value::as_array);
    list.into_iter().flatten().map(Schema::of_json).collect()
}

impl Schema {
    /// Reads a schema as a definition carries it.
    pub fn of_json(json: &Value) -> Self {
        let Some(object) = json.as_object() else { return Self::default() };
        let int = |field: &str| object.get(field).and_then(Value::as_i64);
        let number = |field: &str| object.get(field).and_then(Value::as_f64);
        let has = |field: &str| object.get(field).is_some_and(|value| !value.is_null());
        let properties = object.get("properties").and_then(Value::as_object);
        Self {
            ty: text(object, "type"),
            format: text(object, "format"),
            nullable: truth(object, "nullable"),
            title: text(object, "title"),
            description: text(object, "description"),
            default: object.get("default").filter(|value| !value.is_null()).cloned(),
            properties: properties
                .into_iter()
                .flatten()
                .map(|(name, schema)| (name.clone(), Self::of_json(schema)))
                .collect(),
            additional: match object.get("additionalProperties") {
                Some(Value::Bool(allowed)) => Some(Additional::Allowed(*allowed)),
                Some(schema @ Value::Object(_)) => Some(Additional::Schema(Box::new(Self::of_json(schema)))),
                _ => None,
            },
            items: object
                .get("items")
                .filter(|items| items.is_object())
                .map(|items| Box::new(Self::of_json(items))),
            required: texts(object, "required"),
            values: object.get("enum").and_then(Value::as_array).cloned(),
            pattern: text(object, "pattern"),
            maximum: number("maximum"),
            exclusive_maximum: truth(object, "exclusiveMaximum"),
            minimum: number("minimum"),
            exclusive_minimum: truth(object, "exclusiveMinimum"),
            multiple_of: number("multipleOf"),
            max_length: int("maxLength"),
            min_length: int("minLength"),
            max_items: int("maxItems"),
            min_items: int("minItems"),
            max_properties: int("maxProperties"),
            min_properties: int("minProperties"),
            unique_items: truth(object, "uniqueItems"),
            all_of: schemas(object, "allOf"),
            any_of: schemas(object, "anyOf"),
            one_of: schemas(object, "oneOf"),
            not: object.get("not").filter(|not| not.is_object()).map(|not| Box::new(Self::of_json(not))),
            preserves: object.get("x-kubernetes-preserve-unknown-fields").and_then(Value::as_bool),
            embedded: truth(object, "x-kubernetes-embedded-resource"),
            int_or_string: truth(object, "x-kubernetes-int-or-string"),
            list_type: object.get("x-kubernetes-list-type").and_then(Value::as_str).map(str::to_owned),
            list_keys: texts(object, "x-kubernetes-list-map-keys"),
            map_type: object.get("x-kubernetes-map-type").and_then(Value::as_str).map(str::to_owned),
            rules: rules(object),
            foreign: Foreign {
                id: !text(object, "id").is_empty(),
                reference: has("$ref"),
                additional_items: has("additionalItems"),
                pattern_properties: has("patternProperties"),
                definitions: has("definitions"),
                dependencies: has("dependencies"),
                many_items: object.get("items").is_some_and(Value::is_array),
            },
        }
    }

    /// Whether fields that are not named are kept.
    pub fn keeps_unknown(&self) -> bool {
        self.preserves == Some(true)
    }

    /// The schema of the fields that are not named, if there is one.
    pub fn additional_schema(&self) -> Option<&Self> {
        match &self.additional {
            Some(Additional::Schema(schema)) => Some(schema),
            _ => None,
        }
    }

    /// The schema of a field, named or not.
    pub fn field(&self, name: &str) -> Option<&Self> {
        self.properties.get(name).or_else(|| self.additional_schema())
    }

    /// Whether this schema or one below it is of some kind.
    pub fn any(&self, is: &impl Fn(&Self) -> bool) -> bool {
        is(self)
            || self.properties.values().any(|schema| schema.any(is))
            || self.additional_schema().is_some_and(|schema| schema.any(is))
            || self.items.as_ref().is_some_and(|schema| schema.any(is))
            || [&self.all_of, &self.any_of, &self.one_of].into_iter().flatten().any(|schema| schema.any(is))
            || self.not.as_ref().is_some_and(|schema| schema.any(is))
    }
}

fn rules(object: &Map<String, Value>) -> Vec<Rule> {
    let list = object.get("x-kubernetes-validations").and_then(Value::as_array);
    list.into_iter()
        .flatten()
        .filter_map(Value::as_object)
        .map(|rule| Rule {
            rule: text(rule, "rule"),
            message: text(rule, "message"),
            message_expression: text(rule, "messageExpression"),
            reason: rule.get("reason").and_then(Value::as_str).map(str::to_owned),
            field_path: text(rule, "fieldPath"),
            optional_old_self: rule.get("optionalOldSelf").and_then(Value::as_bool),
        })
        .collect()
}
