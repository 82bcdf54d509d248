//! Sets of completion indexes, as a Job's status writes them: `1,3-5,7`.

use std::collections::BTreeSet;
use std::fmt;

/// Indexes, as ranges in ascending order that do not touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Indexes(Vec<(i32, i32)>);

impl Indexes {
    /// Parses the indexes in a status or a policy, and drops those at or above the number of completions.
    pub fn parse(text: &str, completions: i32) -> Self {
        let ranges = text.split(',').filter_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let first: i32 = first.parse().ok()?;
            let last: i32 = last.parse().ok()?;
            Some((first, last.min(completions - 1)))
        });
        Self::from_ranges(ranges.filter(|(first, last)| 0 <= *first && first <= last).collect())
    }

    fn from_ranges(mut ranges: Vec<(i32, i32)>) -> Self {
        ranges.sort_unstable();
        let mut joined: Vec<(i32, i32)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match joined.last_mut() {
                Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
                _ => joined.push((first, last)),
            }
        }
        Self(joined)
    }

    /// Adds single indexes.
    #[must_use]
    pub fn with(&self, more: &BTreeSet<i32>) -> Self {
        Self::from_ranges(self.0.iter().copied().chain(more.iter().map(|index| (*index, *index))).collect())
    }

    /// The union of two sets.
    #[must_use]
    pub fn and(&self, those: &Self) -> Self {
        Self::from_ranges(self.0.iter().chain(&those.0).copied().collect())
    }

    /// The number of indexes.
    pub fn total(&self) -> i32 {
        self.0.iter().map(|(first, last)| last - first + 1).sum()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the set contains an index.
    pub fn has(&self, index: i32) -> bool {
        let at = self.0.partition_point(|(_, last)| *last < index);
        self.0.get(at).is_some_and(|(first, _)| *first <= index)
    }

    /// The lowest indexes below a bound that the set lacks, up to a number of them.
    pub fn missing(&self, below: i32, at_most: usize) -> Vec<i32> {
        let ends = self.0.iter().map(|(first, last)| (*first, last.saturating_add(1)));
        let mut from = 0;
        let mut missing = Vec::new();
        for (until, next) in ends.chain([(below, below)]) {
            missing.extend((from..until.min(below)).take(at_most - missing.len()));
            from = next;
        }
        missing
    }

    /// The size of the intersection.
    pub fn shared(&self, those: &Self) -> i32 {
        let mut here = self.0.iter().peekable();
        let mut there = those.0.iter().peekable();
        let mut count = 0;
        while let (Some((first, last)), Some((others_first, others_last))) = (here.peek(), there.peek()) {
            count += (last.min(others_last) - first.max(others_first) + 1).max(0);
            if last < others_last {
                here.next();
            } else {
                there.next();
            }
        }
        count
    }
}

impl fmt::Display for Indexes {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (first, last)) in self.0.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            match last - first {
                0 => write!(to, "{comma}{first}")?,
                // As upstream writes them: two adjacent indexes as `1,2`, three as `1-3`.
                1 => write!(to, "{comma}{first},{last}")?,
                _ => write!(to, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formatted_indexes_are_parsed_within_the_bound() {
        for (text, completions, written) in [
            ("", 5, ""),
            ("0", 5, "0"),
            ("0,1", 5, "0,1"),
            ("0-1,2", 5, "0-2"),
            ("1,3-5,7", 9, "1,3-5,7"),
            ("1,3-5,7", 5, "1,3,4"),
            ("1,3-5,7", 3, "1"),
            // Not valid, and skipped.
            ("x,2,5-,-1", 9, "2"),
        ] {
            assert_eq!(Indexes::parse(text, completions).to_string(), written, "{text} of {completions}");
        }
    }

    #[test]
    fn adjacent_indexes_are_joined_and_found() {
        let some = Indexes::parse("1,3-5", 10);
        assert_eq!(some.with(&BTreeSet::from([0, 2, 9])).to_string(), "0-5,9");
        assert_eq!(some.and(&Indexes::parse("4-7", 10)).to_string(), "1,3-7");
        assert_eq!(some.total(), 4);
        let found: Vec<i32> = (0..7).filter(|index| some.has(*index)).collect();
        assert_eq!(found, [1, 3, 4, 5]);
    }

    #[test]
    fn the_lowest_missing_indexes_are_found() {
        let some = Indexes::parse("1,3-5", 10);
        assert_eq!(some.missing(10, 3), [0, 2, 6]);
        assert_eq!(some.missing(7, 9), [0, 2, 6]);
        assert_eq!(some.missing(3, 9), [0, 2]);
        assert_eq!(some.missing(10, 0), [0; 0]);
        assert_eq!(Indexes::default().missing(2, 5), [0, 1]);
    }

    #[test]
    fn the_intersection_is_counted() {
        let some = Indexes::parse("0-2,5,8-9", 10);
        for (text, shared) in [("0-9", 6), ("3,4", 0), ("2-5", 2), ("9", 1), ("", 0)] {
            assert_eq!(some.shared(&Indexes::parse(text, 10)), shared, "{text}");
        }
    }
}
