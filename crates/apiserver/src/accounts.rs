//! Service account tokens.
//!
//! A token is a signed JWT (ES256) with the service account, the audiences and the expiration, and may be bound to a pod, a
//! Secret or a node. The service account and the bound object are looked up for every request, so that a token is invalid
//! as soon as one of them is deleted.

mod claims;
mod discovery;
mod issue;
mod key;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use plumb_store::{Key, Store};
use serde::Deserialize;

use crate::pki::{Clock, SigningKey};
use crate::user::User;
use claims::Claims;
use key::TokenKeys;

pub(crate) use claims::{Bound, Reference};
pub(crate) use key::sha256;

/// The tolerated difference between clocks.
const LEEWAY: SignedDuration = SignedDuration::from_mins(1);
/// How many verified tokens are cached, so that a busy client costs one verification of a signature.
const REMEMBERED: usize = 4_096;

/// The configuration of service account tokens.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The issuer: an `https` URL.
    pub issuer: String,
    /// The audiences of the API server, and of a token that is requested without audiences.
    pub audiences: Vec<String>,
    /// The address of the server for clients, such as `https://127.0.0.1:6443`; the discovery document of tokens has it.
    pub address: String,
    /// The longest lifetime of a token.
    pub longest: Option<SignedDuration>,
}

impl Settings {
    /// The default configuration of a server at an address.
    pub fn at(address: impl Into<String>) -> Self {
        let issuer = "https://kubernetes.default.svc.cluster.local".to_owned();
        Self { audiences: vec![issuer.clone()], issuer, address: address.into(), longest: None }
    }

    /// Where clients get the keys that verify tokens. kube-apiserver names an address of its machine; that of a server which
    /// listens on the loopback interface alone means nothing to a pod, which reaches the server by the name in the issuer.
    fn base_of_keys(&self) -> &str {
        let address = self.address.parse::<http::Uri>().ok();
        let host = address.as_ref().and_then(http::Uri::host).unwrap_or_default();
        let is_loopback = host == "localhost"
            || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        if is_loopback { &self.issuer } else { &self.address }
    }
}

/// Issues and verifies service account tokens.
pub struct Accounts {
    keys: Arc<ArcSwap<TokenKeys>>,
    settings: Settings,
    store: Store,
    clock: Arc<dyn Clock>,
    remembered: Mutex<HashMap<[u8; 32], Verified>>,
}

/// A token that was verified: its claims, and the id of the key that signed it.
#[derive(Clone)]
struct Verified {
    claims: Arc<Claims>,
    signer: Arc<str>,
}

/// The keys of the accounts of a server, which can be replaced while it runs. Clones are of the same server.
#[derive(Clone)]
pub struct AccountKeys(Arc<ArcSwap<TokenKeys>>);

impl AccountKeys {
    /// Signs with another key from now on. Tokens of keys that are not among the [previous ones](SigningKey::previous_pems) are
    /// invalid from now on. False if the key cannot sign tokens; then nothing changes.
    pub fn replace(&self, key: &SigningKey) -> bool {
        let Some(keys) = TokenKeys::read(key) else { return false };
        self.0.store(Arc::new(keys));
        true
    }
}

impl fmt::Debug for AccountKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AccountKeys").field(&*self.0.load()).finish()
    }
}

/// Why a token is invalid. No message contains a token.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Refused {
    /// This cluster did not issue it.
    #[error("not a token of this cluster")]
    Foreign,
    /// Its signature is invalid.
    #[error("invalid signature")]
    Forged,
    /// It is for other audiences.
    #[error("token audiences {} is invalid for the target audiences {}", quoted(.0), quoted(.1))]
    Audience(Vec<String>, Vec<String>),
    /// It has expired.
    #[error("service account token has expired")]
    Expired,
    /// It is not valid yet.
    #[error("service account token is not valid yet")]
    Early,
    /// It was issued in the future.
    #[error("service account token is issued in the future")]
    Future,
    /// The service account does not exist.
    #[error("serviceaccounts {0:?} not found")]
    NoAccount(String),
    /// An object that it names was replaced by another one of the same name.
    #[error("{what} UID ({found}) does not match {claim} ({claimed})")]
    Replaced {
        /// The object.
        what: &'static str,
        /// The uid of the object that exists.
        found: String,
        /// The claim with the uid.
        claim: &'static str,
        /// The uid in the token.
        claimed: String,
    },
    /// The service account is being deleted.
    #[error("service account {0} has been deleted")]
    Deleted(String),
    /// The bound object does not exist any more.
    #[error("service account token has been invalidated")]
    Invalidated,
}

fn quoted(texts: &[String]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| format!("{text:?}")).collect();
    format!("[{}]", texts.join(" "))
}

/// The fields of an object that a verification reads.
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
    /// Issues and verifies tokens with a key. The objects that tokens name are looked up in the store.
    ///
    /// `None` if the key cannot sign such tokens.
    pub fn new(key: &SigningKey, store: Store, clock: Arc<dyn Clock>, settings: Settings) -> Option<Self> {
        let keys = Arc::new(ArcSwap::from_pointee(TokenKeys::read(key)?));
        Some(Self { keys, settings, store, clock, remembered: Mutex::default() })
    }

    /// The keys, to replace them.
    pub fn keys(&self) -> AccountKeys {
        AccountKeys(Arc::clone(&self.keys))
    }

    /// The audiences of tokens that are requested without audiences.
    pub fn audiences(&self) -> &[String] {
        &self.settings.audiences
    }

    /// The user of a token, and those of the audiences that it is valid for.
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

    /// The claims of a token with a valid signature.
    fn read(&self, token: &str) -> Result<Arc<Claims>, Refused> {
        let fingerprint = sha256(token.as_bytes());
        let keys = self.keys.load();
        let remembered = self.remembered.lock().get(&fingerprint).cloned();
        // The key of a token that was verified before may have been dropped since.
        if let Some(Verified { claims, signer }) = remembered
            && keys.has(&signer)
        {
            return Ok(claims);
        }
        let (signed, _) = token.rsplit_once('.').ok_or(Refused::Foreign)?;
        let (_, payload) = signed.split_once('.').ok_or(Refused::Foreign)?;
        let claims = Claims::decode(payload).ok_or(Refused::Foreign)?;
        if claims.iss != self.settings.issuer {
            return Err(Refused::Foreign);
        }
        let signer = keys.signer(token).ok_or(Refused::Forged)?;
        let claims = Arc::new(claims);
        let mut remembered = self.remembered.lock();
        if remembered.len() >= REMEMBERED {
            remembered.clear();
        }
        let verified = Verified { claims: Arc::clone(&claims), signer: signer.into() };
        remembered.insert(fingerprint, verified);
        Ok(claims)
    }

    fn find(&self, path: &str) -> Option<IdentityMetadata> {
        let object = self.store.get(&Key::new(path).ok()?)?;
        serde_json::from_slice::<Identity>(&object.value).ok().map(|identity| identity.metadata)
    }

    /// Whether all objects that a token names exist, with the same uids.
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
    // Every issued token has an expiration.
    if claims.exp.and_then(at).is_none_or(|end| now - LEEWAY > end) {
        return Err(Refused::Expired);
    }
    if claims.iat.and_then(at).is_some_and(|made| now + LEEWAY < made) {
        return Err(Refused::Future);
    }
    Ok(())
}

/// The user of a token.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_at_an_address_that_pods_reach() {
        for (address, base) in [
            ("https://192.0.2.7:6443", "https://192.0.2.7:6443"),
            ("https://[2001:db8::7]:6443", "https://[2001:db8::7]:6443"),
            ("https://plumb.example.org", "https://plumb.example.org"),
            ("https://127.0.0.1:6443", "https://kubernetes.default.svc.cluster.local"),
            ("https://[::1]:6443", "https://kubernetes.default.svc.cluster.local"),
            ("https://localhost:6443", "https://kubernetes.default.svc.cluster.local"),
        ] {
            assert_eq!(Settings::at(address).base_of_keys(), base, "{address}");
        }
    }
}
