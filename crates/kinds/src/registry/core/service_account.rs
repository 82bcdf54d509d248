//! `ServiceAccounts`.

use serde_json::Value;

use crate::registry::{Context, MetadataChecks, Strategy, SubresourceHandler};
use plumb_apiserver::error::ApiError;

/// The strategy of `ServiceAccounts`.
#[derive(Debug)]
pub(in crate::registry) struct ServiceAccountStrategy;

impl Strategy for ServiceAccountStrategy {
    fn metadata_checks(&self) -> MetadataChecks {
        MetadataChecks::UpdateAndCreate
    }

    fn subresource_handler(&self, name: &str) -> Option<SubresourceHandler> {
        (name == "token").then_some(SubresourceHandler::Token)
    }

    fn prepare_for_create(&self, _cx: Context<'_>, new: &mut Value) -> Result<Vec<String>, ApiError> {
        drop_all_but_names(new);
        Ok(Vec::new())
    }

    fn prepare_for_update(&self, _cx: Context<'_>, _old: &Value, new: &mut Value) -> Result<(), ApiError> {
        drop_all_but_names(new);
        Ok(())
    }

    fn returns_deleted_object(&self) -> bool {
        true
    }
}

/// Drops all but the names from the secret references of a service account, whose secrets are in its namespace.
fn drop_all_but_names(account: &mut Value) {
    for secret in account.get_mut("secrets").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(secret) = secret.as_object_mut() {
            secret.retain(|field, _| field == "name");
        }
    }
}
