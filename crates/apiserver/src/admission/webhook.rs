//! The plugins `MutatingAdmissionWebhook` and `ValidatingAdmissionWebhook`.
//!
//! ```text
//!   configurations in the store ──▶ compiled once per change ──▶ hooks, in the order of their names
//!                                                                   │ operation, rules, scope, selectors, conditions
//!   write ──────────────────────────────────────────────────────────┤
//!                                                                   ▼
//!                              mutating: one after the other, each receives the result of the previous one;
//!                                        reinvoked if the object changed afterwards
//!                              validating: concurrently; the response has the first denial in order
//! ```
//!
//! Compiled configurations are never stale: every write compares their number and the revision of the last change with
//! those in the store, which costs two look-ups where there are none.

mod annotations;
mod configuration;
mod matching;
mod review;

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use futures_util::future::join_all;
use parking_lot::RwLock;
use plumb_apischema::patch;
use plumb_store::Prefix;
use serde_json::Value;

use super::effort::Pace;
use super::matching::{Invocation, Versions};
use super::{Attributes, Operation, Plugins, patched};
use crate::error::{ApiError, Cause};
use crate::webhook::Connections;
use annotations::Annotations;
use configuration::{Hook, Stamp};
use review::Verdict;

/// All webhooks, compiled.
pub(super) struct Webhooks {
    mutating: Option<Compiled>,
    validating: Option<Compiled>,
    connections: Arc<Connections>,
}

/// The compiled webhooks of one kind of configuration.
struct Compiled {
    plural: &'static str,
    /// The prefix of the configurations in the store.
    prefix: OnceLock<Prefix>,
    current: RwLock<(Stamp, Arc<[Hook]>)>,
}

/// Why a webhook rejects a write, or could not be called.
enum Failure {
    /// The webhook denied the write, or cannot receive it.
    Refused(ApiError),
    /// The call failed, or its response is invalid.
    Unreachable(String),
}

impl Webhooks {
    pub(super) fn new(on: &Plugins) -> Self {
        let compiled = |name: &str, plural| on.is_on(name).then(|| Compiled::new(plural));
        Self {
            mutating: compiled("MutatingAdmissionWebhook", "mutatingwebhookconfigurations"),
            validating: compiled("ValidatingAdmissionWebhook", "validatingwebhookconfigurations"),
            connections: Arc::new(Connections::default()),
        }
    }

    /// The mutating webhooks that may match a write, if any.
    pub(super) fn round(&self, attributes: &Attributes<'_>) -> Result<Option<Round>, ApiError> {
        let hooks = self.hooks(self.mutating.as_ref(), attributes)?;
        Ok((!hooks.is_empty()).then(|| Round::new(hooks)))
    }

    /// The webhooks that may match a write; none for webhook configurations, so that a broken webhook can be repaired.
    fn hooks(&self, of: Option<&Compiled>, attributes: &Attributes<'_>) -> Result<Arc<[Hook]>, ApiError> {
        match of {
            Some(compiled) if attributes.row.group() != "admissionregistration.k8s.io" => {
                compiled.current(attributes, &self.connections)
            }
            _ => Ok(Arc::default()),
        }
    }

    /// Calls the matching mutating webhooks.
    pub(super) async fn mutate(
        &self,
        round: &mut Round,
        attributes: &Attributes<'_>,
        new: &mut Value,
    ) -> Result<(), ApiError> {
        let again = round.number > 0;
        if again && round.left.as_ref() != Some(&*new) {
            // Another plugin changed the object after the last webhook.
            round.call_again();
        }
        let hooks = round.hooks.clone();
        let (mut versions, mut pace) = (Versions::default(), Pace::default());
        for (index, hook) in hooks.iter().enumerate() {
            let invocation =
                matching::invocation(&hooks, index, attributes, new, &mut versions, &mut pace).await?;
            let Some(invocation) = invocation else { continue };
            if again && !round.again.contains(&index) {
                continue;
            }
            let annotations = Annotations { attributes, hook, round: round.number, index };
            let changed = match self.ask(hook, &invocation, attributes, new, true).await {
                Ok(Verdict { patch: Some(patch), .. }) => {
                    annotations.patch(&patch);
                    apply(hook, &invocation, attributes, new, patch).await?
                }
                Ok(_) => false,
                Err(failure) => {
                    annotations.mutation(false);
                    hook.forgive(failure, || annotations.failed_open("mutation"))?;
                    continue;
                }
            };
            annotations.mutation(changed);
            if changed {
                versions = Versions::default();
                round.call_again();
                round.needed = true;
            }
            if hook.reinvoked {
                round.called.push(index);
            }
        }
        // Of a round that called no webhook that may be called again, nothing is compared.
        round.left = (!round.called.is_empty()).then(|| new.clone());
        round.number += 1;
        Ok(())
    }

    /// Calls the matching validating webhooks concurrently.
    pub(super) async fn validate(&self, attributes: &Attributes<'_>, new: &Value) -> Result<(), ApiError> {
        let hooks = self.hooks(self.validating.as_ref(), attributes)?;
        let mut asked = Vec::new();
        let (mut versions, mut pace) = (Versions::default(), Pace::default());
        for (index, hook) in hooks.iter().enumerate() {
            let invocation =
                matching::invocation(&hooks, index, attributes, new, &mut versions, &mut pace).await?;
            if let Some(invocation) = invocation {
                let annotations = Annotations { attributes, hook, round: 0, index: asked.len() };
                asked.push(async move {
                    match self.ask(hook, &invocation, attributes, new, false).await {
                        Ok(_) => Ok(()),
                        Err(failure) => hook.forgive(failure, || annotations.failed_open("validating")),
                    }
                });
            }
        }
        if asked.is_empty() {
            return Ok(());
        }
        join_all(asked).await.into_iter().collect()
    }

    /// Calls a webhook.
    async fn ask(
        &self,
        hook: &Hook,
        invocation: &Invocation,
        attributes: &Attributes<'_>,
        new: &Value,
        mutating: bool,
    ) -> Result<Verdict, Failure> {
        if attributes.dry_run && !hook.dry_run {
            let why = format!("admission webhook {:?} does not support dry run", hook.name);
            return Err(Failure::Refused(ApiError::bad_request(why)));
        }
        if !hook.reviews_v1 {
            let why = "could not create admission objects: webhook does not accept known AdmissionReview \
                       versions (v1)";
            return Err(Failure::Unreachable(why.to_owned()));
        }
        // A webhook must not see a write that is not durable yet, and the old object may be one.
        let settled = attributes.cluster.store().sync().await;
        settled.map_err(|error| Failure::Refused(crate::error::store_failed(&error)))?;
        attributes.called_webhooks.store(true, Ordering::Relaxed);
        let uid = uuid::Uuid::new_v4().to_string();
        let body = review::request(&uid, invocation, attributes, new).to_string();
        let answer = self
            .connections
            .post(&hook.backend, attributes.cluster.store(), hook.timeout, body)
            .await
            .map_err(|why| Failure::Unreachable(format!("failed to call webhook: {why}")))?;
        let verdict = review::verdict(&uid, mutating, &answer)
            .map_err(|why| Failure::Unreachable(format!("received invalid webhook response: {why}")))?;
        for (key, value) in &verdict.annotations {
            annotations::add_of_webhook(attributes, hook, key, value);
        }
        attributes.warnings.extend(verdict.warnings.iter().map(String::as_str));
        if verdict.allowed {
            Ok(verdict)
        } else {
            Err(Failure::Refused(review::refusal(&hook.name, &verdict)))
        }
    }
}

/// The state of a call and a reinvocation of the mutating webhooks.
pub(super) struct Round {
    hooks: Arc<[Hook]>,
    number: usize,
    /// The webhooks with `reinvocationPolicy: IfNeeded` that were called since the last change.
    called: Vec<usize>,
    /// The webhooks to reinvoke.
    again: Vec<usize>,
    /// Whether a reinvocation is needed.
    needed: bool,
    /// The object after the last round.
    left: Option<Value>,
}

impl Round {
    fn new(hooks: Arc<[Hook]>) -> Self {
        Self { hooks, number: 0, called: Vec::new(), again: Vec::new(), needed: false, left: None }
    }

    /// Whether a reinvocation is needed. There are at most two rounds.
    pub(super) fn is_needed(&self) -> bool {
        self.needed && self.number == 1
    }

    fn call_again(&mut self) {
        self.again.append(&mut self.called);
    }
}

impl Compiled {
    fn new(plural: &'static str) -> Self {
        Self { plural, prefix: OnceLock::new(), current: RwLock::new((Stamp::default(), Arc::default())) }
    }

    /// The webhooks of the current configurations.
    fn current(
        &self,
        attributes: &Attributes<'_>,
        connections: &Connections,
    ) -> Result<Arc<[Hook]>, ApiError> {
        let cluster = attributes.cluster;
        let prefix = if let Some(prefix) = self.prefix.get() {
            prefix
        } else {
            let kinds = cluster.kinds();
            let row = kinds.find("admissionregistration.k8s.io", self.plural);
            let prefix = row.ok_or_else(ApiError::no_such_path)?.prefix(None)?;
            self.prefix.get_or_init(|| prefix)
        };
        let snapshot = cluster.store().snapshot();
        let stamp = Stamp::of(snapshot.iter(prefix));
        if self.current.read().0 == stamp {
            return Ok(self.current.read().1.clone());
        }
        let hooks: Arc<[Hook]> = configuration::compile(snapshot.iter(prefix), connections)?.into();
        *self.current.write() = (stamp, hooks.clone());
        Ok(hooks)
    }
}

impl Hook {
    /// Applies the failure policy of the webhook to a failure; calls `passed_over` if the write goes on.
    fn forgive(&self, failure: Failure, passed_over: impl FnOnce()) -> Result<(), ApiError> {
        match failure {
            Failure::Refused(error) => Err(error),
            Failure::Unreachable(why) if self.ignores_failure => {
                tracing::warn!(webhook = self.name, why, "an admission webhook failed, and is passed over");
                passed_over();
                Ok(())
            }
            Failure::Unreachable(why) => {
                let message = format!("failed calling webhook {:?}: {why}", self.name);
                tracing::warn!(webhook = self.name, why, "an admission webhook failed");
                Err(ApiError::internal(message.clone()).because(Cause { message, ..Cause::default() }))
            }
        }
    }
}

/// Applies the patch of a webhook to the object. Returns whether the object changed.
async fn apply(
    hook: &Hook,
    invocation: &Invocation,
    attributes: &Attributes<'_>,
    new: &mut Value,
    operations: Value,
) -> Result<bool, ApiError> {
    if operations.as_array().is_some_and(Vec::is_empty) {
        return Ok(false);
    }
    if attributes.operation == Operation::Delete {
        return Err(ApiError::internal(format!(
            "admission webhook {:?} attempted to modify the object, which is not supported for this operation",
            hook.name
        )));
    }
    let given = invocation.object(attributes, new).into_owned();
    let patched =
        patch::json::apply(given, operations).map_err(|error| ApiError::internal(error.to_string()))?;
    let patched = patched::accept(invocation, attributes, patched).await?;
    let changed = patched != *new;
    *new = patched;
    Ok(changed)
}
