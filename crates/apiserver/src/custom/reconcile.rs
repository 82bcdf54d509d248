//! Reconciling definitions: their names are accepted, their kinds served, and those that are deleted are finalized:
//! their objects are deleted first, and the definition after the last of them.
//!
//! Every step begins with what is stored and can be repeated, so that after a crash between any two steps the next
//! reconciliation continues from there.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::join_all;
use plumb_crd::names::{Condition, accept_names};
use plumb_store::{Event, List, Object, Precondition, Prefix, Ticket, Write, WriteError};
use serde_json::{Value, json};

use super::{CLEANUP, Definitions};
use crate::error::store_failed;
use crate::error::{ApiError, gone};
use crate::kinds::{StaleWrite, attributes, encode, encode_as};
use crate::object::{decode, finalizers, is_deleting, meta, metadata, moment};

/// The most attempts to write a definition.
const ATTEMPTS: usize = 100;
/// How often one reconciliation lists and deletes the objects of a definition.
const PASSES: usize = 8;
/// How many objects are deleted at once.
const AT_ONCE: usize = 256;

/// Serves kinds as they are defined now, finalizes definitions that are deleted, and accepts names that became free.
///
/// A definition that fails does not keep the others from being reconciled. The first error is returned, and the caller
/// tries again.
pub(super) async fn reconcile(definitions: &Definitions) -> Result<(), ApiError> {
    let started = definitions.store.revision();
    // First, so that no more objects are created of those that are to be finalized.
    let mut found = definitions.serve()?;
    let mut failed = None;
    let mut note = |definition: &Value, outcome: Result<(), ApiError>| {
        if let Err(error) = outcome {
            let name = meta(definition, "name");
            tracing::warn!(definition = name, error = error.message, "cannot reconcile a definition");
            failed.get_or_insert(error);
        }
    };
    let finalized: Vec<&Value> =
        found.iter().map(|(_, definition)| definition).filter(|own| is_to_be_finalized(own)).collect();
    let changed = !finalized.is_empty();
    for definition in finalized {
        note(definition, finalize(definitions, definition).await);
    }
    if changed {
        found = definitions.all()?;
    }
    let now = moment(definitions.now());
    let mut changed = changed;
    for (_, definition) in &found {
        let own = meta(definition, "name");
        let others = found.iter().map(|(_, other)| other).filter(|other| meta(other, "name") != own);
        let mut settled = definition.clone();
        accept_names(&mut settled, others, &now);
        if settled != *definition {
            let outcome =
                change(definitions, definition, |current| current["status"] = settled["status"].clone());
            note(definition, outcome.await);
            changed = true;
        }
    }
    if changed {
        definitions.serve()?;
    }
    if let Some(error) = failed {
        return Err(error);
    }
    definitions.reconciled.fetch_max(started, Ordering::AcqRel);
    Ok(())
}

/// Whether the objects of a definition are to be deleted, and then the definition.
fn is_to_be_finalized(definition: &Value) -> bool {
    is_deleting(definition) && finalizers(definition).contains(&CLEANUP)
}

/// The keys of the objects of definitions that are to be finalized.
pub(super) fn terminating(definitions: &Definitions) -> Result<Vec<Prefix>, ApiError> {
    definitions
        .all()?
        .iter()
        .map(|(_, own)| own)
        .filter(|own| is_to_be_finalized(own))
        .map(instances)
        .collect()
}

/// The keys of the objects of a definition.
fn instances(definition: &Value) -> Result<Prefix, ApiError> {
    let spec = &definition["spec"];
    let root = format!(
        "{}/{}",
        spec["group"].as_str().unwrap_or_default(),
        spec["names"]["plural"].as_str().unwrap_or_default()
    );
    Prefix::new(root).map_err(|error| ApiError::internal(error.to_string()))
}

/// Deletes the objects of a definition, and removes its finalizer if none is left. Objects with finalizers of their
/// own only get a deletion timestamp: when they are deleted, the definition is reconciled again.
async fn finalize(definitions: &Definitions, definition: &Value) -> Result<(), ApiError> {
    let list = List::all(instances(definition)?);
    // The objects keep their stored form, whatever schema they were written under.
    let mut stale = stale_write(definitions, definition);
    for _ in 0..PASSES {
        // What was accepted before the kind became terminating is listed only once it is durable.
        definitions.store.sync().await.map_err(|error| store_failed(&error))?;
        let page = definitions.store.list_where(&list, |_| true).map_err(gone)?;
        if page.objects.is_empty() {
            return release(definitions, definition).await;
        }
        let mut writes = Vec::new();
        for object in &page.objects {
            writes.extend(deletion(object, &moment(definitions.now()))?);
        }
        if writes.is_empty() {
            return Ok(());
        }
        stale.iter_mut().for_each(StaleWrite::accepted);
        while !writes.is_empty() {
            let rest = writes.split_off(writes.len().min(AT_ONCE));
            let tickets: Vec<Ticket<Arc<Event>>> = std::mem::replace(&mut writes, rest)
                .into_iter()
                .map(|write| definitions.store.write(write))
                .collect();
            for outcome in join_all(tickets).await {
                match outcome {
                    // Another writer was faster: the next pass reads what it wrote.
                    Ok(_) | Err(WriteError::Conflict(_)) => {}
                    Err(error) => return Err(store_failed(&error)),
                }
            }
        }
        if let Some(stale) = &mut stale {
            stale.stored(definitions.store.revision());
        }
    }
    Err(ApiError::internal("the objects of the definition are written as fast as they are deleted"))
}

/// A write of the objects of a definition as they are stored.
fn stale_write(definitions: &Definitions, definition: &Value) -> Option<StaleWrite> {
    let names = &definition["spec"];
    let (group, plural) = (names["group"].as_str()?, names["names"]["plural"].as_str()?);
    let row = definitions.kinds().find(group, plural)?;
    Some(row.custom()?.since.stale_write())
}

/// Removes the finalizer of a definition that has no objects left.
async fn release(definitions: &Definitions, definition: &Value) -> Result<(), ApiError> {
    let now = moment(definitions.now());
    let done = Condition {
        ty: "Terminating",
        is_true: false,
        reason: "InstanceDeletionCompleted",
        message: "removed all instances".to_owned(),
    };
    change(definitions, definition, |current| {
        done.set(current, &now);
        if let Some(list) = current.pointer_mut("/metadata/finalizers").and_then(Value::as_array_mut) {
            list.retain(|own| own != CLEANUP);
        }
    })
    .await
}

/// The write that deletes an object, or sets its deletion timestamp if it has finalizers; none if it has that already.
fn deletion(object: &Arc<Object>, now: &str) -> Result<Option<Write>, ApiError> {
    let mut value = decode(&object.value)?;
    let write = match (finalizers(&value).is_empty(), is_deleting(&value)) {
        (true, _) => Write::delete(object.key.clone()),
        (false, true) => return Ok(None),
        (false, false) => {
            metadata(&mut value).insert("deletionTimestamp".to_owned(), json!(now));
            metadata(&mut value).insert("deletionGracePeriodSeconds".to_owned(), json!(0));
            let version = value["apiVersion"].as_str().unwrap_or_default().to_owned();
            let kind = value["kind"].as_str().unwrap_or_default().to_owned();
            Write::put(object.key.clone(), encode_as(&kind, &version, &value)?)
        }
    };
    Ok(Some(write.precondition(Precondition::Revision(object.mod_revision))))
}

/// Changes the stored definition, unless it is another one of the same name by now. A terminating one without finalizers is
/// deleted.
async fn change(
    definitions: &Definitions,
    definition: &Value,
    edit: impl Fn(&mut Value),
) -> Result<(), ApiError> {
    let (row, name) = (definitions.row()?, meta(definition, "name"));
    let key = row.key(None, name)?;
    for _ in 0..ATTEMPTS {
        let epoch = definitions.store.epoch();
        let Some(current) = definitions.store.get_uncommitted(&key) else { return Ok(()) };
        let mut value = decode(&current.value)?;
        if meta(&value, "uid") != meta(definition, "uid") {
            return Ok(());
        }
        edit(&mut value);
        let write = if is_deleting(&value) && finalizers(&value).is_empty() {
            Write::delete(key.clone())
        } else {
            Write::put(key.clone(), encode(&row, &value)?).attributes(attributes(&row, &value))
        };
        let write = write.precondition(Precondition::Revision(current.mod_revision));
        if let Ok(ticket) = definitions.store.try_transact(epoch, vec![write]) {
            match ticket.await {
                Ok(_) => return Ok(()),
                // A store that is shared finds a conflict when it writes.
                Err(WriteError::Conflict(_)) => {}
                Err(error) => return Err(store_failed(&error)),
            }
        }
    }
    Err(row.modified(name))
}
