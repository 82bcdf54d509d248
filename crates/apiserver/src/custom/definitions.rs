//! Definitions of custom kinds, and the kinds that are served as they say.
//!
//! The table of kinds is made from all definitions at one revision. A request that depends on it, of discovery or of a
//! custom kind, first has it agree with every definition that can be read by then ([`Definitions::serve_current`]): a
//! client that has seen a definition in a watch finds what it defines, whether or not the request that wrote it has
//! returned.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use jiff::Timestamp;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use plumb_apischema::apply::Types;
use plumb_apischema::schema::Scope;
use plumb_crd::names::{self, Condition, is_condition_true};
use plumb_crd::{Version, definition};
use plumb_store::{EventFilter, List, Object, Revision, Snapshot, Store};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{Notify, watch};

use super::CLEANUP;
use super::conversion::WebhookConverter;
use crate::error::{ApiError, gone};
use crate::kinds::{Context, Converter, Custom, Kinds, Name, Resource, Row, Since, StaleWrite, Subresource};
use crate::object::{decode, finalizers, is_deleting, meta, metadata, moment};
use crate::url::Target;
use crate::webhook::Connections;

/// The stored definitions, and the table of kinds that they and the built-in kinds make.
pub struct Definitions {
    pub(super) store: Store,
    clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// Replaced as a whole when a kind is added or removed.
    kinds: ArcSwap<Kinds>,
    /// Held while a definition is stored and reconciled, and by the controller while it reconciles; never while a webhook
    /// is called.
    pub(crate) writing: tokio::sync::Mutex<()>,
    /// Held for reading while the store accepts a custom object, and for writing while the table of kinds changes.
    writing_objects: RwLock<()>,
    served: Mutex<BTreeMap<String, Entry>>,
    /// The connections to conversion webhooks.
    connections: Arc<Connections>,
    /// The table of kinds agrees with the definitions at this revision.
    served_at: AtomicU64,
    /// Everything up to this revision was reconciled.
    pub(super) reconciled: AtomicU64,
    /// Notified when a request could not reconcile what it wrote.
    pub(super) requeued: Notify,
}

impl Definitions {
    /// The definitions of a store, none of which is served yet: the table has the built-in kinds only.
    pub(crate) fn new(store: Store, clock: Arc<dyn Fn() -> Timestamp + Send + Sync>, builtin: Kinds) -> Self {
        Self {
            store,
            clock,
            kinds: ArcSwap::from_pointee(builtin),
            writing: tokio::sync::Mutex::default(),
            writing_objects: RwLock::default(),
            served: Mutex::default(),
            connections: Arc::default(),
            served_at: AtomicU64::default(),
            reconciled: AtomicU64::default(),
            requeued: Notify::default(),
        }
    }

    /// The kinds as they are served now.
    pub(crate) fn kinds(&self) -> Guard<Arc<Kinds>> {
        self.kinds.load()
    }

    /// The time.
    pub(super) fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// Up to which revision definitions are reconciled.
    pub(super) fn reconciled(&self) -> Revision {
        self.reconciled.load(Ordering::Acquire)
    }

    /// The row of `CustomResourceDefinition`.
    pub(super) fn row(&self) -> Result<Row, ApiError> {
        let row = self.kinds().find("apiextensions.k8s.io", "customresourcedefinitions");
        row.ok_or_else(|| ApiError::internal("there are no definitions"))
    }

    /// All definitions.
    pub(super) fn all(&self) -> Result<All, ApiError> {
        all_in(&self.store.snapshot(), &self.row()?)
    }

    /// Has the table of kinds agree with all definitions that can be read by now.
    pub(crate) fn serve_current(&self) -> Result<(), ApiError> {
        let (snapshot, since) = (self.store.snapshot(), self.served_at.load(Ordering::Acquire));
        if snapshot.revision() <= since {
            return Ok(());
        }
        let filter = EventFilter::prefix(self.row()?.prefix(None)?);
        // Where history does not reach back that far, there may have been a change.
        let changed = snapshot.changes(&filter, since).map_or(true, |mut changes| changes.next().is_some());
        if changed {
            self.serve()?;
        } else {
            self.served_at.fetch_max(snapshot.revision(), Ordering::AcqRel);
        }
        Ok(())
    }

    /// Serves the kinds as all definitions say, which it returns.
    pub(crate) fn serve(&self) -> Result<All, ApiError> {
        let mut known = self.served.lock();
        // Under the lock, so that the table of kinds never becomes older than it was.
        let is_first = self.served_at.load(Ordering::Acquire) == 0;
        let snapshot = self.store.snapshot();
        let all = all_in(&snapshot, &self.row()?)?;
        let (mut next, mut changed) = (BTreeMap::new(), Vec::new());
        let converter = |definition: &Value| WebhookConverter::of(definition, &self.store, &self.connections);
        for (object, definition) in &all {
            let name = meta(definition, "name").to_owned();
            let terminating = is_deleting(definition);
            let made_of = json!([
                definition["metadata"]["uid"],
                definition["spec"],
                definition["status"]["acceptedNames"],
                is_condition_true(definition, "Established"),
            ])
            .to_string();
            let entry = match known.remove(&name) {
                Some(entry) if entry.made_of == made_of && entry.terminating == terminating => entry,
                Some(Entry { made_of: same, life, since, .. }) if same == made_of => {
                    // Watches go on, so that they see the objects being deleted.
                    let rows = rows(definition, &since, &life.subscribe(), converter);
                    Entry { made_of, terminating, rows, since, life }
                }
                _ => {
                    let (sender, life) = watch::channel(());
                    let since = Since::new(object.mod_revision);
                    changed.push(since.clone());
                    let rows = rows(definition, &since, &life, converter);
                    Entry { made_of, terminating, rows, since, life: sender }
                }
            };
            next.insert(name, entry);
        }
        *known = next;
        let rows = known.values().flat_map(|entry| entry.rows.iter().cloned());
        {
            let _none_is_written = self.writing_objects.write();
            // Until now objects were written under the schema before.
            if !is_first {
                let accepted = self.store.accepted();
                for since in &changed {
                    since.raise(accepted);
                }
            }
            self.kinds.store(Arc::new(self.kinds().with_custom(rows)));
        }
        self.served_at.store(snapshot.revision(), Ordering::Release);
        Ok(all)
    }

    /// Whether an object of a custom kind may be stored, as long as the guard is held. The kind was found when the request
    /// began: meanwhile its definition may have been deleted, and its objects with it, or its schema may have changed.
    pub(crate) fn writable(
        &self,
        row: &Row,
        target: &Target,
        is_new: bool,
    ) -> Result<(RwLockReadGuard<'_, ()>, Option<StaleWrite>), ApiError> {
        let guard = self.writing_objects.read();
        let Some(own) = row.custom() else { return Ok((guard, None)) };
        let kinds = self.kinds();
        let served = kinds.row(target).and_then(Row::custom);
        if is_new {
            let served = served.ok_or_else(ApiError::no_such_path)?;
            if served.terminating {
                let (group, plural) = (row.group(), row.plural());
                return Err(ApiError::not_supported_while_terminating(group, plural));
            }
            if own.definition != served.definition {
                return Err(ApiError::no_such_path());
            }
        }
        let changed = served.filter(|served| !Arc::ptr_eq(&served.since, &own.since));
        Ok((guard, changed.map(|served| served.since.stale_write())))
    }
}

#[derive(Debug)]
struct Entry {
    /// All that rows are made of but whether the definition is terminating.
    made_of: String,
    terminating: bool,
    rows: Vec<Row>,
    since: Arc<Since>,
    /// Dropped with the entry, which ends the watches of its kinds.
    life: watch::Sender<()>,
}

/// Definitions, each as it is stored and decoded.
pub(super) type All = Vec<(Arc<Object>, Value)>;

/// All definitions at a revision. One that cannot be decoded is reported, and does not keep others from being served.
fn all_in(snapshot: &Snapshot, row: &Row) -> Result<All, ApiError> {
    let page = snapshot.list(&List::all(row.prefix(None)?)).map_err(gone)?;
    let read = |object: Arc<Object>| match decode(&object.value) {
        Ok(value) => Some((object, value)),
        Err(error) => {
            tracing::error!(key = %object.key, error = error.message, "a stored definition cannot be read");
            None
        }
    };
    Ok(page.objects.into_iter().filter_map(read).collect())
}

/// Sets the stored versions of a definition that is to be written, and accepts its names.
pub fn prepare(cx: Context<'_>, new: &mut Value) -> Result<(), ApiError> {
    definition::add_stored_version(new);
    accept_names(cx, new)
}

/// Accepts the names that a definition asks for, as far as no other definition has them.
///
/// The names are accepted again when the definition is stored, under the lock: another definition may have got them while
/// webhooks were called.
pub fn accept_names(cx: Context<'_>, new: &mut Value) -> Result<(), ApiError> {
    let now = moment(cx.now());
    let others = all_in(&cx.store.snapshot(), cx.row)?;
    let own = meta(new, "name").to_owned();
    names::accept_names(
        new,
        others.iter().map(|(_, other)| other).filter(|other| meta(other, "name") != own),
        &now,
    );
    Ok(())
}

/// Puts the finalizer on a definition that is to be deleted, which keeps it until its objects are deleted.
pub fn release(definition: &mut Value, now: &str) {
    if is_deleting(definition) {
        return;
    }
    if !finalizers(definition).contains(&CLEANUP) {
        let list = metadata(definition).entry("finalizers").or_insert_with(|| json!([]));
        if let Some(list) = list.as_array_mut() {
            list.push(json!(CLEANUP));
        }
    }
    Condition::terminating().set(definition, now);
}

/// The rows of a definition: one for each version that is served.
fn rows(
    definition: &Value,
    since: &Arc<Since>,
    life: &watch::Receiver<()>,
    converter: impl Fn(&Value) -> Option<Arc<dyn Converter>>,
) -> Vec<Row> {
    if !is_condition_true(definition, "Established") {
        return Vec::new();
    }
    let (spec, names) = (&definition["spec"], &definition["status"]["acceptedNames"]);
    let group = spec["group"].as_str().unwrap_or_default();
    let versions = definition::versions(definition);
    let stored = versions.iter().find(|version| version["storage"] == true);
    let stored = stored.and_then(|version| version["name"].as_str()).unwrap_or_default();
    let terminating = is_deleting(definition);
    let alike = versions.windows(2).all(|pair| pair[0]["schema"] == pair[1]["schema"]);
    let keeps = spec["preserveUnknownFields"] == true;
    let full = |version: &Value| format!("{group}/{}", version["name"].as_str().unwrap_or_default());
    // A field that another version lacks is no error in a request of this version.
    let types = |own: &str| -> Arc<[(String, Arc<Types>)]> {
        let types = |json: &Value| {
            Types::from_schema(&json["schema"]["openAPIV3Schema"], keeps || json["name"] != own)
        };
        versions.iter().map(|json| (full(json), Arc::new(types(json)))).collect()
    };
    let replicas: Arc<[_]> = versions
        .iter()
        .filter_map(|json| Some((full(json), plumb_crd::Scale::from_version(json)?.spec)))
        .collect();
    let converter = converter(definition);
    let served = versions.iter().filter(|version| version["served"] == true);
    served
        .map(|json| {
            let version = Arc::new(Version::compile(definition, json));
            let resource = resource(group, names, spec["scope"] == "Namespaced", &version, terminating);
            let custom = Custom {
                definition: meta(definition, "uid").into(),
                types: types(&version.name),
                replicas: replicas.clone(),
                version,
                stored: format!("{group}/{stored}"),
                converter: converter.clone(),
                since: since.clone(),
                alike,
                terminating,
                life: life.clone(),
            };
            Row::defined(resource, custom)
        })
        .collect()
}

fn resource(group: &str, names: &Value, namespaced: bool, version: &Version, terminating: bool) -> Resource {
    let text = |field: &str| Name::Owned(names[field].as_str().unwrap_or_default().to_owned());
    let texts = |field: &str| -> Vec<Name> {
        let list = names[field].as_array().into_iter().flatten().filter_map(Value::as_str);
        list.map(|own| Name::Owned(own.to_owned())).collect()
    };
    let part = |name: &'static str, kind: Name, group: &str, version: &str| Subresource {
        name: name.into(),
        group: Name::Owned(group.to_owned()),
        version: Name::Owned(version.to_owned()),
        kind,
        verbs: vec!["get", "patch", "update"],
    };
    let mut subresources = Vec::new();
    if version.status {
        subresources.push(part("status", text("kind"), group, &version.name));
    }
    if version.scale.is_some() {
        subresources.push(part("scale", "Scale".into(), "autoscaling", "v1"));
    }
    let verbs = if terminating {
        vec!["delete", "deletecollection", "get", "list", "patch", "update", "watch"]
    } else {
        vec!["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]
    };
    Resource {
        group: Name::Owned(group.to_owned()),
        version: Name::Owned(version.name.clone()),
        kind: text("kind"),
        list_kind: text("listKind"),
        plural: text("plural"),
        singular: text("singular"),
        scope: if namespaced { Scope::Namespaced } else { Scope::Cluster },
        short_names: texts("shortNames"),
        categories: texts("categories"),
        verbs,
        subresources,
    }
}
