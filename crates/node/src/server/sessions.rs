//! How many streaming sessions there are: commands, attached clients, port-forwards, and connections of the proxies.
//!
//! Each has descriptors, tasks and often a process in this agent, for as long as its client stays connected. One pod does not
//! take those of the others, nor do several: some are reserved for each pod.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// Sessions of one pod at a time. Each connection of a port-forward is one.
const MAX_PER_POD: usize = 256;
/// Sessions that every pod can have, whatever the others have.
const RESERVED_PER_POD: usize = 8;
/// Sessions of all pods at a time beyond those.
const MAX_SHARED: usize = 2048;

/// The sessions of a node.
#[derive(Debug, Default)]
pub(super) struct Sessions(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    by_pod: HashMap<String, usize>,
    /// Those of all pods beyond what is reserved for each.
    shared: usize,
}

impl Sessions {
    /// Counts one more session of a pod, unless there are too many.
    pub(super) fn enter(self: &Arc<Self>, uid: &str) -> Option<SessionSlot> {
        let mut counts = self.0.lock();
        let own = counts.by_pod.get(uid).copied().unwrap_or_default();
        let is_shared = own >= RESERVED_PER_POD;
        if own >= MAX_PER_POD || (is_shared && counts.shared >= MAX_SHARED) {
            return None;
        }
        counts.by_pod.insert(uid.to_owned(), own + 1);
        counts.shared += usize::from(is_shared);
        Some(SessionSlot { sessions: self.clone(), uid: uid.to_owned() })
    }
}

/// One session, until it is dropped.
#[derive(Debug)]
pub(super) struct SessionSlot {
    sessions: Arc<Sessions>,
    uid: String,
}

impl Drop for SessionSlot {
    fn drop(&mut self) {
        let mut counts = self.sessions.0.lock();
        let own = counts.by_pod.get(&self.uid).copied().unwrap_or_default().saturating_sub(1);
        if own == 0 {
            counts.by_pod.remove(&self.uid);
        } else {
            counts.by_pod.insert(self.uid.clone(), own);
        }
        counts.shared -= usize::from(own >= RESERVED_PER_POD);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sessions_of_one_pod_leave_others_theirs_and_end() {
        let sessions = Arc::new(Sessions::default());
        let mut slots: Vec<_> = std::iter::from_fn(|| sessions.enter("greedy")).collect();
        assert_eq!(slots.len(), MAX_PER_POD);
        assert!(sessions.enter("other").is_some());
        slots.pop();
        assert!(sessions.enter("greedy").is_some());
        for number in 0..100 {
            let uid = format!("pod-{number}");
            slots.extend(std::iter::from_fn(|| sessions.enter(&uid)));
        }
        assert_eq!(sessions.0.lock().shared, MAX_SHARED);
        let late: Vec<_> = std::iter::from_fn(|| sessions.enter("late")).collect();
        assert_eq!(late.len(), RESERVED_PER_POD, "what is reserved for each pod is left");
        drop((slots, late));
        assert!(sessions.0.lock().by_pod.is_empty());
        assert_eq!(sessions.0.lock().shared, 0);
    }
}
