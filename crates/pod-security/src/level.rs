//! Levels and versions of the Pod Security Standards.

use std::fmt;

/// A level of the Pod Security Standards. A stricter level is greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Everything is allowed.
    #[default]
    Privileged,
    /// Known privilege escalations are not allowed.
    Baseline,
    /// Pods follow the current best practices of hardening.
    Restricted,
}

impl Level {
    /// The level of this name, or the rule that the name breaks.
    pub fn parse(name: &str) -> Result<Self, &'static str> {
        let all = [Self::Privileged, Self::Baseline, Self::Restricted];
        let found = all.into_iter().find(|level| level.name() == name);
        found.ok_or("must be one of privileged, baseline, restricted")
    }

    /// Its name in labels.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The Kubernetes version whose standards apply. A newer version is greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// Version 1 with this minor version: `v1.36`.
    Minor(u64),
    /// The version of the server.
    #[default]
    Latest,
}

impl Version {
    /// The version of this name, or the rule that the name breaks.
    pub fn parse(name: &str) -> Result<Self, &'static str> {
        const RULE: &str = r#"must be "latest" or "v1.x""#;
        if name == "latest" {
            return Ok(Self::Latest);
        }
        let digits = name.strip_prefix("v1.").ok_or(RULE)?;
        let is_canonical = digits.bytes().all(|digit| digit.is_ascii_digit())
            && (digits.len() == 1 || !digits.starts_with('0'));
        // Upstream reads a signed number of 64 bits.
        let minor = digits.parse::<i64>().ok().filter(|_| is_canonical);
        minor.and_then(|minor| u64::try_from(minor).ok()).map(Self::Minor).ok_or(RULE)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Minor(minor) => write!(f, "v1.{minor}"),
            Self::Latest => f.write_str("latest"),
        }
    }
}

/// A level in a version: `restricted:latest`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LevelVersion {
    /// The level.
    pub level: Level,
    /// The version.
    pub version: Version,
}

impl LevelVersion {
    /// Whether both allow the same pods: the level `privileged` has no versions.
    pub(crate) fn is_equivalent(self, other: Self) -> bool {
        self == other || (self.level == Level::Privileged && other.level == Level::Privileged)
    }
}

impl fmt::Display for LevelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.level, self.version)
    }
}
