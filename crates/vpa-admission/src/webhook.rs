//! Responses to admission reviews. A pod is always admitted.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::{Resource as _, ResourceExt as _};
use parking_lot::Mutex;
use plumb_client::Codec as _;
use plumb_controller_runtime::Clock;
use plumb_controller_runtime::events::{EventRecorder, NewEvent};
use plumb_resize::Quantity;
use plumb_supervise::Supervisor;
use plumb_vpa::vpas::{Controlling, Vpas, overlap};
use plumb_vpa_api::{GROUP, VerticalPodAutoscaler};
use plumb_webhook::review::{Refusal, Request, Response, Review, uid_of};
use plumb_webhook::{Reviewer, Transfer};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::limits::NamespaceLimits;
use crate::metrics::{AdmissionMetrics, Object, Status, Step};
use crate::pod::{PodContext, PodPatch};
use crate::vpa::{Gates, Verdict};

/// How long an answer may take. The API server waits for longer.
const TIMEOUT: Duration = Duration::from_secs(3);

/// The interval in which the same message about a VPA is not repeated.
const REPEAT_AFTER: Duration = Duration::from_mins(10);
/// The number of VPAs whose last messages are remembered.
const REMEMBERED: usize = 4096;

/// The state of the webhook.
pub struct Webhook {
    /// VPAs, and their targets.
    pub vpas: Vpas,
    /// The limits of namespaces.
    pub limits: NamespaceLimits,
    /// `--max-allowed-cpu-boost`.
    pub max_allowed_cpu_boost: Option<Quantity>,
    /// The feature gates.
    pub gates: Gates,
    /// Whether the API server serves `pods/resize`, once that is known.
    pub serves_resize: watch::Receiver<Option<bool>>,
    /// Emits events.
    pub recorder: Option<EventRecorder>,
    /// Measures.
    pub metrics: AdmissionMetrics,
    /// Counts panics.
    pub supervisor: Supervisor,
    /// For the times of answers.
    pub clock: Clock,
    /// The last messages about VPAs.
    pub recent_messages: RecentMessages,
}

/// When a message about an object was last emitted.
#[derive(Debug, Default)]
pub struct RecentMessages(Mutex<HashMap<String, Instant>>);

impl RecentMessages {
    /// Whether to emit a message, because it was not emitted for a while.
    fn is_new(&self, what: String, now: Instant) -> bool {
        let mut recent_messages = self.0.lock();
        if recent_messages.len() >= REMEMBERED {
            recent_messages.retain(|_, at| now.saturating_duration_since(*at) < REPEAT_AFTER);
            if recent_messages.len() >= REMEMBERED {
                recent_messages.clear();
            }
        }
        let is_new =
            recent_messages.get(&what).is_none_or(|at| now.saturating_duration_since(*at) >= REPEAT_AFTER);
        if is_new {
            recent_messages.insert(what, now);
        }
        is_new
    }
}

impl Reviewer for Webhook {
    fn review<'a>(&'a self, body: &'a [u8]) -> BoxFuture<'a, Option<Vec<u8>>> {
        self.reviewed(body).boxed()
    }

    fn transferred(&self, transfer: Transfer) {
        self.metrics.step(Step::ReadRequest, transfer.read);
        self.metrics.step(Step::WriteResponse, transfer.write);
        self.metrics.step(Step::Total, transfer.total);
    }
}

impl Webhook {
    async fn reviewed(&self, body: &[u8]) -> Option<Vec<u8>> {
        let started = self.clock.monotonic();
        let uid = uid_of(body)?;
        let answering = self.supervisor.guard("vpa-admission/review", timeout(TIMEOUT, self.answer(body)));
        let (response, status, object) = match answering.await {
            Ok(Ok(answered)) => answered,
            Ok(Err(_)) => {
                tracing::warn!("an admission review took too long; the object is admitted as it is");
                (Response::default(), Status::Error, Object::Unknown)
            }
            // It is logged and counted.
            Err(_panic) => (Response::default(), Status::Error, Object::Unknown),
        };
        let decided = self.clock.monotonic();
        let took = decided.saturating_duration_since(started);
        self.metrics.answered(status, object, took);
        self.metrics.step(Step::Admit, took);
        let body = response.to_body(&uid);
        self.metrics.step(Step::BuildResponse, self.clock.monotonic().saturating_duration_since(decided));
        Some(body)
    }

    async fn answer(&self, body: &[u8]) -> (Response, Status, Object) {
        let request = match serde_json::from_slice::<Review<'_>>(body) {
            Ok(review) => review.request,
            Err(error) => {
                tracing::warn!(%error, "an admission review cannot be read; the object is admitted as it is");
                return (Response::default(), Status::Error, Object::Unknown);
            }
        };
        let is_object = request.sub_resource.as_deref().unwrap_or_default().is_empty();
        match (request.resource.group.as_str(), request.resource.resource.as_str()) {
            ("", "pods") if is_object => self.admit_pod(&request).await,
            (GROUP, "verticalpodautoscalers") if is_object => self.admit_vpa(&request),
            _ => (Response::default(), Status::Error, Object::Unknown),
        }
    }

    async fn admit_pod(&self, request: &Request<'_>) -> (Response, Status, Object) {
        let unchanged = |status| (Response::default(), status, Object::Pod);
        let Some(object) = request.object.filter(|_| request.operation == "CREATE") else {
            return unchanged(Status::Skipped);
        };
        let mut pod = match Pod::decode(object.get()) {
            Ok(pod) => pod,
            Err(error) => {
                tracing::warn!(%error, "a pod cannot be read, and is admitted as it is");
                return unchanged(Status::Error);
            }
        };
        pod.metadata.namespace = Some(request.namespace.clone());
        let controlling = match self.vpas.of_pod(&pod).await {
            Ok(Some(controlling)) => controlling,
            Ok(None) => return unchanged(Status::Skipped),
            Err(error) => {
                let namespace = &request.namespace;
                tracing::warn!(%error, %namespace, "the controller of a pod is not known; it is admitted as it is");
                return unchanged(Status::Error);
            }
        };
        let context = PodContext {
            boost: self.limits.of(&request.namespace, self.max_allowed_cpu_boost),
            startup_boost: self.gates.startup_boost,
            serves_resize: self.serves_resize.borrow().unwrap_or_default(),
        };
        let patch = PodPatch::new(&pod, &controlling.vpa, &context);
        self.metrics.boosted(patch.boost.boosted.len(), patch.boost.refused.len());
        let warnings = warnings(&controlling, &patch);
        if !request.dry_run.unwrap_or_default() {
            self.emit(&controlling, &patch);
        }
        (Response { refused: None, operations: patch.operations, warnings }, Status::Applied, Object::Pod)
    }

    /// Emits events on the VPA that controls a pod and on the others, each once in a while.
    fn emit(&self, controlling: &Controlling, patch: &PodPatch) {
        let Some(recorder) = &self.recorder else { return };
        let now = self.clock.monotonic();
        let say = |vpa: &VerticalPodAutoscaler, reason: &'static str, message: String| {
            let uid = vpa.uid().unwrap_or_default();
            if self.recent_messages.is_new(format!("{uid} {reason} {message}"), now) {
                recorder.record(vpa.object_ref(&()), NewEvent::warning(reason, message), self.clock.now());
            }
        };
        for refused in &patch.boost.refused {
            let message =
                format!("Container {} gets no CPU start-up boost: {}", refused.container, refused.reason);
            say(&controlling.vpa, "StartupBoostRefused", message);
        }
        if patch.recommendation_refused {
            say(&controlling.vpa, "RecommendationRefused", left_out(&controlling.vpa.name_any()));
        }
        for other in &controlling.others {
            say(other, "OverlappingVPA", overlap(&controlling.vpa, other));
        }
    }

    fn admit_vpa(&self, request: &Request<'_>) -> (Response, Status, Object) {
        let read = |object: Option<&serde_json::value::RawValue>| {
            object.and_then(|object| serde_json::from_str::<VerticalPodAutoscaler>(object.get()).ok())
        };
        // The schema refuses an object that cannot be read, with the path of the error; or the object is of a newer
        // schema.
        let Some(vpa) = read(request.object) else {
            return (Response::default(), Status::Skipped, Object::Vpa);
        };
        let old = read(request.old_object).filter(|_| request.operation == "UPDATE");
        let verdict = Verdict::new(&vpa.spec, old.as_ref().map(|old| &old.spec), self.gates);
        let refused = (!verdict.errors.is_empty()).then(|| Refusal {
            kind: request.request_kind.as_ref().map_or("VerticalPodAutoscaler", |kind| &kind.kind).to_owned(),
            group: GROUP.to_owned(),
            name: request.name.clone(),
            errors: verdict.errors,
        });
        let status = if verdict.operations.is_empty() { Status::Skipped } else { Status::Applied };
        (
            Response { refused, operations: verdict.operations, warnings: verdict.warnings },
            status,
            Object::Vpa,
        )
    }
}

fn left_out(vpa: &str) -> String {
    format!(
        "Limit ranges or the resources of the pod as a whole do not allow what VPA {vpa} recommends; it was left out"
    )
}

/// The warnings for a user who creates a pod.
fn warnings(controlling: &Controlling, patch: &PodPatch) -> Vec<String> {
    let vpa = controlling.vpa.name_any();
    let refused = patch.boost.refused.iter().map(|refused| {
        format!(
            "container {:?} gets no CPU start-up boost from VPA {vpa:?}: {}",
            refused.container, refused.reason
        )
    });
    let left_out = patch.recommendation_refused.then(|| left_out(&vpa));
    refused.chain(left_out).collect()
}
