//! Strategic merge patches: merge patches that merge lists by keys.
//!
//! A list with the patch strategy `merge` is merged by its merge key, or as a set if its elements are scalars. All other lists
//! are replaced. Directives in the patch change that:
//!
//! | directive | where | effect |
//! |---|---|---|
//! | `$patch: replace` | in an object, or in an element of a list | replaces the object or the list |
//! | `$patch: delete` | in an object, or in an element with the key | empties the object, or removes the element |
//! | `$retainKeys: [...]` | in an object | removes all other fields first |
//! | `$deleteFromPrimitiveList/x: [...]` | beside a list of scalars `x` | removes these elements |
//! | `$setElementOrder/x: [...]` | beside a merged list `x` | orders the elements |

mod order;
mod target;

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::go_format::{go_format, go_type};
use super::merging::without_nulls;
use crate::schema::{Kind, Schema};
use order::{Elements, Ranks};
use target::Target;

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList";
const SET_ORDER: &str = "$setElementOrder";

/// Why a patch was rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StrategicError {
    /// The patch is not an object.
    #[error("json: cannot unmarshal {0} into Go value of type map[string]interface {{}}")]
    NotAnObject(&'static str),
    /// `$deleteFromPrimitiveList` is malformed.
    #[error("invalid patch format of primitive list")]
    PrimitiveList,
    /// `$retainKeys` is not a list, or the patch sets a field that it does not contain.
    #[error("invalid patch format of retainKeys")]
    RetainKeys,
    /// `$setElementOrder` is malformed.
    #[error("invalid patch format of setElementOrder list")]
    SetElementOrder,
    /// A list contains lists.
    #[error("lists of lists are not supported")]
    ListOfLists,
    /// Any other error, with upstream's message.
    #[error("{0}")]
    Other(String),
}

impl StrategicError {
    /// The HTTP status code with which upstream rejects the patch.
    pub fn status(&self) -> u16 {
        match self {
            Self::NotAnObject(_) | Self::PrimitiveList | Self::RetainKeys | Self::SetElementOrder => 400,
            Self::ListOfLists => 422,
            Self::Other(_) => 500,
        }
    }

    fn no_merge_key(element: &Map<String, Value>, key: &str) -> Self {
        let element = go_format(&Value::Object(element.clone()));
        Self::Other(format!("map: {element} does not contain declared merge key: {key}"))
    }

    fn not_a(expected: &str, found: &Value) -> Self {
        Self::Other(format!("expected a {expected}, but received a {}", go_type(found)))
    }

    fn unknown_directive(directive: &Value, object: &Map<String, Value>) -> Self {
        let directive = match directive {
            Value::String(text) => text.clone(),
            other => format!("%!s({}={})", go_type(other), go_format(other)),
        };
        Self::Other(format!(
            "unknown patch type: {directive} in map: {}",
            go_format(&Value::Object(object.clone()))
        ))
    }
}

type Object = Map<String, Value>;

/// Applies a patch to an object of a kind.
pub fn apply(schema: &Schema, kind: &Kind, original: Value, patch: Value) -> Result<Value, StrategicError> {
    let patch = match patch {
        Value::Object(patch) => patch,
        Value::Null => Map::new(),
        other => {
            let found = match other {
                Value::Array(_) => "array",
                Value::String(_) => "string",
                Value::Bool(_) => "bool",
                _ => "number",
            };
            return Err(StrategicError::NotAnObject(found));
        }
    };
    let original = match original {
        Value::Object(original) => original,
        _ => Map::new(),
    };
    Merger { schema }.object(original, patch, Target::Struct(kind.body)).map(Value::Object)
}

/// A merged list.
struct Merged {
    /// The elements in their new order.
    arranged: Vec<Value>,
    /// The order of the live list after upstream has merged into it in place.
    live: Ranks,
}

struct Merger<'s> {
    schema: &'s Schema,
}

impl Merger<'_> {
    fn object(
        &self,
        mut original: Object,
        mut patch: Object,
        target: Target,
    ) -> Result<Object, StrategicError> {
        if let Some(directive) = patch.get(PATCH) {
            return match directive.as_str() {
                Some("replace") => {
                    patch.remove(PATCH);
                    Ok(patch)
                }
                Some("delete") => Ok(Map::new()),
                _ => Err(StrategicError::unknown_directive(directive, &patch)),
            };
        }
        retain_keys(&mut original, &mut patch)?;
        self.ordered_lists(&mut original, &mut patch, target)?;
        for (name, value) in patch {
            self.field(&mut original, &name, value, target)?;
        }
        Ok(original)
    }

    fn field(
        &self,
        original: &mut Object,
        name: &str,
        patch: Value,
        target: Target,
    ) -> Result<(), StrategicError> {
        let (name, deleting) = match name.strip_prefix(DELETE_FROM) {
            None => (name, false),
            Some(rest) => match rest.strip_prefix('/') {
                Some("") => (name, true),
                Some(list) => (list, true),
                None => return Err(StrategicError::PrimitiveList),
            },
        };
        if patch.is_null() {
            original.remove(name);
            return Ok(());
        }
        let merged = match (original.remove(name), patch) {
            (Some(Value::Object(before)), Value::Object(patch)) => {
                let (inner, replaced) = target.field(self.schema, name)?;
                Value::Object(if replaced { patch } else { self.object(before, patch, inner)? })
            }
            (Some(Value::Array(before)), Value::Array(patch)) => {
                let list = target.list(self.schema, name)?;
                Value::Array(if list.merged || deleting {
                    self.list(before, patch, &list, deleting)?.arranged
                } else {
                    patch
                })
            }
            (before, patch) if deleting => {
                // The directive names a field that is not a list, or missing: nothing can be removed.
                let _ = patch;
                if let Some(before) = before {
                    original.insert(name.to_owned(), before);
                }
                return Ok(());
            }
            (Some(Value::Object(_) | Value::Array(_)) | None, mut patch)
            | (Some(_), mut patch @ (Value::Object(_) | Value::Array(_))) => {
                without_nulls(&mut patch);
                match without_directives(patch) {
                    Some(value) => value,
                    None => return Ok(()),
                }
            }
            (Some(_), patch) => patch,
        };
        original.insert(name.to_owned(), merged);
        Ok(())
    }

    /// Merges and orders the lists for which the patch has `$setElementOrder`, and removes them from the patch.
    fn ordered_lists(
        &self,
        original: &mut Object,
        patch: &mut Object,
        target: Target,
    ) -> Result<(), StrategicError> {
        let directives: Vec<String> =
            patch.keys().filter(|key| key.starts_with(SET_ORDER)).cloned().collect();
        for directive in directives {
            let Some(order) = patch.remove(&directive) else { continue };
            let Value::Array(order) = order else {
                return Err(StrategicError::not_a("[]interface {}", &order));
            };
            let name =
                directive[SET_ORDER.len()..].strip_prefix('/').ok_or(StrategicError::SetElementOrder)?;
            let live = taken_list(original.get(name))?;
            let given = taken_list(patch.get(name))?;
            let list = target.list(self.schema, name)?;
            order::check(given.as_deref().unwrap_or_default(), &order, list.key)?;
            let none: &[Value] = &[];
            let elements =
                order::element_kind(live.as_deref().unwrap_or(none), given.as_deref().unwrap_or(none));
            let key = list.key.filter(|_| elements == Ok(Elements::Objects));
            let merged = match (live, given) {
                (None, None) => continue,
                (Some(live), None) => Merged { live: Ranks::new(&live, key)?, arranged: live },
                (None, Some(given)) => {
                    let added = given.into_iter().filter_map(without_directives).collect();
                    Merged { arranged: added, live: Ranks::default() }
                }
                (Some(live), Some(given)) if list.merged => self.list(live, given, &list, false)?,
                (Some(live), Some(given)) => Merged { arranged: given, live: Ranks::new(&live, key)? },
            };
            if elements? == Elements::Objects && key.is_none() {
                let mut all = merged
                    .arranged
                    .iter()
                    .chain(&order)
                    .chain(original.get(name).and_then(Value::as_array).into_iter().flatten());
                if let Some(element) = all.find_map(Value::as_object) {
                    return Err(StrategicError::no_merge_key(element, ""));
                }
            }
            let sorted = order::arrange(merged.arranged, &Ranks::new(&order, key)?, &merged.live, key)?;
            original.insert(name.to_owned(), Value::Array(sorted));
            patch.remove(name);
        }
        Ok(())
    }

    fn list(
        &self,
        original: Vec<Value>,
        patch: Vec<Value>,
        list: &target::List,
        deleting: bool,
    ) -> Result<Merged, StrategicError> {
        if original.is_empty() && patch.is_empty() {
            return Ok(Merged { arranged: original, live: Ranks::default() });
        }
        if order::element_kind(&original, &patch)? == Elements::Scalars {
            let live = Ranks::new(&original, None)?;
            if deleting {
                return Ok(Merged { arranged: order::without(original, &patch), live });
            }
            let given = Ranks::new(&patch, None)?;
            let merged = order::distinct(original, patch);
            return Ok(Merged { arranged: order::arrange(merged, &given, &live, None)?, live });
        }
        let key = list.key.ok_or_else(|| {
            let kind = list.element.go_kind(self.schema);
            StrategicError::Other(format!("cannot merge lists without merge key for {kind}"))
        })?;
        let length = original.len();
        let found = special_elements(original, patch, key)?;
        let given = Ranks::skipping_unnamed(&found.patch, key);
        let kept = Ranks::skipping_unnamed(&found.list, key);
        let merged = self.elements(found.list, found.patch, key, list.element)?;
        // Upstream merges in place: elements that the patch adds get the positions of those that it deletes.
        let live = match found.replaced {
            Some(before) => before,
            None => Ranks::skipping_unnamed(&merged[..length.min(merged.len())], key),
        };
        Ok(Merged { arranged: order::arrange(merged, &given, &kept, Some(key))?, live })
    }

    fn elements(
        &self,
        mut merged: Vec<Value>,
        patch: Vec<Value>,
        key: &str,
        element: Target,
    ) -> Result<Vec<Value>, StrategicError> {
        let mut indexes = order::Indexes::new(&merged, key)?;
        for value in patch {
            let Value::Object(value) = value else { continue };
            let identity = value.get(key).ok_or_else(|| StrategicError::no_merge_key(&value, key))?;
            if let Some(index) = indexes.find(identity) {
                let before = match merged[index].take() {
                    Value::Object(before) => before,
                    _ => Map::new(),
                };
                merged[index] = Value::Object(self.object(before, value, element)?);
            } else {
                indexes.note(identity, merged.len());
                merged.push(Value::Object(value));
            }
        }
        Ok(merged)
    }
}

/// A list and its patch after the elements with directives have been applied.
struct Plain {
    list: Vec<Value>,
    patch: Vec<Value>,
    /// The order of the list before `$patch: replace`.
    replaced: Option<Ranks>,
}

fn special_elements(mut list: Vec<Value>, patch: Vec<Value>, key: &str) -> Result<Plain, StrategicError> {
    let mut plain = Vec::with_capacity(patch.len());
    let mut gone = HashSet::new();
    let mut replace = false;
    for value in patch {
        let Value::Object(element) = &value else { continue };
        match element.get(PATCH) {
            None => plain.push(value),
            Some(directive) => match directive.as_str() {
                Some("delete") => {
                    let identity =
                        element.get(key).ok_or_else(|| StrategicError::no_merge_key(element, key))?;
                    gone.insert(order::identity(identity));
                }
                Some("replace") => replace = true,
                Some("merge") => {
                    let sentence = "merging lists cannot yet be specified in the patch";
                    return Err(StrategicError::Other(sentence.to_owned()));
                }
                _ => return Err(StrategicError::unknown_directive(directive, element)),
            },
        }
    }
    if replace {
        let before = Ranks::skipping_unnamed(&list, key);
        return Ok(Plain { list: plain, patch: Vec::new(), replaced: Some(before) });
    }
    if !gone.is_empty() {
        list.retain(|element| !element.get(key).is_some_and(|found| gone.contains(&order::identity(found))));
    }
    Ok(Plain { list, patch: plain, replaced: None })
}

fn taken_list(value: Option<&Value>) -> Result<Option<Vec<Value>>, StrategicError> {
    match value {
        None => Ok(None),
        Some(Value::Array(list)) => Ok(Some(list.clone())),
        Some(other) => Err(StrategicError::not_a("[]interface {}", other)),
    }
}

/// Removes the fields that `$retainKeys` does not contain.
fn retain_keys(original: &mut Object, patch: &mut Object) -> Result<(), StrategicError> {
    let Some(directive) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let Value::Array(kept) = directive else { return Err(StrategicError::RetainKeys) };
    let kept: HashSet<&str> = kept.iter().filter_map(Value::as_str).collect();
    let allowed = |(name, value): (&String, &Value)| {
        value.is_null()
            || name.starts_with(DELETE_FROM)
            || name.starts_with(SET_ORDER)
            || kept.contains(name.as_str())
    };
    if !patch.iter().all(allowed) {
        return Err(StrategicError::RetainKeys);
    }
    original.retain(|name, _| kept.contains(name.as_str()));
    Ok(())
}

/// Removes the objects with directives from a part of a patch that becomes a new value.
fn without_directives(value: Value) -> Option<Value> {
    Some(match value {
        Value::Object(object) => {
            if object.contains_key(PATCH) {
                return None;
            }
            let kept =
                object.into_iter().filter_map(|(name, inner)| Some((name, without_directives(inner)?)));
            Value::Object(kept.collect())
        }
        Value::Array(list) => Value::Array(list.into_iter().filter_map(without_directives).collect()),
        other => other,
    })
}
