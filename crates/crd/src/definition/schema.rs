//! Validation of the schema of a version.

use plumb_cel::Decl;
use plumb_validation::field::{BadValue, FieldError, Path};
use serde_json::Value;

use super::cost::{RULE_LIMIT, Total, elements, exceeds};
use super::{Errors, defaults, structural};
use crate::rules::{self, MAX_REQUEST, declare, field_path};
use crate::schema::{Additional, Rule, Schema};

/// The fields that the root of a schema may have with the status subresource, as upstream lists them.
const AT_ROOT: &str = "[Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields XValidations]";

/// Validates the schema of a version, or the one that all versions share.
pub(super) fn check(part: &Value, has_status: bool, unchanged: bool, path: &Path<'_>, errors: &mut Errors) {
    let json = &part["openAPIV3Schema"];
    if !json.is_object() {
        return;
    }
    let schema = Schema::of_json(json);
    let place = path.child("openAPIV3Schema");
    if has_status {
        at_root(&schema, json, path, errors);
    }
    if schema.nullable {
        let rule = "nullable cannot be true at the root";
        errors.push(FieldError::forbidden(path.child("openAPIV3Schema.nullable"), rule));
    }
    let mut found = structural::check(&schema, &place);
    if found.is_empty() {
        found = defaults::check(&schema, &place);
    }
    let sound = found.is_empty();
    errors.extend(found);
    let mut walk = Walk { total: Total::default(), rules: Errors::new(), errors: Errors::new(), unchanged };
    let root = Context {
        asks: sound,
        times: Some(1),
        allows_defaults: Ok(()),
        in_meta: false,
        uncorrelated: None,
        root: true,
    };
    walk.visit(&schema, &place, &root);
    errors.append(&mut walk.errors);
    errors.append(&mut walk.rules);
    if sound {
        walk.total.judge(&place, errors);
    }
}

fn at_root(schema: &Schema, json: &Value, path: &Path<'_>, errors: &mut Errors) {
    if !schema.ty.is_empty() && schema.ty != "object" {
        let rule = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
        errors.push(FieldError::invalid(path.child("openAPIV3Schema.type"), &schema.ty, rule));
        return;
    }
    let foreign = schema.additional.is_some()
        || schema.values.is_some()
        || schema.default.is_some()
        || schema.max_properties.is_some()
        || schema.min_properties.is_some()
        || !schema.all_of.is_empty()
        || !schema.any_of.is_empty()
        || !schema.one_of.is_empty()
        || schema.not.is_some()
        || schema.nullable
        || schema.embedded
        || schema.int_or_string
        || schema.list_type.is_some()
        || schema.map_type.is_some()
        || !schema.list_keys.is_empty();
    if foreign {
        let rule = format!(
            "only {AT_ROOT} fields are allowed at the root of the schema if the status subresource is enabled"
        );
        let shown = BadValue::Bare(json.to_string());
        errors.push(FieldError::invalid(path.child("openAPIV3Schema"), shown, rule));
    }
}

/// Why a schema must not have a default, with upstream's messages.
#[derive(Clone, Debug, thiserror::Error)]
enum NoDefault {
    #[error("inside additionalProperties applying to object metadata")]
    InMetadata,
    #[error("in top-level {0}")]
    TopLevel(String),
}

/// The context of a subschema.
#[derive(Clone)]
struct Context {
    /// Whether CEL rules are compiled.
    asks: bool,
    /// How many values of the subschema an object can have; none if unbounded.
    times: Option<u64>,
    /// Whether defaults are allowed, or why not.
    allows_defaults: Result<(), NoDefault>,
    /// Whether the subschema is inside metadata.
    in_meta: bool,
    /// The path of the ancestor whose elements cannot be correlated between the old and the new object.
    uncorrelated: Option<String>,
    root: bool,
}

struct Walk {
    total: Total,
    errors: Errors,
    rules: Errors,
    unchanged: bool,
}

impl Walk {
    fn visit(&mut self, schema: &Schema, path: &Path<'_>, context: &Context) {
        let before = self.errors.len();
        self.words(schema, path, context);
        self.below(schema, path, context);
        self.lists(schema, path);
        for (i, rule) in schema.rules.iter().enumerate() {
            self.rule_text(rule, schema, &path.child("x-kubernetes-validations").index(i));
        }
        if self.errors.len() == before && context.asks && !schema.rules.is_empty() {
            self.compile(schema, path, context);
        }
    }

    fn forbid(&mut self, path: &Path<'_>, field: &str, rule: &str) {
        self.errors.push(FieldError::forbidden(path.child(field), rule));
    }

    /// Validates that the schema has no unsupported keywords.
    fn words(&mut self, schema: &Schema, path: &Path<'_>, context: &Context) {
        const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
        if !schema.ty.is_empty() && !TYPES.contains(&schema.ty.as_str()) {
            self.errors.push(FieldError::not_supported(path.child("type"), &schema.ty, &TYPES));
        }
        if let (Some(_), Err(why)) = (&schema.default, &context.allows_defaults) {
            self.forbid(path, "default", &format!("must not be set {why}"));
        }
        let foreign = &schema.foreign;
        for (is, word) in [
            (foreign.id, "id"),
            (foreign.additional_items, "additionalItems"),
            (foreign.pattern_properties, "patternProperties"),
            (foreign.definitions, "definitions"),
            (foreign.dependencies, "dependencies"),
            (foreign.reference, "$ref"),
        ] {
            if is {
                self.forbid(path, word, &format!("{word} is not supported"));
            }
        }
        if schema.ty == "null" {
            self.forbid(path, "type", "type cannot be set to null, use nullable as an alternative");
        }
        if foreign.many_items {
            self.forbid(path, "items", "items must be a schema object and not an array");
        }
        if context.in_meta && schema.embedded {
            self.forbid(path, "x-kubernetes-embedded-resource", "must not be used inside of resource meta");
        }
        if schema.unique_items {
            let rule = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
            self.forbid(path, "uniqueItems", rule);
        }
    }

    fn below(&mut self, schema: &Schema, path: &Path<'_>, context: &Context) {
        let times = match (context.times, elements(schema)) {
            (Some(times), Some(more)) => Some(times.saturating_mul(more)),
            _ => None,
        };
        let inner = Context { times, root: false, ..context.clone() };
        if let Some(additional) = &schema.additional {
            if !schema.properties.is_empty() && !matches!(additional, Additional::Allowed(true)) {
                let rule = "additionalProperties and properties are mutual exclusive";
                self.forbid(path, "additionalProperties", rule);
            }
            let mut inner = inner.clone();
            if context.in_meta {
                inner.allows_defaults = Err(NoDefault::InMetadata);
            }
            if let Additional::Schema(other) = additional {
                self.visit(other, &path.child("additionalProperties"), &inner);
            }
        }
        for (name, property) in &schema.properties {
            let mut inner = inner.clone();
            if (context.root || schema.embedded)
                && matches!(name.as_str(), "metadata" | "kind" | "apiVersion")
            {
                inner.in_meta = true;
                if context.root {
                    inner.allows_defaults = Err(NoDefault::TopLevel(name.clone()));
                }
            }
            self.visit(property, &path.child("properties").key(name), &inner);
        }
        let silent = Context { asks: false, root: false, ..context.clone() };
        if let Some(not) = &schema.not {
            self.visit(not, &path.child("not"), &silent);
        }
        for (list, word) in [(&schema.all_of, "allOf"), (&schema.one_of, "oneOf"), (&schema.any_of, "anyOf")]
        {
            for (i, one) in list.iter().enumerate() {
                self.visit(one, &path.child(word).index(i), &silent);
            }
        }
        if let Some(items) = &schema.items {
            let mut inner = inner;
            if schema.list_type.as_deref() != Some("map") && inner.uncorrelated.is_none() {
                inner.uncorrelated = Some(path.to_string());
            }
            self.visit(items, &path.child("items"), &inner);
        }
    }

    /// Validates list types and map types.
    fn lists(&mut self, schema: &Schema, path: &Path<'_>) {
        if schema.preserves == Some(false) {
            let place = path.child("x-kubernetes-preserve-unknown-fields");
            self.errors.push(FieldError::invalid(place, false, "must be true or undefined"));
        }
        let place = |ty: &str, rule: &str| match ty {
            "" => FieldError::required(path.child("type"), rule),
            ty => FieldError::invalid(path.child("type"), ty, rule),
        };
        if let Some(map_type) = &schema.map_type {
            if schema.ty != "object" {
                self.errors.push(place(&schema.ty, "must be object if x-kubernetes-map-type is specified"));
            }
            if !matches!(map_type.as_str(), "atomic" | "granular") {
                let all = ["atomic", "granular"];
                let path = path.child("x-kubernetes-map-type");
                self.errors.push(FieldError::not_supported(path, map_type, &all));
            }
        }
        let list_path = path.child("x-kubernetes-list-type");
        if let Some(list_type) = &schema.list_type {
            if schema.ty != "array" {
                self.errors.push(place(&schema.ty, "must be array if x-kubernetes-list-type is specified"));
            } else if list_type == "set"
                && let Some(items) = &schema.items
            {
                self.set(items, &path.child("items"));
            }
            if !matches!(list_type.as_str(), "atomic" | "set" | "map") {
                let all = ["atomic", "set", "map"];
                self.errors.push(FieldError::not_supported(list_path, list_type, &all));
            }
        }
        if !schema.list_keys.is_empty() && schema.list_type.as_deref() != Some("map") {
            let rule = "must be map if x-kubernetes-list-map-keys is non-empty";
            self.errors.push(match &schema.list_type {
                None => FieldError::required(list_path, rule),
                Some(other) => FieldError::invalid(list_path, other, rule),
            });
        }
        if schema.list_type.as_deref() == Some("map") {
            self.keyed(schema, path);
        }
        if let (Some("set" | "map"), Some(items)) = (schema.list_type.as_deref(), &schema.items) {
            self.elements(schema, items, &path.child("items"));
        }
    }

    fn set(&mut self, items: &Schema, path: &Path<'_>) {
        let rule = "must be atomic as item of a list with x-kubernetes-list-type=set";
        let shown = || match &items.list_type {
            Some(own) => BadValue::from(own),
            None => BadValue::Bare("null".to_owned()),
        };
        if items.ty == "array" && items.list_type.as_deref().is_some_and(|own| own != "atomic") {
            self.errors.push(FieldError::invalid(path.child("x-kubernetes-list-type"), shown(), rule));
        }
        if items.ty == "object" && items.map_type.as_deref() != Some("atomic") {
            self.errors.push(FieldError::invalid(path.child("x-kubernetes-map-type"), shown(), rule));
        }
    }

    fn keyed(&mut self, schema: &Schema, path: &Path<'_>) {
        let keys_path = path.child("x-kubernetes-list-map-keys");
        let shown = || {
            let keys: Vec<String> = schema.list_keys.iter().map(|key| format!("{key:?}")).collect();
            BadValue::Bare(format!("[{}]", keys.join(",")))
        };
        if schema.list_keys.is_empty() {
            let rule = "must not be empty if x-kubernetes-list-type is map";
            self.errors.push(FieldError::required(keys_path, rule));
        }
        let items_path = path.child("items");
        let Some(items) = &schema.items else {
            let rule = "must have a schema if x-kubernetes-list-type is map";
            self.errors.push(FieldError::required(items_path, rule));
            return;
        };
        if items.ty != "object" {
            let rule = "must be object if parent array's x-kubernetes-list-type is map";
            self.errors.push(FieldError::invalid(items_path.child("type"), &items.ty, rule));
            return;
        }
        for (i, key) in schema.list_keys.iter().enumerate() {
            match items.properties.get(key) {
                Some(own) if matches!(own.ty.as_str(), "array" | "object") => {
                    let rule = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                    let place = items_path.child("properties");
                    let place = place.key(key);
                    self.errors.push(FieldError::invalid(place.child("type"), &items.ty, rule));
                }
                Some(_) => {}
                None => {
                    let rule = "entries must all be names of item properties";
                    self.errors.push(FieldError::invalid(keys_path, shown(), rule));
                }
            }
            if schema.list_keys[..i].contains(key) {
                let rule = "must not contain duplicate entries";
                self.errors.push(FieldError::invalid(keys_path, shown(), rule));
            }
        }
    }

    fn elements(&mut self, schema: &Schema, items: &Schema, path: &Path<'_>) {
        if items.nullable {
            let own = schema.list_type.as_deref().unwrap_or_default();
            self.forbid(
                path,
                "nullable",
                &format!("cannot be nullable when x-kubernetes-list-type is {own}"),
            );
        }
        if schema.list_type.as_deref() != Some("map") {
            return;
        }
        let properties = path.child("properties");
        for key in &schema.list_keys {
            let Some(own) = items.properties.get(key) else { continue };
            let place = properties.key(key);
            if !items.required.contains(key) && own.default.is_none() {
                let rule = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
                self.errors.push(FieldError::required(place.child("default"), rule));
            }
            if own.nullable {
                let rule = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
                self.errors.push(FieldError::forbidden(place.child("nullable"), rule));
            }
        }
    }

    fn rule_text(&mut self, rule: &Rule, schema: &Schema, path: &Path<'_>) {
        const REASONS: [&str; 4] =
            ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
        let breaks = |text: &str| text.contains(['\n', '\r']);
        let message = rule.message.trim();
        if rule.rule.trim().is_empty() {
            self.errors.push(FieldError::required(path.child("rule"), "rule is not specified"));
        } else if !rule.message.is_empty() && message.is_empty() {
            let detail = "must be non-empty if specified";
            self.errors.push(FieldError::invalid(path.child("message"), &rule.message, detail));
        } else if breaks(message) {
            let detail = "must not contain line breaks";
            self.errors.push(FieldError::invalid(path.child("message"), &rule.message, detail));
        } else if breaks(rule.rule.trim()) && message.is_empty() {
            let detail = "message must be specified if rule contains line breaks";
            self.errors.push(FieldError::required(path.child("message"), detail));
        }
        if !rule.message_expression.is_empty() && rule.message_expression.trim().is_empty() {
            let detail = "messageExpression must be non-empty if specified";
            self.errors.push(FieldError::required(path.child("messageExpression"), detail));
        }
        if let Some(reason) = rule.reason.as_ref().filter(|reason| !REASONS.contains(&reason.as_str())) {
            self.errors.push(FieldError::not_supported(path.child("reason"), reason, &REASONS));
        }
        let place = path.child("fieldPath");
        if !rule.field_path.is_empty() {
            if rule.field_path.trim().is_empty() {
                let detail = "must be non-empty if specified";
                self.errors.push(FieldError::invalid(place, &rule.field_path, detail));
            }
            if breaks(&rule.field_path) {
                let detail = "must not contain line breaks";
                self.errors.push(FieldError::invalid(place, &rule.field_path, detail));
            }
            if field_path(&rule.field_path, schema, true).is_err() {
                self.errors.push(FieldError::invalid(place, &rule.field_path, "must be a valid path"));
            }
        }
    }

    fn compile(&mut self, schema: &Schema, path: &Path<'_>, context: &Context) {
        let Some(decl) = declare(schema, context.root || schema.embedded) else { return };
        for (i, rule) in schema.rules.iter().enumerate() {
            let list = path.child("x-kubernetes-validations");
            let place = list.index(i);
            let (rule_path, message_path) = (place.child("rule"), place.child("messageExpression"));
            let uses_old = match rules::compile(rule, &decl) {
                Ok(compiled) => {
                    self.rule_cost(&compiled, &rule_path, &decl, context);
                    if let Some(message) = &compiled.message {
                        let cost = message.worst_cost();
                        if !self.unchanged && cost > RULE_LIMIT {
                            let detail = exceeds("estimated messageExpression cost", cost, RULE_LIMIT);
                            self.rules.push(FieldError::forbidden(message_path, detail));
                        }
                        self.total.add(message_path.to_string(), cost);
                    }
                    compiled.uses_old
                }
                Err(rules::Wrong::Rule { why, uses_old }) => {
                    self.rules.push(FieldError::invalid(rule_path, internal(rule), why));
                    uses_old
                }
                Err(rules::Wrong::Message(why, compiled)) => {
                    self.rule_cost(&compiled, &rule_path, &decl, context);
                    self.rules.push(FieldError::invalid(message_path, internal(rule), why));
                    compiled.uses_old
                }
            };
            if uses_old {
                if let Some(above) = &context.uncorrelated {
                    let detail = format!(
                        "oldSelf cannot be used on the uncorrelatable portion of the schema within {above}"
                    );
                    self.rules.push(FieldError::invalid(rule_path, &rule.rule, detail));
                }
            } else if let Some(optional) = rule.optional_old_self {
                let detail = "may not be set if oldSelf is not used in rule";
                self.rules.push(FieldError::invalid(place.child("optionalOldSelf"), optional, detail));
            }
        }
    }

    fn rule_cost(&mut self, compiled: &rules::Compiled, path: &Path<'_>, decl: &Decl, context: &Context) {
        let times = context.times.unwrap_or(MAX_REQUEST / (decl.min_size + 1));
        let cost = compiled.program.worst_cost().saturating_mul(times);
        if !self.unchanged && cost > RULE_LIMIT {
            let detail = exceeds("estimated rule cost", cost, RULE_LIMIT);
            self.rules.push(FieldError::forbidden(path, detail));
        }
        self.total.add(path.to_string(), cost);
    }
}

/// A rule as error messages show upstream's internal type.
fn internal(rule: &Rule) -> BadValue {
    // Go's JSON encoder escapes these three characters.
    let text = |text: &str| {
        let json = Value::from(text).to_string();
        json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
    };
    let reason = rule.reason.as_ref().map_or_else(|| "null".to_owned(), |reason| text(reason));
    let optional = rule.optional_old_self.map_or_else(|| "null".to_owned(), |own| own.to_string());
    BadValue::Bare(format!(
        r#"{{"Rule":{},"Message":{},"MessageExpression":{},"Reason":{reason},"FieldPath":{},"OptionalOldSelf":{optional}}}"#,
        text(&rule.rule),
        text(&rule.message),
        text(&rule.message_expression),
        text(&rule.field_path),
    ))
}
