//! Runs many scenarios, and sums up their results.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use kube::Client;
use tokio::task::JoinSet;

use super::super::kept::MatchedPattern;
use super::kept::AllowedDifferences;
use super::metrics;
use super::nodes;
use super::play::{Finding, ScenarioRun, Side};
use super::scenario::{Scenario, scenarios};
use super::view::View;
use crate::error::Error;
use crate::glob::matches;

/// The options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Only scenarios of such a name, in which `*` stands for any part of it; all if empty.
    pub only: Vec<String>,
    /// How many in parallel.
    pub at_once: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { only: Vec::new(), at_once: 24 }
    }
}

/// The summary of a run.
#[derive(Debug, Default)]
pub struct ScenarioSummary {
    /// How many scenarios ran.
    pub scenarios: usize,
    /// How often two clusters were compared when stable.
    pub compared: usize,
    /// The allowed differences that were found.
    pub kept: BTreeSet<MatchedPattern>,
    /// The allowed differences that were not found, if all scenarios ran.
    pub gone: Vec<MatchedPattern>,
    /// How many scenarios differed once, and not when they ran again.
    pub once: usize,
    /// The differences that are not allowed.
    pub findings: Vec<Finding>,
    /// How long it took.
    pub took: Duration,
}

impl ScenarioSummary {
    /// Whether there is no difference to handle.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty() && self.gone.is_empty()
    }
}

impl ScenarioSummary {
    /// Runs scenarios, some in parallel.
    async fn play(
        &mut self,
        scenarios: &[Scenario],
        sides: &Arc<[Side; 2]>,
        kept: &Arc<AllowedDifferences>,
        at_once: usize,
        report: impl Fn(&str, Option<&Finding>, Duration),
    ) -> Result<(), Error> {
        // The clusters may have been used by an earlier run.
        let run = format!("{:x}", Timestamp::now().as_second());
        let mut left = scenarios.iter();
        let mut playing = JoinSet::new();
        loop {
            while playing.len() < at_once
                && let Some(scenario) = left.next()
            {
                let name = scenario.name.clone();
                let game = ScenarioRun::new(sides.clone(), kept.clone(), scenario.clone(), &run);
                playing.spawn(async move { (name, Instant::now(), game.play().await) });
            }
            let Some(ended) = playing.join_next().await else { return Ok(()) };
            let (name, begun, played) = ended.map_err(|error| Error::Runtime(error.into()))?;
            let played = played?;
            report(&name, played.finding.as_ref(), begun.elapsed());
            self.compared += played.compared;
            self.kept.extend(played.kept);
            self.findings.extend(played.finding);
        }
    }
}

impl fmt::Display for ScenarioSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for seen in &self.gone {
            writeln!(f, "kept, but not seen any more: {}, pattern {}", seen.name, seen.pattern)?;
        }
        write!(
            f,
            "{} scenarios, compared {} times, {} kept differences seen, {} that are not listed, {} that were seen but once, \
             in {:.0} s",
            self.scenarios,
            self.compared,
            self.kept.len(),
            self.findings.len(),
            self.once,
            self.took.as_secs_f64()
        )
    }
}

/// Prints the result of a scenario.
pub fn print(scenario: &str, finding: Option<&Finding>, took: Duration) {
    let seconds = took.as_secs_f64();
    match finding {
        None => println!("the same: {scenario} ({seconds:.0} s)"),
        Some(finding) => println!("APART: {scenario} ({seconds:.0} s)\n{finding}"),
    }
}

/// Runs the scenarios of the repository in two clusters that have controllers and neither scheduler nor nodes. `report`
/// is called for each that ended, with its finding.
pub async fn run(
    reference: Client,
    subject: Client,
    kept: AllowedDifferences,
    options: &Options,
    report: impl Fn(&str, Option<&Finding>, Duration),
) -> Result<ScenarioSummary, Error> {
    let started = Instant::now();
    let mut chosen = scenarios()?;
    let all = chosen.len();
    let only = &options.only;
    chosen.retain(|scenario| only.is_empty() || only.iter().any(|pattern| matches(pattern, &scenario.name)));
    if chosen.is_empty() {
        return Err(Error::NoSuchCase(only.join(" ")));
    }
    let clients = [reference, subject];
    for client in &clients {
        nodes::prepare(client).await?;
        metrics::define(client).await?;
    }
    let sides = Arc::new(clients.map(|client| Side { view: View::of(&client), client }));
    let kept = Arc::new(kept);
    let mut beats = JoinSet::new();
    for i in 0..sides.len() {
        let sides = sides.clone();
        beats.spawn(async move { nodes::beat(&sides[i].client, &sides[i].view).await });
    }
    for side in &*sides {
        nodes::steady(&side.view).await?;
    }
    let mut outcome = ScenarioSummary { scenarios: chosen.len(), ..ScenarioSummary::default() };
    let is_whole = chosen.len() == all;
    outcome.play(&chosen, &sides, &kept, options.at_once, &report).await?;
    // Where upstream's own controllers race each other there are two possible results: a finding has to be found
    // again.
    let found = std::mem::take(&mut outcome.findings);
    chosen.retain(|scenario| found.iter().any(|finding| finding.scenario == scenario.name));
    if !chosen.is_empty() {
        outcome.play(&chosen, &sides, &kept, options.at_once, &report).await?;
        outcome.once = found.len() - outcome.findings.len();
    }
    if is_whole {
        outcome.gone = kept.patterns().filter(|pattern| !outcome.kept.contains(pattern)).collect();
    }
    outcome.took = started.elapsed();
    Ok(outcome)
}
