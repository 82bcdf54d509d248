//! Validation of the schema of a version.

use plumb_cel::Decl;
use plumb_validation::field::{BadValue, FieldError, Path};
use serde_json::Value;

use super::cost::{RULE_LIMIT, Total, exceeds, max_elements};
use super::{Errors, defaults, structural};
use crate::rules::{self, MAX_REQUEST, declare, field_path};
use crate::schema::{Additional, Rule, Schema};

/// The fields that the root of a schema may have with the status subresource, as upstream lists them.
const ALLOWED_AT_ROOT: &str = "[Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields XValidations]";

/// Validates the schema of a version, or the one that all versions share.
pub(super) fn check(
    version_schema: &Value,
    has_status: bool,
    unchanged: bool,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let json = &version_schema["openAPIV3Schema"];
    if !json.is_object() {
        return;
    }
    let schema = Schema::from_json(json);
    let schema_path = path.child("openAPIV3Schema");
    if has_status {
        check_root_fields(&schema, json, path, errors);
    }
    if schema.nullable {
        let rule = "nullable cannot be true at the root";
        errors.push(FieldError::forbidden(path.child("openAPIV3Schema.nullable"), rule));
    }
    let mut schema_errors = structural::check(&schema, &schema_path);
    if schema_errors.is_empty() {
        schema_errors = defaults::check(&schema, &schema_path);
    }
    // Rules are compiled against the types that a structural schema declares. Without those types, each rule would add an
    // error that only repeats what is wrong with the schema.
    let compile_rules = schema_errors.is_empty();
    errors.extend(schema_errors);
    let mut validator =
        Validator { total: Total::default(), errors: Errors::new(), rule_errors: Errors::new(), unchanged };
    let root = Context {
        compile_rules,
        max_cardinality: Some(1),
        allows_defaults: Ok(()),
        in_meta: false,
        uncorrelated: None,
        root: true,
    };
    validator.visit(&schema, &schema_path, &root);
    errors.append(&mut validator.errors);
    errors.append(&mut validator.rule_errors);
    if compile_rules {
        validator.total.check(&schema_path, errors);
    }
}

/// Validates that the root of a schema has only the fields that the status subresource allows.
fn check_root_fields(schema: &Schema, json: &Value, path: &Path<'_>, errors: &mut Errors) {
    if !schema.ty.is_empty() && schema.ty != "object" {
        let rule = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
        errors.push(FieldError::invalid(path.child("openAPIV3Schema.type"), &schema.ty, rule));
        return;
    }
    let has_disallowed = schema.additional.is_some()
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
    if has_disallowed {
        let rule = format!(
            "only {ALLOWED_AT_ROOT} fields are allowed at the root of the schema if the status subresource is enabled"
        );
        let bad_value = BadValue::Bare(json.to_string());
        errors.push(FieldError::invalid(path.child("openAPIV3Schema"), bad_value, rule));
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
    compile_rules: bool,
    /// How many values of the subschema an object can have; `None` if unbounded.
    max_cardinality: Option<u64>,
    /// Whether defaults are allowed, or why not.
    allows_defaults: Result<(), NoDefault>,
    /// Whether the subschema is inside metadata.
    in_meta: bool,
    /// The path of the ancestor whose elements cannot be correlated between the old and the new object.
    uncorrelated: Option<String>,
    /// Whether this is the root of the schema.
    root: bool,
}

/// Validates a schema and its subschemas.
struct Validator {
    total: Total,
    errors: Errors,
    /// The errors of CEL rules, which are reported after all others.
    rule_errors: Errors,
    /// Whether an update leaves the schema unchanged; the cost limit of single rules is not enforced then.
    unchanged: bool,
}

impl Validator {
    fn visit(&mut self, schema: &Schema, path: &Path<'_>, context: &Context) {
        let errors_before = self.errors.len();
        self.check_keywords(schema, path, context);
        self.visit_children(schema, path, context);
        self.check_list_and_map_types(schema, path);
        for (i, rule) in schema.rules.iter().enumerate() {
            self.check_rule_fields(rule, schema, &path.child("x-kubernetes-validations").index(i));
        }
        if self.errors.len() == errors_before && context.compile_rules && !schema.rules.is_empty() {
            self.compile_rules(schema, path, context);
        }
    }

    fn forbid(&mut self, path: &Path<'_>, field: &str, rule: &str) {
        self.errors.push(FieldError::forbidden(path.child(field), rule));
    }

    /// Validates that the schema has no unsupported keywords.
    fn check_keywords(&mut self, schema: &Schema, path: &Path<'_>, context: &Context) {
        const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
        if !schema.ty.is_empty() && !TYPES.contains(&schema.ty.as_str()) {
            self.errors.push(FieldError::not_supported(path.child("type"), &schema.ty, &TYPES));
        }
        if let (Some(_), Err(why)) = (&schema.default, &context.allows_defaults) {
            self.forbid(path, "default", &format!("must not be set {why}"));
        }
        let unsupported = &schema.unsupported;
        for (is_set, keyword) in [
            (unsupported.id, "id"),
            (unsupported.additional_items, "additionalItems"),
            (unsupported.pattern_properties, "patternProperties"),
            (unsupported.definitions, "definitions"),
            (unsupported.dependencies, "dependencies"),
            (unsupported.reference, "$ref"),
        ] {
            if is_set {
                self.forbid(path, keyword, &format!("{keyword} is not supported"));
            }
        }
        if schema.ty == "null" {
            self.forbid(path, "type", "type cannot be set to null, use nullable as an alternative");
        }
        if unsupported.item_list {
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

    /// Visits the subschemas of a schema.
    fn visit_children(&mut self, schema: &Schema, path: &Path<'_>, context: &Context) {
        let max_cardinality = match (context.max_cardinality, max_elements(schema)) {
            (Some(values), Some(elements)) => Some(values.saturating_mul(elements)),
            _ => None,
        };
        let inner = Context { max_cardinality, root: false, ..context.clone() };
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
        // Structural schemas have no rules in `not`, `allOf`, `oneOf` and `anyOf`.
        let without_rules = Context { compile_rules: false, root: false, ..context.clone() };
        if let Some(not) = &schema.not {
            self.visit(not, &path.child("not"), &without_rules);
        }
        for (alternatives, keyword) in
            [(&schema.all_of, "allOf"), (&schema.one_of, "oneOf"), (&schema.any_of, "anyOf")]
        {
            for (i, alternative) in alternatives.iter().enumerate() {
                self.visit(alternative, &path.child(keyword).index(i), &without_rules);
            }
        }
        if let Some(items) = &schema.items {
            let mut inner = inner;
            // Only lists with map keys correlate their elements between the old and the new object.
            if schema.list_type.as_deref() != Some("map") && inner.uncorrelated.is_none() {
                inner.uncorrelated = Some(path.to_string());
            }
            self.visit(items, &path.child("items"), &inner);
        }
    }

    /// Validates list types and map types.
    fn check_list_and_map_types(&mut self, schema: &Schema, path: &Path<'_>) {
        if schema.preserves == Some(false) {
            let path = path.child("x-kubernetes-preserve-unknown-fields");
            self.errors.push(FieldError::invalid(path, false, "must be true or undefined"));
        }
        let type_error = |ty: &str, rule: &str| match ty {
            "" => FieldError::required(path.child("type"), rule),
            ty => FieldError::invalid(path.child("type"), ty, rule),
        };
        if let Some(map_type) = &schema.map_type {
            if schema.ty != "object" {
                self.errors
                    .push(type_error(&schema.ty, "must be object if x-kubernetes-map-type is specified"));
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
                self.errors
                    .push(type_error(&schema.ty, "must be array if x-kubernetes-list-type is specified"));
            } else if list_type == "set"
                && let Some(items) = &schema.items
            {
                self.check_set_items(items, &path.child("items"));
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
            self.check_map_keys(schema, path);
        }
        if let (Some("set" | "map"), Some(items)) = (schema.list_type.as_deref(), &schema.items) {
            self.check_set_or_map_items(schema, items, &path.child("items"));
        }
    }

    /// Validates that the elements of a set are atomic.
    fn check_set_items(&mut self, items: &Schema, path: &Path<'_>) {
        let rule = "must be atomic as item of a list with x-kubernetes-list-type=set";
        // SPEC: upstream displays the list type even where the map type is wrong.
        let bad_value = || match &items.list_type {
            Some(list_type) => BadValue::from(list_type),
            None => BadValue::Bare("null".to_owned()),
        };
        if items.ty == "array" && items.list_type.as_deref().is_some_and(|list_type| list_type != "atomic") {
            self.errors.push(FieldError::invalid(path.child("x-kubernetes-list-type"), bad_value(), rule));
        }
        if items.ty == "object" && items.map_type.as_deref() != Some("atomic") {
            self.errors.push(FieldError::invalid(path.child("x-kubernetes-map-type"), bad_value(), rule));
        }
    }

    /// Validates `x-kubernetes-list-map-keys` of a list of type `map`.
    fn check_map_keys(&mut self, schema: &Schema, path: &Path<'_>) {
        let keys_path = path.child("x-kubernetes-list-map-keys");
        let bad_value = || {
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
                Some(property) if matches!(property.ty.as_str(), "array" | "object") => {
                    let rule = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                    let properties = items_path.child("properties");
                    let property_path = properties.key(key);
                    // SPEC: upstream displays the type of the items and not that of the property.
                    self.errors.push(FieldError::invalid(property_path.child("type"), &items.ty, rule));
                }
                Some(_) => {}
                None => {
                    let rule = "entries must all be names of item properties";
                    self.errors.push(FieldError::invalid(keys_path, bad_value(), rule));
                }
            }
            if schema.list_keys[..i].contains(key) {
                let rule = "must not contain duplicate entries";
                self.errors.push(FieldError::invalid(keys_path, bad_value(), rule));
            }
        }
    }

    /// Validates the schema of the elements of a list of type `set` or `map`.
    fn check_set_or_map_items(&mut self, schema: &Schema, items: &Schema, path: &Path<'_>) {
        if items.nullable {
            let list_type = schema.list_type.as_deref().unwrap_or_default();
            self.forbid(
                path,
                "nullable",
                &format!("cannot be nullable when x-kubernetes-list-type is {list_type}"),
            );
        }
        if schema.list_type.as_deref() != Some("map") {
            return;
        }
        let properties = path.child("properties");
        for key in &schema.list_keys {
            let Some(property) = items.properties.get(key) else { continue };
            let property_path = properties.key(key);
            if !items.required.contains(key) && property.default.is_none() {
                let rule = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
                self.errors.push(FieldError::required(property_path.child("default"), rule));
            }
            if property.nullable {
                let rule = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
                self.errors.push(FieldError::forbidden(property_path.child("nullable"), rule));
            }
        }
    }

    /// Validates the fields of a CEL rule without compiling it.
    fn check_rule_fields(&mut self, rule: &Rule, schema: &Schema, path: &Path<'_>) {
        const REASONS: [&str; 4] =
            ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
        let has_line_break = |text: &str| text.contains(['\n', '\r']);
        let message = rule.message.trim();
        if rule.rule.trim().is_empty() {
            self.errors.push(FieldError::required(path.child("rule"), "rule is not specified"));
        } else if !rule.message.is_empty() && message.is_empty() {
            let detail = "must be non-empty if specified";
            self.errors.push(FieldError::invalid(path.child("message"), &rule.message, detail));
        } else if has_line_break(message) {
            let detail = "must not contain line breaks";
            self.errors.push(FieldError::invalid(path.child("message"), &rule.message, detail));
        } else if has_line_break(rule.rule.trim()) && message.is_empty() {
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
        let path = path.child("fieldPath");
        if !rule.field_path.is_empty() {
            if rule.field_path.trim().is_empty() {
                let detail = "must be non-empty if specified";
                self.errors.push(FieldError::invalid(path, &rule.field_path, detail));
            }
            if has_line_break(&rule.field_path) {
                let detail = "must not contain line breaks";
                self.errors.push(FieldError::invalid(path, &rule.field_path, detail));
            }
            if field_path(&rule.field_path, schema, true).is_err() {
                self.errors.push(FieldError::invalid(path, &rule.field_path, "must be a valid path"));
            }
        }
    }

    /// Compiles the rules of a schema and limits their estimated costs.
    fn compile_rules(&mut self, schema: &Schema, path: &Path<'_>, context: &Context) {
        let Some(decl) = declare(schema, context.root || schema.embedded) else { return };
        for (i, rule) in schema.rules.iter().enumerate() {
            let list = path.child("x-kubernetes-validations");
            let path = list.index(i);
            let rule_path = path.child("rule");
            let message_path = path.child("messageExpression");
            let uses_old = match rules::compile(rule, &decl) {
                Ok(compiled) => {
                    self.add_rule_cost(&compiled, &rule_path, &decl, context);
                    if let Some(message) = &compiled.message {
                        let cost = message.worst_cost();
                        if !self.unchanged && cost > RULE_LIMIT {
                            let detail = exceeds("estimated messageExpression cost", cost, RULE_LIMIT);
                            self.rule_errors.push(FieldError::forbidden(message_path, detail));
                        }
                        self.total.add(message_path.to_string(), cost);
                    }
                    compiled.uses_old
                }
                Err(rules::CompileError::Rule { message, uses_old }) => {
                    self.rule_errors.push(FieldError::invalid(rule_path, internal_json(rule), message));
                    uses_old
                }
                Err(rules::CompileError::MessageExpression(message, compiled)) => {
                    self.add_rule_cost(&compiled, &rule_path, &decl, context);
                    self.rule_errors.push(FieldError::invalid(message_path, internal_json(rule), message));
                    compiled.uses_old
                }
            };
            if uses_old {
                if let Some(ancestor) = &context.uncorrelated {
                    let detail = format!(
                        "oldSelf cannot be used on the uncorrelatable portion of the schema within {ancestor}"
                    );
                    self.rule_errors.push(FieldError::invalid(rule_path, &rule.rule, detail));
                }
            } else if let Some(optional) = rule.optional_old_self {
                let detail = "may not be set if oldSelf is not used in rule";
                self.rule_errors.push(FieldError::invalid(path.child("optionalOldSelf"), optional, detail));
            }
        }
    }

    /// Adds the estimated cost of a rule, which is evaluated once for each value of the subschema.
    fn add_rule_cost(&mut self, compiled: &rules::Compiled, path: &Path<'_>, decl: &Decl, context: &Context) {
        // The size of a request bounds how many values an unbounded list can have.
        let values = context.max_cardinality.unwrap_or(MAX_REQUEST / (decl.min_size + 1));
        let cost = compiled.program.worst_cost().saturating_mul(values);
        if !self.unchanged && cost > RULE_LIMIT {
            let detail = exceeds("estimated rule cost", cost, RULE_LIMIT);
            self.rule_errors.push(FieldError::forbidden(path, detail));
        }
        self.total.add(path.to_string(), cost);
    }
}

/// The JSON of a rule in upstream's internal type, which error messages display.
fn internal_json(rule: &Rule) -> BadValue {
    // Go's JSON encoder escapes these three characters.
    let text = |text: &str| {
        let json = Value::from(text).to_string();
        json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
    };
    let reason = rule.reason.as_ref().map_or_else(|| "null".to_owned(), |reason| text(reason));
    let optional = rule.optional_old_self.map_or_else(|| "null".to_owned(), |value| value.to_string());
    BadValue::Bare(format!(
        r#"{{"Rule":{},"Message":{},"MessageExpression":{},"Reason":{reason},"FieldPath":{},"OptionalOldSelf":{optional}}}"#,
        text(&rule.rule),
        text(&rule.message),
        text(&rule.message_expression),
        text(&rule.field_path),
    ))
}
