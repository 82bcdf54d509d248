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
    /// Writes into a new object who manages its fields: whoever makes it.
    pub fn create(&self, new: &mut Value, manager: &str) {
        self.update(&self.versions.empty(), new, manager);
    }

    /// Writes into a new version of an object who manages its fields now: whoever writes manages what it has
    /// changed, and nobody else does any more.
    ///
    /// What cannot be told is not: an object that is not of its type has no managers.
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
        // A part of the object has no say in who manages it.
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
            // Nobody has been told of since the object was made; nobody is, until somebody applies.
            return Ok(None);
        }
        let Some((ty, _)) = self.versions.in_version(new, self.api_version) else { return Ok(None) };
        if self.versions.may_be_mistyped() {
            // What says that it is something else is of no type that there is.
            if new["kind"] != self.kind {
                return Ok(None);
            }
            validate(ty, new, true)?;
        }
        Ok(self.tracked(ty, old, new, managers, manager)?.to_value())
    }

    /// The managers after a write.
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
        own.take_out(&UNMANAGED);
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

    /// The managers with sets that are right by today's types; those of versions that are gone are gone.
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

    /// Leaves out of a comparison what the write does not decide.
    pub(super) fn narrow(&self, found: &mut Comparison<'_>, api_version: &str) {
        let ignored = self.versions.ignored(api_version);
        for set in [&mut found.removed, &mut found.modified, &mut found.added] {
            ignored.filter(set);
        }
    }

    /// Takes from all managers but one what has been changed or is gone, and tells what was changed.
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
            let lost = manager.set.common(changed);
            let gone = manager.set.common(removed);
            if !lost.is_empty() || !gone.is_empty() {
                if but.is_some() {
                    conflicts.extend(Conflict::all(manager, &lost));
                }
                let mut set = std::mem::take(&mut manager.set);
                set.take_out(&lost);
                set.take_out(&gone);
                manager.change(set);
            }
            !manager.set.is_empty()
        });
        match failed {
            Some(errors) => Err(errors),
            None => Ok((managers, conflicts)),
        }
    }

    /// What has changed and what is gone, seen in another version.
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
