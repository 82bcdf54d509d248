//! The API versions of a kind, for managed fields.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Value, json};

use super::empty;
use super::set::FieldSet;
use super::types::{Type, Types};
use crate::schema::{Kind, Schema};

/// The API versions of a kind, with conversion and types.
pub trait Versions: Sync {
    /// Converts an object to another version. Returns the type of the kind in that version too; `None` for an unknown version.
    fn in_version<'v>(&'v self, object: &'v Value, api_version: &str) -> Option<(Type<'v>, Cow<'v, Value>)>;

    /// The fields in a version that a request to this endpoint does not change (`resetFields` upstream).
    fn ignored(&self, api_version: &str) -> &Ignored;

    /// An empty object of the kind.
    fn empty(&self) -> Value;

    /// Whether objects may not match their types yet.
    fn may_be_mistyped(&self) -> bool {
        false
    }
}

/// Fields that a request does not change, so that its manager does not own them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Ignored {
    /// None.
    #[default]
    Nothing,
    /// These fields with all their descendants.
    Fields(FieldSet<'static>),
    /// All fields except these paths and their descendants; `None` matches any element.
    AllBut(Vec<Vec<Option<&'static str>>>),
}

impl Ignored {
    /// Ignores fields with all their descendants.
    pub fn fields(paths: &[&[&'static str]]) -> Self {
        Self::Fields(FieldSet::from_names(paths))
    }

    pub(super) fn filter(&self, set: &mut FieldSet<'_>) {
        match self {
            Self::Nothing => {}
            Self::Fields(fields) => set.subtract_recursively(fields),
            Self::AllBut(patterns) => {
                let patterns: Vec<&[Option<&str>]> = patterns.iter().map(Vec::as_slice).collect();
                *set = set.matching(&patterns);
            }
        }
    }
}

/// A built-in kind in one version.
#[derive(Clone, Copy, Debug)]
pub struct OneVersion<'t> {
    /// The kind.
    pub kind: &'t Kind,
    /// Its version.
    pub api_version: &'t str,
    /// The fields that a request does not change.
    pub ignored: &'t Ignored,
}

impl Versions for OneVersion<'_> {
    fn in_version<'v>(&'v self, object: &'v Value, api_version: &str) -> Option<(Type<'v>, Cow<'v, Value>)> {
        (api_version == self.api_version).then(|| (Types::for_kind(self.kind), Cow::Borrowed(object)))
    }

    fn ignored(&self, _: &str) -> &Ignored {
        self.ignored
    }

    fn empty(&self) -> Value {
        empty(Schema::builtin(), self.kind)
    }
}

/// A custom kind without a conversion webhook, whose versions differ only in their schemas and names.
#[derive(Clone, Copy, Debug)]
pub struct CustomVersions<'t> {
    /// The kind's name.
    pub kind: &'t str,
    /// The API version of the request.
    pub api_version: &'t str,
    /// The types of each version, by `group/version`.
    pub types: &'t [(String, Arc<Types>)],
    /// The fields that a request does not change.
    pub ignored: &'t Ignored,
    /// Whether the fields are ignored in every version, as for the status, or only in that of the request.
    pub ignored_in_all: bool,
}

impl Versions for CustomVersions<'_> {
    fn in_version<'v>(&'v self, object: &'v Value, api_version: &str) -> Option<(Type<'v>, Cow<'v, Value>)> {
        let (_, types) = self.types.iter().find(|(version, _)| version == api_version)?;
        let same = object.get("apiVersion").is_none_or(|version| version == api_version);
        let mut object = Cow::Borrowed(object);
        if !same {
            object.to_mut()["apiVersion"] = Value::from(api_version);
        }
        Some((types.root(), object))
    }

    fn ignored(&self, api_version: &str) -> &Ignored {
        if self.ignored_in_all || api_version == self.api_version { self.ignored } else { &Ignored::Nothing }
    }

    fn may_be_mistyped(&self) -> bool {
        true
    }

    fn empty(&self) -> Value {
        json!({ "apiVersion": self.api_version, "kind": self.kind, "metadata": {} })
    }
}
