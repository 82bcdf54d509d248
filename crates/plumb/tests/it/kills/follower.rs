//! A client that watches, loses the connection at every kill, and resumes the watch at its last revision.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use serde_json::Value;

use super::super::wire::Connection;
use super::ledger::Ledger;
use super::{MAPS, list};

/// What was seen of all objects by watching alone.
pub(super) struct Follower {
    maps: BTreeMap<String, (u64, Value)>,
    seen: BTreeSet<u64>,
    /// The last revision that was seen: where to go on.
    last: u64,
    pub(super) resumed: usize,
    /// Where history did not reach far enough back, and everything was listed again.
    pub(super) gaps: Vec<(u64, u64)>,
}

/// Why a watch stopped.
enum Stopped {
    Broken,
    Reached,
    Expired,
}

impl Follower {
    pub(super) fn new(revision: u64) -> Self {
        Self { maps: BTreeMap::new(), seen: BTreeSet::new(), last: revision, resumed: 0, gaps: Vec::new() }
    }

    /// Follows until the connection breaks, or until an object of that name came into being.
    pub(super) async fn follow(
        mut self,
        connection: Connection,
        until: Option<&str>,
        ledger: Arc<Ledger>,
    ) -> Self {
        loop {
            match self.watch(&connection, until, &ledger).await {
                Stopped::Broken | Stopped::Reached => return self,
                Stopped::Expired => {
                    let found = list(&connection, &ledger).await;
                    self.gaps.push((self.last, found.revision));
                    (self.maps, self.last) = (found.maps, found.revision);
                }
            }
        }
    }

    async fn watch(&mut self, connection: &Connection, until: Option<&str>, ledger: &Ledger) -> Stopped {
        self.resumed += 1;
        let path = format!("{MAPS}?watch=1&allowWatchBookmarks=true&resourceVersion={}", self.last);
        let request = Request::get(path).body(Full::new(Bytes::new())).unwrap();
        let Ok(mut response) = connection.send(request).await else { return Stopped::Broken };
        if response.status() == 410 {
            return Stopped::Expired;
        }
        assert_eq!(response.status(), 200);
        let mut rest = Vec::new();
        while let Some(Ok(frame)) = response.frame().await {
            rest.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = rest.drain(..=end).collect();
                let event: Value = serde_json::from_slice(&line).unwrap();
                if event["type"] == "ERROR" {
                    assert_eq!(event["object"]["code"], 410, "{event}");
                    return Stopped::Expired;
                }
                let name = self.take(&event, ledger);
                if name.as_deref() == until && until.is_some() {
                    return Stopped::Reached;
                }
            }
        }
        Stopped::Broken
    }

    /// Takes an event in: later than all before, and of an object that was there or was not, as it says.
    fn take(&mut self, event: &Value, ledger: &Ledger) -> Option<String> {
        let object = &event["object"];
        let revision: u64 = object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        if event["type"] == "BOOKMARK" {
            assert!(revision >= self.last, "a bookmark went back from {} to {revision}", self.last);
            self.last = revision;
            return None;
        }
        assert!(revision > self.last, "revision {revision} came after {}", self.last);
        self.last = revision;
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let before = if event["type"] == "DELETED" {
            self.maps.remove(&name)
        } else {
            ledger.seen(object);
            self.seen.insert(revision);
            self.maps.insert(name.clone(), (revision, object["data"].clone()))
        };
        let added = event["type"] == "ADDED";
        // Those objects that were there before the first watch were never added to it.
        assert!(added == before.is_none() || name.starts_with("shared-"), "{event} after {before:?}");
        Some(name)
    }

    /// Holds what was seen against what is there, and against all that was acknowledged.
    pub(super) fn compare(&self, found: &BTreeMap<String, (u64, Value)>, ledger: &Ledger) {
        for (name, map) in found {
            let untouched = name.starts_with("shared-") && !self.maps.contains_key(name);
            assert!(
                untouched || self.maps.get(name) == Some(map),
                "{name}: {:?}, {map:?}",
                self.maps.get(name)
            );
        }
        assert!(self.maps.keys().all(|name| found.contains_key(name)));
        let missing = ledger.missing_from(&self.seen, &self.gaps);
        assert!(missing.is_empty(), "acknowledged and never seen: {missing:?}");
    }
}
