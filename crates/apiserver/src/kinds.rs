//! The table of served kinds. Handlers are generic; a row and its strategy have what is special about a kind.
//!
//! The table is a snapshot: a request uses the one that it began with, and a new custom kind replaces the whole table. Rows
//! are shared, not copied.

pub mod conversion;
mod custom;
mod encoding;
mod fields;
mod readable;
mod resource;
pub mod rest;
pub mod strategy;

use std::collections::{BTreeMap, HashMap};
use std::ops::Deref;
use std::sync::Arc;

use plumb_apischema::Schema;
use plumb_apischema::schema::{Kind, Scope};
use plumb_resize::rules::Rules;
use plumb_store::{EventFilter, Key, MAX_ATTRIBUTE, Prefix};
use serde_json::Value;

pub use custom::Custom;
pub(crate) use custom::{Converter, Since, StaleWrite, signed_numbers, whole_numbers};
pub use encoding::encode;
pub use encoding::restamp;
pub(crate) use encoding::{encode_as, encode_at, head, head_before_metadata};
pub use fields::attributes;
pub use fields::{Attribute, FieldLabelError, field_label, field_value};
pub(crate) use readable::Readable;
pub use resource::{Name, Resource, Subresource};
pub use strategy::{
    Context, FieldPaths, GarbageCollectionPolicy, MetadataChecks, Requester, ReviewContext, ReviewHandler,
    StatusMetadataChecks, Storage, Strategy, SubresourceAction, SubresourceHandler, SubresourceStrategy,
    Validation, invalid,
};

use conversion::StoredAs;

use crate::error::ApiError;
use crate::selector::FieldSelector;
use crate::stored;
use crate::url::Target;

/// A kind as it is served and stored. Clones are the same row.
#[derive(Clone, Debug)]
pub struct Row(Arc<Served>);

/// The content of a row.
#[derive(Debug)]
pub struct Served {
    /// The resource in discovery.
    pub resource: Resource,
    /// The schema of its objects.
    pub body: Form,
    /// The kind that its objects are stored as, if another.
    pub stored_as: Option<StoredAs>,
}

/// The schema of the objects of a kind.
#[derive(Debug)]
pub enum Form {
    /// A built-in kind.
    Builtin(Builtin),
    /// A custom kind: its `CustomResourceDefinition`.
    Custom(Custom),
}

/// The schema of a built-in kind, in the tables of the Kubernetes API, and its strategy.
#[derive(Clone, Copy, Debug)]
pub struct Builtin {
    pub(crate) kind: &'static Kind,
    strategy: &'static dyn Strategy,
    defaults: Defaults,
}

/// The strategies of the built-in kinds, by group and kind.
pub(crate) type Strategies = fn(&str, &str) -> &'static dyn Strategy;

/// Fills in the defaults of the fields that an object of a built-in kind leaves out: by group, version and kind.
pub(crate) type Defaults = fn(&str, &str, &str, &mut Value, &Rules);

impl Deref for Row {
    type Target = Served;

    fn deref(&self) -> &Served {
        &self.0
    }
}

impl Row {
    /// A built-in kind with a strategy.
    fn of_builtin(
        resource: &'static plumb_apischema::schema::Resource,
        kind: &'static Kind,
        strategies: Strategies,
        defaults: Defaults,
    ) -> Self {
        let strategy = strategies(resource.group, resource.kind);
        let stored_as = strategy.stored_as(resource.version);
        let body = Form::Builtin(Builtin { kind, strategy, defaults });
        Self(Arc::new(Served { resource: resource.into(), body, stored_as }))
    }

    /// A custom kind.
    pub(crate) fn defined(resource: Resource, custom: Custom) -> Self {
        Self(Arc::new(Served { resource, body: Form::Custom(custom), stored_as: None }))
    }

    /// The schema of a built-in kind.
    pub(crate) fn builtin(&self) -> Option<&'static Kind> {
        match &self.body {
            Form::Builtin(builtin) => Some(builtin.kind),
            Form::Custom(_) => None,
        }
    }

    /// The definition of a custom kind.
    pub(crate) fn custom(&self) -> Option<&Custom> {
        match &self.body {
            Form::Builtin(_) => None,
            Form::Custom(custom) => Some(custom),
        }
    }

    /// The strategy of the kind.
    pub fn strategy(&self) -> &dyn Strategy {
        match &self.body {
            Form::Builtin(builtin) => builtin.strategy,
            Form::Custom(custom) => custom,
        }
    }

    /// Fills in the defaults that the types of the fields have. Definitions have those of custom kinds.
    pub(crate) fn apply_defaults(&self, object: &mut Value, rules: &Rules) {
        if let Form::Builtin(builtin) = &self.body {
            (builtin.defaults)(self.group(), self.version(), self.kind(), object, rules);
        }
    }

    /// Whether its objects define kinds.
    pub(crate) fn is_definition(&self) -> bool {
        self.strategy().defines_kinds()
    }

    /// Whether this is the same resource in the same version.
    pub(crate) fn is_same_resource(&self, other: &Self) -> bool {
        place(self) == place(other)
    }

    /// Whether its objects are stored as those of another row.
    pub(crate) fn is_stored_with(&self, stored: &Self) -> bool {
        match &self.stored_as {
            Some(as_) => (&*as_.group, &*as_.plural) == (stored.group(), stored.plural()),
            None => (self.group(), self.plural()) == (stored.group(), stored.plural()),
        }
    }

    /// Whether its objects are reviews, which are not stored.
    pub(crate) fn is_review(&self) -> bool {
        matches!(self.strategy().storage(), Storage::Review(_))
    }

    /// Whether its objects are namespaces.
    pub(crate) fn is_namespace(&self) -> bool {
        self.strategy().is_namespace()
    }

    /// The kind's name.
    pub fn kind(&self) -> &str {
        &self.resource.kind
    }

    /// The version within the group.
    pub fn version(&self) -> &str {
        &self.resource.version
    }

    /// `v1`, `apps/v1`.
    pub fn api_version(&self) -> String {
        self.resource.api_version()
    }

    /// The API group; empty for the core.
    pub fn group(&self) -> &str {
        &self.resource.group
    }

    /// The plural name in URLs.
    pub fn plural(&self) -> &str {
        &self.resource.plural
    }

    /// Whether the kind is namespaced.
    pub fn is_namespaced(&self) -> bool {
        self.resource.scope == Scope::Namespaced
    }

    /// Whether it has a subresource.
    pub fn has(&self, subresource: &str) -> bool {
        self.resource.subresource(subresource).is_some()
    }

    /// The prefix of its objects in the store.
    fn root(&self) -> String {
        stored::root(self.group(), self.plural())
    }

    /// The key of an object.
    pub fn key(&self, namespace: Option<&str>, name: &str) -> Result<Key, ApiError> {
        let path = match namespace {
            Some(namespace) if self.is_namespaced() => format!("{}/{namespace}/{name}", self.root()),
            _ => format!("{}/{name}", self.root()),
        };
        Key::new(path).map_err(|error| ApiError::bad_request(format!("invalid name: {error}")))
    }

    /// The prefix of all objects, or of those in a namespace.
    pub fn prefix(&self, namespace: Option<&str>) -> Result<Prefix, ApiError> {
        let path = match namespace {
            Some(namespace) if self.is_namespaced() => format!("{}/{namespace}", self.root()),
            _ => self.root(),
        };
        Prefix::new(path).map_err(|error| ApiError::bad_request(format!("invalid namespace: {error}")))
    }

    /// The filter for a watch of these objects. If the selector requires a value of a field that the store has as an
    /// attribute of every object, the store filters by it.
    pub fn events(&self, namespace: Option<&str>, selector: &FieldSelector) -> Result<EventFilter, ApiError> {
        let filter = EventFilter::prefix(self.prefix(namespace)?);
        let attributes = self.strategy().attributes().iter().filter(|own| own.indexed);
        let mut wanted =
            attributes.filter_map(|own| selector.exact(own.field).map(|value| (own.field, value)));
        // The store has no attributes with an empty or a too long value.
        let indexed = wanted.find(|(_, value)| (1..=MAX_ATTRIBUTE).contains(&value.len()));
        Ok(match indexed {
            Some((field, value)) => filter.attribute(field, value),
            None => filter,
        })
    }

    /// The error for an object that does not exist.
    pub fn not_found(&self, name: &str) -> ApiError {
        ApiError::not_found(self.group(), self.plural(), name)
    }

    /// The error for a conflict with another write.
    pub fn modified(&self, name: &str) -> ApiError {
        ApiError::modified(self.group(), self.plural(), name)
    }
}

/// All kinds that are served.
#[derive(Clone, Debug)]
pub struct Kinds {
    builtin: Arc<BTreeMap<(&'static str, &'static str, &'static str), Row>>,
    /// The custom kinds, ordered by group, version and plural.
    custom: Vec<Row>,
    /// Their indexes, by plural, version and group.
    by_name: HashMap<String, usize>,
}

impl Kinds {
    /// The stable kinds of Kubernetes, and those that are served unstable: all that can be read, and reviews, which can only be
    /// created.
    pub fn builtin(strategies: Strategies, defaults: Defaults) -> Self {
        let schema = Schema::builtin();
        let rows = schema
            .resources()
            .iter()
            .filter_map(|resource| {
                let kind = schema.kind(resource.group, resource.version, resource.kind)?;
                let key = (resource.group, resource.version, resource.plural);
                Some((key, Row::of_builtin(resource, kind, strategies, defaults)))
            })
            .filter(|(_, row)| is_stable(row.version()) || row.strategy().is_served_unstable())
            .filter(|(_, row)| row.resource.allows("get") || row.is_review())
            .collect();
        Self { builtin: Arc::new(rows), custom: Vec::new(), by_name: HashMap::new() }
    }

    /// The same without the subresources of disabled features.
    #[must_use]
    pub fn under(mut self, rules: &Rules) -> Self {
        for row in Arc::make_mut(&mut self.builtin).values_mut() {
            let is_served = |below: &Subresource| row.strategy().serves_subresource(&below.name, rules);
            if !row.resource.subresources.iter().all(is_served)
                && let Form::Builtin(builtin) = row.body
            {
                let mut resource = row.resource.clone();
                resource.subresources.retain(is_served);
                let (body, stored_as) = (Form::Builtin(builtin), row.stored_as.clone());
                *row = Row(Arc::new(Served { resource, body, stored_as }));
            }
        }
        self
    }

    /// The same built-in kinds, with these custom kinds. A built-in kind cannot be replaced.
    #[must_use]
    pub fn with_custom(&self, rows: impl IntoIterator<Item = Row>) -> Self {
        let taken = |row: &Row| {
            Schema::builtin()
                .resource(row.group(), row.version(), row.plural())
                .is_some_and(|own| self.builtin.contains_key(&(own.group, own.version, own.plural)))
        };
        let mut custom: Vec<Row> = rows.into_iter().filter(|row| !taken(row)).collect();
        custom.sort_by(|a, b| place(a).cmp(&place(b)));
        let by_name = custom
            .iter()
            .enumerate()
            .map(|(index, row)| (full_name(row.group(), row.version(), row.plural()), index))
            .collect();
        Self { builtin: self.builtin.clone(), custom, by_name }
    }

    /// The row of a URL.
    pub fn row(&self, target: &Target) -> Option<&Row> {
        let own = Schema::builtin().resource(&target.group, &target.version, &target.resource);
        let own = own.and_then(|own| self.builtin.get(&(own.group, own.version, own.plural)));
        own.or_else(|| {
            let name = full_name(&target.group, &target.version, &target.resource);
            self.custom.get(*self.by_name.get(&name)?)
        })
    }

    /// The row of the stored kind.
    pub fn stored(&self, stored_as: &StoredAs) -> Option<&Row> {
        let StoredAs { group, version, plural, .. } = stored_as;
        let target = |row: &&Row| place(row) == (&**group, &**version, &**plural);
        self.iter().find(target)
    }

    /// A row by group and plural, in the served version.
    pub fn find(&self, group: &str, plural: &str) -> Option<Row> {
        self.iter().find(|row| row.group() == group && row.plural() == plural).cloned()
    }

    /// All rows: first the built-in kinds, then the custom ones, each ordered by group, version and plural.
    pub fn iter(&self) -> impl Iterator<Item = &Row> {
        self.builtin.values().chain(&self.custom)
    }
}

fn place(row: &Row) -> (&str, &str, &str) {
    (row.group(), row.version(), row.plural())
}

fn full_name(group: &str, version: &str, plural: &str) -> String {
    format!("{plural}.{version}.{group}")
}

/// `v1`, `v2`; not `v1beta1`.
fn is_stable(version: &str) -> bool {
    version.strip_prefix('v').is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}
