use std::sync::LazyLock;

use serde_json::Value;

use super::{Tracker, is_reset, managed, put_managed, take_managed, unmanaged};
use crate::apply::conflict::Conflict;
use crate::apply::managers::{Manager, Managers, Operation};
use crate::apply::set::FieldSet;
use crate::apply::types::Type;
use crate::apply::walk::{Comparison, TypeErrors, compare, reconcile, validate};

static UNMANAGED: LazyLock<FieldSet<'static>> = LazyLock::new(unmanaged);

impl Tracker<'_> {
    /// Sets `managedFields` of a new object: its creator owns all fields.
    pub fn create(&self, new: &mut Value, manager: &str) {
        self.update(&self.versions.empty(), new, manager);
    }

    /// Sets `managedFields` of an updated object: the manager owns the fields that it changed, and other managers lose
    /// them.
    ///
    /// An object that does not match its type gets no `managedFields`.
    pub fn update(&self, old: &Value, new: &mut Value, manager: &str) {
        let given = take_managed(new);
        let list = self.updated(old, new, given.as_ref(), manager).unwrap_or_default();
        put_managed(new, list);
    }

    fn updated(
        &self,
        old: &Value,
        new: &Value,
        given: Option<&Value>,
        manager: &str,
    ) -> Result<Option<Value>, TypeErrors> {
        let known = managed(old);
        // A request to a subresource cannot change `managedFields`.
        let given = given.filter(|list| self.subresource.is_empty() && known != Some(*list));
        let managers = match given {
            Some(list) if is_reset(list) => Managers::default(),
            given => {
                let given = given.and_then(|list| Managers::read(Some(list)).ok());
                match given.filter(|managers| !managers.0.is_empty()) {
                    Some(managers) => managers,
                    None => Managers::read(known).unwrap_or_default(),
                }
            }
        };
        let exists = old.pointer("/metadata/uid").and_then(Value::as_str).is_some_and(|uid| !uid.is_empty());
        if managers.0.is_empty() && exists {
            // An object without `managedFields` gets them at the first apply.
            return Ok(None);
        }
        let Some((ty, _)) = self.versions.in_version(new, self.api_version) else { return Ok(None) };
        if self.versions.may_be_mistyped() {
            // The types are those of this kind; an object of another kind fails validation later.
            if new["kind"] != self.kind {
                return Ok(None);
            }
            validate(ty, new, true)?;
        }
        Ok(self.tracked(ty, old, new, managers, manager)?.to_value())
    }

    /// The managers after an update.
    pub(super) fn tracked<'a>(
        &'a self,
        ty: Type<'a>,
        old: &'a Value,
        new: &'a Value,
        managers: Managers<'a>,
        manager: &'a str,
    ) -> Result<Managers<'a>, TypeErrors> {
        let managers = self.reconciled(old, managers);
        let mut found = compare(ty, old, new)?;
        self.narrow(&mut found, self.api_version);
        let (mut managers, _) = self.contested(&found, old, new, managers, None)?;
        let mut own = found.set();
        own.subtract(&UNMANAGED);
        if !own.is_empty() {
            let mut writer =
                Manager::new(manager, Operation::Update, self.api_version, self.subresource, own);
            if let Some(known) = managers.0.iter().find(|known| known.is(&writer)) {
                writer.set.add(&known.set);
            }
            writer.stamp(self.now);
            managers.put(writer);
        }
        managers.cap();
        Ok(managers)
    }

    /// The managers with their sets reconciled with the current types. Managers of removed API versions are dropped.
    pub(super) fn reconciled<'a>(&'a self, live: &'a Value, mut managers: Managers<'a>) -> Managers<'a> {
        managers.0.retain_mut(|manager| {
            let Some((ty, _)) = self.versions.in_version(live, &manager.api_version) else { return false };
            if let Some(set) = reconcile(ty, &manager.set) {
                manager.change(set);
            }
            true
        });
        managers
    }

    /// Removes the ignored fields from a comparison.
    pub(super) fn narrow(&self, found: &mut Comparison<'_>, api_version: &str) {
        let ignored = self.versions.ignored(api_version);
        for set in [&mut found.removed, &mut found.modified, &mut found.added] {
            ignored.filter(set);
        }
    }

    /// Removes changed and removed fields from all managers but `but`, and returns the conflicts.
    pub(super) fn contested<'a>(
        &self,
        found: &Comparison<'_>,
        old: &Value,
        new: &Value,
        mut managers: Managers<'a>,
        but: Option<&Manager<'_>>,
    ) -> Result<(Managers<'a>, Vec<Conflict>), TypeErrors> {
        let mut conflicts = Vec::new();
        let changed = found.set();
        let mut failed = None;
        managers.0.retain_mut(|manager| {
            if but.is_some_and(|but| but.is(manager)) {
                return !manager.set.is_empty();
            }
            let own;
            let (changed, removed) = if manager.api_version == self.api_version {
                (&changed, &found.removed)
            } else {
                match self.found_in(&manager.api_version, old, new) {
                    None => return false,
                    Some(Err(errors)) => {
                        failed = Some(errors);
                        return true;
                    }
                    Some(Ok(found)) => own = found,
                }
                (&own.0, &own.1)
            };
            let lost = manager.set.intersection(changed);
            let gone = manager.set.intersection(removed);
            if !lost.is_empty() || !gone.is_empty() {
                if but.is_some() {
                    conflicts.extend(Conflict::all(manager, &lost));
                }
                let mut set = std::mem::take(&mut manager.set);
                set.subtract(&lost);
                set.subtract(&gone);
                manager.change(set);
            }
            !manager.set.is_empty()
        });
        match failed {
            Some(errors) => Err(errors),
            None => Ok((managers, conflicts)),
        }
    }

    /// Compares the objects in another API version. Returns the changed and the removed fields.
    fn found_in(
        &self,
        api_version: &str,
        old: &Value,
        new: &Value,
    ) -> Option<Result<(FieldSet<'static>, FieldSet<'static>), TypeErrors>> {
        let (ty, old) = self.versions.in_version(old, api_version)?;
        let (_, new) = self.versions.in_version(new, api_version)?;
        Some(compare(ty, &old, &new).map(|mut found| {
            self.narrow(&mut found, api_version);
            (found.set().into_owned(), found.removed.into_owned())
        }))
    }
}
