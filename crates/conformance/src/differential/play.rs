//! Runs a case on both servers.

use std::fmt;

use futures::future;
use kube::Client;
use serde_json::{Value, json};

use super::case::{Case, Step, Verb};
use super::compare::{Difference, differences, may_change, ordered_alike};
use super::kept::{AllowedDifferences, MatchedPattern};
use super::kinds::collection;
use super::mask::Mask;
use super::patch;
use super::response::{Response, send_request};
use super::sent::sent;
use super::setup;
use crate::error::Error;

/// How often a request to the reference is repeated that may have another response then.
const AGAIN: usize = 12;

/// The two servers.
#[derive(Clone)]
pub struct Servers {
    /// The reference.
    pub reference: Client,
    /// The subject.
    pub subject: Client,
    /// The namespace of the cases; it is created in both.
    pub namespace: String,
}

/// The source of steps, given the current object.
pub(super) trait Script {
    /// The next step; `None` at the end.
    fn next(&mut self, current: Option<&Value>) -> Option<Step>;
}

/// A case that is known as a whole.
impl Script for std::slice::Iter<'_, Step> {
    fn next(&mut self, _: Option<&Value>) -> Option<Step> {
        Iterator::next(self).cloned()
    }
}

/// The result of a case.
#[derive(Debug, Default)]
pub(super) struct ScenarioResult {
    /// How many requests were compared, and how many of them the reference carried out.
    pub(super) asked: usize,
    pub(super) accepted: usize,
    /// The allowed differences that were found.
    pub(super) kept: Vec<MatchedPattern>,
    /// The difference that is not allowed.
    pub(super) finding: Option<Finding>,
}

/// A difference that is not allowed.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The case, up to the step that shows it.
    pub case: Case,
    /// The differences.
    pub differences: Vec<Difference>,
    /// The request as the subject got it: method, path, body.
    pub request: (String, String, Value),
    /// The response of the reference.
    pub reference: Response,
    /// The response of the subject.
    pub subject: Response,
}

impl Finding {
    /// The key of equal findings: the location, without the numbers in it.
    pub(super) fn signature(&self) -> String {
        let step = self.case.steps.last().map(Step::label).unwrap_or_default();
        let places = self.differences.first().map(|difference| {
            let letters: String = difference.at.chars().filter(|letter| !letter.is_ascii_digit()).collect();
            let side = |text: &Option<String>| {
                let text = text.as_deref().unwrap_or("-");
                let letters = text.chars().filter(|letter| !letter.is_ascii_digit());
                letters.take(160).collect::<String>()
            };
            let (reference, subject) = (side(&difference.reference), side(&difference.subject));
            match letters.as_str() {
                "code" | "message" => format!("{letters} {reference} {subject}"),
                _ => letters,
            }
        });
        format!("{} {step}: {}", self.case.kind, places.unwrap_or_default())
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (method, path, body) = &self.request;
        writeln!(f, "  {method} {path}")?;
        let media_type = self.case.steps.last().map(|step| step.verb.media_type()).unwrap_or_default();
        writeln!(f, "  {media_type}\n  {body}")?;
        for difference in &self.differences {
            writeln!(f, "    {difference}")?;
        }
        let response = |response: &Response| {
            let shown = if response.is_success() { &Value::Null } else { &response.body };
            format!("{} {shown} {:?}", response.code, response.warnings)
        };
        writeln!(f, "  kubernetes: {}", response(&self.reference))?;
        writeln!(f, "  plumb:      {}", response(&self.subject))?;
        write!(f, "  case: {}", serde_json::to_string(&self.case).unwrap_or_default())
    }
}

/// One of the servers, and its version of the object.
struct Side<'a> {
    client: &'a Client,
    current: Option<Value>,
    mask: Mask,
}

impl Servers {
    /// Sets up the servers.
    pub async fn prepare(&self) -> Result<(), Error> {
        for client in [&self.reference, &self.subject] {
            setup::prepare(client, &self.namespace).await?;
        }
        Ok(())
    }

    /// Runs a case, and deletes its objects.
    pub(super) async fn play(
        &self,
        kind: &str,
        script: &mut (dyn Script + Send),
        kept: &AllowedDifferences,
    ) -> Result<ScenarioResult, Error> {
        let side = |client| Side { client, current: None, mask: Mask::default() };
        let mut sides = [side(&self.reference), side(&self.subject)];
        let mut played = ScenarioResult::default();
        let outcome = self.steps(kind, script, kept, &mut sides, &mut played).await;
        for side in &sides {
            let Some(name) = side.current.as_ref().and_then(|object| object["metadata"]["name"].as_str())
            else {
                continue;
            };
            let Some(collection) = collection(kind, &self.namespace) else { continue };
            let path = format!("{collection}/{name}?gracePeriodSeconds=0");
            let response = send_request(side.client, "DELETE", &path, "application/json", Vec::new()).await?;
            if response.object().is_some_and(|left| left["metadata"]["finalizers"].is_array()) {
                let free = json!({"metadata": {"finalizers": null}});
                let path = format!("{collection}/{name}");
                let free = free.to_string().into_bytes();
                send_request(side.client, "PATCH", &path, "application/merge-patch+json", free).await?;
            }
        }
        outcome.map(|()| played)
    }

    async fn steps(
        &self,
        kind: &str,
        script: &mut (dyn Script + Send),
        kept: &AllowedDifferences,
        sides: &mut [Side<'_>; 2],
        played: &mut ScenarioResult,
    ) -> Result<(), Error> {
        let mut steps: Vec<Step> = Vec::new();
        while let Some(step) = script.next(sides[0].current.as_ref()) {
            steps.push(step.clone());
            let body = sides[0].mask.translate(&sides[1].mask, &step.body);
            let translated = Step { body, ..step.clone() };
            let requests = [self.request(kind, &step, &sides[0]), self.request(kind, &translated, &sides[1])];
            let [Some(one), Some(other)] = requests else { return Ok(()) };
            if step.verb == Verb::Create {
                for side in sides.iter_mut() {
                    side.mask.expect(&step.body);
                }
            }
            let (reference, subject) =
                future::try_join(sides[0].send(&step, &one), sides[1].send(&step, &other)).await?;
            played.asked += 1;
            played.accepted += usize::from(reference.is_success());
            let said = steps.iter().map(|step| step.body.to_string()).collect::<Vec<_>>().join("\n");
            for (side, response) in sides.iter_mut().zip([&reference, &subject]) {
                side.learn(&step, response, &said);
            }
            let mut found = differences((&reference, &sides[0].mask), (&subject, &sides[1].mask));
            if found.iter().all(may_change) && !found.is_empty() {
                for _ in 0..AGAIN {
                    let again = sides[0].send(&step, &one).await?;
                    found = differences((&again, &sides[0].mask), (&subject, &sides[1].mask));
                    if found.is_empty() {
                        break;
                    }
                }
                // Maps of many keys would need too many repetitions.
                let only_order = found.iter().all(|difference| difference.at == "order of causes");
                if only_order && ordered_alike((&reference, &sides[0].mask), (&subject, &sides[1].mask)) {
                    found.clear();
                }
            }
            // A warning is for the client; the objects stay equal.
            let diverged = found.iter().any(|difference| difference.at != "warning");
            found.retain(|difference| match kept.find(kind, &step, &said, difference) {
                Some(seen) => {
                    played.kept.push(seen);
                    false
                }
                None => true,
            });
            if !found.is_empty() {
                played.finding = Some(Finding {
                    case: Case { kind: kind.to_owned(), steps },
                    differences: found,
                    request: (step.verb.method().to_owned(), other.0, other.1),
                    reference,
                    subject,
                });
                return Ok(());
            }
            // After any other difference, allowed or not, the two no longer have the same object.
            let refused = step.verb == Verb::Create && !reference.is_success();
            if diverged
                || refused
                || sides[0].current.is_none()
                || reference.code >= 500
                || reference.code == 0
            {
                return Ok(());
            }
        }
        Ok(())
    }

    /// The path and body of a step on one side.
    fn request(&self, kind: &str, step: &Step, side: &Side<'_>) -> Option<(String, Value)> {
        let collection = collection(kind, &self.namespace)?;
        let mut path = collection;
        let mut body = step.body.clone();
        if step.verb != Verb::Create {
            let current = side.current.as_ref()?;
            path = format!("{path}/{}", current["metadata"]["name"].as_str()?);
            if step.verb == Verb::Replace {
                body = patch::apply(current, &step.body)?;
            }
        }
        if !step.part.is_empty() {
            path = format!("{path}/{}", step.part);
        }
        if !step.query.is_empty() {
            path = format!("{path}?{}", step.query);
        }
        Some((path, body))
    }
}

impl Side<'_> {
    async fn send(&self, step: &Step, (path, body): &(String, Value)) -> Result<Response, Error> {
        let (media_type, bytes) = sent(step, body);
        send_request(self.client, step.verb.method(), path, media_type, bytes).await
    }

    fn learn(&mut self, step: &Step, response: &Response, said: &str) {
        let Some(object) = response.object() else {
            if response.is_success() && step.verb == Verb::Delete && !step.is_dry() {
                self.current = None;
            }
            return;
        };
        self.mask.learn(object, said);
        if !step.is_dry() {
            self.current = Some(object.clone());
        }
    }
}
