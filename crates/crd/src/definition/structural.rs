//! Validation that a schema is structural: types and fields are declared outside of `allOf`, `anyOf`, `oneOf` and
//! `not`.

use plumb_go::regexp::Regexp;
use plumb_validation::field::{FieldError, Path};

use super::Errors;
use crate::schema::Schema;

/// What a subschema describes.
#[derive(Clone, Copy, PartialEq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Validates that a schema is structural. The errors are sorted by message.
pub(super) fn check(schema: &Schema, path: &Path<'_>) -> Errors {
    let mut errors = Errors::new();
    check_structure(schema, Level::Root, path, &mut errors);
    check_declared(schema, schema, path, path, &mut errors);
    // Upstream sorts them, since it iterates over maps in random order.
    errors.sort_by_cached_key(ToString::to_string);
    errors
}

fn check_structure(schema: &Schema, level: Level, path: &Path<'_>, errors: &mut Errors) {
    if schema.ty == "array" && schema.items.is_none() {
        errors.push(FieldError::required(path.child("items"), "must be specified"));
    }
    if let Some(items) = &schema.items {
        check_structure(items, Level::Item, &path.child("items"), errors);
    }
    for (name, property) in &schema.properties {
        check_structure(property, Level::Field, &path.child("properties").key(name), errors);
    }
    if schema.additional.is_some() {
        if level == Level::Root {
            let rule = "must not be used at the root";
            errors.push(FieldError::forbidden(path.child("additionalProperties"), rule));
        }
        if let Some(other) = schema.additional_schema() {
            check_structure(other, Level::Field, &path.child("additionalProperties"), errors);
        }
    }
    for (is_set, name) in [
        (schema.keeps_unknown(), "x-kubernetes-preserve-unknown-fields"),
        (schema.embedded, "x-kubernetes-embedded-resource"),
    ] {
        if schema.int_or_string && is_set {
            let rule = "must be false if x-kubernetes-int-or-string is true";
            errors.push(FieldError::invalid(path.child(name), true, rule));
        }
    }
    check_combinations(
        schema,
        is_int_or_string(&schema.any_of),
        first_is_int_or_string(schema),
        level,
        path,
        errors,
    );
    check_type(schema, level, path, errors);
    check_metadata(schema, level, path, errors);
}

/// Whether this is `anyOf: [{type: integer}, {type: string}]`, which int-or-string allows.
fn is_int_or_string(any_of: &[Schema]) -> bool {
    let only = |schema: &Schema, ty: &str| *schema == Schema { ty: ty.to_owned(), ..Schema::default() };
    matches!(any_of, [a, b] if only(a, "integer") && only(b, "string"))
}

/// Whether the first schema in `allOf` is the `anyOf` that int-or-string allows.
fn first_is_int_or_string(schema: &Schema) -> bool {
    schema.all_of.first().is_some_and(|first| is_int_or_string(&first.any_of))
}

fn check_type(schema: &Schema, level: Level, path: &Path<'_>, errors: &mut Errors) {
    let type_path = path.child("type");
    if schema.embedded && schema.ty != "object" {
        let rule = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(match schema.ty.as_str() {
            "" => FieldError::required(type_path, rule),
            ty => FieldError::invalid(type_path, ty, rule),
        });
    } else if schema.ty.is_empty() && !schema.int_or_string && !schema.keeps_unknown() {
        errors.push(FieldError::required(
            type_path,
            match level {
                Level::Root => "must not be empty at the root",
                Level::Item => "must not be empty for specified array items",
                Level::Field => "must not be empty for specified object fields",
            },
        ));
    }
    if schema.embedded && schema.additional.is_some() {
        let rule = "must not be used if x-kubernetes-embedded-resource is set";
        errors.push(FieldError::forbidden(path.child("additionalProperties"), rule));
    }
    if level == Level::Root && !schema.ty.is_empty() && schema.ty != "object" {
        errors.push(FieldError::invalid(type_path, &schema.ty, "must be object at the root"));
    }
}

fn check_metadata(schema: &Schema, level: Level, path: &Path<'_>, errors: &mut Errors) {
    let is_resource = level == Level::Root || schema.embedded;
    let properties = path.child("properties");
    for name in ["kind", "apiVersion"] {
        if let Some(property) =
            schema.properties.get(name).filter(|property| is_resource && property.ty != "string")
        {
            let path = properties.key(name);
            errors.push(FieldError::invalid(path.child("type"), &property.ty, "must be string"));
        }
    }
    if let Some(metadata) = schema.properties.get("metadata") {
        let metadata_path = properties.key("metadata");
        if is_resource && metadata.ty != "object" {
            errors.push(FieldError::invalid(metadata_path.child("type"), &metadata.ty, "must be object"));
        }
        if level == Level::Root {
            let mut rest = metadata.clone();
            if rest.properties.keys().all(|name| matches!(name.as_str(), "name" | "generateName")) {
                rest.properties.clear();
            }
            rest.ty = String::new();
            rest.default = None;
            rest.description = String::new();
            if rest != Schema::default() || !metadata.description.is_empty() {
                let rule = "must not specify anything other than name and generateName, but metadata is implicitly specified";
                errors.push(FieldError::forbidden(metadata_path, rule));
            }
        }
    }
    if schema.embedded && !schema.keeps_unknown() && schema.properties.is_empty() {
        let rule = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        errors.push(FieldError::required(path.child("properties"), rule));
    }
}

/// Validates the value validations of a schema (`allOf`, `anyOf`, `oneOf`, `not`, `pattern`).
fn check_combinations(
    schema: &Schema,
    skip_any: bool,
    skip_first_any: bool,
    level: Level,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    if !skip_any {
        for (i, one) in schema.any_of.iter().enumerate() {
            check_value_validation(one, false, level, &path.child("anyOf").index(i), errors);
        }
    }
    for (i, one) in schema.all_of.iter().enumerate() {
        check_value_validation(one, skip_first_any && i == 0, level, &path.child("allOf").index(i), errors);
    }
    for (i, one) in schema.one_of.iter().enumerate() {
        check_value_validation(one, false, level, &path.child("oneOf").index(i), errors);
    }
    if let Some(not) = &schema.not {
        check_value_validation(not, false, level, &path.child("not"), errors);
    }
    if !schema.pattern.is_empty()
        && let Err(why) = Regexp::new(&schema.pattern)
    {
        let rule = format!("must be a valid regular expression, but isn't: {why}");
        errors.push(FieldError::invalid(path.child("pattern"), &schema.pattern, rule));
    }
}

/// Validates a schema inside a value validation, which must not declare structure.
fn check_value_validation(
    schema: &Schema,
    skip_any: bool,
    level: Level,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    check_combinations(schema, skip_any, false, level, path, errors);
    if let Some(items) = &schema.items {
        check_value_validation(items, false, level, &path.child("items"), errors);
    }
    for (name, property) in &schema.properties {
        check_value_validation(property, false, Level::Field, &path.child("properties").key(name), errors);
    }
    let structural_keywords = [
        (!schema.ty.is_empty(), "type", "must be empty to be structural"),
        (schema.additional.is_some(), "additionalProperties", "must be undefined to be structural"),
        (schema.default.is_some(), "default", "must be undefined to be structural"),
        (!schema.title.is_empty(), "title", "must be empty to be structural"),
        (!schema.description.is_empty(), "description", "must be empty to be structural"),
        (schema.nullable, "nullable", "must be false to be structural"),
        (schema.keeps_unknown(), "x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
        (schema.embedded, "x-kubernetes-embedded-resource", "must be false to be structural"),
        (schema.int_or_string, "x-kubernetes-int-or-string", "must be false to be structural"),
        (!schema.list_keys.is_empty(), "x-kubernetes-list-map-keys", "must be empty to be structural"),
        (schema.list_type.is_some(), "x-kubernetes-list-type", "must be undefined to be structural"),
        (schema.map_type.is_some(), "x-kubernetes-map-type", "must be undefined to be structural"),
        (!schema.rules.is_empty(), "x-kubernetes-validations", "must be empty to be structural"),
    ];
    for (is_set, name, rule) in structural_keywords {
        if is_set {
            errors.push(FieldError::forbidden(path.child(name), rule));
        }
    }
    if schema.properties.contains_key("metadata") {
        let rule = "must not be specified in a nested context";
        errors.push(FieldError::forbidden(path.child("properties").key("metadata"), rule));
    }
}

/// Validates that the structural schema declares all fields that a value validation refers to.
fn check_declared(
    validation: &Schema,
    structure: &Schema,
    path: &Path<'_>,
    validation_path: &Path<'_>,
    errors: &mut Errors,
) {
    if let Some(not) = &validation.not {
        check_declared_nested(not, Some(structure), path, &validation_path.child("not"), errors);
    }
    for (alternatives, keyword) in
        [(&validation.all_of, "allOf"), (&validation.any_of, "anyOf"), (&validation.one_of, "oneOf")]
    {
        for (i, one) in alternatives.iter().enumerate() {
            let one_path = validation_path.child(keyword);
            check_declared_nested(one, Some(structure), path, &one_path.index(i), errors);
        }
    }
}

fn check_declared_nested(
    validation: &Schema,
    structure: Option<&Schema>,
    path: &Path<'_>,
    validation_path: &Path<'_>,
    errors: &mut Errors,
) {
    let Some(structure) = structure else {
        errors.push(FieldError::required(path, format!("because it is defined in {validation_path}")));
        return;
    };
    check_declared(validation, structure, path, validation_path, errors);
    if let Some(items) = &validation.items {
        let items_path = validation_path.child("items");
        check_declared_nested(items, structure.items.as_deref(), &path.child("items"), &items_path, errors);
    }
    for (name, property) in &validation.properties {
        let path = path.child("properties");
        let validation_path = validation_path.child("properties");
        check_declared_nested(
            property,
            structure.properties.get(name),
            &path.key(name),
            &validation_path.key(name),
            errors,
        );
    }
}
