//! Time zones by name, from the files of the machine.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use k8s_openapi::jiff::tz::TimeZone;
use parking_lot::Mutex;

/// The usual directory of the time zone database.
pub const USUAL_PLACE: &str = "/usr/share/zoneinfo";
/// The maximum number of cached zones; the tz database has about 600.
const KEPT: usize = 1024;

/// A cache of time zones.
pub struct Zones {
    folder: PathBuf,
    read: Mutex<HashMap<String, TimeZone>>,
}

impl Zones {
    /// The zones of a directory.
    pub fn from_directory(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), read: Mutex::default() }
    }

    /// A zone, if there is one of that name.
    pub fn get(&self, name: &str) -> Option<TimeZone> {
        if matches!(name, "" | "UTC" | "Etc/UTC") {
            return Some(TimeZone::UTC);
        }
        // A cached zone is not read again: the files of zones change only with an update of the machine.
        let mut read = self.read.lock();
        if let Some(zone) = read.get(name) {
            return Some(zone.clone());
        }
        let zone = read_zone(&self.folder, name)?;
        if read.len() < KEPT {
            read.insert(name.to_owned(), zone.clone());
        }
        Some(zone)
    }
}

fn read_zone(folder: &Path, name: &str) -> Option<TimeZone> {
    let is_part = |part: &str| !part.is_empty() && part != "." && part != "..";
    if !name.split('/').all(is_part) || name.contains('\\') {
        return None;
    }
    TimeZone::tzif(name, &std::fs::read(folder.join(name)).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_zones_are_zones() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("readme"), "no zone").unwrap();
        let zones = Zones::from_directory(folder.path().join("."));
        assert_eq!(zones.get("UTC"), Some(TimeZone::UTC));
        for name in ["Nowhere", "readme", "../readme", "/readme", "a//b"] {
            assert_eq!(zones.get(name), None, "{name}");
        }
    }
}
