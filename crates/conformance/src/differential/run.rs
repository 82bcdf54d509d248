//! Plays many cases, and says what came of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{Duration, Instant};

use futures::StreamExt as _;

use super::case::Case;
use super::generate::Made;
use super::kept::Kept;
use super::play::{Finding, Played, Servers};
use super::shrink::shrink;
use crate::error::Error;

/// The cases that showed a difference once, one a line. They are played again before any other.
const FOUND: &str = include_str!("../../differential/found.jsonl");

/// What is played.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many cases.
    pub cases: u64,
    /// No more are begun after this time.
    pub time: Option<Duration>,
    /// What the cases are made from.
    pub seed: u64,
    /// The number of the first one.
    pub first: u64,
    /// How many at once.
    pub at_once: usize,
    /// Only kinds whose address contains this.
    pub only: Option<String>,
    /// Stop after so many different findings.
    pub findings: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { cases: 1000, time: None, seed: 1, first: 0, at_once: 16, only: None, findings: 20 }
    }
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Outcome {
    /// How many cases were made up and played.
    pub cases: u64,
    /// How many requests were compared.
    pub asked: usize,
    /// How many of them the reference carried out.
    pub accepted: usize,
    /// How often each pattern of each kept difference was seen in cases that were made up.
    pub kept: BTreeMap<String, Vec<usize>>,
    /// The names of kept differences that their own cases no longer show.
    pub gone: Vec<String>,
    /// What is not listed, shrunk.
    pub findings: Vec<Finding>,
    /// How long it took.
    pub took: Duration,
}

impl Outcome {
    /// Whether nothing has to be done about it.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty() && self.gone.is_empty()
    }

    fn count(&mut self, played: &Played) {
        self.asked += played.asked;
        self.accepted += played.accepted;
    }

    fn count_kept(&mut self, played: &Played) {
        for seen in &played.kept {
            let patterns = self.kept.get_mut(&seen.name);
            // Every entry of the list is there from the start.
            if let Some(times) = patterns.and_then(|patterns| patterns.get_mut(seen.pattern)) {
                *times += 1;
            }
        }
    }
}

impl fmt::Display for Outcome {
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

/// Plays the cases of the list, those found before, and then new ones.
pub async fn run(servers: &Servers, kept: &Kept, options: &Options) -> Result<Outcome, Error> {
    let started = Instant::now();
    servers.prepare().await?;
    let unseen = kept.all().iter().map(|listed| (listed.name.clone(), vec![0; listed.differs.len()]));
    let mut outcome = Outcome { kept: unseen.collect(), ..Outcome::default() };
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

/// Plays the case of a number. What shows a difference is made up anew and played again: where one server was asked
/// before the second turned and the other after it, that is all there was to see.
async fn play_made(servers: &Servers, kept: &Kept, options: &Options, number: u64) -> Result<Played, Error> {
    let made = || Made::new(options.seed, number, options.only.as_deref());
    let Some(mut first) = made() else { return Ok(Played::default()) };
    let played = servers.play(first.kind(), &mut first, kept).await?;
    match made().filter(|_| played.finding.is_some()) {
        Some(mut second) => servers.play(second.kind(), &mut second, kept).await,
        None => Ok(played),
    }
}

/// Plays one case as it is written.
pub async fn replay(servers: &Servers, kept: &Kept, case: &Case) -> Result<Option<Finding>, Error> {
    servers.prepare().await?;
    Ok(servers.play(&case.kind, &mut case.steps.iter(), kept).await?.finding)
}
