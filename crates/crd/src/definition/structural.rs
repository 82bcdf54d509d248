//! Validation that a schema is structural: types and fields are declared outside of `allOf`, `anyOf`, `oneOf` and
//! `not`.

use plumb_go::regexp::Regexp;
use plumb_validation::field::{FieldError, Path};

use super::Errors;
use crate::schema::Schema;

#[derive(Clone, Copy, PartialEq)]
enum Level {
    Root,
    Item,
    Field,
}

/// The reasons why a schema is not structural, sorted by message.
pub(super) fn check(schema: &Schema, path: &Path<'_>) -> Errors {
    let mut errors = Errors::new();
    shape(schema, Level::Root, path, &mut errors);
    complete(schema, schema, path, path, &mut errors);
    errors.sort_by_cached_key(ToString::to_string);
    errors
}

fn shape(schema: &Schema, level: Level, path: &Path<'_>, errors: &mut Errors) {
    if schema.ty == "array" && schema.items.is_none() {
        errors.push(FieldError::required(path.child("items"), "must be specified"));
    }
    if let Some(items) = &schema.items {
        shape(items, Level::Item, &path.child("items"), errors);
    }
    for (name, below) in &schema.properties {
        shape(below, Level::Field, &path.child("properties").key(name), errors);
    }
    if schema.additional.is_some() {
        if level == Level::Root {
            let rule = "must not be used at the root";
            errors.push(FieldError::forbidden(path.child("additionalProperties"), rule));
        }
        if let Some(other) = schema.additional_schema() {
            shape(other, Level::Field, &path.child("additionalProperties"), errors);
        }
    }
    for (is, name) in [
        (schema.keeps_unknown(), "x-kubernetes-preserve-unknown-fields"),
        (schema.embedded, "x-kubernetes-embedded-resource"),
    ] {
        if schema.int_or_string && is {
            let rule = "must be false if x-kubernetes-int-or-string is true";
            errors.push(FieldError::invalid(path.child(name), true, rule));
        }
    }
    asked(schema, is_either(&schema.any_of), first_is_either(schema), level, path, errors);
    type_of(schema, level, path, errors);
    metadata(schema, level, path, errors);
}

/// Whether this is `anyOf: [{type: integer}, {type: string}]`, which int-or-string allows.
fn is_either(any_of: &[Schema]) -> bool {
    let only = |schema: &Schema, ty: &str| *schema == Schema { ty: ty.to_owned(), ..Schema::default() };
    matches!(any_of, [a, b] if only(a, "integer") && only(b, "string"))
}

fn first_is_either(schema: &Schema) -> bool {
    schema.all_of.first().is_some_and(|first| is_either(&first.any_of))
}

fn type_of(schema: &Schema, level: Level, path: &Path<'_>, errors: &mut Errors) {
    let place = path.child("type");
    if schema.embedded && schema.ty != "object" {
        let rule = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(match schema.ty.as_str() {
            "" => FieldError::required(place, rule),
            ty => FieldError::invalid(place, ty, rule),
        });
    } else if schema.ty.is_empty() && !schema.int_or_string && !schema.keeps_unknown() {
        errors.push(FieldError::required(
            place,
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
        errors.push(FieldError::invalid(place, &schema.ty, "must be object at the root"));
    }
}

fn metadata(schema: &Schema, level: Level, path: &Path<'_>, errors: &mut Errors) {
    let checked = level == Level::Root || schema.embedded;
    let properties = path.child("properties");
    for name in ["kind", "apiVersion"] {
        if let Some(own) = schema.properties.get(name).filter(|own| checked && own.ty != "string") {
            let place = properties.key(name);
            errors.push(FieldError::invalid(place.child("type"), &own.ty, "must be string"));
        }
    }
    if let Some(own) = schema.properties.get("metadata") {
        let place = properties.key("metadata");
        if checked && own.ty != "object" {
            errors.push(FieldError::invalid(place.child("type"), &own.ty, "must be object"));
        }
        if level == Level::Root {
            let mut rest = own.clone();
            if rest.properties.keys().all(|name| matches!(name.as_str(), "name" | "generateName")) {
                rest.properties.clear();
            }
            (rest.ty, rest.default, rest.description) = (String::new(), None, String::new());
            if rest != Schema::default() || !own.description.is_empty() {
                let rule = "must not specify anything other than name and generateName, but metadata is implicitly specified";
                errors.push(FieldError::forbidden(place, rule));
            }
        }
    }
    if schema.embedded && !schema.keeps_unknown() && schema.properties.is_empty() {
        let rule = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        errors.push(FieldError::required(path.child("properties"), rule));
    }
}

/// Validates a value validation (`allOf`, `anyOf`, `oneOf`, `not`), which must not declare structure.
fn asked(
    schema: &Schema,
    skip_any: bool,
    skip_first_any: bool,
    level: Level,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    if !skip_any {
        for (i, one) in schema.any_of.iter().enumerate() {
            nested(one, false, level, &path.child("anyOf").index(i), errors);
        }
    }
    for (i, one) in schema.all_of.iter().enumerate() {
        nested(one, skip_first_any && i == 0, level, &path.child("allOf").index(i), errors);
    }
    for (i, one) in schema.one_of.iter().enumerate() {
        nested(one, false, level, &path.child("oneOf").index(i), errors);
    }
    if let Some(not) = &schema.not {
        nested(not, false, level, &path.child("not"), errors);
    }
    if !schema.pattern.is_empty()
        && let Err(why) = Regexp::new(&schema.pattern)
    {
        let rule = format!("must be a valid regular expression, but isn't: {why}");
        errors.push(FieldError::invalid(path.child("pattern"), &schema.pattern, rule));
    }
}

fn nested(schema: &Schema, skip_any: bool, level: Level, path: &Path<'_>, errors: &mut Errors) {
    asked(schema, skip_any, false, level, path, errors);
    if let Some(items) = &schema.items {
        nested(items, false, level, &path.child("items"), errors);
    }
    for (name, below) in &schema.properties {
        nested(below, false, Level::Field, &path.child("properties").key(name), errors);
    }
    let foreign = [
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
    for (is, name, rule) in foreign {
        if is {
            errors.push(FieldError::forbidden(path.child(name), rule));
        }
    }
    if schema.properties.contains_key("metadata") {
        let rule = "must not be specified in a nested context";
        errors.push(FieldError::forbidden(path.child("properties").key("metadata"), rule));
    }
}

/// Validates that the structural schema declares all fields that a value validation refers to.
fn complete(asked: &Schema, shape: &Schema, at: &Path<'_>, from: &Path<'_>, errors: &mut Errors) {
    if let Some(not) = &asked.not {
        complete_nested(not, Some(shape), at, &from.child("not"), errors);
    }
    for (list, name) in [(&asked.all_of, "allOf"), (&asked.any_of, "anyOf"), (&asked.one_of, "oneOf")] {
        for (i, one) in list.iter().enumerate() {
            complete_nested(one, Some(shape), at, &from.child(name).index(i), errors);
        }
    }
}

fn complete_nested(
    asked: &Schema,
    shape: Option<&Schema>,
    at: &Path<'_>,
    from: &Path<'_>,
    errors: &mut Errors,
) {
    let Some(shape) = shape else {
        errors.push(FieldError::required(at, format!("because it is defined in {from}")));
        return;
    };
    complete(asked, shape, at, from, errors);
    if let Some(items) = &asked.items {
        complete_nested(items, shape.items.as_deref(), &at.child("items"), &from.child("items"), errors);
    }
    for (name, below) in &asked.properties {
        let (at, from) = (at.child("properties"), from.child("properties"));
        complete_nested(below, shape.properties.get(name), &at.key(name), &from.key(name), errors);
    }
}
