//! The completion indexes of a Job as a list of intervals: `0-2,5`.

/// Why a list of indexes does not parse, with upstream's messages.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum IndexesError {
    #[error(
        "the fragment {0:?} violates the requirement that an index interval can have at most two parts separated by '-'"
    )]
    Interval(String),
    #[error("cannot convert string to integer for index: {0:?}")]
    NoInteger(String),
    #[error("too large index: {0:?}")]
    TooLarge(String),
    #[error("non-increasing order, previous: {previous}, current: {current}")]
    Order { previous: i64, current: i64 },
}

/// Parses a list of indexes, all below the number of completions, and returns how many there are.
pub(super) fn count(text: &str, completions: i64) -> Result<i64, IndexesError> {
    let mut total = 0;
    let mut last: Option<i64> = None;
    for written in text.split(',').filter(|_| !text.is_empty()) {
        let (first, end) = parse_interval(written, completions)?;
        if let Some(last) = last.filter(|last| *last >= first) {
            return Err(IndexesError::Order { previous: last, current: first });
        }
        total += end - first + 1;
        last = Some(end);
    }
    Ok(total)
}

fn parse_interval(written: &str, completions: i64) -> Result<(i64, i64), IndexesError> {
    let ends: Vec<&str> = written.split('-').collect();
    if ends.len() > 2 {
        return Err(IndexesError::Interval(written.to_owned()));
    }
    let number = |end: &str| match end.parse::<i64>() {
        Err(_) => Err(IndexesError::NoInteger(end.to_owned())),
        Ok(number) if number >= completions => Err(IndexesError::TooLarge(end.to_owned())),
        Ok(number) => Ok(number),
    };
    let first = number(ends[0])?;
    let end = ends.get(1).map_or(Ok(first), |end| number(end))?;
    if ends.len() > 1 && first >= end {
        return Err(IndexesError::Order { previous: first, current: end });
    }
    Ok((first, end))
}

/// The first index that two lists have in common. Intervals that do not parse are skipped: another check reports them.
pub(super) fn overlap(one: &str, other: &str, completions: i64) -> Option<i64> {
    let read = |text: &str| -> Vec<(i64, i64)> {
        text.split(',').filter_map(|written| parse_interval(written, completions).ok()).collect()
    };
    let (one, other) = (read(one), read(other));
    let (mut here, mut there) = (one.iter().peekable(), other.iter().peekable());
    while let (Some((first, end)), Some((other_first, other_end))) = (here.peek(), there.peek()) {
        if first <= other_end && other_first <= end {
            return Some(*first.max(other_first));
        }
        if first <= other_first {
            here.next();
        } else {
            there.next();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_overlap_at_their_first_common_index() {
        assert_eq!(overlap("0-2,5", "3,4", 9), None);
        assert_eq!(overlap("0-2,5", "4-6", 9), Some(5));
        assert_eq!(overlap("x,1", "1", 9), Some(1));
        assert_eq!(overlap("", "", 9), None);
    }
}
