//! CPU sets.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The largest CPU number that a kernel supports (`NR_CPUS`).
const LAST: u32 = 8191;

/// A set of CPUs in the kernel's list format: `0-2,7`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CpuSet(BTreeSet<u32>);

/// The string is not a CPU set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a list of cpus such as 0-2,7")]
pub struct InvalidCpuSet(String);

impl CpuSet {
    /// The number of CPUs.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The CPUs, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.0.iter().copied()
    }

    /// The CPUs in either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self(&self.0 | &other.0)
    }

    /// The CPUs in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        Self(&self.0 & &other.0)
    }

    /// The CPUs that are not in the other set.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        Self(&self.0 - &other.0)
    }

    /// The first `count` CPUs, lowest first.
    #[must_use]
    pub fn take(&self, count: usize) -> Self {
        Self(self.0.iter().take(count).copied().collect())
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        Self(cpus.into_iter().collect())
    }
}

impl FromStr for CpuSet {
    type Err = InvalidCpuSet;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || InvalidCpuSet(text.to_owned());
        let mut cpus = BTreeSet::new();
        for part in text.trim().split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let first: u32 = first.trim().parse().map_err(|_| bad())?;
            let last: u32 = last.trim().parse().map_err(|_| bad())?;
            if first > last || last > LAST {
                return Err(bad());
            }
            cpus.extend(first..=last);
        }
        Ok(Self(cpus))
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for cpu in &self.0 {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == *cpu => *last = *cpu,
                _ => ranges.push((*cpu, *cpu)),
            }
        }
        for (nth, (first, last)) in ranges.into_iter().enumerate() {
            let comma = if nth == 0 { "" } else { "," };
            if first == last {
                write!(f, "{comma}{first}")?;
            } else {
                write!(f, "{comma}{first}-{last}")?;
            }
        }
        Ok(())
    }
}

impl TryFrom<String> for CpuSet {
    type Error = InvalidCpuSet;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<CpuSet> for String {
    fn from(set: CpuSet) -> Self {
        set.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_written_as_the_kernel_does() {
        for (text, spelled) in [("0-2,7", "0-2,7"), ("", ""), ("3,1,2\n", "1-3"), ("0,2,4-5", "0,2,4-5")] {
            assert_eq!(text.parse::<CpuSet>().unwrap().to_string(), spelled);
        }
        for wrong in ["a", "2-1", "1-", "-1", "0-100000", "1;2"] {
            assert!(wrong.parse::<CpuSet>().is_err(), "{wrong}");
        }
    }
}
