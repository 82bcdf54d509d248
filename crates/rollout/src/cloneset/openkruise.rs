//! Detects whether OpenKruise runs in the cluster. If it does, this controller leaves all sets alone: two controllers
//! of one set would undo each other's work.
//!
//! OpenKruise is taken to run if one of these is found:
//!
//! - the definition `clonesets.apps.kruise.io` lacks the annotation `plumb.dev/crd-definition`, so Plumb did not install it;
//! - that definition converts objects with a webhook, which only OpenKruise's does;
//! - the webhook configuration `kruise-mutating-webhook-configuration` exists, which OpenKruise's manager creates when it
//!   starts.
//!
//! Both objects are watched: the controller stops when OpenKruise is installed, and starts when it is removed.

use std::fmt;

use futures_util::future::{BoxFuture, FutureExt as _};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::PartialObjectMeta;
use kube::{Client, ResourceExt as _};
use plumb_client::Api;
use plumb_controller_runtime::crds::DEFINITION_ANNOTATION;
use plumb_controller_runtime::{Informer, ObjectRef, WatchConfig};
use plumb_supervise::Supervisor;
use tokio::task::JoinSet;

use crate::install::CLONESETS;

/// The webhook configuration of OpenKruise.
pub const WEBHOOKS: &str = "kruise-mutating-webhook-configuration";

/// By what OpenKruise is recognized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// Plumb did not install the definition.
    Definition,
    /// The definition converts objects with a webhook.
    Conversion,
    /// Its webhook configuration exists.
    Webhooks,
}

impl fmt::Display for Sign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Definition => write!(f, "CustomResourceDefinition {CLONESETS} was not installed by Plumb"),
            Self::Conversion => write!(f, "CustomResourceDefinition {CLONESETS} converts with a webhook"),
            Self::Webhooks => write!(f, "MutatingWebhookConfiguration {WEBHOOKS} exists"),
        }
    }
}

/// By what OpenKruise is recognized, if it is.
pub fn sign(definition: Option<&CustomResourceDefinition>, webhooks: bool) -> Option<Sign> {
    if webhooks {
        return Some(Sign::Webhooks);
    }
    let definition = definition?;
    if !definition.annotations().contains_key(DEFINITION_ANNOTATION) {
        return Some(Sign::Definition);
    }
    let conversion = definition.spec.conversion.as_ref();
    conversion.is_some_and(|conversion| conversion.strategy == "Webhook").then_some(Sign::Conversion)
}

type Webhooks = PartialObjectMeta<MutatingWebhookConfiguration>;

/// Watches for OpenKruise. Clones share the watches.
#[derive(Clone)]
pub struct OpenKruise {
    definitions: Informer<CustomResourceDefinition>,
    webhooks: Informer<Webhooks>,
}

impl Default for OpenKruise {
    fn default() -> Self {
        let named = |name: &str| WatchConfig::default().fields(format!("metadata.name={name}"));
        Self { definitions: Informer::new(named(CLONESETS)), webhooks: Informer::new(named(WEBHOOKS)) }
    }
}

impl OpenKruise {
    /// The object by which it is detected now, if it is.
    pub fn sign(&self) -> Option<Sign> {
        let definition = self.definitions.get(&ObjectRef::cluster(CLONESETS));
        sign(definition.as_deref(), self.webhooks.get(&ObjectRef::cluster(WEBHOOKS)).is_some())
    }

    /// The definition of `CloneSet`.
    pub fn definitions(&self) -> &Informer<CustomResourceDefinition> {
        &self.definitions
    }

    /// The webhook configuration.
    pub fn webhooks(&self) -> &Informer<Webhooks> {
        &self.webhooks
    }

    /// Watches until it is dropped.
    pub fn run(&self, client: &Client, supervisor: &Supervisor) -> BoxFuture<'static, ()> {
        let mut running = JoinSet::new();
        running.spawn(self.definitions.supervised(Api::all(client.clone()), supervisor));
        running.spawn(self.webhooks.supervised(Api::all(client.clone()), supervisor));
        async move { while running.join_next().await.is_some() {} }.boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::cloneset;

    #[test]
    fn openkruise_is_recognized_by_its_definition_and_webhooks() {
        let mut ours = cloneset::crd();
        ours.annotations_mut().insert(DEFINITION_ANNOTATION.to_owned(), "x".to_owned());
        let foreign = cloneset::crd();
        let mut converted = ours.clone();
        converted.spec.conversion.get_or_insert_default().strategy = "Webhook".to_owned();
        assert_eq!(sign(None, false), None);
        assert_eq!(sign(Some(&ours), false), None);
        assert_eq!(sign(Some(&ours), true), Some(Sign::Webhooks));
        assert_eq!(sign(Some(&foreign), false), Some(Sign::Definition));
        assert_eq!(sign(Some(&converted), false), Some(Sign::Conversion));
    }
}
