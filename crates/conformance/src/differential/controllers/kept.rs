//! The allowed differences, with their reasons.

use serde::Deserialize;

use super::super::compare::Difference;
use super::super::kept::{MatchedPattern, Pattern};
use crate::error::Error;
use crate::glob::matches;

/// The list in the repository.
const LIST: &str = include_str!("../../../differential/controllers/kept.yaml");

/// All allowed differences.
#[derive(Debug, Default)]
pub struct AllowedDifferences(Vec<AllowedDifference>);

/// An allowed difference.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AllowedDifference {
    name: String,
    /// Why; for people.
    #[serde(rename = "reason")]
    _reason: String,
    /// The scenarios it is seen in, as a pattern.
    scenario: String,
    /// Whether it is not seen every time.
    #[serde(default)]
    sometimes: bool,
    differs: Vec<Pattern>,
}

impl AllowedDifferences {
    /// Reads the list of the repository.
    pub fn read() -> Result<Self, Error> {
        serde_saphyr::from_str(LIST).map(Self).map_err(|source| Error::List(source.to_string()))
    }

    /// The pattern that a difference matches.
    pub(super) fn find(&self, scenario: &str, difference: &Difference) -> Option<MatchedPattern> {
        let mut listed = self.0.iter().filter(|listed| matches(&listed.scenario, scenario));
        listed.find_map(|listed| {
            let pattern = listed.differs.iter().position(|pattern| pattern.covers(difference))?;
            Some(MatchedPattern { name: listed.name.clone(), pattern })
        })
    }

    /// Every pattern of every entry that is found each time.
    pub(super) fn patterns(&self) -> impl Iterator<Item = MatchedPattern> {
        let patterns = |listed: &AllowedDifference| {
            let name = listed.name.clone();
            (0..listed.differs.len()).map(move |pattern| MatchedPattern { name: name.clone(), pattern })
        };
        self.0.iter().filter(|listed| !listed.sometimes).flat_map(patterns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_can_be_read() {
        assert!(AllowedDifferences::read().is_ok());
    }
}
