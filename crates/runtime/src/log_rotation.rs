//! Moving a container's log aside.

use std::path::{Path, PathBuf};
use std::{fs, io};

use jiff::Timestamp;

/// Moves a log aside, under the name that the kubelet gives it, and removes the oldest ones: `max_files` are left with the
/// one that is about to be created. Returns where it is now.
pub fn move_aside(path: &Path, max_files: u32, now: Timestamp) -> io::Result<PathBuf> {
    let at = now.strftime("%Y%m%d-%H%M%S").to_string();
    let mut aside = suffixed(path, &at);
    // Later ones sort after earlier ones, also within a second.
    let newest = rotated(path)?.pop();
    let mut more = 1;
    while newest.as_ref().is_some_and(|newest| *newest >= aside) && more < 1000 {
        aside = suffixed(path, &format!("{at}.{more:03}"));
        more += 1;
    }
    fs::rename(path, &aside)?;
    let left = usize::try_from(max_files.max(1) - 1).unwrap_or(usize::MAX);
    let old = rotated(path)?;
    for oldest in old.iter().take(old.len().saturating_sub(left)) {
        fs::remove_file(oldest)?;
    }
    Ok(aside)
}

fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    PathBuf::from(name)
}

/// The files that were moved aside, the oldest first.
pub(crate) fn rotated(path: &Path) -> io::Result<Vec<PathBuf>> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Ok(Vec::new()) };
    let prefix = format!("{}.", name.to_string_lossy());
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}
