//! The certificate authority and its files.

mod damage;
mod elsewhere;
mod kubeconfig;
mod life;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::{Timestamp, ToSpan as _};
use plumb_apiserver::authn::Tokens;
use plumb_apiserver::pki::{ADMIN_USER, Clock, Pki};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use tempfile::TempDir;

/// A manual clock.
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

    /// Whether a certificate is one of a client, by the authorities that the API server trusts for clients.
    pub(super) fn is_client(&self, pki: &Pki, certificate: &CertificateDer<'_>) -> bool {
        let mut roots = RootCertStore::empty();
        for authority in pki.client_authorities() {
            roots.add(authority).unwrap();
        }
        let provider = rustls::crypto::ring::default_provider();
        let verifier =
            WebPkiClientVerifier::builder_with_provider(roots.into(), provider.into()).build().unwrap();
        let now = u64::try_from(self.clock.now().as_second()).unwrap();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(now));
        verifier.verify_client_cert(certificate, &[], now).is_ok()
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
