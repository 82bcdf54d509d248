//! Skipped cases, with reasons. Each is a line of a file, and a test limits their number.

use crate::case::Dialect;
use crate::target::Target;

/// The lines: case, target, dialect (`*` is every one), reason.
const SKIPS: &str = include_str!("../skips.txt");

/// A case that is skipped on a target, or that was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skip {
    /// The case's name.
    pub case: &'static str,
    /// The target; all if none.
    pub target: Option<Target>,
    /// The dialect; both if none.
    pub dialect: Option<Dialect>,
    /// Why.
    pub reason: &'static str,
}

/// A line of the list that does not parse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a skip: {0:?}")]
pub struct NotASkip(&'static str);

/// All skips.
pub fn all() -> Result<Vec<Skip>, NotASkip> {
    let lines = SKIPS.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| read(line).ok_or(NotASkip(line))).collect()
}

/// The reason to skip a case, if there is one.
pub fn reason(skips: &[Skip], case: &str, target: Target, dialect: Dialect) -> Option<&'static str> {
    let holds = |skip: &&Skip| {
        skip.case == case
            && skip.target.is_none_or(|one| one == target)
            && skip.dialect.is_none_or(|one| one == dialect)
    };
    skips.iter().find(holds).map(|skip| skip.reason)
}

fn read(line: &'static str) -> Option<Skip> {
    let (case, rest) = word(line)?;
    let (target, rest) = word(rest)?;
    let (dialect, reason) = word(rest)?;
    let target = match target {
        "*" => None,
        name => Some(Target::ALL.into_iter().find(|target| target.name() == name)?),
    };
    let dialect = match dialect {
        "*" => None,
        name => Some([Dialect::Kep, Dialect::V1_36].into_iter().find(|dialect| dialect.name() == name)?),
    };
    Some(Skip { case, target, dialect, reason })
}

/// The first word, and the rest.
fn word(text: &'static str) -> Option<(&'static str, &'static str)> {
    let (word, rest) = text.split_once(char::is_whitespace)?;
    let rest = rest.trim_start();
    (!rest.is_empty()).then_some((word, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_which_case_is_not_run_where_and_why() {
        let skip = read("some-case  builtin  *  there is no Deployment").expect("a skip");
        let expected = Skip {
            case: "some-case",
            target: Some(Target::Builtin),
            dialect: None,
            reason: "there is no Deployment",
        };
        assert_eq!(skip, expected);
        assert_eq!(
            reason(&[skip], "some-case", Target::Builtin, Dialect::Kep),
            Some("there is no Deployment")
        );
        assert_eq!(reason(&[skip], "some-case", Target::Virtual, Dialect::Kep), None);
        assert_eq!(reason(&[skip], "another", Target::Builtin, Dialect::Kep), None);
        for line in ["some-case builtin kep", "some-case nowhere kep why", "some-case builtin v1 why"] {
            assert_eq!(read(line), None, "{line}");
        }
    }
}
