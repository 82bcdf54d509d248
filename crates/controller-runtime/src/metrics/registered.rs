//! Handles by the value of their label.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// The name of a family, its help text, and the metric of a handle.
pub(super) type Family<T, F> = (&'static str, &'static str, fn(&T) -> &F);

/// Handles by name. A handle stays once it was requested: a counter never decreases.
#[derive(Debug)]
pub(super) struct Registered<T>(Mutex<BTreeMap<String, Arc<T>>>);

impl<T> Default for Registered<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Default> Registered<T> {
    /// The handle with a name, shared by all callers.
    pub(super) fn get(&self, name: &str) -> Arc<T> {
        let mut handles = self.0.lock();
        if let Some(handle) = handles.get(name) {
            return handle.clone();
        }
        handles.entry(name.to_owned()).or_default().clone()
    }

    /// All handles by name.
    pub(super) fn all(&self) -> Vec<(String, Arc<T>)> {
        self.0.lock().iter().map(|(name, handle)| (name.clone(), handle.clone())).collect()
    }
}
