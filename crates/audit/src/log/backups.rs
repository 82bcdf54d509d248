//! The rotated files of a log: their names, and which of them are removed or compressed.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::{fs, io};

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::LogOptions;

/// The time of a rotation in the name of a file, in UTC.
const FORMAT: &str = "%Y-%m-%dT%H-%M-%S.%3f";
const GZIP: &str = ".gz";

/// The names of the rotated files of a log.
pub(super) struct Backups {
    directory: PathBuf,
    prefix: String,
    extension: String,
}

/// What is done to a rotated file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    Remove(PathBuf),
    Compress(PathBuf),
}

impl Backups {
    pub(super) fn new(log: &Path) -> Self {
        let text = |part: Option<&OsStr>| part.map(|part| part.to_string_lossy().into_owned());
        Self {
            directory: directory(log).to_owned(),
            prefix: format!("{}-", text(log.file_stem()).unwrap_or_default()),
            extension: text(log.extension()).map(|extension| format!(".{extension}")).unwrap_or_default(),
        }
    }

    /// A path for a file that is rotated now. Two rotations in one millisecond get different ones.
    pub(super) fn free_path(&self, now: Timestamp) -> PathBuf {
        let mut at = now;
        loop {
            let name = format!("{}{}{}", self.prefix, at.strftime(FORMAT), self.extension);
            let path = self.directory.join(&name);
            if !path.exists() && !self.directory.join(format!("{name}{GZIP}")).exists() {
                return path;
            }
            at += SignedDuration::from_millis(1);
        }
    }

    /// What is to be done after a rotation.
    pub(super) fn plan(&self, now: Timestamp, options: &LogOptions) -> io::Result<Vec<Action>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            names.extend(entry?.file_name().into_string());
        }
        Ok(self.decide(names, now, options))
    }

    /// What is to be done, given the names of all files in the directory.
    fn decide(&self, names: Vec<String>, now: Timestamp, options: &LogOptions) -> Vec<Action> {
        let mut found: Vec<(Timestamp, String)> =
            names.into_iter().filter_map(|name| Some((self.time(&name)?, name))).collect();
        found.sort_unstable_by(|one, other| other.cmp(one));
        // A file and its compressed form count once.
        let mut times = BTreeSet::new();
        let max_age = SignedDuration::from_hours(24 * i64::from(options.max_age));
        let mut actions = Vec::new();
        for (time, name) in found {
            times.insert(time);
            let is_one_too_many = options.max_backups > 0 && times.len() > options.max_backups;
            let is_old = options.max_age > 0 && now.duration_since(time) > max_age;
            let path = self.directory.join(&name);
            if is_one_too_many || is_old {
                actions.push(Action::Remove(path));
            } else if options.compress && !name.ends_with(GZIP) {
                actions.push(Action::Compress(path));
            }
        }
        actions
    }

    /// The time in the name of a rotated file; none for any other file.
    fn time(&self, name: &str) -> Option<Timestamp> {
        let name = name.strip_suffix(GZIP).unwrap_or(name);
        let time = name.strip_prefix(&self.prefix)?.strip_suffix(&self.extension)?;
        let time = DateTime::strptime("%Y-%m-%dT%H-%M-%S.%f", time).ok()?;
        time.to_zoned(TimeZone::UTC).ok().map(|time| time.timestamp())
    }
}

/// The directory of a file.
pub(super) fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEWEST: &str = "audit-2026-01-09T00-00-00.000.log";
    const COMPRESSED: &str = "audit-2026-01-08T00-00-00.000.log.gz";
    const OLD: &str = "audit-2026-01-02T03-04-05.678.log";

    fn decided(names: &[&str], options: &LogOptions) -> Vec<Action> {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let now = "2026-01-10T00:00:00Z".parse().unwrap();
        Backups::new(Path::new("/log/audit.log")).decide(names, now, options)
    }

    fn remove(name: &str) -> Action {
        Action::Remove(Path::new("/log").join(name))
    }

    #[test]
    fn rotated_files_are_removed_by_number_and_by_age_and_no_other_file_is() {
        let keep_all = LogOptions::new("/log/audit.log");
        let others = ["audit.log", "audit-later.log", "audit-2026-01-02T03-04-05.678.txt", "other-2026.log"];
        let names = [others.as_slice(), &[OLD, NEWEST, COMPRESSED]].concat();
        assert_eq!(decided(&names, &keep_all), []);
        let by_number = LogOptions { max_backups: 2, ..keep_all.clone() };
        assert_eq!(decided(&names, &by_number), [remove(OLD)]);
        let by_number = LogOptions { max_backups: 1, ..keep_all.clone() };
        assert_eq!(decided(&names, &by_number), [remove(COMPRESSED), remove(OLD)]);
        let by_age = LogOptions { max_age: 7, ..keep_all.clone() };
        assert_eq!(decided(&names, &by_age), [remove(OLD)]);
        let compress = LogOptions { compress: true, max_age: 7, ..keep_all };
        let compressed = Action::Compress(Path::new("/log").join(NEWEST));
        assert_eq!(decided(&names, &compress), [compressed, remove(OLD)]);
    }

    #[test]
    fn a_file_and_its_compressed_form_count_once() {
        let options = LogOptions { max_backups: 2, ..LogOptions::new("/log/audit.log") };
        let both = format!("{NEWEST}.gz");
        assert_eq!(decided(&[NEWEST, &both, COMPRESSED], &options), []);
    }

    #[test]
    fn two_rotations_in_one_millisecond_have_different_names() {
        let folder = tempfile::tempdir().unwrap();
        let backups = Backups::new(&folder.path().join("audit.log"));
        let now = "2026-01-02T03:04:05.678Z".parse().unwrap();
        let first = backups.free_path(now);
        assert_eq!(first, folder.path().join(OLD));
        fs::write(&first, "").unwrap();
        assert_eq!(backups.free_path(now), folder.path().join("audit-2026-01-02T03-04-05.679.log"));
    }
}
