//! One of the thousand.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedSender;

use super::super::dice::Dice;
use super::super::wire::Connection;
use super::ledger::Ledger;
use super::{MAPS, SHARED, map};

/// The name of an object that many write to.
pub(super) fn shared(number: usize) -> String {
    format!("shared-{number}")
}

/// A client that writes to an object of its own, and to a field of its own in a shared one.
pub(super) struct Writer {
    name: String,
    shared: String,
    dice: Dice,
    /// The own object when it was last answered for: its content and revision.
    own: Option<(String, u64)>,
    field: Option<String>,
    /// What a write without an answer wanted to be so.
    in_doubt: Option<Wanted>,
    /// Writes that were never answered, and how many of them were carried out all the same.
    pub(super) doubts: usize,
    pub(super) came_true: usize,
}

/// A write: the request, and what the own object or field is after it.
struct Step {
    method: Method,
    path: String,
    media: &'static str,
    body: String,
    wanted: Wanted,
}

/// What is so after a write: of the own object, which may be gone, or of the field.
#[derive(Clone, Debug, PartialEq)]
enum Wanted {
    Own(Option<String>),
    Field(String),
}

impl Writer {
    pub(super) fn new(number: usize) -> Self {
        Self {
            name: format!("own-{number:04}"),
            shared: shared(number % SHARED),
            dice: Dice::new(number as u64 + 1_000_000),
            own: None,
            field: None,
            in_doubt: None,
            doubts: 0,
            came_true: 0,
        }
    }

    /// Writes until the server is gone.
    pub(super) async fn write(
        mut self,
        connection: Connection,
        round: u64,
        acknowledged: UnboundedSender<()>,
        ledger: Arc<Ledger>,
    ) -> Self {
        for turn in 0.. {
            let step = self.step(&format!("{}:{round}:{turn}", self.name));
            let answer = loop {
                self.in_doubt = Some(step.wanted.clone());
                let asked =
                    connection.ask(step.method.clone(), &step.path, step.media, step.body.clone()).await;
                match asked {
                    Err(_) => {
                        self.doubts += 1;
                        return self;
                    }
                    // Refused for now: nothing was done, which the next look at the object shows.
                    Ok((429, _)) => {
                        self.in_doubt = None;
                        tokio::task::yield_now().await;
                    }
                    Ok((200 | 201, answer)) => break answer,
                    Ok((status, answer)) => panic!("{} {}: {status} {answer}", step.method, step.path),
                }
            };
            self.in_doubt = None;
            match step.wanted {
                Wanted::Own(None) => self.own = None,
                Wanted::Own(Some(content)) => {
                    assert_eq!(answer["data"], json!({ "v": content }));
                    self.own = Some((content, ledger.acknowledged_one(&answer)));
                }
                Wanted::Field(content) => {
                    assert_eq!(answer["data"][&self.name], json!(content));
                    ledger.acknowledged_one(&answer);
                    self.field = Some(content);
                }
            }
            // The receiver has counted enough.
            let _ = acknowledged.send(());
        }
        self
    }

    fn step(&mut self, content: &str) -> Step {
        let own = format!("{MAPS}/{}", self.name);
        let whole = map(&self.name, &json!({ "v": content })).to_string();
        let to = |method, path, media, body| Step {
            method,
            path,
            media,
            body,
            wanted: Wanted::Own(Some(content.to_owned())),
        };
        match (&self.own, self.dice.next() % 8) {
            (_, 0) => Step {
                wanted: Wanted::Field(content.to_owned()),
                ..to(
                    Method::PATCH,
                    format!("{MAPS}/{}", self.shared),
                    "application/merge-patch+json",
                    json!({ "data": { &self.name: content } }).to_string(),
                )
            },
            (None, _) => to(Method::POST, MAPS.to_owned(), "application/json", whole),
            (Some((_, revision)), 1 | 2) => {
                let mut body = map(&self.name, &json!({ "v": content }));
                body["metadata"]["resourceVersion"] = json!(revision.to_string());
                to(Method::PUT, own, "application/json", body.to_string())
            }
            (Some(_), 3) => to(
                Method::PATCH,
                own,
                "application/strategic-merge-patch+json",
                json!({ "data": { "v": content } }).to_string(),
            ),
            (Some((before, _)), 4) => to(
                Method::PATCH,
                own,
                "application/json-patch+json",
                json!([
                    { "op": "test", "path": "/data/v", "value": before },
                    { "op": "replace", "path": "/data/v", "value": content },
                ])
                .to_string(),
            ),
            (Some(_), 5 | 6) => to(
                Method::PATCH,
                own,
                "application/merge-patch+json",
                json!({ "data": { "v": content } }).to_string(),
            ),
            (Some(_), _) => Step {
                wanted: Wanted::Own(None),
                ..to(Method::DELETE, own, "application/json", String::new())
            },
        }
    }

    /// Holds what a new start found against what was acknowledged, and takes it as what is so.
    pub(super) fn compare(&mut self, found: &BTreeMap<String, (u64, Value)>) {
        let own =
            found.get(&self.name).map(|(revision, data)| (data["v"].as_str().unwrap().to_owned(), *revision));
        if own != self.own {
            let content = own.as_ref().map(|(content, _)| content.clone());
            let (name, sure) = (&self.name, &self.own);
            assert_eq!(
                Some(Wanted::Own(content)),
                self.in_doubt,
                "{name}: acknowledged was {sure:?}, found {own:?}"
            );
            self.came_true += 1;
        }
        self.own = own;
        let (_, shared) = &found[&self.shared];
        let field = shared[&self.name].as_str().map(str::to_owned);
        if field != self.field {
            let (name, shared, sure) = (&self.name, &self.shared, &self.field);
            let wanted = field.clone().map(Wanted::Field);
            assert_eq!(wanted, self.in_doubt, "{name} of {shared}: acknowledged was {sure:?}");
            self.came_true += 1;
        }
        self.field = field;
        self.in_doubt = None;
    }
}
