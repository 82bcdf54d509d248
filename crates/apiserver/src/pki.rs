//! The cluster's own authority, and the certificates and keys that it stands for.
//!
//! Everything lives in one directory, is made at first start and found again at every later one:
//!
//! | file | what | kept |
//! |---|---|---|
//! | `ca.crt`, `ca.key` | the authority | ten years; renewed with the same key, so that nobody needs to be told |
//! | `serving.pem` | the API server's certificate and key | one year; a new key each time |
//! | `admin.pem` | the administrator's certificate and key | one year; a new key each time |
//! | `sa.key`, `sa.pub` | the key that signs service-account tokens | for good |
//!
//! A certificate is renewed when a third of its life is left, at start and by [`keep_fresh`] while the server runs.
//! Whoever has an authority already puts its `ca.crt` and `ca.key` (PKCS #8) there before the first start; that one is
//! used, and its own certificate is theirs to renew.
//!
//! # Invariants
//!
//! - **A file is whole or absent.** A certificate and its key share one file where both change together, so that no
//!   crash leaves one without the other; a key is written before the certificate that needs it.
//! - **What cannot be read is never replaced.** A damaged or foreign file is told, with what to do about it.
//! - **Keys are readable by their owner only**, and never appear in `Debug` output.

mod authority;
mod certificate;
mod client;
mod clock;
mod error;
pub(crate) mod files;
mod keyed;
mod name;
mod rotation;
mod secret;
mod serving;
mod signing;

pub use client::ClientCertificate;
pub use clock::{Clock, SystemClock};
pub use error::PkiError;
pub use files::FileError;
pub use keyed::{KeyedCertificate, certificate_pem};
pub use rotation::keep_fresh;
pub use secret::Secret;
pub use serving::ServingCertificate;
pub use signing::SigningKey;

use std::{
    collections::BTreeSet,
    fmt,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use authority::Authority;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use plumb_certificates::{Request, Usage};
use rustls::pki_types::CertificateDer;

/// The user that the administrator's certificate and token stand for.
pub const ADMIN_USER: &str = "kubernetes-admin";

/// The group that may do everything.
pub const MASTERS_GROUP: &str = "system:masters";

/// The user that the API server is to the nodes' agents.
pub const NODE_CLIENT_USER: &str = "kube-apiserver-kubelet-client";

const SERVING_FILE: &str = "serving.pem";
const ADMIN_FILE: &str = "admin.pem";

/// Names under which a client inside or beside the cluster reaches the API server.
const SERVING_NAMES: [&str; 8] = [
    "localhost",
    "127.0.0.1",
    "::1",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    // The first address of the service range, where the `kubernetes` Service stands.
    "10.96.0.1",
];

/// The authority of one cluster, with the certificates it holds ready.
pub struct Pki {
    directory: PathBuf,
    names: BTreeSet<String>,
    clock: Arc<dyn Clock>,
    serving: Arc<ServingCertificate>,
    node_client: Arc<ClientCertificate>,
    signing: SigningKey,
    state: Mutex<State>,
}

struct State {
    authority: Authority,
    serving: KeyedCertificate,
    admin: KeyedCertificate,
    node_client: KeyedCertificate,
}

/// What a [`Pki::renew`] renewed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Renewed {
    /// The authority's own certificate: whoever embeds it (a kubeconfig) should be written anew.
    pub authority: bool,
    /// The API server's certificate: new connections already get the new one.
    pub serving: bool,
    /// The administrator's certificate: whoever embeds it (a kubeconfig) should be written anew.
    pub admin: bool,
}

impl Renewed {
    /// Whether anything was renewed.
    pub fn any(self) -> bool {
        self.authority || self.serving || self.admin
    }
}

impl Pki {
    /// Opens the authority in `directory`, or makes one there, and renews what is due.
    ///
    /// `names` are the addresses and host names that the server is reached under besides the usual ones (`localhost`,
    /// `kubernetes.default.svc`, …): the listen address at least. An unspecified address (`0.0.0.0`) is no name and
    /// is left out. If they changed since the last start, the server gets a certificate for the new ones.
    ///
    /// Nothing else may write in the directory at the same time; the lock of the data directory sees to that.
    pub fn open(
        directory: impl Into<PathBuf>,
        names: impl IntoIterator<Item = String>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, PkiError> {
        let directory = directory.into();
        files::private_directory(&directory)?;
        let names = serving_names(names);
        let now = clock.now();

        let authority = Authority::open(&directory, now)?;
        let serving = open_serving(&directory, &names, &authority, now)?;
        let admin = open_admin(&directory, &authority, now)?;
        let node_client = issue_node_client(&authority, now)?;
        let signing = SigningKey::open(&directory)?;

        Ok(Self {
            serving: Arc::new(ServingCertificate::new(serving.certified()?)),
            node_client: Arc::new(ClientCertificate::new(node_client.certified()?)),
            state: Mutex::new(State { authority, serving, admin, node_client }),
            directory,
            names,
            clock,
            signing,
        })
    }

    /// Renews what is due, and hands a new serving certificate to the running server.
    ///
    /// Reads and writes files.
    pub fn renew(&self) -> Result<Renewed, PkiError> {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let authority = state.authority.renew_if_due(&self.directory, now)?;
        let mut renewed = Renewed { authority, ..Renewed::default() };
        if serving_due(&state.serving, &self.names, now) {
            let fresh = issue_serving(&self.directory, &self.names, &state.authority, now)?;
            self.serving.replace(fresh.certified()?);
            state.serving = fresh;
            renewed.serving = true;
        }
        if state.admin.validity().due(now) {
            state.admin = issue_admin(&self.directory, &state.authority, now)?;
            renewed.admin = true;
        }
        if state.node_client.validity().due(now) {
            let fresh = issue_node_client(&state.authority, now)?;
            self.node_client.replace(fresh.certified()?);
            state.node_client = fresh;
        }
        Ok(renewed)
    }

    /// A certificate, with a new key, by which a client proves to be `user` of `groups`.
    ///
    /// Nothing is written: it belongs to whoever asked for it.
    pub fn issue_client(&self, user: &str, groups: &[&str]) -> Result<KeyedCertificate, PkiError> {
        self.state.lock().authority.issue_client(user, groups, self.clock.now())
    }

    /// A certificate, with a new key, by which a server proves to be at any of `names`: a node's agent.
    ///
    /// Nothing is written: it belongs to whoever asked for it.
    pub fn issue_serving(
        &self,
        names: impl IntoIterator<Item = String>,
    ) -> Result<KeyedCertificate, PkiError> {
        self.state.lock().authority.issue_serving(&names.into_iter().collect(), self.clock.now())
    }

    /// A certificate, in PEM, for the key of a request. Whether it may have one, and for how long, is decided by
    /// whoever asks.
    pub fn sign(
        &self,
        request: &Request,
        usages: &[Usage],
        lifetime: SignedDuration,
    ) -> Result<String, PkiError> {
        self.state.lock().authority.sign(request, usages, lifetime, self.clock.now())
    }

    /// The certificate that the API server shows to the nodes' agents; a renewal replaces it in place.
    pub fn node_client(&self) -> Arc<ClientCertificate> {
        Arc::clone(&self.node_client)
    }

    /// The authority's certificate, as PEM: what clients trust.
    pub fn authority_pem(&self) -> String {
        self.state.lock().authority.pem()
    }

    /// The authority's certificate: what client certificates are verified by.
    pub fn authority_der(&self) -> CertificateDer<'static> {
        self.state.lock().authority.der().clone()
    }

    /// The administrator's certificate.
    pub fn admin(&self) -> KeyedCertificate {
        self.state.lock().admin.clone()
    }

    /// The certificate that the server shows; a renewal replaces it in place.
    pub fn serving(&self) -> Arc<ServingCertificate> {
        Arc::clone(&self.serving)
    }

    /// The key that signs service-account tokens.
    pub fn service_account_key(&self) -> &SigningKey {
        &self.signing
    }

    /// The clock that certificates are judged by.
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    /// Where all of it is kept.
    pub fn directory(&self) -> &Path {
        &self.directory
    }
}

impl fmt::Debug for Pki {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pki")
            .field("directory", &self.directory)
            .field("names", &self.names)
            .finish_non_exhaustive()
    }
}

fn serving_names(more: impl IntoIterator<Item = String>) -> BTreeSet<String> {
    let usual = SERVING_NAMES.into_iter().map(str::to_owned);
    usual
        .chain(more)
        .filter_map(|name| match name.parse::<IpAddr>() {
            Ok(address) if address.is_unspecified() => None,
            Ok(address) => Some(address.to_string()),
            Err(_) => Some(name),
        })
        .collect()
}

fn serving_due(serving: &KeyedCertificate, names: &BTreeSet<String>, now: Timestamp) -> bool {
    serving.validity().due(now) || serving.names() != names
}

fn open_serving(
    directory: &Path,
    names: &BTreeSet<String>,
    authority: &Authority,
    now: Timestamp,
) -> Result<KeyedCertificate, PkiError> {
    match KeyedCertificate::load(&directory.join(SERVING_FILE), authority)? {
        Some(found) if !serving_due(&found, names, now) => Ok(found),
        _ => issue_serving(directory, names, authority, now),
    }
}

fn issue_serving(
    directory: &Path,
    names: &BTreeSet<String>,
    authority: &Authority,
    now: Timestamp,
) -> Result<KeyedCertificate, PkiError> {
    let issued = authority.issue_serving(names, now)?;
    issued.save(&directory.join(SERVING_FILE))?;
    Ok(issued)
}

fn open_admin(directory: &Path, authority: &Authority, now: Timestamp) -> Result<KeyedCertificate, PkiError> {
    match KeyedCertificate::load(&directory.join(ADMIN_FILE), authority)? {
        Some(found) if !found.validity().due(now) => Ok(found),
        _ => issue_admin(directory, authority, now),
    }
}

fn issue_admin(
    directory: &Path,
    authority: &Authority,
    now: Timestamp,
) -> Result<KeyedCertificate, PkiError> {
    let issued = authority.issue_client(ADMIN_USER, &[MASTERS_GROUP], now)?;
    issued.save(&directory.join(ADMIN_FILE))?;
    Ok(issued)
}

/// What the API server shows to the nodes' agents. Only this process needs it, so it is never written down.
///
/// It is of the group that may do everything: no role has to be in place, and none can be taken away, for logs to be
/// read. Whoever could steal its key from this process could as well take the authority's.
fn issue_node_client(authority: &Authority, now: Timestamp) -> Result<KeyedCertificate, PkiError> {
    authority.issue_client(NODE_CLIENT_USER, &[MASTERS_GROUP], now)
}
