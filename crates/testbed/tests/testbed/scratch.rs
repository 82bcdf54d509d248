//! A folder for one test, and the `testbed` program with an environment of the test's own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder that is removed at the end of the test.
pub(crate) struct Scratch {
    root: PathBuf,
}

impl Scratch {
    pub(crate) fn new(test: &str) -> Self {
        let root = std::env::temp_dir().join(format!("plumb-scratch-{}-{test}", std::process::id()));
        for folder in ["bin", "cache", "tmp"] {
            fs::create_dir_all(root.join(folder)).expect("a temporary folder can be made");
        }
        Self { root }
    }

    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.root.join(name)
    }

    /// Puts a shell script on the program's PATH.
    pub(crate) fn script(&self, name: &str, text: &str) {
        let text = format!("#!/bin/sh\n{text}\n");
        // By another process. If this one had the script open for writing, processes that other tests start would have it
        // open as well for a moment, and the kernel would refuse to execute it.
        let written = Command::new("/bin/sh")
            .args(["-c", "printf %s \"$1\" > \"$0\" && chmod 755 \"$0\""])
            .arg(self.path("bin").join(name))
            .arg(text)
            .status()
            .expect("a shell runs");
        assert!(written.success(), "a script can be written");
    }

    /// The `testbed` program with a cache of its own; only the scripts (and what they need) are on its PATH.
    pub(crate) fn testbed(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_testbed"));
        command
            .args(arguments)
            .env("XDG_CACHE_HOME", self.path("cache"))
            .env("TMPDIR", self.path("tmp"))
            .env("PATH", self.path("bin"))
            .env("CALLS", self.path("calls"))
            .env_remove("KUBEBUILDER_ASSETS");
        command
    }

    /// The calls that the scripts recorded since the last call of this function.
    pub(crate) fn calls(&self) -> Vec<String> {
        let path = self.path("calls");
        let text = fs::read_to_string(&path).unwrap_or_default();
        let _ = fs::remove_file(&path);
        text.lines().map(str::to_owned).collect()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// What a program wrote to its standard error.
pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
