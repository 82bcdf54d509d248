//! Pods by the node that they are on.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::core::v1::Pod;
use plumb_follow::{Place, place};

use super::kinds::Shelves;

/// Pods by the node that they are on.
#[derive(Default)]
pub struct Placed(Mutex<HashMap<String, BTreeSet<Place>>>);

/// The node that a pod is on.
pub fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

impl Placed {
    /// An index of the pods on a shelf, from now on.
    pub fn of(shelves: &Shelves) -> Arc<Self> {
        let placed = Arc::new(Self::default());
        let listening = placed.clone();
        shelves.pods.listen(move |change| {
            let before = change.before.and_then(|pod| Some((node_of(pod)?, place(&**pod))));
            let now = change.now.and_then(|pod| Some((node_of(pod)?, place(&**pod))));
            if before == now {
                return;
            }
            let mut nodes = listening.0.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((node, at)) = before
                && let Some(places) = nodes.get_mut(node)
            {
                places.remove(&at);
                if places.is_empty() {
                    nodes.remove(node);
                }
            }
            if let Some((node, at)) = now {
                nodes.entry(node.to_owned()).or_default().insert(at);
            }
        });
        placed
    }

    /// The pods on a node.
    pub fn on(&self, node: &str, shelves: &Shelves) -> Vec<Arc<Pod>> {
        let places = {
            let nodes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            nodes.get(node).cloned().unwrap_or_default()
        };
        places.iter().filter_map(|at| shelves.pods.get(at)).collect()
    }
}
