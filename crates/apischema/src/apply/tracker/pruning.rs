//! Pruning of fields that a manager no longer applies.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Tracker;
use crate::apply::managers::{Manager, Managers};
use crate::apply::set::FieldSet;
use crate::apply::walk::{TypeErrors, collect, remove, with_named_fields};

impl Tracker<'_> {
    /// The merged object without the fields that the manager applied before, no longer applies, and no other manager
    /// owns.
    pub(super) fn pruned(
        &self,
        merged: Value,
        managers: &Managers<'_>,
        last: Option<&Manager<'_>>,
    ) -> Result<Value, TypeErrors> {
        let Some(last) = last.filter(|last| !last.set.is_empty()) else { return Ok(merged) };
        let version = last.api_version.as_ref();
        let Some((ty, object)) = self.versions.in_version(&merged, version) else { return Ok(merged) };
        let last_set = with_named_fields(Some(ty), &last.set);
        let pruned = remove(ty, &object, &last_set);
        let pruned = self.with_owned(&object, pruned, version, managers)?;
        // Fields that were removed together with a pruned item, but that the manager did not own, are restored.
        let dangling = {
            let Some((ty, pruned)) = self.versions.in_version(&pruned, version) else { return Ok(merged) };
            let mut dangling = with_named_fields(Some(ty), &collect(ty, &object)?);
            dangling.subtract(&with_named_fields(Some(ty), &collect(ty, &pruned)?));
            dangling.intersection(&last_set).into_owned()
        };
        let pruned = remove(ty, &object, &dangling);
        let Some((_, back)) = self.versions.in_version(&pruned, self.api_version) else { return Ok(merged) };
        Ok(back.into_owned())
    }

    /// Restores the fields that any manager owns.
    fn with_owned(
        &self,
        merged: &Value,
        pruned: Value,
        version: &str,
        managers: &Managers<'_>,
    ) -> Result<Value, TypeErrors> {
        let mut owned: BTreeMap<(bool, &str), FieldSet<'_>> = BTreeMap::new();
        for manager in managers.iter() {
            // The API version of the pruned object comes first: conversions may need the restored fields.
            let other = manager.api_version != version;
            owned.entry((other, manager.api_version.as_ref())).or_default().add(&manager.set);
        }
        let mut merged = merged.clone();
        let mut pruned = pruned;
        for ((_, version), owned) in owned {
            let Some((ty, here)) = self.versions.in_version(&merged, version) else { continue };
            let Some((_, without)) = self.versions.in_version(&pruned, version) else { continue };
            let gone = {
                let mut gone = with_named_fields(Some(ty), &collect(ty, &here)?);
                gone.subtract(&with_named_fields(Some(ty), &collect(ty, &without)?));
                gone.subtract(&with_named_fields(Some(ty), &owned));
                gone
            };
            let left = remove(ty, &here, &gone);
            drop(gone);
            let here = here.into_owned();
            (merged, pruned) = (here, left);
        }
        Ok(pruned)
    }
}
