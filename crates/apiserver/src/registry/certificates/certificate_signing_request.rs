//! `CertificateSigningRequests`: the server records who requests, the spec never changes, and to approve and to sign are
//! two permissions.

use serde_json::Value;

use crate::certificates;
use crate::error::ApiError;
use crate::registry::{Context, Strategy};

/// The strategy of `CertificateSigningRequests`.
#[derive(Debug)]
pub(in crate::registry) struct CertificateSigningRequestStrategy;

impl Strategy for CertificateSigningRequestStrategy {
    /// The spec never changes, and the status has subresources of its own.
    fn prepare_for_update(&self, _cx: Context<'_>, old: &Value, new: &mut Value) -> Result<(), ApiError> {
        new["spec"] = old["spec"].clone();
        Ok(())
    }

    fn prepare_for_status_update(
        &self,
        cx: Context<'_>,
        old: &Value,
        new: &mut Value,
    ) -> Result<(), ApiError> {
        certificates::prepare_conditions(old, new, false, cx.server.now());
        Ok(())
    }
}
