//! What is asked of both clusters at a time, and that both have taken it in.

use std::time::Duration;

use futures::future;
use serde_json::{Value, json};

use super::super::answer::{Answer, ask};
use super::hand::{self, Move};
use super::kinds::Kind;
use super::nodes::{now, send};
use super::play::{End, Game, Side, difference, key};
use super::portrait::Portrait;
use super::view::version;
use crate::error::Error;

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

impl Game {
    /// What two answers differ in; also when both refuse, which no scenario asks for. If they don't, it is waited until
    /// both views have what came of it: whoever acted on less would do things twice.
    pub(super) async fn answered(&self, answers: [Answer; 2], about: [About; 2]) -> Option<End> {
        let [reference, subject] = &answers;
        // An eviction that a budget forbids, for the time being.
        let alike = reference.code == subject.code && (reference.is_success() || reference.code == 429);
        if !alike {
            let text = |answer: &Answer| format!("{} {}", answer.code, answer.text("message"));
            return Some(End::Apart(vec![difference("answer", &text(reference), &text(subject))]));
        }
        for ((side, answer), about) in self.sides.iter().zip(&answers).zip(&about) {
            if answer.is_success() {
                // What is not seen by then has come and gone.
                let _ = tokio::time::timeout(SEEN_WITHIN, self.seen(side, answer, about)).await;
            }
            side.view.disturb(&self.namespace);
        }
        None
    }

    /// Waits until a view has what an answer tells of an object.
    async fn seen(&self, side: &Side, answer: &Answer, about: &About) {
        let told = version(&answer.body).filter(|_| !about.goes);
        if told.is_some() && told == about.before {
            return;
        }
        let is_seen = |now: Option<u64>| match (now, told) {
            (None, _) => about.before.is_some(),
            (Some(now), Some(told)) => now >= told,
            (now, None) => now != about.before,
        };
        let mut changes = side.view.changes();
        while !is_seen(side.view.version(&self.namespace, about.kind.plural, &about.name)) {
            // The watches last as long as the view.
            let _ = changes.changed().await;
        }
    }

    /// Asks both for something about an object that is called so in portraits.
    pub(super) async fn ask(
        &self,
        method: &str,
        of: &str,
        part: &str,
        body: &Value,
    ) -> Result<Option<End>, Error> {
        let portraits = self.portraits();
        let Some(key) = key(of, &portraits[0]) else {
            return Ok(Some(End::Apart(vec![difference(&format!("no {of}"), "", "")])));
        };
        let paths = portraits.each_ref().map(|portrait| self.path(&key, portrait));
        let [Some(one), Some(other)] = paths else {
            return Ok(Some(End::Apart(vec![difference(&format!("no {key}"), "", "")])));
        };
        let body = |name: &str| body.to_string().replace("$name", name);
        let ask = |side: &Side, (path, about): (String, About)| {
            let media_type =
                if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
            let (path, body) = (format!("{path}{part}"), body(&about.name).into_bytes());
            let client = side.client.clone();
            async move { ask(&client, method, &path, media_type, body).await }
        };
        let about = [&one, &other].map(|(_, about)| About { goes: method == "DELETE", ..about.clone() });
        let (reference, subject) =
            future::try_join(ask(&self.sides[0], one), ask(&self.sides[1], other)).await?;
        Ok(self.answered([reference, subject], about).await)
    }

    /// The path of an object on one side, and which it is.
    fn path(&self, key: &str, portrait: &Portrait) -> Option<(String, About)> {
        let kind = Kind::of_plural(key.split_once('/')?.0)?;
        let real = portrait.real(key)?;
        let name = real["metadata"]["name"].as_str()?.to_owned();
        let path = format!("{}/{name}", kind.collection(&self.namespace));
        Some((path, About { kind, name, before: version(real), goes: false }))
    }

    /// Moves on both sides.
    pub(super) async fn perform(
        &self,
        key: &str,
        due: &Move,
        portraits: [&Portrait; 2],
    ) -> Result<Option<End>, Error> {
        let found = portraits.map(|portrait| self.path(key, portrait).zip(portrait.real(key)));
        let [Some((one, first)), Some((other, second))] = found else {
            return Ok(Some(End::Apart(vec![difference(&format!("no {key}"), "", "")])));
        };
        let now = now();
        let (reference, subject) = future::try_join(
            perform(&self.sides[0], (&one.0, &one.1.name), first, due, &now),
            perform(&self.sides[1], (&other.0, &other.1.name), second, due, &now),
        )
        .await?;
        let about = [one.1, other.1].map(|about| About { goes: *due == Move::LetGo, ..about });
        Ok(self.answered([reference, subject], about).await)
    }
}

/// A move on one side.
async fn perform(
    side: &Side,
    (path, name): (&str, &str),
    object: &Value,
    due: &Move,
    now: &str,
) -> Result<Answer, Error> {
    let client = &side.client;
    let status = async |body: Value| {
        let media_type = "application/strategic-merge-patch+json";
        ask(client, "PATCH", &format!("{path}/status"), media_type, body.to_string().into_bytes()).await
    };
    match due {
        Move::Start { node, ready } => {
            if let Some(node) = node {
                let target = json!({"apiVersion": "v1", "kind": "Node", "name": node});
                let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target});
                let bound = send(client, "POST", &format!("{path}/binding"), &binding).await?;
                if !bound.is_success() {
                    return Ok(bound);
                }
            }
            status(hand::running(object, *ready, now)).await
        }
        Move::End { code } => status(hand::ended(object, *code, now)).await,
        Move::LetGo => {
            let options =
                json!({"gracePeriodSeconds": 0, "preconditions": {"uid": object["metadata"]["uid"]}});
            send(client, "DELETE", path, &options).await
        }
    }
}

/// An object with the uids of one side where a portrait says whose they are: `<uid of configmaps/some>`.
pub(super) fn personal(value: &Value, portrait: &Portrait) -> Value {
    match value {
        Value::String(text) => {
            let of = text.strip_prefix("<uid of ").and_then(|rest| rest.strip_suffix('>'));
            of.and_then(|key| portrait.real(key))
                .map_or_else(|| value.clone(), |real| real["metadata"]["uid"].clone())
        }
        Value::Array(list) => list.iter().map(|value| personal(value, portrait)).collect(),
        Value::Object(map) => {
            map.iter().map(|(key, value)| (key.clone(), personal(value, portrait))).collect()
        }
        other => other.clone(),
    }
}
