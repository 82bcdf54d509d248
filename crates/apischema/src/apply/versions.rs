//! The versions of a kind, as far as managers have to know them.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Value, json};

use super::empty;
use super::set::FieldSet;
use super::types::{Type, Types};
use crate::schema::{Kind, Schema};

/// The versions of a kind: what its objects look like in each.
pub trait Versions: Sync {
    /// An object in another version, and its type there; nothing, if there is no such version.
    fn in_version<'v>(&'v self, object: &'v Value, api_version: &str) -> Option<(Type<'v>, Cow<'v, Value>)>;

    /// The fields that a write to this part of the object does not decide, in a version.
    fn ignored(&self, api_version: &str) -> &Ignored;

    /// An object of the kind that nobody has written anything into.
    fn empty(&self) -> Value;

    /// Whether objects come here before anybody has held them to their types.
    fn may_be_mistyped(&self) -> bool {
        false
    }
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

    pub(super) fn filter(&self, set: &mut FieldSet<'_>) {
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

/// A built-in kind in one version.
#[derive(Clone, Copy, Debug)]
pub struct OneVersion<'t> {
    /// The kind.
    pub kind: &'t Kind,
    /// Its version.
    pub api_version: &'t str,
    /// What a write does not decide.
    pub ignored: &'t Ignored,
}

impl Versions for OneVersion<'_> {
    fn in_version<'v>(&'v self, object: &'v Value, api_version: &str) -> Option<(Type<'v>, Cow<'v, Value>)> {
        (api_version == self.api_version).then(|| (Types::of_kind(self.kind), Cow::Borrowed(object)))
    }

    fn ignored(&self, _: &str) -> &Ignored {
        self.ignored
    }

    fn empty(&self) -> Value {
        empty(Schema::builtin(), self.kind)
    }
}

/// A kind that a CRD defines, whose versions differ in nothing but their schemas and their names.
#[derive(Clone, Copy, Debug)]
pub struct CustomVersions<'t> {
    /// The kind's name.
    pub kind: &'t str,
    /// The version that is written in.
    pub api_version: &'t str,
    /// The types of each version, by `group/version`.
    pub types: &'t [(String, Arc<Types>)],
    /// What a write does not decide.
    pub ignored: &'t Ignored,
    /// Whether that is so in every version, as for a status, and not only in the one that is written in.
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
