//! Validation of types, bounds and combinations of schemas, as in kube-openapi.

use std::collections::HashMap;

use plumb_go::regexp::{Regexp, RegexpError};
use plumb_validation::field::{BadValue, FieldError};
use serde_json::Value;

use super::{counterpart, shown};
use crate::format;
use crate::schema::{Additional, Schema};

/// The patterns of a schema, compiled once.
#[derive(Debug, Default)]
pub struct Patterns(HashMap<String, Result<Regexp, RegexpError>>);

/// The largest float that counts as an integer: larger integers are not exact.
const MOST_WHOLE: f64 = 9_007_199_254_740_991.0;

impl Patterns {
    /// The patterns of a schema and its subschemas.
    pub fn of(schema: &Schema) -> Self {
        let mut patterns = Self::default();
        patterns.gather(schema);
        patterns
    }

    fn gather(&mut self, schema: &Schema) {
        if !schema.pattern.is_empty() {
            let compiled = Regexp::new(&schema.pattern);
            self.0.insert(schema.pattern.clone(), compiled);
        }
        let combined = [&schema.all_of, &schema.any_of, &schema.one_of].into_iter().flatten();
        let below = schema.properties.values().chain(schema.additional_schema()).chain(combined);
        for schema in below.chain(schema.items.as_deref()).chain(schema.not.as_deref()) {
            self.gather(schema);
        }
    }
}

/// Validates a value. The path is that of the value in its object; empty for the object itself.
///
/// With an old value, errors of unchanged values are dropped (ratcheting).
pub fn types(
    value: &Value,
    old: Option<&Value>,
    schema: &Schema,
    patterns: &Patterns,
    path: &str,
) -> Vec<FieldError> {
    let judge = Judge { patterns, ratchets: old.is_some() };
    judge.value(value, old, schema, path).errors.into_iter().map(Mistake::into_field_error).collect()
}

/// The errors, and a score: of alternatives, the errors of the best match are reported.
#[derive(Default)]
struct Found {
    errors: Vec<Mistake>,
    matches: usize,
}

struct Mistake {
    /// The path in the value; none for an error of the value itself.
    name: Option<String>,
    kind: Wrong,
    message: String,
}

enum Wrong {
    Required,
    Type(String),
    Unsupported(Value, Vec<String>),
    TooLong(i64),
    TooMany(usize, i64),
    Other(Value),
    /// A number that the message shows.
    Number(String),
    /// No value that the message shows.
    Whole,
}

impl Mistake {
    fn into_field_error(self) -> FieldError {
        let name = self.name.unwrap_or_default();
        let name = name.strip_prefix('.').unwrap_or(&name);
        let path = if name.is_empty() { "<nil>" } else { name };
        match self.kind {
            Wrong::Required => FieldError::required(path, ""),
            Wrong::Type(found) => FieldError::type_invalid(path, found, self.message),
            Wrong::Unsupported(value, values) => {
                let values: Vec<&str> = values.iter().map(String::as_str).collect();
                FieldError::not_supported(path, shown(&value), &values)
            }
            Wrong::TooLong(most) => FieldError::too_long(path, usize::try_from(most).unwrap_or_default()),
            Wrong::TooMany(found, most) => {
                FieldError::too_many(path, found, usize::try_from(most).unwrap_or_default())
            }
            Wrong::Other(value) => FieldError::invalid(path, shown(&value), self.message),
            Wrong::Number(number) => FieldError::invalid(path, BadValue::Bare(number), self.message),
            Wrong::Whole => FieldError::invalid("<nil>", "", self.message),
        }
    }
}

impl Found {
    fn add(&mut self, mistake: Mistake) {
        if !self.errors.iter().any(|own| own.message == mistake.message && own.name == mistake.name) {
            self.errors.push(mistake);
        }
    }

    fn wrong(&mut self, path: &str, kind: Wrong, rule: impl std::fmt::Display) {
        let message = format!("{path} in body {rule}");
        self.add(Mistake { name: Some(path.to_owned()), kind, message });
    }

    fn whole(&mut self, message: String) {
        self.add(Mistake { name: None, kind: Wrong::Whole, message });
    }

    fn merge(&mut self, other: Self) {
        self.matches += other.matches;
        for mistake in other.errors {
            self.add(mistake);
        }
    }
}

struct Judge<'a> {
    patterns: &'a Patterns,
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

impl Judge<'_> {
    /// Validates a value, with its old value if there was one.
    fn value(&self, value: &Value, old: Option<&Value>, schema: &Schema, path: &str) -> Found {
        let mut found = self.judged(value, old, schema, path);
        if self.ratchets && !found.errors.is_empty() && old == Some(value) {
            found.errors.clear();
        }
        found
    }

    fn judged(&self, value: &Value, old: Option<&Value>, schema: &Schema, path: &str) -> Found {
        let mut found = Found::default();
        let types: Vec<&str> = match (schema.int_or_string, schema.ty.as_str()) {
            (true, _) => vec!["integer", "string"],
            (false, "") => Vec::new(),
            (false, one) => vec![one],
        };
        let form = format::supported(&types, &schema.format);
        if !types.is_empty() || form.is_some() {
            self.check_type(value, schema, &types, form, path, &mut found);
            found.matches += 1;
        }
        if value.is_null() {
            check_values(value, schema, path, &mut found);
            return found;
        }
        self.combinations(value, old, schema, path, &mut found);
        found.matches += 1;
        match value {
            Value::String(text) => {
                self.check_text(text, schema, path, &mut found);
                found.matches += 1;
                if let Some(form) = form {
                    if format::holds(form, text) {
                        found.matches += 1;
                    } else {
                        let rule = format!("must be of type {form}: {text:?}");
                        found.wrong(path, Wrong::Type(text.clone()), rule);
                    }
                }
            }
            Value::Number(number) => {
                check_number(number, schema, &types, path, &mut found);
                found.matches += 2;
            }
            Value::Array(list) => {
                self.check_list(list, old, schema, path, &mut found);
                found.matches += 2;
            }
            _ => {}
        }
        check_values(value, schema, path, &mut found);
        found.matches += 1;
        if let Value::Object(map) = value {
            self.check_object(map, old, schema, path, &mut found);
            found.matches += 1;
        }
        found.matches += 1;
        found
    }

    #[expect(clippy::unused_self, reason = "one of a family of checks")]
    fn check_type(
        &self,
        value: &Value,
        schema: &Schema,
        types: &[&str],
        form: Option<&str>,
        path: &str,
        found: &mut Found,
    ) {
        found.matches += 1;
        let own = type_of(value);
        if value.is_null() {
            if !types.is_empty() && !schema.nullable {
                let rule = format!("must be of type {}: \"null\"", types.join(","));
                found.wrong(path, Wrong::Type("null".to_owned()), rule);
            }
            return;
        }
        let numeric = types.contains(&"number") || types.contains(&"integer");
        if !numeric && form.is_some() && value.is_string() {
            return;
        }
        let whole = value.as_f64().is_some_and(|number| number.fract() == 0.0 && number.abs() <= MOST_WHOLE);
        let fits = types.contains(&own)
            || (own == "number" && whole && types.contains(&"integer"))
            || (own == "integer" && types.contains(&"number"));
        if let (Some(form), false, false) = (form, fits, value.is_string() || value.is_array()) {
            let found_form = match own {
                "integer" => "int64",
                "number" => "float64",
                _ => "",
            };
            found.wrong(
                path,
                Wrong::Type(found_form.to_owned()),
                format!("must be of type {form}: {found_form:?}"),
            );
        } else if !types.is_empty() && !fits {
            let rule = format!("must be of type {}: {own:?}", types.join(","));
            found.wrong(path, Wrong::Type(own.to_owned()), rule);
        }
    }

    fn combinations(
        &self,
        value: &Value,
        old: Option<&Value>,
        schema: &Schema,
        path: &str,
        found: &mut Found,
    ) {
        let judge = |schema: &Schema| self.judged(value, old, schema, path);
        if !schema.any_of.is_empty() {
            let mut best: Option<Found> = None;
            let mut fits = false;
            for one in &schema.any_of {
                let result = judge(one);
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
                found.whole(format!("{path:?} must validate at least one schema (anyOf)"));
            }
            if let Some(best) = best {
                found.merge(best);
            }
        }
        if !schema.one_of.is_empty() {
            self.one_of(&schema.one_of, judge, path, found);
        }
        if !schema.all_of.is_empty() {
            let mut valid = 0;
            for one in &schema.all_of {
                let result = judge(one);
                valid += usize::from(result.errors.is_empty());
                found.merge(result);
            }
            if valid != schema.all_of.len() {
                let none = if valid == 0 { ". None validated" } else { "" };
                found.whole(format!("{path:?} must validate all the schemas (allOf){none}"));
            }
        }
        if let Some(not) = &schema.not
            && judge(not).errors.is_empty()
        {
            found.whole(format!("{path:?} must not validate the schema (not)"));
        }
    }

    #[expect(clippy::unused_self, reason = "one of a family of checks")]
    fn one_of(&self, schemas: &[Schema], judge: impl Fn(&Schema) -> Found, path: &str, found: &mut Found) {
        let (mut best, mut first): (Option<Found>, Option<Found>) = (None, None);
        let mut valid = 0;
        for one in schemas {
            let result = judge(one);
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
                found.merge(first);
            }
            return;
        }
        let more = if valid == 0 {
            "Found none valid".to_owned()
        } else {
            format!("Found {valid} valid alternatives")
        };
        found.whole(format!("{path:?} must validate one and only one schema (oneOf). {more}"));
        if let Some(best) = best {
            found.merge(best);
        }
    }

    fn check_text(&self, text: &str, schema: &Schema, path: &str, found: &mut Found) {
        let length = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
        let value = || Wrong::Other(Value::String(text.to_owned()));
        if let Some(most) = schema.max_length.filter(|most| length > *most) {
            let rule = format!("should be at most {most} chars long");
            found.wrong(path, Wrong::TooLong(most), rule);
            return;
        }
        if let Some(least) = schema.min_length.filter(|least| length < *least) {
            found.wrong(path, value(), format!("should be at least {least} chars long"));
            return;
        }
        if schema.pattern.is_empty() {
            return;
        }
        match self.patterns.0.get(&schema.pattern) {
            Some(Ok(pattern)) if pattern.is_match(text) => {}
            Some(Err(why)) => {
                let rule = format!("should match '{}, but pattern is invalid: {why}'", schema.pattern);
                found.wrong(path, value(), rule);
            }
            _ => found.wrong(path, value(), format!("should match '{}'", schema.pattern)),
        }
    }

    fn check_list(
        &self,
        list: &[Value],
        old: Option<&Value>,
        schema: &Schema,
        path: &str,
        found: &mut Found,
    ) {
        let before = old.and_then(Value::as_array);
        let keyed = schema.list_type.as_deref() == Some("map");
        if let Some(items) = &schema.items {
            for (i, element) in list.iter().enumerate() {
                let was = before.filter(|_| keyed);
                let was = was.and_then(|before| counterpart(&schema.list_keys, before, element));
                found.merge(self.value(element, was, items, &format!("{path}[{i}]")));
            }
        }
        let length = i64::try_from(list.len()).unwrap_or(i64::MAX);
        if let Some(least) = schema.min_items.filter(|least| length < *least) {
            let rule = format!("should have at least {least} items");
            found.wrong(path, Wrong::Number(length.to_string()), rule);
        }
        if let Some(most) = schema.max_items.filter(|most| length > *most) {
            found.wrong(path, Wrong::TooMany(list.len(), most), format!("should have at most {most} items"));
        }
    }

    fn check_object(
        &self,
        map: &serde_json::Map<String, Value>,
        old: Option<&Value>,
        schema: &Schema,
        path: &str,
        found: &mut Found,
    ) {
        let length = i64::try_from(map.len()).unwrap_or(i64::MAX);
        if let Some(least) = schema.min_properties.filter(|least| length < *least) {
            let rule = format!("should have at least {least} properties");
            found.wrong(path, Wrong::Number(length.to_string()), rule);
        }
        if let Some(most) = schema.max_properties.filter(|most| length > *most) {
            let rule = format!("should have at most {most} properties");
            found.wrong(path, Wrong::TooMany(map.len(), most), rule);
        }
        let was = |name: &str| {
            // Kind and API version may differ from the stored ones.
            let hidden = path.is_empty() && matches!(name, "apiVersion" | "kind");
            old.filter(|_| !hidden).and_then(|old| old.get(name))
        };
        for (name, inner) in map.iter().filter(|(name, _)| !schema.properties.contains_key(*name)) {
            match &schema.additional {
                Some(Additional::Schema(other)) => {
                    found.merge(self.value(inner, was(name), other, &format!("{path}.{name}")));
                }
                Some(Additional::Allowed(false)) => {
                    let message = format!("{path}.{name} in body is a forbidden property");
                    let kind = Wrong::Other(Value::String(name.clone()));
                    found.add(Mistake { name: Some(path.to_owned()), kind, message });
                }
                _ => {}
            }
        }
        for (name, below) in &schema.properties {
            let Some(inner) = map.get(name) else { continue };
            let full = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            found.merge(self.value(inner, was(name), below, &full));
        }
        for name in schema.required.iter().filter(|name| !map.contains_key(*name)) {
            found.wrong(&format!("{path}.{name}"), Wrong::Required, "is required");
        }
    }
}

/// Validates a value against `enum`.
fn check_values(value: &Value, schema: &Schema, path: &str, found: &mut Found) {
    let Some(values) = schema.values.as_ref().filter(|values| !values.is_empty()) else { return };
    let same = |own: &&Value| match (own.as_f64(), value.as_f64()) {
        (Some(a), Some(b)) => a.total_cmp(&b).is_eq(),
        _ => *own == value,
    };
    if !values.iter().any(|own| same(&own)) {
        let texts = values.iter().map(|own| own.as_str().map_or_else(|| own.to_string(), str::to_owned));
        let kind = Wrong::Unsupported(value.clone(), texts.collect());
        found.wrong(path, kind, "should be one of the values");
    }
}

/// A bound as Go formats a float: integers without a decimal point.
fn bound(number: f64) -> String {
    if number.abs() >= 1e21 { format!("{number:e}").replace('e', "e+") } else { number.to_string() }
}

/// Whether a number is a multiple of a positive factor; for integers, of the integer part of the factor.
fn is_multiple(number: &serde_json::Number, factor: f64) -> bool {
    /// The largest integer up to which floats are exact.
    const LARGEST: f64 = 9_007_199_254_740_991.0;
    /// The relative tolerance above an integer quotient, since floats are not exact.
    const NEAR: f64 = 1e-9;
    if let Some(whole) = number.as_i64() {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a factor beyond 64 bits is the largest there is"
        )]
        let factor = factor as i64;
        return whole % factor == 0;
    }
    let value = number.as_f64().unwrap_or_default();
    let times = if factor < 1.0 { 1.0 / factor * value } else { value / factor };
    let below = times.trunc();
    times.abs() <= LARGEST
        && (times.fract() == 0.0 || (below > 0.0 && times.fract() / (times + below) < NEAR))
}

fn check_number(number: &serde_json::Number, schema: &Schema, types: &[&str], path: &str, found: &mut Found) {
    let Some(value) = number.as_f64() else { return };
    let whole = number.as_i64();
    if let ["integer"] = types {
        let fits = match (whole, schema.format.as_str()) {
            (Some(own), "int32") => i32::try_from(own).is_ok(),
            (Some(_), _) => true,
            (None, _) => value.fract() == 0.0,
        };
        if !fits {
            let form = match format::supported(types, &schema.format) {
                Some(form) => format!("with format {form}"),
                None => "(default format)".to_owned(),
            };
            found.whole(format!("Checked value must be of type integer {form} in {path}"));
        }
    }
    let shown = || Wrong::Number(number.to_string());
    if let Some(factor) = schema.multiple_of {
        // Upstream truncates the factor for integers.
        let used = if whole.is_some() { factor.trunc() } else { factor };
        if used <= 0.0 {
            let message = format!("factor MultipleOf declared for {path} must be positive: {}", bound(used));
            let kind = Wrong::Number(bound(used));
            found.add(Mistake { name: Some(path.to_owned()), kind, message });
        } else if !is_multiple(number, used) {
            found.wrong(path, shown(), format!("should be a multiple of {}", bound(factor)));
        }
    }
    if let Some(least) = schema.minimum
        && (value < least || (schema.exclusive_minimum && value <= least))
    {
        let equal = if schema.exclusive_minimum { "" } else { " or equal to" };
        found.wrong(path, shown(), format!("should be greater than{equal} {}", bound(least)));
    }
    if let Some(most) = schema.maximum
        && (value > most || (schema.exclusive_maximum && value >= most))
    {
        let equal = if schema.exclusive_maximum { "" } else { " or equal to" };
        found.wrong(path, shown(), format!("should be less than{equal} {}", bound(most)));
    }
}
