//! The certificate authorities of the cluster, and the certificates and keys of the control plane.
//!
//! All files are in one directory; the first start creates them:
//!
//! | file | content | lifetime |
//! |---|---|---|
//! | `ca.crt`, `ca.key` | the authority that signs the API server's certificate: what clients trust | ten years; renewed with the same key, so that what trusts the old certificate trusts the new one |
//! | `client-ca.crt`, `client-ca.key` | the authority that signs client certificates: what the API server and node agents trust | likewise |
//! | `kubelet-serving-ca.crt`, `.key` | the authority that signs the serving certificates of nodes: what only the API server trusts | likewise |
//! | `front-proxy-ca.crt`, `front-proxy-ca.key` | the authority that signs the certificate by which the API server shows itself to aggregated API servers: what only they trust | likewise |
//! | `serving.pem` | the API server's certificate and key | one year; a new key each time |
//! | `admin.pem` | the administrator's certificate and key | one year; a new key each time |
//! | `sa.key`, `sa.pub` | the key that signs service-account tokens | for good |
//!
//! A certificate is renewed when a third of its lifetime is left, at the start and by [`keep_fresh`] while the server runs.
//! To use an existing authority, put its certificate and key (PKCS #8) there under these names before the first start. Its
//! own certificate is never renewed.
//!
//! # Invariants
//!
//! - **A file is complete or absent.** A certificate and its key are in one file where both change together, so that a crash
//!   leaves no certificate without its key; a key is written before the certificate that needs it.
//! - **An unreadable file is never replaced.** The error names a damaged or foreign file, and what to do about it.
//! - **Only the owner can read keys**, and `Debug` output never has them.

mod authority;
mod certificate;
mod client;
mod clock;
mod error;
pub(crate) mod files;
mod keyed;
mod name;
mod previous;
mod rotation;
mod secret;
mod serving;
mod signing;

pub use client::ClientCertificate;
pub use clock::{Clock, SystemClock};
pub use error::PkiError;
pub use files::{FileError, read_private};
pub use keyed::{KeyedCertificate, certificate_pem};
pub use rotation::keep_fresh;
pub use secret::Secret;
pub use serving::ServingCertificate;
pub use signing::SigningKey;

use std::{
    collections::BTreeSet,
    fmt, iter,
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::user::User;
use authority::{Authority, Role};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use plumb_certificates::{Request, Usage};
use rustls::pki_types::CertificateDer;

/// The user of the administrator's certificate.
pub const ADMIN_USER: &str = "kubernetes-admin";

/// The group with all rights.
pub const MASTERS_GROUP: &str = "system:masters";

/// The user of the API server at the node agents.
pub const NODE_CLIENT_USER: &str = "kube-apiserver-kubelet-client";

/// Whether a user with a client certificate is the API server of the cluster, to which a node agent gives logs, exec and all
/// pods.
///
/// Both the name and the group count. The user who makes a signing request chooses the name; no signer of the cluster gives
/// the group (`CertificateSubjectRestriction`), and the API server's own certificates always had it.
pub fn is_node_client(user: &User) -> bool {
    user.name() == NODE_CLIENT_USER && user.groups().iter().any(|group| group == MASTERS_GROUP)
}

/// The user of the API server at aggregated API servers, which take its word about users.
pub const FRONT_PROXY_USER: &str = "front-proxy-client";

const SERVING_FILE: &str = "serving.pem";
const ADMIN_FILE: &str = "admin.pem";

/// The address of the Service `kubernetes`: the first one of the service range.
pub const KUBERNETES_SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);

/// Names under which a client inside or beside the cluster reaches the API server.
const SERVING_NAMES: [&str; 7] = [
    "localhost",
    "127.0.0.1",
    "::1",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
];

/// The authorities of a cluster, with the certificates of the control plane.
pub struct Pki {
    directory: PathBuf,
    names: BTreeSet<String>,
    clock: Arc<dyn Clock>,
    serving: Arc<ServingCertificate>,
    node_client: Arc<ClientCertificate>,
    front_proxy_client: Arc<ClientCertificate>,
    signing: SigningKey,
    previous_clients: Option<CertificateDer<'static>>,
    state: Mutex<State>,
}

struct State {
    authority: Authority,
    clients: Authority,
    node_serving: Authority,
    front_proxy: Authority,
    serving: KeyedCertificate,
    admin: KeyedCertificate,
    node_client: KeyedCertificate,
    front_proxy_client: KeyedCertificate,
}

/// What a [`Pki::renew`] renewed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Renewed {
    /// The authority's own certificate: a kubeconfig that contains it should be written again.
    pub authority: bool,
    /// The API server's certificate: new connections already use it.
    pub serving: bool,
    /// The administrator's certificate: a kubeconfig that contains it should be written again.
    pub admin: bool,
}

impl Renewed {
    /// Whether anything was renewed.
    pub fn any(self) -> bool {
        self.authority || self.serving || self.admin
    }
}

impl Pki {
    /// Opens the authorities in `directory`, or creates them, and renews certificates that are due.
    ///
    /// `names` are the addresses and host names of the server besides the default ones (`localhost`,
    /// `kubernetes.default.svc`, …), at least the listen address. An unspecified address (`0.0.0.0`) is left out. If they
    /// have changed since the last start, the server gets a new certificate.
    ///
    /// The lock of the data directory prevents other writers.
    pub fn open(
        directory: impl Into<PathBuf>,
        names: impl IntoIterator<Item = String>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, PkiError> {
        let directory = directory.into();
        files::private_directory(&directory)?;
        let names = serving_names(names);
        let now = clock.now();

        let authority = Authority::open(&directory, Role::Serving, now)?;
        let serving = open_serving(&directory, &names, &authority, now)?;
        let clients = open_clients(&directory, &authority, now)?;
        let previous_clients = previous::open(&directory, &clients, now)?;
        let node_serving = Authority::open(&directory, Role::NodeServing, now)?;
        let admin = open_admin(&directory, &clients, now)?;
        let node_client = issue_node_client(&clients, now)?;
        let front_proxy = Authority::open(&directory, Role::FrontProxy, now)?;
        let front_proxy_client = front_proxy.issue_client(FRONT_PROXY_USER, &[], now)?;
        let signing = SigningKey::open(&directory)?;

        Ok(Self {
            serving: Arc::new(ServingCertificate::new(serving.certified()?)),
            node_client: Arc::new(ClientCertificate::new(node_client.certified()?)),
            front_proxy_client: Arc::new(ClientCertificate::new(front_proxy_client.certified()?)),
            state: Mutex::new(State {
                authority,
                clients,
                node_serving,
                front_proxy,
                serving,
                admin,
                node_client,
                front_proxy_client,
            }),
            previous_clients,
            directory,
            names,
            clock,
            signing,
        })
    }

    /// Renews certificates that are due, and passes a new serving certificate to the running server.
    ///
    /// Reads and writes files.
    pub fn renew(&self) -> Result<Renewed, PkiError> {
        let now = self.clock.now();
        let mut state = self.state.lock();
        // All are tried: one that cannot be renewed must not prevent the others.
        let [authority, clients, node_serving, front_proxy] = {
            let State { authority, clients, node_serving, front_proxy, .. } = &mut *state;
            [authority, clients, node_serving, front_proxy].map(|one| one.renew_if_due(&self.directory, now))
        };
        let authority = authority? | clients? | node_serving? | front_proxy?;
        let mut renewed = Renewed { authority, ..Renewed::default() };
        if serving_due(&state.serving, &self.names, now) {
            let fresh = issue_serving(&self.directory, &self.names, &state.authority, now)?;
            self.serving.replace(fresh.certified()?);
            state.serving = fresh;
            renewed.serving = true;
        }
        if state.admin.validity().due(now) {
            state.admin = issue_admin(&self.directory, &state.clients, now)?;
            renewed.admin = true;
        }
        if state.node_client.validity().due(now) {
            let fresh = issue_node_client(&state.clients, now)?;
            self.node_client.replace(fresh.certified()?);
            state.node_client = fresh;
        }
        if state.front_proxy_client.validity().due(now) {
            let fresh = state.front_proxy.issue_client(FRONT_PROXY_USER, &[], now)?;
            self.front_proxy_client.replace(fresh.certified()?);
            state.front_proxy_client = fresh;
        }
        Ok(renewed)
    }

    /// A certificate, with a new key, of a client with this user name and these groups.
    ///
    /// It is not written to a file.
    pub fn issue_client(&self, user: &str, groups: &[&str]) -> Result<KeyedCertificate, PkiError> {
        self.state.lock().clients.issue_client(user, groups, self.clock.now())
    }

    /// A certificate, with a new key, of a server with these names: a node's agent.
    ///
    /// It is not written to a file.
    pub fn issue_serving(
        &self,
        names: impl IntoIterator<Item = String>,
    ) -> Result<KeyedCertificate, PkiError> {
        self.state.lock().node_serving.issue_serving(&names.into_iter().collect(), self.clock.now())
    }

    /// A certificate, in PEM, for the key of a certificate request. The caller decides whether it is approved, and its lifetime.
    pub fn sign(
        &self,
        request: &Request,
        usages: &[Usage],
        lifetime: SignedDuration,
    ) -> Result<String, PkiError> {
        let state = self.state.lock();
        let authority =
            if usages.contains(&Usage::ServerAuth) { &state.node_serving } else { &state.clients };
        authority.sign(request, usages, lifetime, self.clock.now())
    }

    /// The client certificate of the API server at the node agents; a renewal replaces it.
    pub fn node_client(&self) -> Arc<ClientCertificate> {
        Arc::clone(&self.node_client)
    }

    /// The client certificate of the API server at aggregated API servers; a renewal replaces it.
    pub fn front_proxy_client(&self) -> Arc<ClientCertificate> {
        Arc::clone(&self.front_proxy_client)
    }

    /// The certificate of the authority of that client certificate, in PEM.
    pub fn front_proxy_authority_pem(&self) -> String {
        self.state.lock().front_proxy.pem()
    }

    /// The certificate of the authority of the API server, in PEM, which clients trust.
    pub fn authority_pem(&self) -> String {
        self.state.lock().authority.pem()
    }

    /// The certificate of the authority of the API server, which clients trust.
    pub fn authority_der(&self) -> CertificateDer<'static> {
        self.state.lock().authority.der().clone()
    }

    /// The authorities of client certificates: the current one, and the previous one as long as it is trusted.
    pub fn client_authorities(&self) -> Vec<CertificateDer<'static>> {
        let current = self.state.lock().clients.der().clone();
        iter::once(current).chain(self.previous_clients.clone()).collect()
    }

    /// The same in PEM, for agents on other machines.
    pub fn client_authorities_pem(&self) -> String {
        self.client_authorities().iter().map(|der| certificate_pem(der)).collect()
    }

    /// The authorities of the nodes' serving certificates. The nodes of this process use the API server's own certificate, and
    /// nodes that joined before nodes had an authority of their own have a certificate of the API server's authority.
    pub fn node_authorities(&self) -> [CertificateDer<'static>; 2] {
        let state = self.state.lock();
        [state.node_serving.der().clone(), state.authority.der().clone()]
    }

    /// The names and addresses of the API server.
    pub fn names(&self) -> &BTreeSet<String> {
        &self.names
    }

    /// The administrator's certificate.
    pub fn admin(&self) -> KeyedCertificate {
        self.state.lock().admin.clone()
    }

    /// The serving certificate of the server; a renewal replaces it.
    pub fn serving(&self) -> Arc<ServingCertificate> {
        Arc::clone(&self.serving)
    }

    /// The key that signs service account tokens.
    pub fn service_account_key(&self) -> &SigningKey {
        &self.signing
    }

    /// The clock for the expiration of certificates.
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    /// The directory.
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
        .chain([KUBERNETES_SERVICE.to_string()])
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

/// Opens the authority of clients. If `ca.crt` has issued the administrator's certificate, the directory is from a time when it
/// issued all client certificates: they stay trusted.
fn open_clients(directory: &Path, authority: &Authority, now: Timestamp) -> Result<Authority, PkiError> {
    let admin = directory.join(ADMIN_FILE);
    if KeyedCertificate::load(&admin, authority).is_ok_and(|found| found.is_some()) {
        previous::keep(directory, authority)?;
        files::remove(&admin)?;
    }
    Authority::open(directory, Role::Client, now)
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

/// The client certificate of the API server at the node agents. Only this process needs it, so that it is never written.
///
/// Its group has all rights, so that logs can be read without any role. A process that could steal its key could steal the
/// authority's key as well.
fn issue_node_client(authority: &Authority, now: Timestamp) -> Result<KeyedCertificate, PkiError> {
    authority.issue_client(NODE_CLIENT_USER, &[MASTERS_GROUP], now)
}
