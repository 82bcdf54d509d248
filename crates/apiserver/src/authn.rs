//! Authentication: which user sends a request.
//!
//! The first of these decides: the identity of a component in this process ([`InProcess`]), a client certificate that the
//! TLS handshake verified, a bearer token. A request without credentials is of [`User::anonymous`], who may only request
//! the paths of [`may_be_anonymous`]; for any other path it is [`Unauthorized`].

mod bootstrap;
mod certificate;
mod csv;
mod peer;
mod token;
mod tokens;

pub use crate::user::{ALL_AUTHENTICATED, ALL_UNAUTHENTICATED, ANONYMOUS, User};
pub use certificate::CertificateIdentity;
pub use peer::Peer;
pub use token::Token;
pub use tokens::{TokenError, Tokens};

use std::sync::Arc;

use bootstrap::Bootstrap;
use http::{header::AUTHORIZATION, request::Parts};
use plumb_store::Store;

use crate::{
    accounts::{Accounts, Refused},
    pki::Clock,
};

/// The identity of a component in this process, an extension of its request. A request over the network cannot have
/// one: extensions are not transmitted.
#[derive(Clone, Debug)]
pub struct InProcess(pub Arc<User>);

/// The response is 401: the request has no credentials, or invalid ones.
///
/// The log has the reason; the response does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unauthorized {
    /// There are no credentials, and anonymous users may not request the path.
    #[error("no credentials")]
    Anonymous,
    /// The bearer token is unknown or invalid.
    #[error("unknown bearer token")]
    UnknownToken,
    /// The client certificate was valid when the connection was opened, and has expired.
    #[error("the client certificate has expired")]
    Expired,
}

/// Authenticates requests.
#[derive(Debug)]
pub struct Authenticator {
    tokens: Tokens,
    accounts: Option<Accounts>,
    bootstrap: Option<Bootstrap>,
    clock: Arc<dyn Clock>,
    anonymous: Arc<User>,
}

/// Why a bearer token does not authenticate. No message contains a token.
#[derive(Debug, thiserror::Error)]
pub enum InvalidToken {
    /// It is of no type that the server knows.
    #[error("invalid bearer token")]
    Unknown,
    /// It is the token of a service account, and invalid.
    #[error("[invalid bearer token, {0}]")]
    Refused(Refused),
}

/// What a valid bearer token authenticates.
pub struct Bearer {
    /// The user.
    pub user: Arc<User>,
    /// Those of the requested audiences that the token is valid for.
    pub audiences: Vec<String>,
}

impl Authenticator {
    /// Authenticates by static tokens and by certificates, which expire by `clock`.
    pub fn new(tokens: Tokens, clock: Arc<dyn Clock>) -> Self {
        Self { tokens, accounts: None, bootstrap: None, clock, anonymous: Arc::new(User::anonymous()) }
    }

    /// The same, with the tokens of service accounts.
    #[must_use]
    pub fn with_accounts(self, accounts: Accounts) -> Self {
        Self { accounts: Some(accounts), ..self }
    }

    /// The same, with bootstrap tokens, which are Secrets in the store.
    #[must_use]
    pub fn with_bootstrap_tokens(self, store: Store) -> Self {
        Self { bootstrap: Some(Bootstrap(store)), ..self }
    }

    /// The issuer of service account tokens, if there is one.
    pub fn accounts(&self) -> Option<&Accounts> {
        self.accounts.as_ref()
    }

    /// Authenticates a token for one of these audiences, or for the API server if there are none.
    pub fn bearer(&self, token: &[u8], audiences: &[String]) -> Result<Bearer, InvalidToken> {
        // These have no audience of their own: they are valid for any.
        if let Some(user) = self.tokens.bearer(token) {
            return Ok(Bearer { user, audiences: audiences.to_vec() });
        }
        let bootstrap = self.bootstrap.as_ref();
        if let Some(user) = bootstrap.and_then(|bootstrap| bootstrap.bearer(token, self.clock.now())) {
            return Ok(Bearer { user: Arc::new(user), audiences: audiences.to_vec() });
        }
        let accounts = self.accounts.as_ref().ok_or(InvalidToken::Unknown)?;
        let audiences = if audiences.is_empty() { accounts.audiences() } else { audiences };
        let token = std::str::from_utf8(token).map_err(|_| InvalidToken::Unknown)?;
        match accounts.check(token, audiences) {
            Ok((user, audiences)) => Ok(Bearer { user: Arc::new(user), audiences }),
            Err(Refused::Foreign) => Err(InvalidToken::Unknown),
            Err(refused) => Err(InvalidToken::Refused(refused)),
        }
    }

    /// Authenticates a request, and removes the credentials from it, so that no later code can leak them.
    pub fn authenticate(&self, request: &mut Parts) -> Result<Arc<User>, Unauthorized> {
        let authorization = request.headers.remove(AUTHORIZATION);
        if let Some(InProcess(user)) = request.extensions.get() {
            return Ok(Arc::clone(user));
        }
        let peer = request.extensions.get::<Peer>();
        let certificate = peer.and_then(Peer::certificate);
        // Checked for every request: a connection may outlive the certificate that it was opened with.
        let expired = certificate.is_some_and(|certificate| certificate.expires() < self.clock.now());
        if let Some(certificate) = certificate
            && !expired
        {
            return Ok(Arc::clone(certificate.user()));
        }
        match authorization.as_ref().and_then(|value| bearer(value.as_bytes())) {
            Some(token) => match self.bearer(token, &[]) {
                Ok(bearer) => {
                    if let Some(peer) = peer {
                        peer.set_authenticated(&bearer.user);
                    }
                    Ok(bearer.user)
                }
                Err(error) => {
                    tracing::debug!(%error, "refused a bearer token");
                    Err(Unauthorized::UnknownToken)
                }
            },
            None if expired => Err(Unauthorized::Expired),
            None if may_be_anonymous(request.uri.path()) => Ok(Arc::clone(&self.anonymous)),
            None => Err(Unauthorized::Anonymous),
        }
    }
}

/// Whether anonymous users may request a path: the health and the version of the server, and the certificate authority
/// for machines that join. These are the paths of the role `system:public-info-viewer`, and the one object of the role
/// `plumb:cluster-info`.
pub fn may_be_anonymous(path: &str) -> bool {
    matches!(path, "/healthz" | "/livez" | "/readyz" | "/version" | "/version/" | CLUSTER_INFO)
}

/// The ConfigMap with the certificate authority for machines that join, as kubeadm has it.
const CLUSTER_INFO: &str = "/api/v1/namespaces/kube-public/configmaps/cluster-info";

/// The token in the value of an `Authorization` header, if it is a bearer token.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let mut words = value.trim_ascii().splitn(3, |byte| *byte == b' ');
    let scheme = words.next()?;
    let token = words.next()?;
    (scheme.eq_ignore_ascii_case(b"bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bearer_token_is_the_word_after_the_scheme() {
        let cases: [(&str, Option<&str>); 9] = [
            ("Bearer abc", Some("abc")),
            ("bearer abc", Some("abc")),
            ("BEARER abc def", Some("abc")),
            ("  Bearer abc ", Some("abc")),
            ("Bearer", None),
            ("Bearer ", None),
            ("Bearer  abc", None),
            ("Basic abc", None),
            ("", None),
        ];
        for (value, token) in cases {
            assert_eq!(bearer(value.as_bytes()), token.map(str::as_bytes), "{value:?}");
        }
    }

    #[test]
    fn anonymous_users_may_read_only_health_version_and_cluster_info() {
        for path in [CLUSTER_INFO, "/livez", "/readyz", "/healthz", "/version", "/version/"] {
            assert!(may_be_anonymous(path), "{path}");
        }
        for path in
            ["", "/", "/livez/../api", "/livezz", "/healthz/etcd", "/api", "/apis", "/metrics", "/openapi/v3"]
        {
            assert!(!may_be_anonymous(path), "{path}");
        }
    }
}
