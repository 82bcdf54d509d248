//! What is asked of both clusters at a time, and that both have taken it in.

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future;
use serde_json::{Value, json};

use super::super::response::{Response, send_request};
use super::kinds::Kind;
use super::nodes::{now, send};
use super::normalized::NormalizedNamespace;
use super::play::{End, ScenarioRun, Side, difference, key};
use super::simulated::{self, NodeAction};
use super::view::version;
use crate::error::Error;

/// The prefix of the scenarios whose pods have addresses.
const WITH_ADDRESSES: &str = "endpoints-";
/// How long it may take until what was asked for is seen.
const SEEN_WITHIN: Duration = Duration::from_secs(10);

/// An object of which something is asked.
#[derive(Clone)]
pub(super) struct About {
    pub(super) kind: &'static Kind,
    pub(super) name: String,
    /// Its version before; none if it was not there.
    pub(super) before: Option<u64>,
    /// Whether it is to go.
    pub(super) goes: bool,
}

impl ScenarioRun {
    /// The differences of two responses; also if both are refusals, which no scenario expects. Without differences,
    /// waits until both views have the results: acting on less would repeat actions.
    pub(super) async fn compare_responses(&self, responses: [Response; 2], about: [About; 2]) -> Option<End> {
        let [reference, subject] = &responses;
        // An eviction that a budget forbids, for the time being.
        let alike = reference.code == subject.code && (reference.is_success() || reference.code == 429);
        if !alike {
            let text = |response: &Response| format!("{} {}", response.code, response.text("message"));
            return Some(End::Apart(vec![difference("response", &text(reference), &text(subject))]));
        }
        for ((side, response), about) in self.sides.iter().zip(&responses).zip(&about) {
            if response.is_success() {
                // What is not seen by then has come and gone.
                let _ = tokio::time::timeout(SEEN_WITHIN, self.seen(side, response, about)).await;
            }
            side.view.disturb(&self.namespace);
        }
        None
    }

    /// Waits until a view has the version of an object in a response.
    async fn seen(&self, side: &Side, response: &Response, about: &About) {
        let written = version(&response.body).filter(|_| !about.goes);
        if written.is_some() && written == about.before {
            return;
        }
        let is_seen = |now: Option<u64>| match (now, written) {
            (None, _) => about.before.is_some(),
            (Some(now), Some(written)) => now >= written,
            (now, None) => now != about.before,
        };
        let mut changes = side.view.changes();
        while !is_seen(side.view.version(&self.namespace, about.kind.plural, &about.name)) {
            // The watches last as long as the view.
            let _ = changes.changed().await;
        }
    }

    /// Sends a request about the object with this key to both clusters.
    pub(super) async fn request_both(
        &self,
        method: &str,
        of: &str,
        part: &str,
        body: &Value,
    ) -> Result<Option<End>, Error> {
        let normalized = self.normalized();
        let Some(key) = key(of, &normalized[0]) else {
            return Ok(Some(End::Apart(vec![difference(&format!("no {of}"), "", "")])));
        };
        let paths = normalized.each_ref().map(|normalized| self.path(&key, normalized));
        let [Some(one), Some(other)] = paths else {
            return Ok(Some(End::Apart(vec![difference(&format!("no {key}"), "", "")])));
        };
        let body = |name: &str| body.to_string().replace("$name", name);
        let request = |side: &Side, (path, about): (String, About)| {
            let media_type =
                if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
            let (path, body) = (format!("{path}{part}"), body(&about.name).into_bytes());
            let client = side.client.clone();
            async move { send_request(&client, method, &path, media_type, body).await }
        };
        let about = [&one, &other].map(|(_, about)| About { goes: method == "DELETE", ..about.clone() });
        let (reference, subject) =
            future::try_join(request(&self.sides[0], one), request(&self.sides[1], other)).await?;
        Ok(self.compare_responses([reference, subject], about).await)
    }

    /// The path of an object on one side, and which it is.
    fn path(&self, key: &str, normalized: &NormalizedNamespace) -> Option<(String, About)> {
        let kind = Kind::of_plural(key.split_once('/')?.0)?;
        let real = normalized.real(key)?;
        let name = real["metadata"]["name"].as_str()?.to_owned();
        let path = format!("{}/{name}", kind.collection(&self.namespace));
        Some((path, About { kind, name, before: version(real), goes: false }))
    }

    /// Moves on both sides.
    pub(super) async fn perform(
        &self,
        key: &str,
        due: &NodeAction,
        normalized: [&NormalizedNamespace; 2],
    ) -> Result<Option<End>, Error> {
        let found = normalized.map(|normalized| self.path(key, normalized).zip(normalized.real(key)));
        let [Some((one, first)), Some((other, second))] = found else {
            return Ok(Some(End::Apart(vec![difference(&format!("no {key}"), "", "")])));
        };
        let now = now();
        // The pods of both clusters have the same addresses, since they start in the same order. Elsewhere they have none: which
        // of two equal pods a controller deletes is random, and an address would tell them apart.
        let number = self.acted.fetch_add(1, Ordering::Relaxed) + 1;
        let ip = format!("10.64.{}.{}", number / 250, number % 250);
        let ip = self.namespace.starts_with(WITH_ADDRESSES).then_some(&*ip);
        let (reference, subject) = future::try_join(
            perform(&self.sides[0], (&one.0, &one.1.name), first, due, (ip, &now)),
            perform(&self.sides[1], (&other.0, &other.1.name), second, due, (ip, &now)),
        )
        .await?;
        let about = [one.1, other.1].map(|about| About { goes: *due == NodeAction::Delete, ..about });
        Ok(self.compare_responses([reference, subject], about).await)
    }
}

/// A move on one side.
async fn perform(
    side: &Side,
    (path, name): (&str, &str),
    object: &Value,
    due: &NodeAction,
    (ip, now): (Option<&str>, &str),
) -> Result<Response, Error> {
    let client = &side.client;
    let status = async |body: Value| {
        let media_type = "application/strategic-merge-patch+json";
        send_request(client, "PATCH", &format!("{path}/status"), media_type, body.to_string().into_bytes())
            .await
    };
    match due {
        NodeAction::Start { node, ready } => {
            if let Some(node) = node {
                let target = json!({"apiVersion": "v1", "kind": "Node", "name": node});
                let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target});
                let bound = send(client, "POST", &format!("{path}/binding"), &binding).await?;
                if !bound.is_success() {
                    return Ok(bound);
                }
            }
            status(simulated::running(object, *ready, ip, now)).await
        }
        NodeAction::End { code } => status(simulated::ended(object, *code, now)).await,
        NodeAction::Delete => {
            let options =
                json!({"gracePeriodSeconds": 0, "preconditions": {"uid": object["metadata"]["uid"]}});
            send(client, "DELETE", path, &options).await
        }
    }
}

/// An object with the uids of one side where a normalized namespace names their objects: `<uid of configmaps/some>`.
pub(super) fn personal(value: &Value, normalized: &NormalizedNamespace) -> Value {
    match value {
        Value::String(text) => {
            let of = text.strip_prefix("<uid of ").and_then(|rest| rest.strip_suffix('>'));
            of.and_then(|key| normalized.real(key))
                .map_or_else(|| value.clone(), |real| real["metadata"]["uid"].clone())
        }
        Value::Array(list) => list.iter().map(|value| personal(value, normalized)).collect(),
        Value::Object(map) => {
            map.iter().map(|(key, value)| (key.clone(), personal(value, normalized))).collect()
        }
        other => other.clone(),
    }
}
