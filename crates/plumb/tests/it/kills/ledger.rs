//! The meaning of every revision, from all responses.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use serde_json::Value;

/// All objects that were ever returned, by revision.
#[derive(Default)]
pub(super) struct Ledger(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    returned: BTreeMap<u64, (String, Value)>,
    acknowledged: BTreeSet<u64>,
    /// What is acknowledged from now on must come after this.
    floor: u64,
}

impl Ledger {
    /// Takes an object in, as some answer shows it; the same revision may only ever show the same.
    pub(super) fn seen(&self, map: &Value) -> (String, u64) {
        let name = map["metadata"]["name"].as_str().unwrap().to_owned();
        let revision = map["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        let mut entries = self.0.lock().unwrap();
        let returned = (name.clone(), map["data"].clone());
        let known = entries.returned.entry(revision).or_insert_with(|| returned.clone());
        assert_eq!(*known, returned, "revision {revision} stands for two things");
        (name, revision)
    }

    /// Records the response to a write: its revision is new, and no other response has it.
    pub(super) fn acknowledged_one(&self, map: &Value) -> u64 {
        let (name, revision) = self.seen(map);
        let mut entries = self.0.lock().unwrap();
        assert!(
            revision > entries.floor,
            "{name} got revision {revision}, which is not after {}, where the server started",
            entries.floor
        );
        assert!(entries.acknowledged.insert(revision), "revision {revision} was given out twice");
        revision
    }

    /// Takes in that the server has started with this revision.
    pub(super) fn nothing_more_before(&self, revision: u64) {
        let mut entries = self.0.lock().unwrap();
        assert!(revision >= entries.floor, "the revision went back from {} to {revision}", entries.floor);
        entries.floor = revision;
    }

    /// The newest revision of any response.
    pub(super) fn newest(&self) -> u64 {
        self.0.lock().unwrap().returned.last_key_value().map_or(0, |(revision, _)| *revision)
    }

    /// How many writes were acknowledged with a revision.
    pub(super) fn acknowledged(&self) -> usize {
        self.0.lock().unwrap().acknowledged.len()
    }

    /// The acknowledged revisions that are not among these and in none of the gaps.
    pub(super) fn missing_from(&self, seen: &BTreeSet<u64>, gaps: &[(u64, u64)]) -> Vec<u64> {
        let excused = |revision: &u64| gaps.iter().any(|(from, to)| from < revision && revision <= to);
        let entries = self.0.lock().unwrap();
        entries.acknowledged.difference(seen).copied().filter(|revision| !excused(revision)).collect()
    }
}
