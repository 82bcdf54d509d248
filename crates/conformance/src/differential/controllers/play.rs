//! Runs a scenario in both clusters, in step.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use futures::future;
use kube::Client;
use serde_json::{Value, json};

use super::super::compare::Difference;
use super::super::kept::MatchedPattern;
use super::acts::{About, personal};
use super::kept::AllowedDifferences;
use super::kinds::Kind;
use super::nodes::{now, send};
use super::normalized::NormalizedNamespace;
use super::scenario::{Act, Scenario, Step, has};
use super::simulated::{self, NodeAction};
use super::view::{SCENARIO, View};
use crate::error::Error;

/// How long no object may have changed before the next action of simulated nodes.
const BREATH: Duration = Duration::from_millis(250);
/// The same before the next step. The Job controller batches changes for a second.
const REST: Duration = Duration::from_millis(1200);
/// The timeout of a wait for a change. Such waits are counted instead of the time that passes, so that a pause of
/// this machine makes no cluster late.
const TURN: Duration = Duration::from_secs(1);
/// A difference that is unchanged for this many waits is final.
const STANDSTILL: u32 = 12;
/// The same while a step waits for something: one side may poll less often than the other.
const LONG_STANDSTILL: u32 = 60;
/// The maximal number of waits of a step.
const ATTEMPTS: u32 = 180;

/// One of the clusters.
pub(super) struct Side {
    pub(super) client: Client,
    pub(super) view: View,
}

/// A final difference that is not allowed.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The scenario.
    pub scenario: String,
    /// The steps and actions before.
    pub after: Vec<String>,
    /// The differences.
    pub differences: Vec<Difference>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, after:", self.scenario)?;
        for happened in &self.after {
            writeln!(f, "  {happened}")?;
        }
        for difference in &self.differences {
            writeln!(f, "    {difference}")?;
        }
        Ok(())
    }
}

/// The result of a scenario.
#[derive(Debug, Default)]
pub(super) struct ScenarioResult {
    /// How often the two clusters were compared when stable.
    pub(super) compared: usize,
    /// The allowed differences that were found.
    pub(super) kept: BTreeSet<MatchedPattern>,
    /// The difference that is not allowed.
    pub(super) finding: Option<Finding>,
}

/// A running scenario.
pub(super) struct ScenarioRun {
    pub(super) sides: Arc<[Side; 2]>,
    pub(super) namespace: String,
    kept: Arc<AllowedDifferences>,
    scenario: Scenario,
    happened: Vec<String>,
    played: ScenarioResult,
    /// How many actions of simulated nodes there were.
    pub(super) acted: AtomicUsize,
}

/// The end of a step.
pub(super) enum End {
    /// Both clusters are stable and equal.
    Alike,
    /// They differ.
    Apart(Vec<Difference>),
}

impl ScenarioRun {
    /// A scenario in a namespace of its own.
    pub(super) fn new(
        sides: Arc<[Side; 2]>,
        kept: Arc<AllowedDifferences>,
        scenario: Scenario,
        run: &str,
    ) -> Self {
        let namespace = format!("{}-{run}", scenario.name);
        Self {
            sides,
            kept,
            scenario,
            namespace,
            happened: Vec::new(),
            played: ScenarioResult::default(),
            acted: AtomicUsize::new(0),
        }
    }

    /// Runs it up to the first final difference, and deletes its objects.
    pub(super) async fn play(mut self) -> Result<ScenarioResult, Error> {
        let setup = [
            Act::Make(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}})),
            Act::Until(
                [("serviceaccounts/default", json!({})), ("configmaps/kube-root-ca.crt", json!({}))]
                    .map(|(of, wanted)| (of.to_owned(), wanted))
                    .into(),
            ),
        ];
        let setup = setup.map(|act| Step { act, moves: None });
        let steps = self.scenario.steps.clone();
        for step in setup.iter().chain(&steps) {
            if let End::Apart(differences) = self.step(step).await? {
                let (scenario, after) = (self.scenario.name.clone(), self.happened.clone());
                self.played.finding = Some(Finding { scenario, after, differences });
                break;
            }
        }
        let namespace = &self.namespace;
        let left = [
            format!("/api/v1/namespaces/{namespace}"),
            format!("/api/v1/nodes?labelSelector={SCENARIO}%3D{namespace}"),
        ];
        for side in &*self.sides {
            for path in &left {
                send(&side.client, "DELETE", path, &json!({})).await?;
            }
        }
        Ok(self.played)
    }

    async fn step(&mut self, step: &Step) -> Result<End, Error> {
        let act = step.act.within(&self.namespace);
        let mut wanted = None;
        match &act {
            Act::Make(object) => {
                let mut object = object.clone();
                if object["kind"] == "Node" && object["status"].is_null() {
                    object["status"] = simulated::node_status(&now())["status"].take();
                }
                let kind = object["kind"].as_str().and_then(Kind::of_object);
                let kind = kind.ok_or_else(|| Error::List(format!("no such kind: {object}")))?;
                let path = kind.collection(&self.namespace);
                self.happened.push(format!("{} is made", called(&object, kind)));
                let normalized = self.normalized();
                let [one, other] = normalized.each_ref().map(|normalized| personal(&object, normalized));
                let [reference, subject] = &*self.sides;
                let (reference, subject) = future::try_join(
                    send(&reference.client, "POST", &path, &one),
                    send(&subject.client, "POST", &path, &other),
                )
                .await?;
                let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                let about = About { kind, name, before: None, goes: false };
                if let Some(apart) =
                    self.compare_responses([reference, subject], [about.clone(), about]).await
                {
                    return Ok(apart);
                }
            }
            Act::Change { of, with, part } => {
                let part = part.as_ref().map(|part| format!("/{part}")).unwrap_or_default();
                self.happened.push(format!("{of}{part} is changed: {with}"));
                if let Some(apart) = self.request_both("PATCH", of, &part, with).await? {
                    return Ok(apart);
                }
            }
            Act::Delete { of, options } => {
                self.happened.push(format!("{of} is deleted: {options}"));
                let options = if options.is_null() { json!({}) } else { options.clone() };
                if let Some(apart) = self.request_both("DELETE", of, "", &options).await? {
                    return Ok(apart);
                }
            }
            Act::Evict { of } => {
                self.happened.push(format!("{of} is asked to go"));
                let eviction =
                    json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "$name"}});
                if let Some(apart) = self.request_both("POST", of, "/eviction", &eviction).await? {
                    return Ok(apart);
                }
            }
            Act::Until(until) => {
                self.happened.push(format!("until {}", json!(until)));
                wanted = Some(until);
            }
        }
        let (mut turns, mut still, mut changed) = (0, 0, self.changed());
        let mut moves = step.moves.unwrap_or(usize::MAX);
        loop {
            self.quiet(BREATH).await;
            let [reference, subject] = self.normalized();
            let found = self.unlisted(reference.differences(&subject));
            let missing = wanted
                .and_then(|wanted| [&reference, &subject].into_iter().find_map(|one| missing(one, wanted)));
            if !found.is_empty() {
                let standstill = if missing.is_some() { LONG_STANDSTILL } else { STANDSTILL };
                let now = self.changed();
                (still, changed) = (if now == changed { still + 1 } else { 0 }, now);
                turns += 1;
                if still > standstill || turns > ATTEMPTS {
                    return Ok(End::Apart(found));
                }
                self.change_within(TURN).await;
                continue;
            }
            self.played.compared += 1;
            let due = simulated::next(&reference);
            if moves == 0 {
                return Ok(End::Alike);
            }
            if let Some((key, mut due)) = due {
                // A normalized namespace has a scenario's own nodes without its namespace.
                if let NodeAction::Start { node: Some(node), .. } = &mut due {
                    *node = node.replace("$namespace", &self.namespace);
                }
                moves -= 1;
                self.happened.push(format!("  {key}: {due:?}"));
                if let Some(apart) = self.perform(&key, &due, [&reference, &subject]).await? {
                    return Ok(apart);
                }
                continue;
            }
            if let Some(missing) = missing {
                turns += 1;
                if turns > ATTEMPTS {
                    return Ok(End::Apart(vec![missing]));
                }
                self.change_within(TURN).await;
                continue;
            }
            let rest = self.rest();
            if rest >= REST {
                return Ok(End::Alike);
            }
            self.change_within(REST.saturating_sub(rest)).await;
        }
    }

    /// Differences without those that are allowed.
    fn unlisted(&mut self, mut found: Vec<Difference>) -> Vec<Difference> {
        found.retain(|difference| match self.kept.find(&self.scenario.name, difference) {
            Some(seen) => {
                self.played.kept.insert(seen);
                false
            }
            None => true,
        });
        found
    }

    pub(super) fn normalized(&self) -> [NormalizedNamespace; 2] {
        [0, 1].map(|i| {
            NormalizedNamespace::of(&self.namespace, &self.sides[i].view.objects_in(&self.namespace))
        })
    }

    /// For how long no object has changed on either side.
    fn rest(&self) -> Duration {
        let [one, other] = &*self.sides;
        one.view.rest(&self.namespace).min(other.view.rest(&self.namespace))
    }

    /// Waits until no object has changed for this time.
    async fn quiet(&self, wanted: Duration) {
        loop {
            let rest = self.rest();
            if rest >= wanted {
                return;
            }
            tokio::time::sleep(wanted.saturating_sub(rest)).await;
        }
    }

    /// Waits for a change, with a short timeout.
    async fn change_within(&self, time: Duration) {
        let [mut one, mut other] = self.sides.each_ref().map(|side| side.view.changes());
        let before = self.changed();
        let changed = async {
            while self.changed() == before {
                future::select(Box::pin(one.changed()), Box::pin(other.changed())).await;
            }
        };
        // A timeout is a result, too.
        let _ = tokio::time::timeout(time, changed).await;
    }

    /// When an object last changed on each side.
    fn changed(&self) -> [Option<Instant>; 2] {
        self.sides.each_ref().map(|side| side.view.changed(&self.namespace))
    }
}

/// The name of an object that a step creates.
fn called(object: &Value, kind: &Kind) -> String {
    format!("{}/{}", kind.plural, object["metadata"]["name"].as_str().unwrap_or_default())
}

/// The key of an object in a normalized namespace: by its name, or by a label.
pub(super) fn key(of: &str, normalized: &NormalizedNamespace) -> Option<String> {
    let Some((kind, label)) = of.split_once('?') else { return Some(of.to_owned()) };
    let (label, value) = label.split_once('=')?;
    let has = |(key, object): &(&String, &Value)| {
        key.split_once('/').is_some_and(|(known, _)| known == kind)
            && object["metadata"]["labels"].get(label).is_some_and(|found| found == value)
    };
    normalized.objects().iter().find(has).map(|(key, _)| key.clone())
}

pub(super) fn difference(at: &str, reference: &str, subject: &str) -> Difference {
    Difference { at: at.to_owned(), reference: Some(reference.to_owned()), subject: Some(subject.to_owned()) }
}

/// What a normalized namespace does not have yet.
fn missing(
    normalized: &NormalizedNamespace,
    wanted: &std::collections::BTreeMap<String, Value>,
) -> Option<Difference> {
    wanted.iter().find_map(|(of, wanted)| {
        let there = key(of, normalized).and_then(|key| normalized.objects().get(&key));
        let is_so = match (there, wanted) {
            (None, Value::Null) => true,
            (Some(object), wanted) => !wanted.is_null() && has(object, wanted),
            (None, _) => false,
        };
        let shown =
            |there: Option<&Value>| there.map(|object| object["status"].to_string()).unwrap_or_default();
        (!is_so).then(|| difference(&format!("{of} never has {wanted}"), &shown(there), &shown(there)))
    })
}
