//! Time zones by name, from the files of the machine.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use k8s_openapi::jiff::tz::TimeZone;
use parking_lot::Mutex;

/// Where machines keep them.
pub const USUAL_PLACE: &str = "/usr/share/zoneinfo";
/// How many are kept in memory at most; there are about 600.
const KEPT: usize = 1024;

/// The zones that are known.
pub struct Zones {
    folder: PathBuf,
    read: Mutex<HashMap<String, TimeZone>>,
}

impl Zones {
    /// Those that a folder has.
    pub fn of(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), read: Mutex::default() }
    }

    /// A zone, if there is one of that name.
    pub fn get(&self, name: &str) -> Option<TimeZone> {
        if matches!(name, "" | "UTC" | "Etc/UTC") {
            return Some(TimeZone::UTC);
        }
        // What is read of a file is the same each time.
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
        let zones = Zones::of(folder.path().join("."));
        assert_eq!(zones.get("UTC"), Some(TimeZone::UTC));
        for name in ["Nowhere", "readme", "../readme", "/readme", "a//b"] {
            assert_eq!(zones.get(name), None, "{name}");
        }
    }
}
