//! The allowed differences, with their reasons.

use serde::Deserialize;

use super::case::{Case, Step};
use super::compare::Difference;
use crate::error::Error;
use crate::glob::matches;

/// The list in the repository.
const LIST: &str = include_str!("../../differential/kept.yaml");

/// All allowed differences.
#[derive(Debug, Default)]
pub struct AllowedDifferences(Vec<AllowedDifference>);

/// An allowed difference.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AllowedDifference {
    /// Its name.
    pub name: String,
    /// Why it is kept.
    pub reason: String,
    /// The kinds it is seen in, as a pattern: `v1/pods`, `*`.
    #[serde(default = "anything")]
    pub kind: String,
    /// The steps it is seen in, as a pattern: `create`, `* status`.
    #[serde(default = "anything")]
    pub step: String,
    /// What the case sends, as a pattern.
    #[serde(default = "anything")]
    pub sent: String,
    /// What differs, each as a pattern.
    pub differs: Vec<Pattern>,
    /// A case that shows it.
    pub shown_by: Case,
}

/// A match of an allowed difference.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MatchedPattern {
    /// The name of the entry.
    pub name: String,
    /// Which of its patterns it falls under.
    pub pattern: usize,
}

/// What a difference looks like. In each text `*` stands for anything; a side that is left out has nothing there.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pattern {
    at: String,
    kubernetes: Option<String>,
    plumb: Option<String>,
}

fn anything() -> String {
    "*".to_owned()
}

impl AllowedDifferences {
    /// Reads the list of the repository.
    pub fn read() -> Result<Self, Error> {
        serde_saphyr::from_str(LIST).map(Self).map_err(|source| Error::List(source.to_string()))
    }

    /// The list without some entries.
    #[must_use]
    pub fn without(mut self, names: &[String]) -> Self {
        self.0.retain(|listed| !names.contains(&listed.name));
        self
    }

    /// Every entry.
    pub fn all(&self) -> &[AllowedDifference] {
        &self.0
    }

    /// What a difference falls under.
    pub(super) fn find(
        &self,
        kind: &str,
        step: &Step,
        sent: &str,
        difference: &Difference,
    ) -> Option<MatchedPattern> {
        let label = step.label();
        // Where a case takes place does not matter here.
        let kind = kind.rsplit(':').next().unwrap_or_default();
        let mut listed = self.0.iter().filter(|listed| {
            matches(&listed.kind, kind) && matches(&listed.step, &label) && matches(&listed.sent, sent)
        });
        listed.find_map(|listed| {
            let pattern = listed.differs.iter().position(|pattern| pattern.covers(difference))?;
            Some(MatchedPattern { name: listed.name.clone(), pattern })
        })
    }
}

impl Pattern {
    /// Whether a difference looks like that.
    pub(super) fn covers(&self, difference: &Difference) -> bool {
        let side = |pattern: &Option<String>, text: &Option<String>| match (pattern, text) {
            (Some(pattern), Some(text)) => matches(pattern, text),
            (None, None) => true,
            _ => false,
        };
        matches(&self.at, &difference.at)
            && side(&self.kubernetes, &difference.reference)
            && side(&self.plumb, &difference.subject)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_can_be_read_and_its_names_differ() {
        let kept = AllowedDifferences::read().unwrap_or_default();
        assert!(!kept.all().is_empty());
        let mut names: Vec<&str> = kept.all().iter().map(|listed| listed.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), kept.all().len());
    }
}
