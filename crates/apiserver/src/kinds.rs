//! The kinds that are served: a kind is a row of a table, not a copy of a handler.

mod fields;

use std::collections::BTreeMap;

use plumb_apischema::Schema;
use plumb_apischema::schema::{Kind, Resource, Scope};
use plumb_store::{Key, Prefix};

pub use fields::{field_value, supported_fields};

use crate::error::ApiError;
use crate::target::Target;

/// A kind as it is served and stored.
#[derive(Clone, Debug)]
pub struct Row {
    /// The row of discovery.
    pub resource: &'static Resource,
    /// The fields of its objects.
    pub body: &'static Kind,
}

impl Row {
    /// The kind's name.
    pub fn kind(&self) -> &'static str {
        self.resource.kind
    }

    /// `v1`, `apps/v1`.
    pub fn api_version(&self) -> String {
        self.resource.api_version()
    }

    /// The API group; empty for the core.
    pub fn group(&self) -> &'static str {
        self.resource.group
    }

    /// The name in addresses.
    pub fn plural(&self) -> &'static str {
        self.resource.plural
    }

    /// Whether its objects live in namespaces.
    pub fn is_namespaced(&self) -> bool {
        self.resource.scope == Scope::Namespaced
    }

    /// Whether it has a subresource.
    pub fn has(&self, subresource: &str) -> bool {
        self.resource.subresource(subresource).is_some()
    }

    /// Where its objects are stored.
    fn root(&self) -> String {
        let group = if self.group().is_empty() { "core" } else { self.group() };
        format!("{group}/{}", self.plural())
    }

    /// The key of an object.
    pub fn key(&self, namespace: Option<&str>, name: &str) -> Result<Key, ApiError> {
        let path = match namespace {
            Some(namespace) if self.is_namespaced() => format!("{}/{namespace}/{name}", self.root()),
            _ => format!("{}/{name}", self.root()),
        };
        Key::new(path).map_err(|error| ApiError::bad_request(format!("invalid name: {error}")))
    }

    /// The keys of all objects, or of those in a namespace.
    pub fn prefix(&self, namespace: Option<&str>) -> Result<Prefix, ApiError> {
        let path = match namespace {
            Some(namespace) if self.is_namespaced() => format!("{}/{namespace}", self.root()),
            _ => self.root(),
        };
        Prefix::new(path).map_err(|error| ApiError::bad_request(format!("invalid namespace: {error}")))
    }

    /// There is no such object.
    pub fn not_found(&self, name: &str) -> ApiError {
        ApiError::not_found(self.group(), self.plural(), name)
    }

    /// The object was changed by someone else meanwhile.
    pub fn modified(&self, name: &str) -> ApiError {
        ApiError::modified(self.group(), self.plural(), name)
    }
}

/// All kinds that are served.
#[derive(Clone, Debug)]
pub struct Kinds {
    rows: BTreeMap<(&'static str, &'static str, &'static str), Row>,
}

impl Kinds {
    /// The stable kinds of Kubernetes that are stored. Those that can only be created are questions, such as
    /// access reviews, and have no answers here yet.
    pub fn builtin() -> Self {
        let schema = Schema::builtin();
        let rows = schema
            .resources()
            .iter()
            .filter(|resource| is_stable(resource.version) && resource.allows("get"))
            .filter_map(|resource| {
                let body = schema.kind(resource.group, resource.version, resource.kind)?;
                let key = (resource.group, resource.version, resource.plural);
                Some((key, Row { resource, body }))
            })
            .collect();
        Self { rows }
    }

    /// The row that an address names.
    pub fn row(&self, target: &Target) -> Option<&Row> {
        let resource = Schema::builtin().resource(&target.group, &target.version, &target.resource)?;
        self.rows.get(&(resource.group, resource.version, resource.plural))
    }

    /// A row by group and plural, in the version that is served.
    pub fn find(&self, group: &str, plural: &str) -> Option<&Row> {
        self.rows.values().find(|row| row.group() == group && row.plural() == plural)
    }

    /// Every row, ordered by group, version and plural.
    pub fn iter(&self) -> impl Iterator<Item = &Row> {
        self.rows.values()
    }
}

/// `v1`, `v2`; not `v1beta1`.
fn is_stable(version: &str) -> bool {
    version.strip_prefix('v').is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}
