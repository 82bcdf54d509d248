//! The issue of tokens.

use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use super::Accounts;
use super::claims::{Bound, Claims};
use crate::error::ApiError;

/// The lifetime that pods request by default. Such a token is valid for a year instead, with a warning after this time:
/// older clients do not read their token again.
const PROJECTED: i64 = 60 * 60 + 7;
const EXTENDED: i64 = 365 * 24 * 60 * 60;

impl Accounts {
    /// The longest lifetime of a token, if there is a limit.
    pub(crate) fn longest(&self) -> Option<SignedDuration> {
        self.settings.longest
    }

    /// A token that is bound to objects, for audiences and a lifetime in seconds.
    pub(crate) fn issue(
        &self,
        mut bound: Bound,
        audiences: Vec<String>,
        seconds: i64,
        now: Timestamp,
    ) -> Result<String, ApiError> {
        let now = now.as_second();
        let for_api_server = audiences.iter().all(|audience| self.audiences().contains(audience));
        let mut end = now.saturating_add(seconds);
        if bound.pod.is_some() && seconds == PROJECTED && for_api_server {
            bound.warnafter = Some(end);
            end = now.saturating_add(EXTENDED);
        }
        let claims = Claims {
            aud: audiences,
            exp: Some(end),
            iat: Some(now),
            iss: self.settings.issuer.clone(),
            jti: Uuid::new_v4().to_string(),
            sub: format!("system:serviceaccount:{}:{}", bound.namespace, bound.serviceaccount.name),
            kubernetes: bound,
            nbf: Some(now),
        };
        let claims = serde_json::to_value(claims).map_err(|error| ApiError::internal(error.to_string()))?;
        self.keys
            .load()
            .sign(&claims)
            .ok_or_else(|| ApiError::internal("failed to generate token: no random numbers"))
    }
}
