//! Service accounts: tokens that say whose they are, for whom they are good, and until when.
//!
//! A token is a signed statement (a JWT, ES256) that names an account and may be bound to a pod, a secret or a node.
//! It is good as long as what it names is there: that is looked up with every use, so that the end of a pod or of
//! an account is the end of its tokens at once.

mod claims;
mod discovery;
mod key;
pub(crate) mod request;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use plumb_store::{Key, Store};
use serde::Deserialize;

use crate::authn::User;
use crate::pki::{Clock, SigningKey};
use claims::{Claims, Reference};
use key::TokenKey;

pub(crate) use key::sha256;

/// Clocks differ: a token is good a little before and a little after its time.
const LEEWAY: SignedDuration = SignedDuration::from_mins(1);
/// Signatures that were found good are remembered, so that a busy client costs one check and not one per request.
const REMEMBERED: usize = 4_096;

/// What is said about the tokens of a cluster.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Who signs: an `https` address.
    pub issuer: String,
    /// For whom a token is that does not say; the API server takes only those for one of them.
    pub audiences: Vec<String>,
    /// Where clients reach the server, such as `https://127.0.0.1:6443`: told to those who verify tokens themselves.
    pub address: String,
    /// The longest time that a token may be good for.
    pub longest: Option<SignedDuration>,
}

impl Settings {
    /// The usual ones, for a server at an address.
    pub fn at(address: impl Into<String>) -> Self {
        let issuer = "https://kubernetes.default.svc.cluster.local".to_owned();
        Self { audiences: vec![issuer.clone()], issuer, address: address.into(), longest: None }
    }
}

/// Makes and checks the tokens of service accounts.
pub struct Accounts {
    key: TokenKey,
    settings: Settings,
    store: Store,
    clock: Arc<dyn Clock>,
    remembered: Mutex<HashMap<[u8; 32], Arc<Claims>>>,
}

/// Why a token is not good. No message holds a token.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It is not one of ours.
    #[error("not a token of this cluster")]
    Foreign,
    /// It looks like one of ours, and is not.
    #[error("invalid signature")]
    Forged,
    /// It is for somebody else.
    #[error("token audiences {} is invalid for the target audiences {}", quoted(.0), quoted(.1))]
    Audience(Vec<String>, Vec<String>),
    /// Its time is over.
    #[error("service account token has expired")]
    Expired,
    /// Its time has not come.
    #[error("service account token is not valid yet")]
    Early,
    /// It comes from the future.
    #[error("service account token is issued in the future")]
    Future,
    /// There is no such account.
    #[error("serviceaccounts {0:?} not found")]
    NoAccount(String),
    /// What it names is not what is there now.
    #[error("{what} UID ({found}) does not match {claim} ({claimed})")]
    Replaced {
        /// What it names.
        what: &'static str,
        /// What is there.
        found: String,
        /// Where the token says so.
        claim: &'static str,
        /// What the token says.
        claimed: String,
    },
    /// The account is on its way out.
    #[error("service account {0} has been deleted")]
    Deleted(String),
    /// What it was bound to is gone.
    #[error("service account token has been invalidated")]
    Invalidated,
}

fn quoted(texts: &[String]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| format!("{text:?}")).collect();
    format!("[{}]", texts.join(" "))
}

/// What a check looks at in an object.
#[derive(Deserialize)]
struct Identity {
    metadata: IdentityMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct IdentityMetadata {
    uid: String,
    #[serde(default)]
    deletion_timestamp: Option<Timestamp>,
}

impl Accounts {
    /// Makes and checks tokens with a key; what they name is looked up in the store.
    ///
    /// `None` if the key cannot sign such tokens.
    pub fn new(key: &SigningKey, store: Store, clock: Arc<dyn Clock>, settings: Settings) -> Option<Self> {
        let key = TokenKey::read(key)?;
        Some(Self { key, settings, store, clock, remembered: Mutex::default() })
    }

    /// For whom tokens are that do not say.
    pub(crate) fn audiences(&self) -> &[String] {
        &self.settings.audiences
    }

    /// Whose token it is, and for which of the audiences it is good.
    pub(crate) fn check(&self, token: &str, audiences: &[String]) -> Result<(User, Vec<String>), Refused> {
        let claims = self.read(token)?;
        let own: &[String] = if claims.aud.is_empty() { &self.settings.audiences } else { &claims.aud };
        let common: Vec<String> = own.iter().filter(|own| audiences.contains(own)).cloned().collect();
        if common.is_empty() {
            return Err(Refused::Audience(own.to_vec(), audiences.to_vec()));
        }
        let now = self.clock.now();
        check_time(&claims, now)?;
        self.check_bound(&claims, now - LEEWAY)?;
        Ok((user(&claims), common))
    }

    /// The claims of a token that we signed.
    fn read(&self, token: &str) -> Result<Arc<Claims>, Refused> {
        let fingerprint = sha256(token.as_bytes());
        if let Some(claims) = self.remembered.lock().get(&fingerprint) {
            return Ok(Arc::clone(claims));
        }
        let (signed, _) = token.rsplit_once('.').ok_or(Refused::Foreign)?;
        let (_, payload) = signed.split_once('.').ok_or(Refused::Foreign)?;
        let claims = Claims::decode(payload).ok_or(Refused::Foreign)?;
        if claims.iss != self.settings.issuer {
            return Err(Refused::Foreign);
        }
        if !self.key.signed(token) {
            return Err(Refused::Forged);
        }
        let claims = Arc::new(claims);
        let mut remembered = self.remembered.lock();
        if remembered.len() >= REMEMBERED {
            remembered.clear();
        }
        remembered.insert(fingerprint, Arc::clone(&claims));
        Ok(claims)
    }

    fn find(&self, path: &str) -> Option<IdentityMetadata> {
        let object = self.store.get(&Key::new(path).ok()?)?;
        serde_json::from_slice::<Identity>(&object.value).ok().map(|identity| identity.metadata)
    }

    /// Whether everything that a token names is there, and is still the same.
    fn check_bound(&self, claims: &Claims, deleted_before: Timestamp) -> Result<(), Refused> {
        let bound = &claims.kubernetes;
        let (namespace, account) = (&bound.namespace, &bound.serviceaccount);
        let gone = |found: &IdentityMetadata| found.deletion_timestamp.is_some_and(|at| at < deleted_before);
        let found = self
            .find(&format!("core/serviceaccounts/{namespace}/{}", account.name))
            .ok_or_else(|| Refused::NoAccount(account.name.clone()))?;
        if found.uid != account.uid {
            return Err(replaced("service account", found, "claim", account));
        }
        if gone(&found) {
            return Err(Refused::Deleted(format!("{namespace}/{}", account.name)));
        }
        let node = bound.node.as_ref().filter(|_| bound.pod.is_none());
        let objects = [
            (
                "secret",
                "service account secret ref claim",
                bound.secret.as_ref(),
                format!("secrets/{namespace}/"),
            ),
            ("pod", "service account pod ref claim", bound.pod.as_ref(), format!("pods/{namespace}/")),
            ("node", "service account node ref claim", node, "nodes/".to_owned()),
        ];
        for (what, claim, reference, place) in objects {
            let Some(reference) = reference else { continue };
            let found = self.find(&format!("core/{place}{}", reference.name)).ok_or(Refused::Invalidated)?;
            if found.uid != reference.uid {
                return Err(replaced(what, found, claim, reference));
            }
            if gone(&found) {
                return Err(Refused::Invalidated);
            }
        }
        Ok(())
    }
}

fn replaced(what: &'static str, found: IdentityMetadata, claim: &'static str, named: &Reference) -> Refused {
    Refused::Replaced { what, found: found.uid, claim, claimed: named.uid.clone() }
}

fn check_time(claims: &Claims, now: Timestamp) -> Result<(), Refused> {
    let at = |seconds: i64| Timestamp::from_second(seconds).ok();
    if claims.nbf.and_then(at).is_some_and(|begin| now + LEEWAY < begin) {
        return Err(Refused::Early);
    }
    // A token without an end was never made here.
    if claims.exp.and_then(at).is_none_or(|end| now - LEEWAY > end) {
        return Err(Refused::Expired);
    }
    if claims.iat.and_then(at).is_some_and(|made| now + LEEWAY < made) {
        return Err(Refused::Future);
    }
    Ok(())
}

/// The user that a token stands for.
fn user(claims: &Claims) -> User {
    let bound = &claims.kubernetes;
    let (namespace, account) = (&bound.namespace, &bound.serviceaccount);
    let groups = ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
    let mut extra = BTreeMap::new();
    let mut add = |name: &str, value: &str| {
        if !value.is_empty() {
            extra.insert(format!("authentication.kubernetes.io/{name}"), vec![value.to_owned()]);
        }
    };
    if let Some(pod) = &bound.pod {
        add("pod-name", &pod.name);
        add("pod-uid", &pod.uid);
    }
    if let Some(node) = &bound.node {
        add("node-name", &node.name);
        add("node-uid", &node.uid);
    }
    if !claims.jti.is_empty() {
        add("credential-id", &format!("JTI={}", claims.jti));
    }
    let name = format!("system:serviceaccount:{namespace}:{}", account.name);
    User::new(name, account.uid.clone(), groups).with_extra(extra)
}

impl fmt::Debug for Accounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Accounts").field("settings", &self.settings).finish_non_exhaustive()
    }
}
