//! The updater: applies recommendations to running pods, in place or by eviction, as the update mode says.
