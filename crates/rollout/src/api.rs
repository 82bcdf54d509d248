//! The custom resources: `RolloutPolicy`, and the `CloneSet` of OpenKruise.
