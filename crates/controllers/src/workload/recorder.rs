//! Events: what a controller did and why, for the person who looks. They are told in passing: nothing waits for them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource};
use plumb_supervise::Supervisor;
use serde_json::json;
use tokio::sync::{Mutex, mpsc};
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
/// How many different things are said of one object for one reason; the rest shares one event.
const DIFFERENT: usize = 9;
/// After so long without a word it may be as many again.
const FORGOTTEN: SignedDuration = SignedDuration::from_mins(10);
/// What is said of the rest begins with this.
const COMBINED: &str = "(combined from similar events): ";
/// How much of what was said is remembered.
const REMEMBERED: usize = 4096;

/// The object that an event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subject {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    /// Empty if its kind has none; the event is in `default` then.
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

impl Subject {
    /// An object.
    pub(crate) fn of<K: Resource<DynamicType = ()>>(object: &K) -> Self {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let metadata = object.meta();
        Self {
            api_version: K::api_version(&()).into_owned(),
            kind: K::kind(&()).into_owned(),
            namespace: text(&metadata.namespace),
            name: text(&metadata.name),
            uid: text(&metadata.uid),
        }
    }
}

impl From<Ref> for Subject {
    fn from(of: Ref) -> Self {
        let Ref { kind, namespace, name, uid } = of;
        Self { api_version: kind.api_version(), kind: kind.name().to_owned(), namespace, name, uid }
    }
}

struct Happened {
    about: Subject,
    note: Note,
    at: Timestamp,
}

/// What waits to be written, and what was written: it outlives a panic of the task that writes.
struct Inbox {
    told: mpsc::Receiver<Happened>,
    said: Said,
}

/// Where to say what happened.
#[derive(Clone)]
pub(crate) struct Recorder(mpsc::Sender<Happened>);

impl Recorder {
    /// Starts writing events as a controller of that name; it ends when the last clone is dropped.
    pub(crate) fn start(client: Client, controller: &'static str, supervisor: &Supervisor) -> Self {
        let (tell, told) = mpsc::channel(WAITING);
        let inbox = Arc::new(Mutex::new(Inbox { told, said: Said::default() }));
        tokio::spawn(supervisor.finish(&format!("event-recorder/{controller}"), move || {
            let (client, inbox) = (client.clone(), inbox.clone());
            async move {
                let mut inbox = inbox.lock().await;
                write(client, controller, &mut inbox).await;
            }
        }));
        Self(tell)
    }

    /// Says something about an object.
    pub(crate) fn record(&self, about: impl Into<Subject>, note: Note, at: Timestamp) {
        // So many events that they cannot be written are not worth waiting for.
        if let Err(error) = self.0.try_send(Happened { about: about.into(), note, at }) {
            tracing::debug!(%error, "an event was not recorded");
        }
    }
}

/// What was said before, so that nothing is said twice, and nobody talks too much.
#[derive(Default)]
struct Said {
    /// What may still be said of an object, in praise or as a warning, and when that was true.
    left: HashMap<(String, bool), (f64, Timestamp)>,
    /// What was said of an object for a reason, and when last.
    similar: HashMap<(String, &'static str), (HashSet<String>, Timestamp)>,
    /// The names of what was said, and how often it was. What is said of the rest has no message.
    events: HashMap<(String, &'static str, Option<String>), (String, i32)>,
    /// The last number that was part of a name.
    last: i128,
}

/// What is to be done about something that happened.
#[derive(Debug, PartialEq)]
enum Todo {
    Create { name: String, message: String },
    Count { name: String, count: i32, message: String },
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
        if self.similar.len() > REMEMBERED {
            self.similar.clear();
        }
        let (left, when) = self.left.entry((about.uid.clone(), note.warning)).or_insert((BURST, *at));
        let passed = at.duration_since(*when).as_secs_f64().max(0.0);
        (*left, *when) = ((*left + passed / ONE_MORE).min(BURST), *at);
        if *left < 1.0 {
            return Todo::Nothing;
        }
        *left -= 1.0;
        let own = self.has_its_own(about, note, *at);
        let message = if own { note.message.clone() } else { format!("{COMBINED}{}", note.message) };
        let key = (about.uid.clone(), note.reason, own.then(|| note.message.clone()));
        if let Some((name, count)) = self.events.get_mut(&key) {
            *count = count.saturating_add(1);
            return Todo::Count { name: name.clone(), count: *count, message };
        }
        // Much is said at one moment.
        self.last = at.as_nanosecond().max(self.last + 1);
        let name = format!("{}.{:x}", about.name, self.last);
        self.events.insert(key, (name.clone(), 1));
        Todo::Create { name, message }
    }

    /// Whether what happened has an event of its own, and not one with all that is like it.
    fn has_its_own(&mut self, about: &Subject, note: &Note, at: Timestamp) -> bool {
        let (messages, last) =
            self.similar.entry((about.uid.clone(), note.reason)).or_insert((HashSet::new(), at));
        if at.duration_since(*last) > FORGOTTEN {
            messages.clear();
        }
        *last = at;
        if messages.len() < DIFFERENT {
            messages.insert(note.message.clone());
        }
        messages.contains(&note.message)
    }
}

async fn write(client: Client, controller: &'static str, Inbox { told, said }: &mut Inbox) {
    let mut writing = JoinSet::new();
    while let Some(happened) = told.recv().await {
        let todo = said.say(&happened);
        if todo == Todo::Nothing {
            continue;
        }
        if writing.len() >= AT_ONCE {
            writing.join_next().await;
        }
        let api: Api<Event> = Api::namespaced(client.clone(), namespace_of_event(&happened.about));
        writing.spawn(async move {
            let written = match todo {
                Todo::Create { name, message } => {
                    let event = event(&happened, controller, name, message);
                    api.create(&PostParams::default(), &event).await.map(drop)
                }
                Todo::Count { name, count, message } => {
                    let message = shortened(message);
                    let patch =
                        json!({ "count": count, "lastTimestamp": Time(happened.at), "message": message });
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

/// A message that is not too long.
fn shortened(mut message: String) -> String {
    if message.len() > LONGEST {
        message.truncate(message.floor_char_boundary(LONGEST - 4));
        message.push_str(" ...");
    }
    message
}

/// Where the event of an object is.
fn namespace_of_event(about: &Subject) -> &str {
    if about.namespace.is_empty() { "default" } else { &about.namespace }
}

fn event(happened: &Happened, controller: &str, name: String, message: String) -> Event {
    let Happened { about, note, at } = happened;
    Event {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: Some(namespace_of_event(about).to_owned()),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some(about.api_version.clone()),
            kind: Some(about.kind.clone()),
            namespace: Some(about.namespace.clone()).filter(|namespace| !namespace.is_empty()),
            name: Some(about.name.clone()),
            uid: Some(about.uid.clone()),
            ..ObjectReference::default()
        },
        reason: Some(note.reason.to_owned()),
        message: Some(shortened(message)),
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
    use super::*;
    use crate::workload::kinds::Kind;

    fn say(said: &mut Said, reason: &'static str, message: &str, seconds: i64) -> Todo {
        let about = Ref { kind: Kind::Pod, namespace: "n".into(), name: "p".into(), uid: "u".into() };
        let at = Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds);
        said.say(&Happened { about: about.into(), note: Note::normal(reason, message), at })
    }

    fn created(name: &str, message: &str) -> Todo {
        Todo::Create { name: name.to_owned(), message: message.to_owned() }
    }

    fn counted(name: &str, count: i32, message: &str) -> Todo {
        Todo::Count { name: name.to_owned(), count, message: message.to_owned() }
    }

    #[test]
    fn the_same_is_counted_and_nobody_talks_too_much() {
        const REASONS: [&str; 22] = ["R"; 22];
        let mut said = Said::default();
        assert_eq!(say(&mut said, "R", "a", 0), created("p.1", "a"));
        assert_eq!(say(&mut said, "R", "a", 0), counted("p.1", 2, "a"));
        assert_eq!(say(&mut said, "R", "b", 0), created("p.2", "b"));
        for (number, reason) in REASONS.into_iter().enumerate() {
            assert_ne!(say(&mut said, reason, &number.to_string(), 0), Todo::Nothing);
        }
        assert_eq!(say(&mut said, "S", "c", 0), Todo::Nothing);
        assert!(matches!(say(&mut said, "S", "c", 300), Todo::Create { .. }));
        assert_eq!(say(&mut said, "S", "d", 300), Todo::Nothing);
    }

    #[test]
    fn what_is_like_much_else_shares_an_event() {
        let mut said = Said::default();
        for number in 1..=9 {
            let message = number.to_string();
            assert_eq!(say(&mut said, "R", &message, 0), created(&format!("p.{number}"), &message));
        }
        assert_eq!(say(&mut said, "R", "10", 0), created("p.a", "(combined from similar events): 10"));
        assert_eq!(say(&mut said, "R", "11", 0), counted("p.a", 2, "(combined from similar events): 11"));
        assert_eq!(say(&mut said, "R", "3", 0), counted("p.3", 2, "3"));
        assert_eq!(say(&mut said, "other", "12", 0), created("p.b", "12"));
        // After ten silent minutes nothing of this counts.
        assert!(matches!(say(&mut said, "R", "13", 601), Todo::Create { message, .. } if message == "13"));
    }
}
