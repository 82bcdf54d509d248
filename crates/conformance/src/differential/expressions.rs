//! Expressions of the language CEL, put to two API servers as rules of a custom resource.
//!
//! ```text
//!   seed ▸ generate: a batch of expressions ─▶ rules of one definition
//!       ▸ the definition, as a dry run ─┬─▶ reference ─▶ what does not compile ─┐
//!                                       └─▶ subject   ─▶ what does not compile ─┴─▶ compare
//!       ▸ what compiles on both, as rules of a long list ─┬─▶ reference ─▶ what it costs at worst ─┐
//!                                                         └─▶ subject   ─▶ what it costs at worst ─┴─▶ compare
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

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use kube::Client;
use serde_json::{Value, json};

use super::random::Random;
use super::response::{Response, send_request};
use crate::error::Error;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const GROUP: &str = "expressions.example.com";
/// How many definitions are tried at the same time: a server takes its time to serve a new one.
const AT_ONCE: usize = 4;
/// How many elements the lists have whose rules are estimated: a factor is shown to a tenth if it is between 1.5 and 100, so
/// these show costs from 15 to 1,000 and from 15,000 to 1,000,000.
const ELEMENTS: [u64; 2] = [1_000_000, 1_000];
/// How often the reference is asked again for values that differ. Go begins one time in eight at the second of two keys.
const AGAIN: usize = 60;
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
        Self { cases: 2_500, seed: 1, batch: 125 }
    }
}

/// An expression about which the servers do not agree.
#[derive(Clone, Debug)]
pub struct Finding {
    /// What the expression was made from: the seed of the run, and its number in it.
    pub made_from: (u64, u64),
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
        let (seed, case) = self.made_from;
        write!(
            f,
            "{} ({at}; seed {seed}, case {case})\n  reference: {}\n  subject:   {}",
            self.expression, self.reference, self.subject
        )
    }
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct RunSummary {
    /// What the expressions were made from.
    pub seed: u64,
    /// How many expressions were compiled by both.
    pub compiled: usize,
    /// How many were refused by both.
    pub refused: usize,
    /// How many estimates of their cost were shown and compared.
    pub estimated: usize,
    /// How many values and errors were compared.
    pub evaluated: usize,
    /// Differences on purpose, by their reason.
    pub kept: BTreeMap<String, usize>,
    /// All others.
    pub findings: Vec<Finding>,
}

impl RunSummary {
    /// Whether the servers agree but for what is on purpose.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    fn add(&mut self, other: Self) {
        self.compiled += other.compiled;
        self.refused += other.refused;
        self.estimated += other.estimated;
        self.evaluated += other.evaluated;
        for (reason, count) in other.kept {
            *self.kept.entry(reason).or_default() += count;
        }
        self.findings.extend(other.findings);
    }

    fn note(&mut self, finding: Finding) {
        match kept(&finding) {
            Some(reason) => *self.kept.entry(reason.to_owned()).or_default() += 1,
            None => self.findings.push(finding),
        }
    }
}

impl fmt::Display for RunSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(f, "{finding}\n")?;
        }
        for (reason, count) in &self.kept {
            writeln!(f, "on purpose {count} times: {reason}")?;
        }
        write!(
            f,
            "seed {}: {} expressions compiled by both, {} refused by both, {} costs and {} results compared, {} differ",
            self.seed,
            self.compiled,
            self.refused,
            self.estimated,
            self.evaluated,
            self.findings.len()
        )
    }
}

/// Why a difference is on purpose, if it is.
fn kept(finding: &Finding) -> Option<&'static str> {
    // Whether an expression is refused at all is never.
    if finding.object.is_none() && finding.reference.is_empty() != finding.subject.is_empty() {
        return None;
    }
    KEPT.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let (part, reason) = line.split_once('\t')?;
        let texts = [&finding.expression, &finding.reference, &finding.subject];
        texts.iter().any(|text| text.contains(part)).then_some(reason)
    })
}

/// Compares what two servers make of expressions.
pub async fn run(reference: &Client, subject: &Client, options: &Options) -> Result<RunSummary, Error> {
    let size = options.batch.max(1);
    let batches = (0..options.cases.div_ceil(size)).map(|batch| {
        let first = batch * size;
        Batch::made(options.seed, first, size.min(options.cases - first))
    });
    let mut outcomes = stream::iter(batches)
        .map(|batch| async move { batch.play([reference, subject]).await })
        .buffered(AT_ONCE);
    let mut outcome = RunSummary { seed: options.seed, ..RunSummary::default() };
    while let Some(played) = outcomes.try_next().await? {
        outcome.add(played);
    }
    Ok(outcome)
}

/// Expressions that become rules of one definition.
struct Batch {
    seed: u64,
    /// The number of the first in the run.
    first: u64,
    expressions: Vec<String>,
}

impl Batch {
    fn made(seed: u64, first: u64, count: u64) -> Self {
        let expressions =
            (first..first + count).map(|case| generate::expression(&mut Random::of(seed, case)));
        Self { seed, first, expressions: expressions.collect() }
    }

    fn finding(&self, place: usize, object: Option<usize>, reference: String, subject: String) -> Finding {
        let case = self.first + u64::try_from(place).unwrap_or_default();
        let expression = self.expressions[place].clone();
        Finding { made_from: (self.seed, case), expression, object, reference, subject }
    }

    async fn play(self, servers: [&Client; 2]) -> Result<RunSummary, Error> {
        let mut outcome = RunSummary::default();
        let number = self.first;
        let sound = self.compile(servers, &mut outcome).await?;
        for most in ELEMENTS {
            self.estimate(servers, &sound, most, &mut outcome).await?;
        }
        let body = self.definition(&sound);
        for response in both(servers, DEFINITIONS, &body).await? {
            if !response.is_success() {
                return Err(Error::Unprepared(response.text("message").to_owned()));
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
            let path = format!("{path}?dryRun=All");
            let responses = both(servers, &path, &object).await?;
            let [left, right] = responses.map(|response| results(&response, sound.len()));
            outcome.evaluated += sound.len();
            let mut differ: Vec<usize> =
                (0..sound.len()).filter(|rule| left[*rule] != right[*rule]).collect();
            // kube-apiserver goes over a map in another order each time: one of its orders has to be ours.
            for _ in 0..AGAIN {
                if differ.is_empty() {
                    break;
                }
                let response = send_request(
                    servers[0],
                    "POST",
                    &path,
                    "application/json",
                    object.to_string().into_bytes(),
                )
                .await?;
                let again = results(&response, sound.len());
                differ.retain(|rule| again[*rule] != right[*rule]);
            }
            for rule in differ {
                let (reference, subject) = (left[rule].clone(), right[rule].clone());
                outcome.note(self.finding(sound[rule], Some(index), reference, subject));
            }
        }
        for server in servers {
            let name = format!("{DEFINITIONS}/{plural}.{GROUP}");
            send_request(server, "DELETE", &name, "application/json", Vec::new()).await?;
        }
        Ok(outcome)
    }

    /// The expressions that both servers compile. One that is refused may hide what is wrong with another, so this goes on
    /// until a definition is refused by neither.
    async fn compile(&self, servers: [&Client; 2], outcome: &mut RunSummary) -> Result<Vec<usize>, Error> {
        let mut sound: Vec<usize> = (0..self.expressions.len()).collect();
        let path = format!("{DEFINITIONS}?dryRun=All");
        loop {
            let responses = both(servers, &path, &self.definition(&sound)).await?;
            if responses.iter().all(Response::is_success) {
                outcome.compiled += sound.len();
                return Ok(sound);
            }
            if let Some(response) = responses.iter().find(|own| !own.is_success() && refusals(own).is_empty())
            {
                return Err(Error::Unprepared(response.text("message").to_owned()));
            }
            let [left, right] = responses.each_ref().map(refusals);
            let mut left_over = Vec::new();
            for (index, place) in sound.iter().enumerate() {
                let what =
                    |refusals: &BTreeMap<usize, String>| refusals.get(&index).cloned().unwrap_or_default();
                let (reference, subject) = (what(&left), what(&right));
                if reference != subject {
                    outcome.note(self.finding(*place, None, reference, subject));
                } else if reference.is_empty() {
                    left_over.push(*place);
                } else {
                    outcome.refused += 1;
                }
            }
            if left_over.len() == sound.len() {
                let why = responses.iter().map(|response| response.text("message").to_owned());
                return Err(Error::Unprepared(why.collect::<Vec<_>>().join("; ")));
            }
            sound = left_over;
        }
    }

    /// Compares what expressions cost at worst. A rule about the elements of a list costs so much for each of them, and a
    /// definition that is refused for it says by which factor that is too much.
    async fn estimate(
        &self,
        servers: [&Client; 2],
        sound: &[usize],
        most: u64,
        outcome: &mut RunSummary,
    ) -> Result<(), Error> {
        let mut items = schema();
        let rules = sound.iter().map(|place| json!({ "rule": self.rule(*place) }));
        items["x-kubernetes-validations"] = rules.collect();
        let list = json!({ "type": "array", "maxItems": most, "items": items });
        let body = self.defined(&json!({ "type": "object", "properties": { "list": list } }));
        let responses = both(servers, &format!("{DEFINITIONS}?dryRun=All"), &body).await?;
        let [left, right] = responses.map(|response| {
            let mut costs = refusals(&response);
            costs.retain(|_, refusal| refusal.contains("estimated rule cost exceeds"));
            costs
        });
        for (index, place) in sound.iter().enumerate() {
            let cost = |costs: &BTreeMap<usize, String>| {
                // Which rules are named as the most expensive of all is not said of equally expensive ones.
                let all = costs.get(&index).map(String::as_str).unwrap_or_default();
                all.split("; ").filter(|part| !part.contains("contributed to")).collect::<Vec<_>>().join("; ")
            };
            let (reference, subject) = (cost(&left), cost(&right));
            outcome.estimated += usize::from(!reference.is_empty());
            if reference != subject {
                outcome.note(self.finding(*place, None, reference, subject));
            }
        }
        Ok(())
    }

    /// The rule of an expression, which never holds.
    fn rule(&self, place: usize) -> String {
        format!("dyn({}) == 'never'", self.expressions[place])
    }

    /// A definition with some of the expressions as its rules.
    fn definition(&self, places: &[usize]) -> Value {
        let rules: Vec<Value> = places
            .iter()
            .enumerate()
            .map(|(index, place)| {
                let expression = &self.expressions[*place];
                json!({
                    "rule": self.rule(*place),
                    "message": format!("rule {index} does not hold"),
                    "messageExpression": format!("'rule {index} is %s'.format([{expression}])"),
                })
            })
            .collect();
        let mut schema = schema();
        schema["x-kubernetes-validations"] = json!(rules);
        self.defined(&schema)
    }

    /// A definition with a schema.
    fn defined(&self, schema: &Value) -> Value {
        let number = self.first;
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
}

async fn both(servers: [&Client; 2], path: &str, body: &Value) -> Result<[Response; 2], Error> {
    let send = |client| send_request(client, "POST", path, "application/json", body.to_string().into_bytes());
    let (left, right) = futures::future::try_join(send(servers[0]), send(servers[1])).await?;
    Ok([left, right])
}

/// Waits until a server serves the objects of a definition.
async fn served(server: &Client, path: &str) -> Result<(), Error> {
    for _ in 0..ATTEMPTS {
        if send_request(server, "GET", path, "application/json", Vec::new()).await?.is_success() {
            return Ok(());
        }
        tokio::time::sleep(INTERVAL).await;
    }
    Err(Error::Unprepared(format!("{path} is not served")))
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
            "day": { "type": "string", "format": "date" },
            "long": { "type": "string" },
            "my-name": text,
            "e": { "type": "string", "enum": ["one", "two", ""] },
            "all": { "type": "array", "items": { "type": "string" } },
            "ml": {
                "type": "object", "maxProperties": 4,
                "additionalProperties": { "type": "array", "maxItems": 4, "items": { "type": "integer" } },
            },
            "ll": {
                "type": "array", "maxItems": 4,
                "items": { "type": "array", "maxItems": 4, "items": { "type": "integer" } },
            },
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
            "day": "2024-12-31", "long": "a long text", "my-name": "me", "e": "one", "all": ["p", "q", "p"],
            "ml": { "a": [1, 2], "b": [] }, "ll": [[3, 1], [], [2]],
            "lo": [{ "k": "one", "v": 1, "a": 1, "b": "x" }, { "k": "two", "v": 2, "a": 2, "b": "y" }],
        }),
        json!({
            "b": false, "i": -1, "n": 3, "s": "", "y": "AA==", "d": "0s", "t": "1970-01-01T00:00:00Z", "x": 7,
            "l": [], "ls": [], "set": [], "m": {}, "o": {}, "lo": [], "day": "1970-01-01", "long": "", "my-name": "", "e": "",
            "all": [], "ml": {}, "ll": [],
        }),
        json!({
            "i": 9_223_372_036_854_775_807_i64, "n": -1e300, "s": "ä b,c", "x": 0, "l": [1, 1, 1], "ls": ["x"],
            "m": { "z": -5 }, "o": { "a": 0, "b": "" }, "lo": [{ "k": "" }], "t": "2024-02-29T23:30:45.123456+05:30",
            "d": "1h15m30.5s", "long": "10.1.2.3", "all": ["1Gi", "x"], "ll": [[1]],
        }),
    ]
}

/// What does not compile, by the place of its expression.
fn refusals(response: &Response) -> BTreeMap<usize, String> {
    let mut found: BTreeMap<usize, String> = BTreeMap::new();
    for cause in response.body["details"]["causes"].as_array().into_iter().flatten() {
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
fn results(response: &Response, count: usize) -> Vec<String> {
    let mut found = vec![String::new(); count];
    for cause in response.body["details"]["causes"].as_array().into_iter().flatten() {
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
