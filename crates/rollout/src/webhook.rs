//! The webhook that holds a workload in the write that changes the resources of its template.
//!
//! ```text
//!   a user's UPDATE ─▶ API server ─▶ webhook: admit (pure) ─▶ JSON patch: the hold, and the record of the rollout
//! ```
//!
//! A CloneSet is not held: its controller resizes its pods. The webhook refuses one with a template whose pods the API server finds
//! invalid, which a schema cannot tell.
//!
//! It is registered with the failure policy `Ignore`: while it does not answer, writes are stored as they are and pods
//! are recreated, as without it.

use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt as _, join};
use k8s_openapi::api::admissionregistration::v1::{MatchCondition, MutatingWebhookConfiguration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::Client;
use kube::api::{Patch, PatchParams};
use plumb_client::Api;
use plumb_controller_runtime::metrics::Metrics;
use plumb_controller_runtime::{Clock, Informer};
use plumb_resize::rules::Rules;
use plumb_supervise::Supervisor;
use plumb_webhook::patch::diff;
use plumb_webhook::registration::rule;
use plumb_webhook::review::{Refusal, Request, Response, Review, uid_of};
use plumb_webhook::{Endpoint, Registration, Reviewer, WebhookServer};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::watch;

use crate::api::RolloutPolicy;
use crate::api::cloneset::GROUP as KRUISE;
use crate::cloneset::invalid_fields;
use crate::engine::{Selected, select};
use crate::workloads::{AdmissionContext, RECORD_ANNOTATION, WorkloadKind, admit};

/// The name of the configuration.
pub const NAME: &str = "plumb-rollout-webhook";
/// The name of the webhook in it.
pub const WEBHOOK: &str = "hold.rollout.plumb.dev";
/// The manager of the fields that are applied.
pub const FIELD_MANAGER: &str = "plumb-rollout-webhook";
/// The Secret with the certificate authority.
pub const SECRET: &str = "plumb-rollout-webhook-ca";

/// The resource of CloneSets.
const CLONESETS: &str = "clonesets";

const TASK: &str = "rollout-webhook";

/// How the webhook is registered.
///
/// The API server calls it only for a write that changes the template, or whose object has a rollout.
pub fn registration(endpoint: Endpoint) -> Registration {
    let of = |group: &str, version: &str| {
        let kinds = WorkloadKind::ALL.into_iter().filter(|kind| kind.group() == group);
        rule(group, version, &kinds.map(WorkloadKind::plural).collect::<Vec<_>>(), &["UPDATE"])
    };
    let expression = format!(
        "request.operation == 'CREATE' || object.spec.template != oldObject.spec.template || \
         (has(oldObject.metadata.annotations) && '{RECORD_ANNOTATION}' in oldObject.metadata.annotations)"
    );
    Registration {
        name: NAME,
        webhook: WEBHOOK,
        field_manager: FIELD_MANAGER,
        // The fields of a hold are the same in all versions of OpenKruise.
        rules: vec![
            of("apps", "v1"),
            of(KRUISE, "*"),
            rule(KRUISE, "*", &[CLONESETS], &["CREATE", "UPDATE"]),
        ],
        match_conditions: vec![MatchCondition { name: "template-or-rollout".to_owned(), expression }],
        side_effects: "None",
        endpoint,
        fail: false,
        timeout_seconds: 5,
        labels: std::collections::BTreeMap::new(),
        namespace_selector: LabelSelector::default(),
    }
}

/// Removes the webhook from its configuration: without the feature gate no workload is held. The configuration itself stays: in
/// an installation the webhook may not create it again.
pub async fn unregister(client: &Client) -> kube::Result<()> {
    let api: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let patch = Patch::Merge(serde_json::json!({ "webhooks": [] }));
    match api.patch(NAME, &PatchParams::default(), &patch).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        patched => patched.map(drop),
    }
}

/// Configuration of the webhook.
#[derive(Clone)]
pub struct Config {
    /// Reads policies, and registers the webhook.
    pub client: Client,
    /// Where it listens, with which certificates, and how it is registered.
    pub server: plumb_webhook::Options,
    /// The rules of the API server.
    pub rules: Rules,
    /// The clock.
    pub clock: Clock,
    /// Restarts tasks, and counts panics.
    pub supervisor: Supervisor,
    /// Metrics of informers.
    pub metrics: Metrics,
}

/// A webhook that can be run.
pub struct HoldWebhook {
    reviewer: Arc<Holder>,
    server: Arc<WebhookServer>,
    client: Client,
}

impl HoldWebhook {
    /// A webhook that does not run yet.
    pub fn new(config: Config) -> Self {
        let Config { client, server, rules, clock, supervisor, metrics } = config;
        let server = WebhookServer::new(server, client.clone(), clock.clone());
        let policies = Informer::default().with_metrics(&metrics);
        let reviewer = Holder { client: client.clone(), policies, rules, clock, supervisor };
        Self { reviewer: Arc::new(reviewer), server, client }
    }

    /// Where the server listens, once it does.
    pub fn listening(&self) -> watch::Receiver<Option<SocketAddr>> {
        self.server.listening()
    }

    /// Whether the API server has the configuration.
    pub fn registered(&self) -> watch::Receiver<bool> {
        self.server.registered()
    }

    /// Runs it for good. Failures are retried.
    pub fn run(self) -> BoxFuture<'static, ()> {
        let Self { reviewer, server, client } = self;
        let supervisor = reviewer.supervisor.clone();
        let informing = reviewer.policies.supervised(Api::<RolloutPolicy>::all(client), &supervisor);
        let serving = supervisor.keep(TASK, move || {
            let (reviewer, server) = (reviewer.clone(), server.clone());
            async move {
                reviewer.policies.wait_for_sync().await;
                server.serve(reviewer).await;
            }
        });
        join(informing, serving).map(drop).boxed()
    }
}

/// Responds to an admission review. Only a CloneSet with an invalid template is refused.
struct Holder {
    client: Client,
    policies: Informer<RolloutPolicy>,
    rules: Rules,
    clock: Clock,
    supervisor: Supervisor,
}

impl Reviewer for Holder {
    fn review<'a>(&'a self, body: &'a [u8]) -> BoxFuture<'a, Option<Vec<u8>>> {
        async move {
            let uid = uid_of(body)?;
            let answering = self.supervisor.guard("rollout-webhook/review", self.answer(body));
            // A panic is logged and counted.
            Some(answering.await.unwrap_or_default().to_body(&uid))
        }
        .boxed()
    }
}

impl Holder {
    async fn answer(&self, body: &[u8]) -> Response {
        match serde_json::from_slice::<Review<'_>>(body) {
            Ok(Review { request }) if is_cloneset(&request) => {
                Response { refused: self.refusal(&request).await, ..Response::default() }
            }
            Ok(review) => self.hold(&review.request).unwrap_or_default(),
            Err(error) => {
                tracing::warn!(%error, "an admission review cannot be read; the object is admitted as it is");
                Response::default()
            }
        }
    }

    /// Why a CloneSet is refused; none if it is admitted, or if its template is the one that is stored.
    async fn refusal(&self, request: &Request<'_>) -> Option<Refusal> {
        let new = read(request.object)?;
        if read(request.old_object).is_some_and(|old| old["spec"]["template"] == new["spec"]["template"]) {
            return None;
        }
        let errors = invalid_fields(&self.client, &request.namespace, new, self.clock.now()).await;
        (!errors.is_empty()).then(|| Refusal {
            kind: "CloneSet".to_owned(),
            group: KRUISE.to_owned(),
            name: request.name.clone(),
            errors,
        })
    }

    fn hold(&self, request: &Request<'_>) -> Option<Response> {
        let is_update = request.operation == "UPDATE" && is_whole(request);
        let kind = WorkloadKind::of_resource(&request.resource.group, &request.resource.resource)
            .filter(|_| is_update)?;
        let (old, new) = (read(request.old_object)?, read(request.object)?);
        let metadata: ObjectMeta = serde_json::from_value(new["metadata"].clone()).ok()?;
        let workload = Selected { group: kind.group(), kind: kind.name(), metadata: &metadata };
        let selection = select(&self.policies.in_namespace(&request.namespace), &workload);
        let context = AdmissionContext {
            enabled: true,
            policy: selection.bound.as_ref().map(|policy| &policy.spec),
            rules: &self.rules,
            now: self.clock.now(),
        };
        let admitted = admit(kind, &old, &new, &context);
        let operations = admitted.object.map(|object| diff(&new, &object)).unwrap_or_default();
        Some(Response { refused: None, operations, warnings: admitted.warnings })
    }
}

/// Whether a review is about the object itself, and not a subresource.
fn is_whole(request: &Request<'_>) -> bool {
    request.sub_resource.as_deref().unwrap_or_default().is_empty()
}

fn is_cloneset(request: &Request<'_>) -> bool {
    request.resource.group == KRUISE && request.resource.resource == CLONESETS && is_whole(request)
}

fn read(object: Option<&RawValue>) -> Option<Value> {
    serde_json::from_str(object?.get()).ok()
}
