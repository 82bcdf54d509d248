//! Validation of types, bounds and combinations of schemas, as in kube-openapi.

use std::collections::HashMap;

use plumb_go::regexp::{Regexp, RegexpError};
use plumb_validation::field::{BadValue, FieldError};
use serde_json::Value;

use super::{bad_value, counterpart};
use crate::format;
use crate::schema::{Additional, Schema};

/// The patterns of a schema, compiled once.
#[derive(Debug, Default)]
pub(crate) struct Patterns(HashMap<String, Result<Regexp, RegexpError>>);

/// The largest float that counts as an integer (`swag.IsFloat64AJSONInteger`): 2^53 - 1, up to which all integers are exact.
const MAX_SAFE_INTEGER: f64 = 9_007_199_254_740_991.0;

impl Patterns {
    /// Compiles the patterns of a schema and its subschemas.
    pub(crate) fn for_schema(schema: &Schema) -> Self {
        let mut patterns = Self::default();
        patterns.insert_all(schema);
        patterns
    }

    fn insert_all(&mut self, schema: &Schema) {
        if !schema.pattern.is_empty() {
            let compiled = Regexp::new(&schema.pattern);
            self.0.insert(schema.pattern.clone(), compiled);
        }
        let combined = [&schema.all_of, &schema.any_of, &schema.one_of].into_iter().flatten();
        let children = schema.properties.values().chain(schema.additional_schema()).chain(combined);
        for schema in children.chain(schema.items.as_deref()).chain(schema.not.as_deref()) {
            self.insert_all(schema);
        }
    }
}

/// Validates a value. `path` is the path of the value in its object, empty for the object itself.
///
/// With an old value, errors of unchanged values are dropped (ratcheting).
pub(crate) fn types(
    value: &Value,
    old: Option<&Value>,
    schema: &Schema,
    patterns: &Patterns,
    path: &str,
) -> Vec<FieldError> {
    let validator = Validator { patterns, ratchets: old.is_some() };
    let outcome = validator.validate(value, old, schema, path);
    outcome.errors.into_iter().map(TypeError::into_field_error).collect()
}

/// The result of validation (`validate.Result` of kube-openapi).
#[derive(Default)]
struct Outcome {
    errors: Vec<TypeError>,
    /// The score of the match (`MatchCount`). If all alternatives fail, the errors of the one with the highest score are
    /// reported.
    matches: usize,
}

struct TypeError {
    /// The path in the value; `None` for an error about the value as a whole.
    path: Option<String>,
    kind: ErrorKind,
    message: String,
}

enum ErrorKind {
    Required,
    Type(String),
    Unsupported(Value, Vec<String>),
    TooLong(i64),
    TooMany(usize, i64),
    Other(Value),
    /// The message displays a number.
    Number(String),
    /// The error is about the value as a whole; the message displays no value.
    Combination,
}

impl TypeError {
    fn into_field_error(self) -> FieldError {
        let path = self.path.unwrap_or_default();
        let path = path.strip_prefix('.').unwrap_or(&path);
        let path = if path.is_empty() { "<nil>" } else { path };
        match self.kind {
            ErrorKind::Required => FieldError::required(path, ""),
            ErrorKind::Type(actual) => FieldError::type_invalid(path, actual, self.message),
            ErrorKind::Unsupported(value, values) => {
                let values: Vec<&str> = values.iter().map(String::as_str).collect();
                FieldError::not_supported(path, bad_value(&value), &values)
            }
            ErrorKind::TooLong(max) => FieldError::too_long(path, usize::try_from(max).unwrap_or_default()),
            ErrorKind::TooMany(length, max) => {
                FieldError::too_many(path, length, usize::try_from(max).unwrap_or_default())
            }
            ErrorKind::Other(value) => FieldError::invalid(path, bad_value(&value), self.message),
            ErrorKind::Number(number) => FieldError::invalid(path, BadValue::Bare(number), self.message),
            ErrorKind::Combination => FieldError::invalid("<nil>", "", self.message),
        }
    }
}

impl Outcome {
    fn add(&mut self, error: TypeError) {
        let is_duplicate =
            self.errors.iter().any(|other| other.message == error.message && other.path == error.path);
        if !is_duplicate {
            self.errors.push(error);
        }
    }

    /// Adds an error about the value at a path.
    fn add_at(&mut self, path: &str, kind: ErrorKind, rule: impl std::fmt::Display) {
        let message = format!("{path} in body {rule}");
        self.add(TypeError { path: Some(path.to_owned()), kind, message });
    }

    /// Adds an error about the value as a whole.
    fn add_combination(&mut self, message: String) {
        self.add(TypeError { path: None, kind: ErrorKind::Combination, message });
    }

    fn merge(&mut self, other: Self) {
        self.matches += other.matches;
        for error in other.errors {
            self.add(error);
        }
    }
}

struct Validator<'a> {
    patterns: &'a Patterns,
    /// Whether errors of unchanged values are dropped.
    ratchets: bool,
}

/// The name of a value's type.
fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

impl Validator<'_> {
    /// Validates a value; errors are dropped if it is equal to the old value.
    fn validate(&self, value: &Value, old: Option<&Value>, schema: &Schema, path: &str) -> Outcome {
        let mut outcome = self.validate_all(value, old, schema, path);
        if self.ratchets && !outcome.errors.is_empty() && old == Some(value) {
            outcome.errors.clear();
        }
        outcome
    }

    /// Validates a value without dropping its errors if it is unchanged.
    fn validate_all(&self, value: &Value, old: Option<&Value>, schema: &Schema, path: &str) -> Outcome {
        let mut outcome = Outcome::default();
        let types: Vec<&str> = match (schema.int_or_string, schema.ty.as_str()) {
            (true, _) => vec!["integer", "string"],
            (false, "") => Vec::new(),
            (false, one) => vec![one],
        };
        let format_name = format::supported(&types, &schema.format);
        if !types.is_empty() || format_name.is_some() {
            self.check_type(value, schema, &types, format_name, path, &mut outcome);
            outcome.matches += 1;
        }
        if value.is_null() {
            check_values(value, schema, path, &mut outcome);
            return outcome;
        }
        self.check_combinations(value, old, schema, path, &mut outcome);
        outcome.matches += 1;
        match value {
            Value::String(text) => {
                self.check_text(text, schema, path, &mut outcome);
                outcome.matches += 1;
                if let Some(format_name) = format_name {
                    if format::matches(format_name, text) {
                        outcome.matches += 1;
                    } else {
                        let rule = format!("must be of type {format_name}: {text:?}");
                        outcome.add_at(path, ErrorKind::Type(text.clone()), rule);
                    }
                }
            }
            Value::Number(number) => {
                check_number(number, schema, &types, path, &mut outcome);
                outcome.matches += 2;
            }
            Value::Array(list) => {
                self.check_list(list, old, schema, path, &mut outcome);
                outcome.matches += 2;
            }
            _ => {}
        }
        check_values(value, schema, path, &mut outcome);
        outcome.matches += 1;
        if let Value::Object(map) = value {
            self.check_object(map, old, schema, path, &mut outcome);
            outcome.matches += 1;
        }
        outcome.matches += 1;
        outcome
    }

    #[expect(clippy::unused_self, reason = "a method like the other checks")]
    fn check_type(
        &self,
        value: &Value,
        schema: &Schema,
        types: &[&str],
        format_name: Option<&str>,
        path: &str,
        outcome: &mut Outcome,
    ) {
        outcome.matches += 1;
        let actual_type = type_of(value);
        if value.is_null() {
            if !types.is_empty() && !schema.nullable {
                let rule = format!("must be of type {}: \"null\"", types.join(","));
                outcome.add_at(path, ErrorKind::Type("null".to_owned()), rule);
            }
            return;
        }
        let numeric = types.contains(&"number") || types.contains(&"integer");
        if !numeric && format_name.is_some() && value.is_string() {
            return;
        }
        let whole =
            value.as_f64().is_some_and(|number| number.fract() == 0.0 && number.abs() <= MAX_SAFE_INTEGER);
        let fits = types.contains(&actual_type)
            || (actual_type == "number" && whole && types.contains(&"integer"))
            || (actual_type == "integer" && types.contains(&"number"));
        if let Some(format_name) = format_name
            && !fits
            && !value.is_string()
            && !value.is_array()
        {
            let actual_format = match actual_type {
                "integer" => "int64",
                "number" => "float64",
                _ => "",
            };
            outcome.add_at(
                path,
                ErrorKind::Type(actual_format.to_owned()),
                format!("must be of type {format_name}: {actual_format:?}"),
            );
        } else if !types.is_empty() && !fits {
            let rule = format!("must be of type {}: {actual_type:?}", types.join(","));
            outcome.add_at(path, ErrorKind::Type(actual_type.to_owned()), rule);
        }
    }

    fn check_combinations(
        &self,
        value: &Value,
        old: Option<&Value>,
        schema: &Schema,
        path: &str,
        outcome: &mut Outcome,
    ) {
        let validate = |schema: &Schema| self.validate_all(value, old, schema, path);
        if !schema.any_of.is_empty() {
            let mut best: Option<Outcome> = None;
            let mut fits = false;
            for one in &schema.any_of {
                let result = validate(one);
                if result.errors.is_empty() {
                    fits = true;
                    best = Some(result);
                    break;
                }
                if best.as_ref().is_none_or(|best| result.matches > best.matches) {
                    best = Some(result);
                }
            }
            if !fits {
                outcome.add_combination(format!("{path:?} must validate at least one schema (anyOf)"));
            }
            if let Some(best) = best {
                outcome.merge(best);
            }
        }
        if !schema.one_of.is_empty() {
            self.check_one_of(&schema.one_of, validate, path, outcome);
        }
        if !schema.all_of.is_empty() {
            let mut valid = 0;
            for one in &schema.all_of {
                let result = validate(one);
                valid += usize::from(result.errors.is_empty());
                outcome.merge(result);
            }
            if valid != schema.all_of.len() {
                let none = if valid == 0 { ". None validated" } else { "" };
                outcome.add_combination(format!("{path:?} must validate all the schemas (allOf){none}"));
            }
        }
        if let Some(not) = &schema.not
            && validate(not).errors.is_empty()
        {
            outcome.add_combination(format!("{path:?} must not validate the schema (not)"));
        }
    }

    #[expect(clippy::unused_self, reason = "a method like the other checks")]
    fn check_one_of(
        &self,
        schemas: &[Schema],
        validate: impl Fn(&Schema) -> Outcome,
        path: &str,
        outcome: &mut Outcome,
    ) {
        let mut best: Option<Outcome> = None;
        let mut first: Option<Outcome> = None;
        let mut valid = 0;
        for one in schemas {
            let result = validate(one);
            if result.errors.is_empty() {
                valid += 1;
                best = None;
                first.get_or_insert(result);
            } else if valid == 0 && best.as_ref().is_none_or(|best| result.matches > best.matches) {
                best = Some(result);
            }
        }
        if valid == 1 {
            if let Some(first) = first {
                outcome.merge(first);
            }
            return;
        }
        let more = if valid == 0 {
            "Found none valid".to_owned()
        } else {
            format!("Found {valid} valid alternatives")
        };
        outcome.add_combination(format!("{path:?} must validate one and only one schema (oneOf). {more}"));
        if let Some(best) = best {
            outcome.merge(best);
        }
    }

    fn check_text(&self, text: &str, schema: &Schema, path: &str, outcome: &mut Outcome) {
        let length = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
        let value = || ErrorKind::Other(Value::String(text.to_owned()));
        if let Some(max) = schema.max_length.filter(|max| length > *max) {
            let rule = format!("should be at most {max} chars long");
            outcome.add_at(path, ErrorKind::TooLong(max), rule);
            return;
        }
        if let Some(min) = schema.min_length.filter(|min| length < *min) {
            outcome.add_at(path, value(), format!("should be at least {min} chars long"));
            return;
        }
        if schema.pattern.is_empty() {
            return;
        }
        match self.patterns.0.get(&schema.pattern) {
            Some(Ok(pattern)) if pattern.is_match(text) => {}
            Some(Err(why)) => {
                let rule = format!("should match '{}, but pattern is invalid: {why}'", schema.pattern);
                outcome.add_at(path, value(), rule);
            }
            _ => outcome.add_at(path, value(), format!("should match '{}'", schema.pattern)),
        }
    }

    fn check_list(
        &self,
        list: &[Value],
        old: Option<&Value>,
        schema: &Schema,
        path: &str,
        outcome: &mut Outcome,
    ) {
        let old_list = old.and_then(Value::as_array);
        let has_map_keys = schema.list_type.as_deref() == Some("map");
        if let Some(items) = &schema.items {
            for (i, element) in list.iter().enumerate() {
                let old_list = old_list.filter(|_| has_map_keys);
                let old_element =
                    old_list.and_then(|old_list| counterpart(&schema.list_keys, old_list, element));
                outcome.merge(self.validate(element, old_element, items, &format!("{path}[{i}]")));
            }
        }
        let length = i64::try_from(list.len()).unwrap_or(i64::MAX);
        if let Some(min) = schema.min_items.filter(|min| length < *min) {
            let rule = format!("should have at least {min} items");
            outcome.add_at(path, ErrorKind::Number(length.to_string()), rule);
        }
        if let Some(max) = schema.max_items.filter(|max| length > *max) {
            outcome.add_at(
                path,
                ErrorKind::TooMany(list.len(), max),
                format!("should have at most {max} items"),
            );
        }
    }

    fn check_object(
        &self,
        map: &serde_json::Map<String, Value>,
        old: Option<&Value>,
        schema: &Schema,
        path: &str,
        outcome: &mut Outcome,
    ) {
        let length = i64::try_from(map.len()).unwrap_or(i64::MAX);
        if let Some(min) = schema.min_properties.filter(|min| length < *min) {
            let rule = format!("should have at least {min} properties");
            outcome.add_at(path, ErrorKind::Number(length.to_string()), rule);
        }
        if let Some(max) = schema.max_properties.filter(|max| length > *max) {
            let rule = format!("should have at most {max} properties");
            outcome.add_at(path, ErrorKind::TooMany(map.len(), max), rule);
        }
        let old_field = |name: &str| {
            // Kind and API version may differ from the stored ones, so errors in them are not ratcheted.
            let is_type_meta = path.is_empty() && matches!(name, "apiVersion" | "kind");
            old.filter(|_| !is_type_meta).and_then(|old| old.get(name))
        };
        for (name, inner) in map.iter().filter(|(name, _)| !schema.properties.contains_key(*name)) {
            match &schema.additional {
                Some(Additional::Schema(other)) => {
                    outcome.merge(self.validate(inner, old_field(name), other, &format!("{path}.{name}")));
                }
                Some(Additional::Allowed(false)) => {
                    let message = format!("{path}.{name} in body is a forbidden property");
                    let kind = ErrorKind::Other(Value::String(name.clone()));
                    outcome.add(TypeError { path: Some(path.to_owned()), kind, message });
                }
                _ => {}
            }
        }
        for (name, property) in &schema.properties {
            let Some(inner) = map.get(name) else { continue };
            let full = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            outcome.merge(self.validate(inner, old_field(name), property, &full));
        }
        for name in schema.required.iter().filter(|name| !map.contains_key(*name)) {
            outcome.add_at(&format!("{path}.{name}"), ErrorKind::Required, "is required");
        }
    }
}

/// Validates a value against `enum`.
fn check_values(value: &Value, schema: &Schema, path: &str, outcome: &mut Outcome) {
    let Some(values) = schema.values.as_ref().filter(|values| !values.is_empty()) else { return };
    // Numbers compare across types: 1 is equal to 1.0.
    let is_equal = |allowed: &Value| match (allowed.as_f64(), value.as_f64()) {
        (Some(a), Some(b)) => a.total_cmp(&b).is_eq(),
        _ => allowed == value,
    };
    if !values.iter().any(is_equal) {
        let texts =
            values.iter().map(|allowed| allowed.as_str().map_or_else(|| allowed.to_string(), str::to_owned));
        let kind = ErrorKind::Unsupported(value.clone(), texts.collect());
        outcome.add_at(path, kind, "should be one of the values");
    }
}

/// A bound as Go formats a float: integers without a decimal point.
fn bound(number: f64) -> String {
    if number.abs() >= 1e21 { format!("{number:e}").replace('e', "e+") } else { number.to_string() }
}

/// Whether a number is a multiple of a positive factor; for integers, of the integer part of the factor.
fn is_multiple(number: &serde_json::Number, factor: f64) -> bool {
    /// The relative tolerance above an integer quotient, since floats are not exact (`swag.IsFloat64AJSONInteger`).
    const TOLERANCE: f64 = 1e-9;
    if let Some(whole) = number.as_i64() {
        #[expect(clippy::cast_possible_truncation, reason = "a factor beyond 64 bits saturates")]
        let factor = factor as i64;
        return whole % factor == 0;
    }
    let value = number.as_f64().unwrap_or_default();
    let times = if factor < 1.0 { 1.0 / factor * value } else { value / factor };
    let whole = times.trunc();
    times.abs() <= MAX_SAFE_INTEGER
        && (times.fract() == 0.0 || (whole > 0.0 && times.fract() / (times + whole) < TOLERANCE))
}

fn check_number(
    number: &serde_json::Number,
    schema: &Schema,
    types: &[&str],
    path: &str,
    outcome: &mut Outcome,
) {
    let Some(value) = number.as_f64() else { return };
    let whole = number.as_i64();
    if let ["integer"] = types {
        let fits = match (whole, schema.format.as_str()) {
            (Some(integer), "int32") => i32::try_from(integer).is_ok(),
            (Some(_), _) => true,
            (None, _) => value.fract() == 0.0,
        };
        if !fits {
            let format_name = match format::supported(types, &schema.format) {
                Some(format_name) => format!("with format {format_name}"),
                None => "(default format)".to_owned(),
            };
            outcome.add_combination(format!("Checked value must be of type integer {format_name} in {path}"));
        }
    }
    let bad_value = || ErrorKind::Number(number.to_string());
    if let Some(factor) = schema.multiple_of {
        // Upstream (`MultipleOfInt`) truncates the factor for integers, so 0.5 becomes 0, which is an error.
        let used = if whole.is_some() { factor.trunc() } else { factor };
        if used <= 0.0 {
            let message = format!("factor MultipleOf declared for {path} must be positive: {}", bound(used));
            let kind = ErrorKind::Number(bound(used));
            outcome.add(TypeError { path: Some(path.to_owned()), kind, message });
        } else if !is_multiple(number, used) {
            outcome.add_at(path, bad_value(), format!("should be a multiple of {}", bound(factor)));
        }
    }
    if let Some(min) = schema.minimum
        && (value < min || (schema.exclusive_minimum && value <= min))
    {
        let equal = if schema.exclusive_minimum { "" } else { " or equal to" };
        outcome.add_at(path, bad_value(), format!("should be greater than{equal} {}", bound(min)));
    }
    if let Some(max) = schema.maximum
        && (value > max || (schema.exclusive_maximum && value >= max))
    {
        let equal = if schema.exclusive_maximum { "" } else { " or equal to" };
        outcome.add_at(path, bad_value(), format!("should be less than{equal} {}", bound(max)));
    }
}
