//! Keeping the managers of an object: what a write makes of them, and what an apply makes of the object.

mod applying;
mod pruning;
mod updating;

use std::borrow::Cow;

use serde_json::Value;

pub use applying::ApplyError;

use super::set::FieldSet;
use super::types::Type;

/// The versions of a kind: what its objects look like in each.
pub trait Versions {
    /// An object in another version, and its type there; nothing, if there is no such version.
    fn in_version<'v>(&'v self, object: &'v Value, api_version: &str) -> Option<(Type<'v>, Cow<'v, Value>)>;

    /// The fields that a write to this part of the object does not decide, in a version.
    fn ignored(&self, api_version: &str) -> &Ignored;
}

/// Fields that a write does not decide, so that nobody comes to manage them by it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Ignored {
    /// None.
    #[default]
    Nothing,
    /// These, and everything inside them.
    Fields(FieldSet<'static>),
    /// All but those behind these steps; `None` is any step.
    AllBut(Vec<Vec<Option<&'static str>>>),
}

impl Ignored {
    /// These fields, and everything inside them.
    pub fn fields<const N: usize>(paths: [&[&'static str]; N]) -> Self {
        Self::Fields(FieldSet::of_names(paths))
    }

    fn filter(&self, set: &mut FieldSet<'_>) {
        match self {
            Self::Nothing => {}
            Self::Fields(fields) => set.take_out_with_all_inside(fields),
            Self::AllBut(patterns) => {
                let patterns: Vec<&[Option<&str>]> = patterns.iter().map(Vec::as_slice).collect();
                *set = set.only(&patterns);
            }
        }
    }
}

/// A kind with one version.
#[derive(Clone, Debug)]
pub struct OneVersion<'t> {
    /// The version.
    pub api_version: &'t str,
    /// Its type.
    pub ty: Type<'t>,
    /// What a write does not decide.
    pub ignored: Ignored,
}

impl Versions for OneVersion<'_> {
    fn in_version<'v>(&'v self, object: &'v Value, api_version: &str) -> Option<(Type<'v>, Cow<'v, Value>)> {
        (api_version == self.api_version).then_some((self.ty, Cow::Borrowed(object)))
    }

    fn ignored(&self, _: &str) -> &Ignored {
        &self.ignored
    }
}

/// Keeps the managers of a kind's objects through writes to one part of them.
#[derive(Clone, Copy)]
pub struct Tracker<'t> {
    /// The versions of the kind.
    pub versions: &'t dyn Versions,
    /// The version that is written in.
    pub api_version: &'t str,
    /// The kind's name.
    pub kind: &'t str,
    /// The part that is written; empty for the object itself.
    pub subresource: &'t str,
    /// The moment of the write, as the API writes moments.
    pub now: &'t str,
    /// An object of the kind that nobody has written anything into.
    pub empty: &'t Value,
}

/// The fields of an object's metadata that nobody manages.
fn unmanaged() -> FieldSet<'static> {
    FieldSet::of_names([
        &["apiVersion"],
        &["kind"],
        &["metadata"],
        &["metadata", "name"],
        &["metadata", "namespace"],
        &["metadata", "creationTimestamp"],
        &["metadata", "selfLink"],
        &["metadata", "uid"],
        &["metadata", "clusterName"],
        &["metadata", "generation"],
        &["metadata", "managedFields"],
        &["metadata", "resourceVersion"],
    ])
}

/// Takes the list of managers out of an object.
fn take_managed(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")
}

/// The list of managers of an object.
fn managed(object: &Value) -> Option<&Value> {
    object.get("metadata")?.get("managedFields")
}

/// Puts a list of managers into an object that has metadata.
fn put_managed(object: &mut Value, list: Option<Value>) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    match list {
        Some(list) => metadata.insert("managedFields".to_owned(), list),
        None => metadata.remove("managedFields"),
    };
}

/// Whether somebody wants everything about managers to be forgotten: the list is empty, or has one empty entry.
fn is_reset(list: &Value) -> bool {
    match list.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([entry]) => entry.as_object().is_some_and(serde_json::Map::is_empty),
        _ => false,
    }
}
