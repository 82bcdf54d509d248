//! Colours by meaning: what is well, what needs attention, and what has failed. `--color` and `NO_COLOR` decide.

use std::io::IsTerminal as _;
use std::sync::OnceLock;

use clap::ColorChoice;

/// Whether standard output is coloured.
static ENABLED: OnceLock<bool> = OnceLock::new();

/// Decides whether standard output is coloured. The first call counts.
pub(crate) fn choose(choice: ColorChoice) {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let output = StandardOutput {
        is_terminal: std::io::stdout().is_terminal(),
        // https://no-color.org: any value that is not empty.
        no_color: variable("NO_COLOR").is_some(),
        is_dumb: variable("TERM").is_some_and(|term| term == "dumb"),
    };
    // A second call has no effect.
    let _ = ENABLED.set(output.is_coloured(choice));
}

pub(crate) fn is_enabled() -> bool {
    ENABLED.get().copied().unwrap_or(false)
}

/// The standard output and its environment.
#[derive(Clone, Copy, Debug)]
struct StandardOutput {
    is_terminal: bool,
    no_color: bool,
    is_dumb: bool,
}

impl StandardOutput {
    fn is_coloured(self, choice: ColorChoice) -> bool {
        match choice {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => self.is_terminal && !self.no_color && !self.is_dumb,
        }
    }
}

/// What a word means. The last one is the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Meaning {
    Good,
    Attention,
    Bad,
}

/// States, phases and conditions. Names of objects are not among them: those are in lower case.
const GOOD: [&str; 6] =
    ["Applied", "Complete", "PodsUpdated", "RecommendationProvided", "Succeeded", "Updated"];
const ATTENTION: [&str; 22] = [
    "Boosted",
    "ContainerCreating",
    "Deferred",
    "FetchingHistory",
    "InProgress",
    "LowConfidence",
    "NoPodsMatched",
    "NoRecommendation",
    "NotReady",
    "Partitioned",
    "Paused",
    "Pending",
    "PodInitializing",
    "Progressing",
    "Proposed",
    "Recreating",
    "Replacing",
    "RolledBack",
    "RollingBack",
    "Terminating",
    "Unknown",
    "Waiting",
];
const BAD: [&str; 14] = [
    "ConfigDeprecated",
    "ConfigUnsupported",
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "CreateContainerError",
    "ErrImagePull",
    "Error",
    "Failed",
    "Failing",
    "Held",
    "ImagePullBackOff",
    "Infeasible",
    "InvalidImageName",
    "RollbackFailed",
];

impl Meaning {
    /// The meaning of a word; a condition that is to hold and does not is `RecommendationProvided=False`.
    fn of_word(word: &str) -> Option<Self> {
        if matches!(word.split_once('='), Some((_, "False" | "Unknown"))) {
            return Some(Self::Attention);
        }
        let lists = [(&BAD[..], Self::Bad), (&ATTENTION[..], Self::Attention), (&GOOD[..], Self::Good)];
        lists.into_iter().find(|(list, _)| list.contains(&word)).map(|(_, meaning)| meaning)
    }

    /// The meaning of a cell: the worst of its words. Words are separated by commas and may have a count, as in
    /// `3 Updated, 1 Waiting`; other text has no meaning.
    fn of_cell(cell: &str) -> Option<Self> {
        let mut worst = None;
        for word in cell.split(',') {
            let word = word.trim_start().trim_start_matches(|letter: char| letter.is_ascii_digit()).trim();
            if word.contains(' ') {
                return None;
            }
            worst = worst.max(Self::of_word(word));
        }
        worst
    }

    /// The number of the colour in the sequence `ESC [ … m`.
    fn number(self) -> u8 {
        match self {
            Self::Good => 32,
            Self::Attention => 33,
            Self::Bad => 31,
        }
    }
}

/// The meaning of a state, if standard output is coloured.
pub(crate) fn meaning(text: &str) -> Option<Meaning> {
    Meaning::of_cell(text).filter(|_| is_enabled())
}

/// A state, coloured by its meaning if standard output is.
pub(crate) fn state(text: &str) -> String {
    match meaning(text) {
        Some(meaning) => painted(text, meaning),
        None => text.to_owned(),
    }
}

fn painted(text: &str, meaning: Meaning) -> String {
    format!("\u{1b}[{}m{text}\u{1b}[0m", meaning.number())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_coloured_on_a_terminal_unless_a_variable_or_the_flag_refuses() {
        let output = StandardOutput { is_terminal: true, no_color: false, is_dumb: false };
        for (output, expected) in [
            (output, true),
            (StandardOutput { is_terminal: false, ..output }, false),
            (StandardOutput { no_color: true, ..output }, false),
            (StandardOutput { is_dumb: true, ..output }, false),
        ] {
            assert_eq!(output.is_coloured(ColorChoice::Auto), expected, "{output:?}");
            assert!(output.is_coloured(ColorChoice::Always) && !output.is_coloured(ColorChoice::Never));
        }
    }

    #[test]
    fn a_cell_means_what_the_worst_of_its_words_means() {
        for (cell, expected) in [
            ("Infeasible", Some(Meaning::Bad)),
            ("Deferred", Some(Meaning::Attention)),
            ("Updated", Some(Meaning::Good)),
            ("3 Updated, 1 Waiting", Some(Meaning::Attention)),
            ("12 Updated", Some(Meaning::Good)),
            ("LowConfidence,RecommendationProvided", Some(Meaning::Attention)),
            ("RecommendationProvided=False", Some(Meaning::Attention)),
            ("Custom,ConfigUnsupported", Some(Meaning::Bad)),
            ("-", None),
            ("web", None),
            ("owner=bob", None),
            ("100m/100m → 200m/200m", None),
            ("the pod is Failing", None),
        ] {
            assert_eq!(Meaning::of_cell(cell), expected, "{cell}");
        }
        assert_eq!(painted("Failing", Meaning::Bad), "\u{1b}[31mFailing\u{1b}[0m");
    }
}
