//! Events: what a controller did and why, for the person who looks. They are told in passing: nothing waits for them.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::action::Note;
use super::kinds::Ref;

/// How many events wait to be written at most; more are lost.
const WAITING: usize = 4096;
/// How many are written at a time.
const AT_ONCE: usize = 16;
/// How long a message may be.
const LONGEST: usize = 1024;
/// How much is said at most of one object at once, and in how many seconds it may be one more.
const BURST: f64 = 25.0;
const ONE_MORE: f64 = 300.0;
/// How much of what was said is remembered.
const REMEMBERED: usize = 4096;

struct Happened {
    about: Ref,
    note: Note,
    at: Timestamp,
}

/// Where to say what happened.
#[derive(Clone)]
pub(super) struct Recorder(mpsc::Sender<Happened>);

impl Recorder {
    /// Starts writing events as a controller of that name; it ends when the last clone is dropped.
    pub(super) fn start(client: Client, controller: &'static str) -> Self {
        let (tell, told) = mpsc::channel(WAITING);
        tokio::spawn(write(client, controller, told));
        Self(tell)
    }

    /// Says something about an object.
    pub(super) fn record(&self, about: Ref, note: Note, at: Timestamp) {
        // So many events that they cannot be written are not worth waiting for.
        if let Err(error) = self.0.try_send(Happened { about, note, at }) {
            tracing::debug!(%error, "an event was not recorded");
        }
    }
}

/// What was said before, so that nothing is said twice, and nobody talks too much.
#[derive(Default)]
struct Said {
    /// What may still be said of an object, and when that was true.
    left: HashMap<String, (f64, Timestamp)>,
    /// The names of what was said, and how often it was.
    events: HashMap<(String, &'static str, String), (String, i32)>,
    /// The last number that was part of a name.
    last: i128,
}

/// What is to be done about something that happened.
#[derive(Debug, PartialEq)]
enum Todo {
    Create(String),
    Count(String, i32),
    Nothing,
}

impl Said {
    fn say(&mut self, happened: &Happened) -> Todo {
        let Happened { about, note, at } = happened;
        // What was said long ago is forgotten all at once: it costs a few events more.
        if self.left.len() > REMEMBERED {
            self.left.clear();
        }
        if self.events.len() > REMEMBERED {
            self.events.clear();
        }
        let (left, when) = self.left.entry(about.uid.clone()).or_insert((BURST, *at));
        let passed = at.duration_since(*when).as_secs_f64().max(0.0);
        (*left, *when) = ((*left + passed / ONE_MORE).min(BURST), *at);
        if *left < 1.0 {
            return Todo::Nothing;
        }
        *left -= 1.0;
        let key = (about.uid.clone(), note.reason, note.message.clone());
        if let Some((name, count)) = self.events.get_mut(&key) {
            *count = count.saturating_add(1);
            return Todo::Count(name.clone(), *count);
        }
        // Much is said at one moment.
        self.last = at.as_nanosecond().max(self.last + 1);
        let name = format!("{}.{:x}", about.name, self.last);
        self.events.insert(key, (name.clone(), 1));
        Todo::Create(name)
    }
}

async fn write(client: Client, controller: &'static str, mut told: mpsc::Receiver<Happened>) {
    let mut writing = JoinSet::new();
    let mut said = Said::default();
    while let Some(happened) = told.recv().await {
        let todo = said.say(&happened);
        if todo == Todo::Nothing {
            continue;
        }
        if writing.len() >= AT_ONCE {
            writing.join_next().await;
        }
        let api: Api<Event> = Api::namespaced(client.clone(), &happened.about.namespace);
        writing.spawn(async move {
            let written = match todo {
                Todo::Create(name) => {
                    let event = event(&happened, controller, name);
                    api.create(&PostParams::default(), &event).await.map(drop)
                }
                Todo::Count(name, count) => {
                    let patch = json!({ "count": count, "lastTimestamp": Time(happened.at) });
                    api.patch(&name, &PatchParams::default(), &Patch::Strategic(&patch)).await.map(drop)
                }
                Todo::Nothing => Ok(()),
            };
            if let Err(error) = written {
                tracing::debug!(%error, reason = happened.note.reason, "an event was not written");
            }
        });
    }
}

fn event(happened: &Happened, controller: &str, name: String) -> Event {
    let Happened { about, note, at } = happened;
    let mut message = note.message.clone();
    if message.len() > LONGEST {
        message.truncate(message.floor_char_boundary(LONGEST - 4));
        message.push_str(" ...");
    }
    Event {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: Some(about.namespace.clone()),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some(about.kind.api_version()),
            kind: Some(about.kind.name().to_owned()),
            namespace: Some(about.namespace.clone()),
            name: Some(about.name.clone()),
            uid: Some(about.uid.clone()),
            ..ObjectReference::default()
        },
        reason: Some(note.reason.to_owned()),
        message: Some(message),
        type_: Some(if note.warning { "Warning" } else { "Normal" }.to_owned()),
        source: Some(EventSource { component: Some(controller.to_owned()), host: None }),
        reporting_component: Some(controller.to_owned()),
        first_timestamp: Some(Time(*at)),
        last_timestamp: Some(Time(*at)),
        count: Some(1),
        ..Event::default()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::SignedDuration;

    use super::*;
    use crate::workload::kinds::Kind;

    #[test]
    fn the_same_is_counted_and_nobody_talks_too_much() {
        let mut said = Said::default();
        let about = Ref { kind: Kind::Pod, namespace: "n".into(), name: "p".into(), uid: "u".into() };
        let mut say = |message: &str, seconds: i64| {
            let at = Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds);
            said.say(&Happened { about: about.clone(), note: Note::normal("R", message), at })
        };
        assert_eq!(say("a", 0), Todo::Create("p.1".to_owned()));
        assert_eq!(say("a", 0), Todo::Count("p.1".to_owned(), 2));
        assert_eq!(say("b", 0), Todo::Create("p.2".to_owned()));
        for number in 3..25 {
            assert!(matches!(say(&number.to_string(), 0), Todo::Create(_)));
        }
        assert_eq!(say("c", 0), Todo::Nothing);
        assert!(matches!(say("c", 300), Todo::Create(_)));
        assert_eq!(say("d", 300), Todo::Nothing);
    }
}
