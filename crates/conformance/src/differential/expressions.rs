//! Expressions of the language CEL, put to two API servers as rules of a custom resource.
//!
//! ```text
//!   seed ▸ generate: a batch of expressions ─▶ rules of one definition
//!       ▸ the definition, as a dry run ─┬─▶ reference ─▶ what does not compile ─┐
//!                                       └─▶ subject   ─▶ what does not compile ─┴─▶ compare
//!       ▸ what compiles on both, as a definition, and objects of it ─┬─▶ reference ─▶ values and errors ─┐
//!                                                                    └─▶ subject   ─▶ values and errors ─┴─▶ compare
//! ```
//!
//! An expression becomes a rule that never holds, and whose message shows its value: so the response to one object has the
//! values of all rules of the batch. What differs on purpose is listed in `differential/expressions/kept.tsv`, each with
//! its reason.

mod generate;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use kube::Client;
use serde_json::{Value, json};

use super::answer::{Answer, ask};
use super::random::Random;
use crate::error::Error;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const GROUP: &str = "expressions.example.com";
/// How often a server is asked whether it serves a definition, and the time in between.
const ATTEMPTS: usize = 600;
const INTERVAL: Duration = Duration::from_millis(50);
/// The differences that are on purpose: a part of the expression or of one of the results, and the reason.
const KEPT: &str = include_str!("../../differential/expressions/kept.tsv");

/// What is to be done.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How many expressions.
    pub cases: u64,
    /// What they are made from.
    pub seed: u64,
    /// How many make one definition.
    pub batch: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { cases: 300, seed: 1, batch: 100 }
    }
}

/// An expression about which the servers do not agree.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The expression.
    pub expression: String,
    /// The object it was evaluated for; none if it was compiled.
    pub object: Option<usize>,
    /// What the reference says.
    pub reference: String,
    /// What the subject says.
    pub subject: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.object.map_or_else(|| "compiled".to_owned(), |object| format!("for object {object}"));
        write!(
            f,
            "{} ({at})\n  reference: {}\n  subject:   {}",
            self.expression, self.reference, self.subject
        )
    }
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What the expressions were made from.
    pub seed: u64,
    /// How many expressions were compiled by both.
    pub compiled: usize,
    /// How many were refused by both.
    pub refused: usize,
    /// How many values and errors were compared.
    pub evaluated: usize,
    /// Differences on purpose, by their reason.
    pub kept: BTreeMap<String, usize>,
    /// All others.
    pub findings: Vec<Finding>,
}

impl Outcome {
    /// Whether the servers agree but for what is on purpose.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    fn note(&mut self, finding: Finding) {
        match kept(&finding) {
            Some(reason) => *self.kept.entry(reason.to_owned()).or_default() += 1,
            None => self.findings.push(finding),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(f, "{finding}\n")?;
        }
        for (reason, count) in &self.kept {
            writeln!(f, "on purpose {count} times: {reason}")?;
        }
        write!(
            f,
            "seed {}: {} expressions compiled by both, {} refused by both, {} results compared, {} differ",
            self.seed,
            self.compiled,
            self.refused,
            self.evaluated,
            self.findings.len()
        )
    }
}

/// Why a difference is on purpose, if it is.
fn kept(finding: &Finding) -> Option<&'static str> {
    KEPT.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let (part, reason) = line.split_once('\t')?;
        let texts = [&finding.expression, &finding.reference, &finding.subject];
        texts.iter().any(|text| text.contains(part)).then_some(reason)
    })
}

/// Compares what two servers make of expressions.
pub async fn run(reference: &Client, subject: &Client, options: &Options) -> Result<Outcome, Error> {
    let mut outcome = Outcome { seed: options.seed, ..Outcome::default() };
    let mut first = 0;
    while first < options.cases {
        let count = options.batch.min(options.cases - first);
        let expressions: Vec<String> = (first..first + count)
            .map(|case| generate::expression(&mut Random::of(options.seed, case)))
            .collect();
        batch([reference, subject], first, &expressions, &mut outcome).await?;
        first += count;
    }
    Ok(outcome)
}

async fn batch(
    servers: [&Client; 2],
    number: u64,
    expressions: &[String],
    outcome: &mut Outcome,
) -> Result<(), Error> {
    let sound = compile(servers, number, expressions, outcome).await?;
    let body = definition(number, &sound, expressions);
    for answer in both(servers, DEFINITIONS, &body).await? {
        if !answer.is_success() {
            return Err(Error::Unprepared(answer.text("message").to_owned()));
        }
    }
    let plural = format!("batch{number}s");
    let path = format!("/apis/{GROUP}/v1/{plural}");
    for server in servers {
        served(server, &path).await?;
    }
    for (index, object) in objects().into_iter().enumerate() {
        let mut object = object;
        object["apiVersion"] = json!(format!("{GROUP}/v1"));
        object["kind"] = json!(format!("Batch{number}"));
        object["metadata"] = json!({ "name": "a" });
        let answers = both(servers, &format!("{path}?dryRun=All"), &object).await?;
        let [left, right] = answers.map(|answer| results(&answer, sound.len()));
        for (place, (reference, subject)) in sound.iter().zip(left.into_iter().zip(right)) {
            outcome.evaluated += 1;
            if reference != subject {
                let expression = expressions[*place].clone();
                outcome.note(Finding { expression, object: Some(index), reference, subject });
            }
        }
    }
    for server in servers {
        let name = format!("{DEFINITIONS}/{plural}.{GROUP}");
        ask(server, "DELETE", &name, "application/json", Vec::new()).await?;
    }
    Ok(())
}

/// The expressions that both servers compile. One that is refused may hide what is wrong with another, so this goes on
/// until a definition is refused by neither.
async fn compile(
    servers: [&Client; 2],
    number: u64,
    expressions: &[String],
    outcome: &mut Outcome,
) -> Result<Vec<usize>, Error> {
    let mut sound: Vec<usize> = (0..expressions.len()).collect();
    let path = format!("{DEFINITIONS}?dryRun=All");
    loop {
        let answers = both(servers, &path, &definition(number, &sound, expressions)).await?;
        if answers.iter().all(Answer::is_success) {
            outcome.compiled += sound.len();
            return Ok(sound);
        }
        if let Some(answer) = answers.iter().find(|own| !own.is_success() && refusals(own).is_empty()) {
            return Err(Error::Unprepared(answer.text("message").to_owned()));
        }
        let [left, right] = answers.each_ref().map(refusals);
        let mut left_over = Vec::new();
        for (index, place) in sound.iter().enumerate() {
            let what = |refusals: &BTreeMap<usize, String>| refusals.get(&index).cloned().unwrap_or_default();
            let (reference, subject) = (what(&left), what(&right));
            if reference != subject {
                let expression = expressions[*place].clone();
                outcome.note(Finding { expression, object: None, reference, subject });
            } else if reference.is_empty() {
                left_over.push(*place);
            } else {
                outcome.refused += 1;
            }
        }
        if left_over.len() == sound.len() {
            let why = answers.iter().map(|answer| answer.text("message").to_owned());
            return Err(Error::Unprepared(why.collect::<Vec<_>>().join("; ")));
        }
        sound = left_over;
    }
}

async fn both(servers: [&Client; 2], path: &str, body: &Value) -> Result<[Answer; 2], Error> {
    let send = |client| ask(client, "POST", path, "application/json", body.to_string().into_bytes());
    let (left, right) = futures::future::try_join(send(servers[0]), send(servers[1])).await?;
    Ok([left, right])
}

/// Waits until a server serves the objects of a definition.
async fn served(server: &Client, path: &str) -> Result<(), Error> {
    for _ in 0..ATTEMPTS {
        if ask(server, "GET", path, "application/json", Vec::new()).await?.is_success() {
            return Ok(());
        }
        tokio::time::sleep(INTERVAL).await;
    }
    Err(Error::Unprepared(format!("{path} is not served")))
}

/// A definition with some of the expressions as its rules.
fn definition(number: u64, places: &[usize], expressions: &[String]) -> Value {
    let rules: Vec<Value> = places
        .iter()
        .enumerate()
        .map(|(index, place)| {
            let expression = &expressions[*place];
            json!({
                "rule": format!("dyn({expression}) == 'never'"),
                "message": format!("rule {index} does not hold"),
                "messageExpression": format!("'rule {index} is %s'.format([{expression}])"),
            })
        })
        .collect();
    let mut schema = schema();
    schema["x-kubernetes-validations"] = json!(rules);
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("batch{number}s.{GROUP}") },
        "spec": {
            "group": GROUP, "scope": "Cluster",
            "names": { "plural": format!("batch{number}s"), "kind": format!("Batch{number}") },
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema },
            }],
        },
    })
}

/// The object that expressions are about, `self`.
fn schema() -> Value {
    let text = json!({ "type": "string", "maxLength": 20 });
    json!({
        "type": "object",
        "properties": {
            "b": { "type": "boolean" },
            "i": { "type": "integer" },
            "n": { "type": "number" },
            "s": text,
            "missing": text,
            "missing2": { "type": "integer" },
            "y": { "type": "string", "format": "byte", "maxLength": 20 },
            "d": { "type": "string", "format": "duration" },
            "t": { "type": "string", "format": "date-time" },
            "x": { "x-kubernetes-int-or-string": true },
            "l": { "type": "array", "maxItems": 8, "items": { "type": "integer" } },
            "ls": { "type": "array", "maxItems": 8, "items": text },
            "set": { "type": "array", "maxItems": 8, "items": text, "x-kubernetes-list-type": "set" },
            "m": { "type": "object", "maxProperties": 8, "additionalProperties": { "type": "integer" } },
            "o": { "type": "object", "properties": {
                "a": { "type": "integer" }, "b": text, "v": { "type": "integer" }, "k": text,
            } },
            "lo": {
                "type": "array", "maxItems": 5,
                "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                "items": { "type": "object", "required": ["k"], "properties": {
                    "a": { "type": "integer" }, "b": text, "k": text, "v": { "type": "integer" },
                } },
            },
        },
    })
}

/// The objects that expressions are evaluated for.
fn objects() -> [Value; 3] {
    [
        json!({
            "b": true, "i": 5, "n": 2.5, "s": "hello", "y": "YWJj", "d": "90s", "t": "2024-02-29T12:30:45Z", "x": "text",
            "l": [4, 2, 9], "ls": ["b", "a", "c"], "set": ["x", "y"], "m": { "a": 1, "b": 2 },
            "o": { "a": 3, "b": "inner", "v": 8, "k": "key" },
            "lo": [{ "k": "one", "v": 1, "a": 1, "b": "x" }, { "k": "two", "v": 2, "a": 2, "b": "y" }],
        }),
        json!({
            "b": false, "i": -1, "n": 3, "s": "", "y": "AA==", "d": "0s", "t": "1970-01-01T00:00:00Z", "x": 7,
            "l": [], "ls": [], "set": [], "m": {}, "o": {}, "lo": [],
        }),
        json!({
            "i": 9_223_372_036_854_775_807_i64, "n": -1e300, "s": "ä b,c", "x": 0, "l": [1, 1, 1], "ls": ["x"],
            "m": { "z": -5 }, "o": { "a": 0, "b": "" }, "lo": [{ "k": "" }],
        }),
    ]
}

/// What does not compile, by the place of its expression.
fn refusals(answer: &Answer) -> BTreeMap<usize, String> {
    let mut found: BTreeMap<usize, String> = BTreeMap::new();
    for cause in answer.body["details"]["causes"].as_array().into_iter().flatten() {
        let text = |field: &str| cause[field].as_str().unwrap_or_default();
        let place =
            text("field").split_once("x-kubernetes-validations[").and_then(|(_, rest)| rest.split_once(']'));
        let Some((place, field)) = place.and_then(|(place, rest)| Some((place.parse().ok()?, rest))) else {
            continue;
        };
        let refusal = format!("{field} {}; ", without_number(text("message")));
        found.entry(place).or_default().push_str(&refusal);
    }
    found
}

/// A message without the random number that kube-apiserver gives the type of `self`.
fn without_number(message: &str) -> String {
    const TYPE: &str = "selfType";
    let mut parts = message.split(TYPE);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str("self");
        out.push_str(part.trim_start_matches(|letter: char| letter.is_ascii_digit()));
    }
    out
}

/// What each rule came to.
fn results(answer: &Answer, count: usize) -> Vec<String> {
    let mut found = vec![String::new(); count];
    for cause in answer.body["details"]["causes"].as_array().into_iter().flatten() {
        let message = cause["message"].as_str().unwrap_or_default();
        let place = message.rsplit_once("rule ").and_then(|_| {
            let (_, rest) = message.split_once("rule: rule ").or_else(|| message.split_once("rule "))?;
            rest.split(' ').next()?.parse::<usize>().ok()
        });
        if let Some(entry) = place.and_then(|place| found.get_mut(place)) {
            entry.push_str(message);
        } else if let Some(first) = found.first_mut() {
            first.push_str(message);
        }
    }
    found
}
