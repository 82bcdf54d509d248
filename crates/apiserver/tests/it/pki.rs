//! The authority and its files.

mod damage;
mod elsewhere;
mod kubeconfig;
mod life;

use std::sync::{Arc, Mutex};

use jiff::{Timestamp, ToSpan as _};
use plumb_apiserver::authn::Tokens;
use plumb_apiserver::pki::{ADMIN_USER, Clock, Pki};
use tempfile::TempDir;

/// A clock that goes when it is told to.
#[derive(Debug)]
pub(super) struct TestClock(Mutex<Timestamp>);

impl TestClock {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new("2026-03-01T12:00:00Z".parse().unwrap())))
    }

    pub(super) fn forward_days(&self, days: i64) {
        let mut now = self.0.lock().unwrap();
        *now += (days * 24).hours();
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap()
    }
}

/// A directory with an authority in it.
pub(super) struct Place {
    pub(super) directory: TempDir,
    pub(super) clock: Arc<TestClock>,
}

impl Place {
    pub(super) fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap(), clock: TestClock::new() }
    }

    pub(super) fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join("pki").join(name)
    }

    pub(super) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    pub(super) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    /// A file with a token of the administrator's, as one would give it to `--token-auth-file`.
    pub(super) fn admin_token(&self) -> (Tokens, String) {
        let token = format!("administrator-of-{}", self.directory.path().display()).replace('/', "-");
        self.write("tokens.csv", &format!("{token},{ADMIN_USER},,system:masters\n"));
        (Tokens::open(&self.path("tokens.csv")).unwrap(), token)
    }

    pub(super) fn open(&self) -> Result<Pki, plumb_apiserver::pki::PkiError> {
        self.open_for(&[])
    }

    pub(super) fn open_for(&self, names: &[&str]) -> Result<Pki, plumb_apiserver::pki::PkiError> {
        let names = names.iter().map(ToString::to_string);
        Pki::open(self.directory.path().join("pki"), names, Arc::<TestClock>::clone(&self.clock))
    }
}
