//! The version of etcd, and what depends on it.

/// A version of etcd.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version {
    major: u32,
    minor: u32,
    patch: u32,
}

impl Version {
    /// Parses a version such as `3.5.13` or `3.6.0-rc.1`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let release = text.split(['-', '+']).next()?;
        let mut numbers = release.split('.').map(str::parse);
        let mut next = || numbers.next()?.ok();
        Some(Self { major: next()?, minor: next()?, patch: next()? })
    }

    /// Whether its API is the one that this client uses.
    pub(crate) fn is_supported(&self) -> bool {
        self.major == 3 && self.minor >= 4
    }

    /// Whether a progress that it reports is never ahead of the events that it has sent (etcd issue 15220), which is what
    /// kube-apiserver requires for consistent reads from its cache (KEP-2340).
    pub(crate) fn has_reliable_progress(&self) -> bool {
        match self.minor {
            ..=3 => false,
            4 => self.patch >= 31,
            5 => self.patch >= 13,
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_reliable_since_the_versions_that_kube_apiserver_requires() {
        for (text, reliable) in [
            ("3.4.23", false),
            ("3.4.31", true),
            ("3.5.12", false),
            ("3.5.13", true),
            ("3.6.0", true),
            ("3.6.0-rc.1", true),
        ] {
            let version = Version::parse(text).unwrap();
            assert!(version.is_supported(), "{text}");
            assert_eq!(version.has_reliable_progress(), reliable, "{text}");
        }
    }

    #[test]
    fn other_versions_are_not_supported() {
        for text in ["3.3.27", "4.0.0"] {
            assert!(!Version::parse(text).unwrap().is_supported(), "{text}");
        }
        for text in ["", "3", "3.5", "three"] {
            assert_eq!(Version::parse(text), None, "{text}");
        }
    }
}
