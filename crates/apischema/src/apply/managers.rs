//! Field managers: `metadata.managedFields`.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::fields::FieldsError;
use super::set::FieldSet;

/// The operation of a manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// The manager applied its fields.
    Apply,
    /// The manager created or updated its fields.
    Update,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// An entry of `managedFields`: a manager and its fields in one API version.
#[derive(Clone, Debug)]
pub struct Manager<'a> {
    /// The name of the manager.
    pub name: Cow<'a, str>,
    /// The operation by which the manager got its fields.
    pub operation: Operation,
    /// The API version of the paths of the fields.
    pub api_version: Cow<'a, str>,
    /// The subresource; empty for the object itself.
    pub subresource: Cow<'a, str>,
    /// When the set of fields last changed.
    pub time: Option<Cow<'a, str>>,
    /// The fields that the manager owns.
    pub set: FieldSet<'a>,
    /// The entry that the manager was parsed from; `None` once it has been changed. It is written back as it is, so that
    /// requests which change no fields do not rewrite the entries of other managers.
    read_from: Option<&'a Value>,
}

/// Why `managedFields` does not parse.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManagersError {
    /// The operation is invalid.
    #[error("operation must be `Apply` or `Update`")]
    Operation,
    /// The API version is missing.
    #[error("apiVersion must not be empty")]
    ApiVersion,
    /// `fieldsType` is missing.
    #[error("missing fieldsType in managed fields entry {0}")]
    NoFieldsType(usize),
    /// `fieldsType` is unknown.
    #[error("invalid fieldsType {1:?} in managed fields entry {0}")]
    FieldsType(usize, String),
    /// `fieldsV1` does not parse.
    #[error("error decoding versioned set: error decoding set: {0}")]
    Fields(#[from] FieldsError),
}

impl<'a> Manager<'a> {
    /// Creates a manager. A manager without a name is called `unknown`, as upstream does.
    pub(super) fn new(
        name: &'a str,
        operation: Operation,
        api_version: &'a str,
        subresource: &'a str,
        set: FieldSet<'a>,
    ) -> Self {
        Self {
            name: Cow::Borrowed(if name.is_empty() { "unknown" } else { name }),
            operation,
            api_version: Cow::Borrowed(api_version),
            subresource: Cow::Borrowed(subresource),
            time: None,
            set,
            read_from: None,
        }
    }

    /// Whether two entries belong to one manager. A manager has one apply entry for all API versions, and an update entry for
    /// each.
    pub(super) fn is(&self, other: &Manager<'_>) -> bool {
        self.name == other.name
            && self.operation == other.operation
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }

    /// Replaces the fields of the manager.
    pub(super) fn change(&mut self, set: FieldSet<'a>) {
        self.set = set;
        self.read_from = None;
    }

    /// Sets the time of the last change.
    pub(super) fn stamp(&mut self, now: &str) {
        if self.time.as_deref() != Some(now) {
            self.time = Some(Cow::Owned(now.to_owned()));
            self.read_from = None;
        }
    }

    /// The identifier by which upstream sorts managers: the entry as JSON, without its time and fields
    /// (`BuildManagerIdentifier`).
    pub(super) fn identity(&self) -> String {
        let mut entry = String::from("{");
        let mut field = |name: &str, value: &str| {
            if !value.is_empty() {
                let comma = if entry.len() > 1 { "," } else { "" };
                for part in [comma, "\"", name, "\":", &Value::from(value).to_string()] {
                    entry.push_str(part);
                }
            }
        };
        field("manager", &self.name);
        field("operation", self.operation.name());
        if self.operation == Operation::Update {
            field("apiVersion", &self.api_version);
        }
        field("subresource", &self.subresource);
        entry.push('}');
        entry
    }

    fn read(index: usize, entry: &'a Value) -> Result<Self, ManagersError> {
        let text = |field: &str| entry.get(field).and_then(Value::as_str).unwrap_or_default();
        let operation = match text("operation") {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return Err(ManagersError::Operation),
        };
        if text("apiVersion").is_empty() {
            return Err(ManagersError::ApiVersion);
        }
        match text("fieldsType") {
            "FieldsV1" => {}
            "" => return Err(ManagersError::NoFieldsType(index)),
            other => return Err(ManagersError::FieldsType(index, other.to_owned())),
        }
        let set = entry.get("fieldsV1").map(FieldSet::read).transpose()?.unwrap_or_default();
        Ok(Self {
            name: Cow::Borrowed(text("manager")),
            operation,
            api_version: Cow::Borrowed(text("apiVersion")),
            subresource: Cow::Borrowed(text("subresource")),
            time: entry.get("time").and_then(Value::as_str).map(Cow::Borrowed),
            set,
            read_from: Some(entry),
        })
    }

    fn to_value(&self) -> Value {
        if let Some(entry) = self.read_from {
            return entry.clone();
        }
        let mut entry = Map::new();
        let mut text = |field: &str, value: &str| {
            if !value.is_empty() {
                entry.insert(field.to_owned(), Value::from(value));
            }
        };
        text("manager", &self.name);
        text("operation", self.operation.name());
        text("apiVersion", &self.api_version);
        text("subresource", &self.subresource);
        text("time", self.time.as_deref().unwrap_or_default());
        text("fieldsType", "FieldsV1");
        entry.insert("fieldsV1".to_owned(), self.set.to_value());
        Value::Object(entry)
    }

    /// The order of managers in the list. Timestamps have one format, so their strings sort by time.
    fn order(&self) -> impl Ord {
        let time = self.time.as_deref().unwrap_or_default();
        (self.operation, time, &self.name, &self.api_version, &self.subresource)
    }
}

/// All managers of an object.
#[derive(Clone, Debug, Default)]
pub struct Managers<'a>(pub(super) Vec<Manager<'a>>);

impl<'a> Managers<'a> {
    /// Parses `metadata.managedFields`.
    pub fn read(list: Option<&'a Value>) -> Result<Self, ManagersError> {
        let mut managers = Self::default();
        for (index, entry) in list.and_then(Value::as_array).into_iter().flatten().enumerate() {
            managers.put(Manager::read(index, entry)?);
        }
        Ok(managers)
    }

    /// The value of `metadata.managedFields`; `None` without managers.
    pub fn to_value(&self) -> Option<Value> {
        if self.0.is_empty() {
            return None;
        }
        let mut sorted: Vec<&Manager<'a>> = self.0.iter().collect();
        sorted.sort_by(|one, other| one.order().cmp(&other.order()));
        Some(Value::Array(sorted.into_iter().map(Manager::to_value).collect()))
    }

    /// Inserts a manager, or replaces the entry of the same manager.
    pub(super) fn put(&mut self, manager: Manager<'a>) {
        match self.0.iter_mut().find(|known| known.is(&manager)) {
            Some(known) => *known = manager,
            None => self.0.push(manager),
        }
    }

    /// Iterates over the managers, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &Manager<'a>> {
        self.0.iter()
    }

    /// Caps the number of update entries: merges the oldest entries of an API version into one with the name
    /// `ancient-changes` (`capUpdateManagers`).
    pub(super) fn cap(&mut self) {
        /// The maximum number of update entries (`DefaultMaxUpdateManagers`).
        const MAX_UPDATES: usize = 10;
        const BUCKET: &str = "ancient-changes";
        let writers =
            |all: &[Manager<'a>]| all.iter().filter(|one| one.operation == Operation::Update).count();
        let mut left = writers(&self.0);
        if left <= MAX_UPDATES {
            return;
        }
        let mut oldest: Vec<(String, String)> = (self.0.iter())
            .filter(|one| one.operation == Operation::Update)
            .map(|one| (one.time.as_deref().unwrap_or_default().to_owned(), one.identity()))
            .collect();
        oldest.sort();
        // The identity of the oldest entry of each API version, into which the next ones are merged.
        let mut firsts: Vec<(String, String)> = Vec::new();
        for (_, identity) in oldest {
            if left <= MAX_UPDATES {
                return;
            }
            let Some(index) = self.0.iter().position(|one| one.identity() == identity) else { continue };
            let version = self.0[index].api_version.clone().into_owned();
            let Some((_, first)) = firsts.iter().find(|(of, _)| *of == version) else {
                firsts.push((version, identity));
                continue;
            };
            let first = first.clone();
            let merged = self.0.remove(index);
            let bucket = |one: &Manager<'_>| {
                one.name == BUCKET
                    && one.operation == Operation::Update
                    && one.subresource.is_empty()
                    && one.api_version == version
            };
            let index = self.0.iter().position(bucket);
            let Some(index) = index.or_else(|| self.0.iter().position(|one| one.identity() == first)) else {
                continue;
            };
            let entry = &mut self.0[index];
            entry.name = Cow::Borrowed(BUCKET);
            entry.subresource = Cow::Borrowed("");
            let mut set = std::mem::take(&mut entry.set);
            set.add(&merged.set);
            entry.change(set);
            // The merged entry has the newer timestamp.
            entry.time = merged.time;
            left -= 1;
        }
    }
}
