//! A number of pods, or a part of them.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// A number of pods, or a part of them in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Share {
    /// So many.
    Count(u32),
    /// So many of a hundred.
    Percent(u32),
}

impl Share {
    /// Reads `3` or `"10%"`; none if it is neither.
    pub fn read(value: &IntOrString) -> Option<Self> {
        match value {
            IntOrString::Int(count) => u32::try_from(*count).ok().map(Self::Count),
            IntOrString::String(text) => text.strip_suffix('%')?.parse().ok().map(Self::Percent),
        }
    }

    /// The number, of so many pods, rounded up.
    pub fn rounded_up(self, of: usize) -> usize {
        match self {
            Self::Count(count) => to_usize(count),
            Self::Percent(percent) => of.saturating_mul(to_usize(percent)).div_ceil(100),
        }
    }

    /// The number, of so many pods, rounded down.
    pub fn rounded_down(self, of: usize) -> usize {
        match self {
            Self::Count(count) => to_usize(count),
            Self::Percent(percent) => of.saturating_mul(to_usize(percent)) / 100,
        }
    }

    /// The number, of so many pods, rounded down. It is 0 only if this says 0: a part of a pod counts as one.
    pub fn rounded_down_to_one(self, of: usize) -> usize {
        match self {
            Self::Count(0) | Self::Percent(0) => 0,
            share => share.rounded_down(of).max(1),
        }
    }
}

fn to_usize(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_rounded_and_numbers_stay() {
        let read = |text: &str| Share::read(&IntOrString::String(text.to_owned()));
        assert_eq!(Share::read(&IntOrString::Int(3)), Some(Share::Count(3)));
        assert_eq!(Share::read(&IntOrString::Int(-3)), None);
        assert_eq!((read("10%"), read("10"), read("%")), (Some(Share::Percent(10)), None, None));
        for (share, of, up, down) in [
            (Share::Percent(10), 11, 2, 1),
            (Share::Percent(10), 0, 0, 0),
            (Share::Percent(100), 7, 7, 7),
            (Share::Count(5), 3, 5, 5),
        ] {
            assert_eq!((share.rounded_up(of), share.rounded_down(of)), (up, down), "{share:?} of {of}");
        }
        for (share, of, down) in [
            (Share::Percent(25), 2, 1),
            (Share::Percent(0), 2, 0),
            (Share::Count(0), 2, 0),
            (Share::Count(3), 2, 3),
        ] {
            assert_eq!(share.rounded_down_to_one(of), down, "{share:?} of {of}");
        }
    }
}
