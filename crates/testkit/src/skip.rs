//! Tests that cannot run on a machine.
//!
//! A test that returns early passes, and what it prints is captured: nothing shows that it did not run. [`skip`] prints the
//! test's name and why to standard error, past the capture of the test harness, and appends it to the file that
//! `PLUMB_SKIPPED` names, from which `.ci/run` prints the number and the names in its last lines. Where `PLUMB_REQUIRE_TESTS`
//! names what the test needs, it fails instead.
//!
//! ```
//! # fn has_root() -> bool { true }
//! if !has_root() {
//!     plumb_testkit::skip(plumb_testkit::ROOT, "only root can mount");
//!     return;
//! }
//! ```

use std::env;
use std::fs::OpenOptions;
use std::io::{self, Write as _};

/// The rights of root.
pub const ROOT: &str = "root";
/// Containers: root, and cgroups that can be written.
pub const CONTAINERS: &str = "containers";
/// `prometheus` and `promtool`.
pub const PROMETHEUS: &str = "prometheus";
/// The server and the clients of `PostgreSQL`.
pub const POSTGRESQL: &str = "postgresql";
/// The program `etcd`.
pub const ETCD: &str = "etcd";
/// systemd as the init process, and root.
pub const SYSTEMD: &str = "systemd";
/// Files that a variable names.
pub const DATA: &str = "data";
/// Another feature of the machine, such as a second CPU, that no lane can count on.
pub const MACHINE: &str = "machine";

/// The file that names of skipped tests are appended to.
const FILE: &str = "PLUMB_SKIPPED";
/// What tests must not be skipped for the lack of, separated by commas.
const REQUIRED: &str = "PLUMB_REQUIRE_TESTS";

/// Says that the current test is skipped for the lack of something, and why.
///
/// # Panics
/// If `PLUMB_REQUIRE_TESTS` names what it lacks.
pub fn skip(lacks: &str, why: &str) {
    let thread = std::thread::current();
    // The test harness names the thread of a test after it.
    let test = thread.name().unwrap_or("a test");
    let required = env::var(REQUIRED).unwrap_or_default();
    assert!(!is_required(lacks, &required), "{test} must run here ({REQUIRED}={required}): {why}");
    let line = format!("SKIPPED {test}: {why}\n");
    // Not eprintln!, which the test harness captures. A test does not fail because its name cannot be printed.
    let _ = io::stderr().write_all(line.as_bytes());
    if let Some(path) = env::var_os(FILE) {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
    }
}

fn is_required(lacks: &str, required: &str) -> bool {
    required.split(',').map(str::trim).any(|required| required == lacks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_fails_where_what_it_lacks_is_required() {
        for (required, expected) in
            [("", false), ("root", true), ("containers", false), ("containers, root", true), ("roots", false)]
        {
            assert_eq!(is_required(ROOT, required), expected, "{required:?}");
        }
    }
}
