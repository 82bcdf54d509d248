//! Bound service account tokens of a pod.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::Client;
use kube::api::PostParams;
use plumb_client::Api;
use tokio::time::Instant;

use super::error::VolumeError;
use super::projection::account;
use crate::cri_config::identity;

/// The longest time until a token is renewed.
const LONGEST: Duration = Duration::from_hours(24);
/// The interval of retries after a failed request.
const RETRY: Duration = Duration::from_secs(10);
/// Spreads the renewals of pods that were created together.
const SPREAD_MILLIS: u32 = 10_000;

/// The token of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct TokenSource {
    /// Its path in the volume.
    pub(super) path: String,
    /// Its audience; `None` is the API server.
    pub(super) audience: Option<String>,
    /// Its requested lifetime, in seconds.
    pub(super) seconds: Option<i64>,
}

/// The tokens of one pod.
pub(super) struct Tokens {
    client: Client,
    held: HashMap<TokenSource, Token>,
}

struct Token {
    text: String,
    renew: Instant,
    ends: Instant,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").field("held", &self.held.len()).finish_non_exhaustive()
    }
}

impl Tokens {
    pub(super) fn new(client: Client) -> Self {
        Self { client, held: HashMap::new() }
    }

    /// When the first token has to be renewed.
    pub(super) fn due(&self) -> Option<Instant> {
        self.held.values().map(|token| token.renew).min()
    }

    /// A token: the cached one until it is time to renew it. If the API server issues no other, the cached one is used
    /// until it expires.
    pub(super) async fn get(&mut self, pod: &Pod, wanted: &TokenSource) -> Result<String, VolumeError> {
        let now = Instant::now();
        if let Some(held) = self.held.get(wanted).filter(|held| now < held.renew) {
            return Ok(held.text.clone());
        }
        match self.request(pod, wanted).await {
            Ok(token) => {
                let text = token.text.clone();
                self.held.insert(wanted.clone(), token);
                Ok(text)
            }
            Err(error) => match self.held.get_mut(wanted) {
                Some(held) if Instant::now() < held.ends => {
                    held.renew = Instant::now() + RETRY;
                    tracing::warn!(%error, pod = identity(pod).1, "a token could not be renewed yet");
                    Ok(held.text.clone())
                }
                Some(_) => Err(VolumeError::ExpiredToken(error)),
                None => Err(VolumeError::Token(error)),
            },
        }
    }

    async fn request(&self, pod: &Pod, wanted: &TokenSource) -> Result<Token, kube::Error> {
        let uid = identity(pod).2;
        let asked = Instant::now();
        let answer = request(&self.client, pod, wanted.audience.as_deref(), wanted.seconds).await?;
        // Measured from the request on, so that the clocks of both sides need not agree.
        let seconds = answer.spec.and_then(|spec| spec.expiration_seconds).or(wanted.seconds).unwrap_or(3600);
        let life = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
        let text = answer.status.and_then(|status| status.token).unwrap_or_default();
        Ok(Token { text, renew: asked + renew_after(life, uid), ends: asked + life })
    }
}

/// Requests a token of the service account of a pod, which is bound to the pod.
pub(super) async fn request(
    client: &Client,
    pod: &Pod,
    audience: Option<&str>,
    seconds: Option<i64>,
) -> Result<TokenRequest, kube::Error> {
    let (_, name, uid) = identity(pod);
    let (namespace, account) = account(pod);
    let request = TokenRequest {
        spec: Some(TokenRequestSpec {
            audiences: Some(
                audience.filter(|audience| !audience.is_empty()).into_iter().map(str::to_owned).collect(),
            ),
            expiration_seconds: seconds,
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: Some(name.to_owned()),
                uid: Some(uid.to_owned()),
            }),
        }),
        ..TokenRequest::default()
    };
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), namespace);
    accounts.create_token_request(account, &PostParams::default(), &request).await
}

/// How long a token is used before it is renewed: a little less than four fifths of its lifetime.
fn renew_after(life: Duration, uid: &str) -> Duration {
    let spread = Duration::from_millis(u64::from(crc32c::crc32c(uid.as_bytes()) % SPREAD_MILLIS));
    (life * 4 / 5).min(LONGEST).saturating_sub(spread.min(life / 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_renewed_well_before_they_end() {
        for (seconds, least, most) in [(600, 450, 480), (3607, 2870, 2886), (1_000_000, 86_000, 86_400)] {
            let kept = renew_after(Duration::from_secs(seconds), "some-uid").as_secs();
            assert!((least..=most).contains(&kept), "{seconds}: {kept}");
        }
        assert_eq!(renew_after(Duration::ZERO, "u"), Duration::ZERO);
    }
}
