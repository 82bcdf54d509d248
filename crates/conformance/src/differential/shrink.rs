//! Makes a case that shows a difference as small as it can be.

use super::case::{Case, Verb};
use super::edit::{locations, remove};
use super::kept::AllowedDifferences;
use super::play::{Finding, Servers};
use crate::error::Error;

/// How often a case is played while it is shrunk.
const TRIES: usize = 250;

/// The smallest case found that shows the same difference: without the steps, and without the parts of what they
/// send, that don't matter.
pub(super) async fn shrink(
    servers: &Servers,
    kept: &AllowedDifferences,
    finding: Finding,
) -> Result<Finding, Error> {
    let signature = finding.signature();
    let mut smallest = finding;
    let mut tries = 0;
    loop {
        let before = smallest.case.clone();
        for candidate in Candidates::of(&before) {
            let Some(case) = candidate.apply(&smallest.case) else { continue };
            if tries == TRIES {
                return Ok(smallest);
            }
            tries += 1;
            let played = servers.play(&case.kind, &mut case.steps.iter(), kept).await?;
            if let Some(found) = played.finding.filter(|found| found.signature() == signature) {
                smallest = found;
            }
        }
        if smallest.case == before {
            return Ok(smallest);
        }
    }
}

/// Something that may be left out.
enum Candidates {
    Step(usize),
    Part(usize, String),
}

impl Candidates {
    /// All of them, the last and the larger first, so that an index stays what it was while later ones go.
    fn of(case: &Case) -> Vec<Self> {
        let mut all: Vec<Self> = (1..case.steps.len()).rev().map(Self::Step).collect();
        for (i, step) in case.steps.iter().enumerate() {
            let mut parts = locations(&step.body);
            parts.retain(|part| !part.is_empty() && !is_needed(step.verb, part));
            parts.sort_by_key(|part| (part.matches('/').count(), std::cmp::Reverse(part.clone())));
            all.extend(parts.into_iter().map(|part| Self::Part(i, part)));
        }
        all
    }

    fn apply(&self, case: &Case) -> Option<Case> {
        let mut case = case.clone();
        match self {
            Self::Step(step) => {
                // The step that shows the difference is the last one.
                if *step + 1 >= case.steps.len() {
                    return None;
                }
                case.steps.remove(*step);
            }
            Self::Part(step, part) => {
                let body = &mut case.steps.get_mut(*step)?.body;
                body.pointer(part)?;
                remove(body, part);
            }
        }
        Some(case)
    }
}

fn is_needed(verb: Verb, part: &str) -> bool {
    match verb {
        Verb::Create | Verb::Apply => ["/apiVersion", "/kind", "/metadata", "/metadata/name"].contains(&part),
        Verb::Replace | Verb::Json => part.ends_with("/op") || part.ends_with("/path"),
        _ => false,
    }
}
