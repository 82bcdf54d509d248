//! Annotations that one component writes and another reads.

/// The annotation of a pod with the changes of the admission webhook. The updater reads which pods have it.
pub const UPDATES_ANNOTATION: &str = "vpaUpdates";
