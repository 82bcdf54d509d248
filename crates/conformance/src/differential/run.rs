//! Runs many cases, and sums up their results.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{Duration, Instant};

use futures::StreamExt as _;

use super::case::Case;
use super::generate::Made;
use super::kept::AllowedDifferences;
use super::play::{Finding, ScenarioResult, Servers};
use super::shrink::shrink;
use crate::error::Error;

/// The cases that showed a difference once, one a line. They run before any other.
const FOUND: &str = include_str!("../../differential/found.jsonl");

/// The options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many cases.
    pub cases: u64,
    /// No more are begun after this time.
    pub time: Option<Duration>,
    /// The seed of the cases.
    pub seed: u64,
    /// The number of the first one.
    pub first: u64,
    /// How many in parallel.
    pub at_once: usize,
    /// Only kinds whose address contains this.
    pub only: Option<String>,
    /// Stop after this many different findings.
    pub findings: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { cases: 1000, time: None, seed: 1, first: 0, at_once: 16, only: None, findings: 20 }
    }
}

/// The summary of a run.
#[derive(Debug, Default)]
pub struct RunSummary {
    /// How many generated cases ran.
    pub cases: u64,
    /// How many requests were compared.
    pub asked: usize,
    /// How many of them succeeded on the reference.
    pub accepted: usize,
    /// How often each pattern of each allowed difference was found in generated cases.
    pub kept: BTreeMap<String, Vec<usize>>,
    /// The names of allowed differences that their own cases no longer show.
    pub gone: Vec<String>,
    /// The differences that are not allowed, shrunk.
    pub findings: Vec<Finding>,
    /// How long it took.
    pub took: Duration,
}

impl RunSummary {
    /// Whether there is no difference to handle.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty() && self.gone.is_empty()
    }

    fn count(&mut self, played: &ScenarioResult) {
        self.asked += played.asked;
        self.accepted += played.accepted;
    }

    fn count_kept(&mut self, played: &ScenarioResult) {
        for seen in &played.kept {
            let patterns = self.kept.get_mut(&seen.name);
            // Every entry of the list is there from the start.
            if let Some(times) = patterns.and_then(|patterns| patterns.get_mut(seen.pattern)) {
                *times += 1;
            }
        }
    }
}

impl fmt::Display for RunSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(f, "UNLISTED {}\n{finding}\n", finding.signature())?;
        }
        for name in &self.gone {
            writeln!(
                f,
                "GONE: the kept difference {name:?} is not shown any more by its case; take it off the list"
            )?;
        }
        for (name, patterns) in &self.kept {
            let all: usize = patterns.iter().sum();
            writeln!(f, "kept: {name} ({all} times; by pattern {patterns:?})")?;
        }
        write!(
            f,
            "{} cases, {} requests ({} carried out, {} refused), {} unlisted differences, {} listed ones gone, {:.0} s",
            self.cases,
            self.asked,
            self.accepted,
            self.asked - self.accepted,
            self.findings.len(),
            self.gone.len(),
            self.took.as_secs_f64()
        )
    }
}

/// Runs the cases of the list, those found before, and then new ones.
pub async fn run(
    servers: &Servers,
    kept: &AllowedDifferences,
    options: &Options,
) -> Result<RunSummary, Error> {
    let started = Instant::now();
    servers.prepare().await?;
    let unseen = kept.all().iter().map(|listed| (listed.name.clone(), vec![0; listed.differs.len()]));
    let mut outcome = RunSummary { kept: unseen.collect(), ..RunSummary::default() };
    for listed in kept.all() {
        let played = servers.play(&listed.shown_by.kind, &mut listed.shown_by.steps.iter(), kept).await?;
        outcome.count(&played);
        if !played.kept.iter().any(|seen| seen.name == listed.name) {
            outcome.gone.push(listed.name.clone());
        }
        outcome.findings.extend(played.finding);
    }
    for case in FOUND.lines().filter(|line| !line.trim().is_empty()) {
        let case: Case = serde_json::from_str(case).map_err(Error::Case)?;
        let played = servers.play(&case.kind, &mut case.steps.iter(), kept).await?;
        outcome.count(&played);
        outcome.findings.extend(played.finding);
    }
    let late = |started: Instant| options.time.is_some_and(|time| started.elapsed() > time);
    let numbers = (options.first..options.first + options.cases).take_while(|_| !late(started));
    let cases = numbers.map(|number| play_made(servers, kept, options, number));
    let mut playing = std::pin::pin!(futures::stream::iter(cases).buffer_unordered(options.at_once.max(1)));
    let mut seen = BTreeSet::new();
    while let Some(played) = playing.next().await {
        let played = played?;
        outcome.cases += 1;
        outcome.count(&played);
        outcome.count_kept(&played);
        if let Some(finding) = played.finding
            && seen.insert(finding.signature())
        {
            outcome.findings.push(shrink(servers, kept, finding).await?);
            if outcome.findings.len() >= options.findings {
                break;
            }
        }
    }
    outcome.took = started.elapsed();
    Ok(outcome)
}

/// Runs the case of a number. A case that shows a difference is generated anew and run again: a request that one
/// server handled in one second and the other in the next may be the only reason.
async fn play_made(
    servers: &Servers,
    kept: &AllowedDifferences,
    options: &Options,
    number: u64,
) -> Result<ScenarioResult, Error> {
    let made = || Made::new(options.seed, number, options.only.as_deref());
    let Some(mut first) = made() else { return Ok(ScenarioResult::default()) };
    let played = servers.play(first.kind(), &mut first, kept).await?;
    match made().filter(|_| played.finding.is_some()) {
        Some(mut second) => servers.play(second.kind(), &mut second, kept).await,
        None => Ok(played),
    }
}

/// Runs one case as it is written.
pub async fn replay(
    servers: &Servers,
    kept: &AllowedDifferences,
    case: &Case,
) -> Result<Option<Finding>, Error> {
    servers.prepare().await?;
    Ok(servers.play(&case.kind, &mut case.steps.iter(), kept).await?.finding)
}
