//! Structural schemas.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// A schema, or a part of one.
#[expect(clippy::struct_excessive_bools, reason = "each is a keyword of OpenAPI")]
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schema {
    /// `object`, `array`, `string`, `integer`, `number`, `boolean`, or empty.
    pub ty: String,
    /// `format` of a string or number.
    pub format: String,
    /// `nullable`.
    pub nullable: bool,
    /// Documentation.
    pub title: String,
    /// Documentation.
    pub description: String,
    /// The default value.
    pub default: Option<Value>,
    /// The fields of an object.
    pub properties: BTreeMap<String, Schema>,
    /// `additionalProperties`.
    pub additional: Option<Additional>,
    /// The elements of a list.
    pub items: Option<Box<Schema>>,
    /// The required fields.
    pub required: Vec<String>,
    /// `enum`.
    pub values: Option<Vec<Value>>,
    /// `pattern` of a string.
    pub pattern: String,
    /// Bounds of numbers.
    pub maximum: Option<f64>,
    /// Whether the bound is exclusive.
    pub exclusive_maximum: bool,
    /// Bounds of numbers.
    pub minimum: Option<f64>,
    /// Whether the bound is exclusive.
    pub exclusive_minimum: bool,
    /// `multipleOf`.
    pub multiple_of: Option<f64>,
    /// Bounds of strings, in characters.
    pub max_length: Option<i64>,
    /// Bounds of strings, in characters.
    pub min_length: Option<i64>,
    /// Bounds of lists.
    pub max_items: Option<i64>,
    /// Bounds of lists.
    pub min_items: Option<i64>,
    /// Bounds of objects.
    pub max_properties: Option<i64>,
    /// Bounds of objects.
    pub min_properties: Option<i64>,
    /// `uniqueItems`.
    pub unique_items: bool,
    /// `allOf`.
    pub all_of: Vec<Schema>,
    /// `anyOf`.
    pub any_of: Vec<Schema>,
    /// `oneOf`.
    pub one_of: Vec<Schema>,
    /// `not`.
    pub not: Option<Box<Schema>>,
    /// `x-kubernetes-preserve-unknown-fields`.
    pub preserves: Option<bool>,
    /// `x-kubernetes-embedded-resource`.
    pub embedded: bool,
    /// `x-kubernetes-int-or-string`.
    pub int_or_string: bool,
    /// `x-kubernetes-list-type`: `atomic`, `set` or `map`.
    pub list_type: Option<String>,
    /// `x-kubernetes-list-map-keys`.
    pub list_keys: Vec<String>,
    /// `x-kubernetes-map-type`: `atomic` or `granular`.
    pub map_type: Option<String>,
    /// `x-kubernetes-validations`.
    pub rules: Vec<Rule>,
    /// Keywords that CRDs do not support, which only the validation of a definition reads.
    pub unsupported: Unsupported,
}

/// `additionalProperties`.
#[derive(Clone, Debug, PartialEq)]
pub enum Additional {
    /// A boolean: any value, or no other fields.
    Allowed(bool),
    /// The schema of the other fields.
    Schema(Box<Schema>),
}

/// A CEL validation rule.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rule {
    /// The expression.
    pub rule: String,
    /// The message of a violation.
    pub message: String,
    /// An expression for the message.
    pub message_expression: String,
    /// The reason of the error.
    pub reason: Option<String>,
    /// The field path of the error.
    pub field_path: String,
    /// Whether a rule with `oldSelf` is also evaluated for new values.
    pub optional_old_self: Option<bool>,
}

impl Rule {
    /// The name of the rule in evaluation errors.
    pub fn name(&self) -> &str {
        if self.message.is_empty() { self.rule.trim() } else { self.message.trim() }
    }
}

/// Which keywords of JSON schemas that CRDs do not support are set.
#[expect(clippy::struct_excessive_bools, reason = "each says whether a keyword is set")]
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Unsupported {
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
    pub item_list: bool,
}

fn text(object: &Map<String, Value>, field: &str) -> String {
    object.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn text_list(object: &Map<String, Value>, field: &str) -> Vec<String> {
    let list = object.get(field).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn boolean(object: &Map<String, Value>, field: &str) -> bool {
    object.get(field).and_then(Value::as_bool).unwrap_or_default()
}

fn schema_list(object: &Map<String, Value>, field: &str) -> Vec<Schema> {
    let list = object.get(field).and_then(Value::as_array);
    list.into_iter().flatten().map(Schema::from_json).collect()
}

impl Schema {
    /// Parses the schema of a definition.
    pub fn from_json(json: &Value) -> Self {
        let Some(object) = json.as_object() else { return Self::default() };
        let int = |field: &str| object.get(field).and_then(Value::as_i64);
        let number = |field: &str| object.get(field).and_then(Value::as_f64);
        let has = |field: &str| object.get(field).is_some_and(|value| !value.is_null());
        let properties = object.get("properties").and_then(Value::as_object);
        Self {
            ty: text(object, "type"),
            format: text(object, "format"),
            nullable: boolean(object, "nullable"),
            title: text(object, "title"),
            description: text(object, "description"),
            default: object.get("default").filter(|value| !value.is_null()).cloned(),
            properties: properties
                .into_iter()
                .flatten()
                .map(|(name, schema)| (name.clone(), Self::from_json(schema)))
                .collect(),
            additional: match object.get("additionalProperties") {
                Some(Value::Bool(allowed)) => Some(Additional::Allowed(*allowed)),
                Some(schema @ Value::Object(_)) => {
                    Some(Additional::Schema(Box::new(Self::from_json(schema))))
                }
                _ => None,
            },
            items: object
                .get("items")
                .filter(|items| items.is_object())
                .map(|items| Box::new(Self::from_json(items))),
            required: text_list(object, "required"),
            values: object.get("enum").and_then(Value::as_array).cloned(),
            pattern: text(object, "pattern"),
            maximum: number("maximum"),
            exclusive_maximum: boolean(object, "exclusiveMaximum"),
            minimum: number("minimum"),
            exclusive_minimum: boolean(object, "exclusiveMinimum"),
            multiple_of: number("multipleOf"),
            max_length: int("maxLength"),
            min_length: int("minLength"),
            max_items: int("maxItems"),
            min_items: int("minItems"),
            max_properties: int("maxProperties"),
            min_properties: int("minProperties"),
            unique_items: boolean(object, "uniqueItems"),
            all_of: schema_list(object, "allOf"),
            any_of: schema_list(object, "anyOf"),
            one_of: schema_list(object, "oneOf"),
            not: object.get("not").filter(|not| not.is_object()).map(|not| Box::new(Self::from_json(not))),
            preserves: object.get("x-kubernetes-preserve-unknown-fields").and_then(Value::as_bool),
            embedded: boolean(object, "x-kubernetes-embedded-resource"),
            int_or_string: boolean(object, "x-kubernetes-int-or-string"),
            list_type: object.get("x-kubernetes-list-type").and_then(Value::as_str).map(str::to_owned),
            list_keys: text_list(object, "x-kubernetes-list-map-keys"),
            map_type: object.get("x-kubernetes-map-type").and_then(Value::as_str).map(str::to_owned),
            rules: rules(object),
            unsupported: Unsupported {
                id: !text(object, "id").is_empty(),
                reference: has("$ref"),
                additional_items: has("additionalItems"),
                pattern_properties: has("patternProperties"),
                definitions: has("definitions"),
                dependencies: has("dependencies"),
                item_list: object.get("items").is_some_and(Value::is_array),
            },
        }
    }

    /// Whether unknown fields are preserved.
    pub fn keeps_unknown(&self) -> bool {
        self.preserves == Some(true)
    }

    /// The schema of `additionalProperties`.
    pub fn additional_schema(&self) -> Option<&Self> {
        match &self.additional {
            Some(Additional::Schema(schema)) => Some(schema),
            _ => None,
        }
    }

    /// The schema of a field, by `properties` or `additionalProperties`.
    pub fn field(&self, name: &str) -> Option<&Self> {
        self.properties.get(name).or_else(|| self.additional_schema())
    }

    /// Whether a predicate is true for this schema or a subschema.
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
