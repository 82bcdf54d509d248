//! The life of definitions: their names are settled and their kinds served as soon as they are written, and when
//! they go, their objects go first.
//!
//! Whoever writes a definition holds the lock until the table of kinds follows, so that the next request, whoever
//! makes it, finds what was written.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use plumb_apischema::apply::Types;
use plumb_apischema::schema::Scope;
use plumb_crd::names::{Condition, holds, settle};
use plumb_crd::{Version, definition};
use plumb_store::{Expect, List, Object, Prefix, Write};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{CLEANUP, Custom};
use crate::error::ApiError;
use crate::kinds::{Name, Resource, Row, Subresource};
use crate::object::{decode, encode, finalizers, is_deleting, meta, metadata, moment};
use crate::read::gone;
use crate::server::ApiServer;
use crate::write::{attributes, store_failed};

/// The definitions that are served.
#[derive(Debug, Default)]
pub(crate) struct Definitions {
    /// Held by whoever writes a definition.
    pub(crate) writing: tokio::sync::Mutex<()>,
    served: Mutex<BTreeMap<String, Entry>>,
}

#[derive(Debug)]
struct Entry {
    /// All that rows are made of.
    made_of: String,
    rows: Vec<Row>,
    /// Dropped with the entry, which ends the watches of its kinds.
    _life: watch::Sender<()>,
}

/// How often a write of our own is tried.
const ATTEMPTS: usize = 100;

fn row(server: &ApiServer) -> Result<Row, ApiError> {
    let row = server.kinds().find("apiextensions.k8s.io", "customresourcedefinitions");
    row.ok_or_else(|| ApiError::internal("there are no definitions"))
}

fn all(server: &ApiServer) -> Result<Vec<(Arc<Object>, Value)>, ApiError> {
    let list = List::all(row(server)?.prefix(None)?);
    let page = server.store().list_where(&list, |_| true).map_err(gone)?;
    page.objects.into_iter().map(|object| decode(&object.value).map(|value| (object, value))).collect()
}

/// Makes a new definition what it has to be.
pub(crate) fn prepare_create(new: &mut Value, server: &ApiServer) -> Result<(), ApiError> {
    new["status"] = json!({});
    definition::note_stored_version(new);
    accept(new, server)
}

/// Makes a changed definition what it has to be.
pub(crate) fn prepare_update(new: &mut Value, server: &ApiServer) -> Result<(), ApiError> {
    definition::note_stored_version(new);
    accept(new, server)
}

fn accept(new: &mut Value, server: &ApiServer) -> Result<(), ApiError> {
    let now = moment(server.now());
    let others = all(server)?;
    let own = meta(new, "name").to_owned();
    settle(new, others.iter().map(|(_, other)| other).filter(|other| meta(other, "name") != own), &now);
    Ok(())
}

/// Holds a definition that is to go until its objects are gone.
pub(crate) fn release(definition: &mut Value, now: &str) {
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

/// Follows what was written: names that became free are given, objects of definitions on their way out go, and the
/// kinds are served as they are defined now.
pub(crate) async fn follow(server: &ApiServer) -> Result<(), ApiError> {
    for (_, definition) in all(server)? {
        if is_deleting(&definition) && finalizers(&definition).contains(&CLEANUP) {
            clean_up(server, &definition).await?;
        }
    }
    let found = all(server)?;
    for (_, definition) in &found {
        let mut settled = definition.clone();
        let others = found.iter().map(|(_, other)| other);
        let own = meta(definition, "name");
        settle(&mut settled, others.filter(|other| meta(other, "name") != own), &moment(server.now()));
        if settled != *definition {
            change(server, own, |current| {
                current["status"] = settled["status"].clone();
            })
            .await?;
        }
    }
    serve(server)
}

/// Serves the kinds as they are defined now.
fn serve(server: &ApiServer) -> Result<(), ApiError> {
    let definitions = server.definitions();
    let mut known = definitions.served.lock();
    let mut next = BTreeMap::new();
    for (object, definition) in all(server)? {
        let name = meta(&definition, "name").to_owned();
        let made_of = json!([
            definition["metadata"]["uid"],
            definition["spec"],
            definition["status"]["acceptedNames"],
            holds(&definition, "Established"),
            is_deleting(&definition),
        ])
        .to_string();
        let entry = match known.remove(&name) {
            Some(entry) if entry.made_of == made_of => entry,
            _ => {
                let (sender, life) = watch::channel(());
                let rows = rows(&definition, object.mod_revision, &life);
                Entry { made_of, rows, _life: sender }
            }
        };
        next.insert(name, entry);
    }
    *known = next;
    let rows = known.values().flat_map(|entry| entry.rows.iter().cloned());
    server.set_kinds(server.kinds().with_custom(rows));
    Ok(())
}

/// The rows of a definition: one for each version that is served.
fn rows(definition: &Value, since: plumb_store::Revision, life: &watch::Receiver<()>) -> Vec<Row> {
    if !holds(definition, "Established") {
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
    // What another version has no field for is no mistake of whoever speaks this one.
    let types = |own: &str| -> Arc<[(String, Arc<Types>)]> {
        let types =
            |json: &Value| Types::of_schema(&json["schema"]["openAPIV3Schema"], keeps || json["name"] != own);
        versions.iter().map(|json| (full(json), Arc::new(types(json)))).collect()
    };
    let replicas: Arc<[_]> =
        versions.iter().filter_map(|json| Some((full(json), plumb_crd::Scale::of(json)?.spec))).collect();
    let served = versions.iter().filter(|version| version["served"] == true);
    served
        .map(|json| {
            let version = Arc::new(Version::compile(definition, json));
            let resource = resource(group, names, spec["scope"] == "Namespaced", &version, terminating);
            let custom = Custom {
                types: types(&version.name),
                replicas: replicas.clone(),
                version,
                stored: format!("{group}/{stored}"),
                since,
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

/// Deletes the objects of a definition that is to go, and the definition after the last of them.
async fn clean_up(server: &ApiServer, definition: &Value) -> Result<(), ApiError> {
    let (spec, now) = (&definition["spec"], moment(server.now()));
    let root = format!(
        "{}/{}",
        spec["group"].as_str().unwrap_or_default(),
        spec["names"]["plural"].as_str().unwrap_or_default()
    );
    let prefix = Prefix::new(root).map_err(|error| ApiError::internal(error.to_string()))?;
    let page = server.store().list_where(&List::all(prefix), |_| true).map_err(gone)?;
    let mut held = 0_usize;
    for object in page.objects {
        held += usize::from(!remove(server, &object, &now).await?);
    }
    if held > 0 {
        return Ok(());
    }
    let name = meta(definition, "name").to_owned();
    let done = Condition {
        ty: "Terminating",
        holds: false,
        reason: "InstanceDeletionCompleted",
        message: "removed all instances".to_owned(),
    };
    change(server, &name, |current| {
        done.set(current, &now);
        if let Some(list) = current.pointer_mut("/metadata/finalizers").and_then(Value::as_array_mut) {
            list.retain(|own| own != CLEANUP);
        }
    })
    .await
}

/// Deletes an object, or marks it if something holds it; whether it is gone.
async fn remove(server: &ApiServer, object: &Arc<Object>, now: &str) -> Result<bool, ApiError> {
    let mut value = decode(&object.value)?;
    let held = !finalizers(&value).is_empty();
    if held && is_deleting(&value) {
        return Ok(false);
    }
    let write = if held {
        metadata(&mut value).insert("deletionTimestamp".to_owned(), json!(now));
        metadata(&mut value).insert("deletionGracePeriodSeconds".to_owned(), json!(0));
        let version = value["apiVersion"].as_str().unwrap_or_default().to_owned();
        let kind = value["kind"].as_str().unwrap_or_default().to_owned();
        Write::put(object.key.clone(), crate::object::encode_as(&kind, &version, &value)?)
    } else {
        Write::delete(object.key.clone())
    };
    match server.store().write(write.expect(Expect::Revision(object.mod_revision))).await {
        Ok(_) => Ok(!held),
        // Somebody wrote it meanwhile; the next write looks again.
        Err(plumb_store::WriteError::Conflict(_)) => Ok(false),
        Err(error) => Err(store_failed(&error)),
    }
}

/// Changes a definition as it stands; one that nothing holds any more goes.
async fn change(server: &ApiServer, name: &str, edit: impl Fn(&mut Value)) -> Result<(), ApiError> {
    let row = row(server)?;
    let key = row.key(None, name)?;
    for _ in 0..ATTEMPTS {
        let Some(current) = server.store().newest(&key) else { return Ok(()) };
        let mut value = decode(&current.value)?;
        edit(&mut value);
        let write = if is_deleting(&value) && finalizers(&value).is_empty() {
            Write::delete(key.clone())
        } else {
            Write::put(key.clone(), encode(&row, &value)?).attributes(attributes(&row, &value))
        };
        match server.store().write(write.expect(Expect::Revision(current.mod_revision))).await {
            Ok(_) => return Ok(()),
            Err(plumb_store::WriteError::Conflict(_)) => {}
            Err(error) => return Err(store_failed(&error)),
        }
    }
    Err(row.modified(name))
}

impl ApiServer {
    /// Serves the kinds that were defined before the server was started.
    pub(crate) fn load_definitions(&self) -> Result<(), ApiError> {
        serve(self)
    }
}
