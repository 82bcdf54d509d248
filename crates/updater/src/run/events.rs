//! Events about pods and VPAs: every resize, eviction, wait and refusal, unless it equals the last one.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Resource, ResourceExt as _};
use plumb_controller_runtime::ObjectRef;
use plumb_controller_runtime::events::NewEvent;
use plumb_vpa_api::VerticalPodAutoscaler;

use super::Inner;
use crate::in_place::{Cause, Wait};
use crate::refusal::Refusal;
use crate::state::PodState;

impl Inner {
    /// Emits that a pod was resized.
    pub(super) fn emit_resized(&self, vpa: &VerticalPodAutoscaler, pod: &PodState) {
        self.emit_once(vpa, pod, None);
        self.emit(
            of_pod(pod),
            NewEvent::normal("InPlaceResizedByVPA", "Pod was resized in place by VPA Updater."),
        );
        let message =
            format!("VPA Updater resized Pod {} in place to apply resource recommendation.", pod.object.name);
        self.emit(of_vpa(vpa), NewEvent::normal("InPlaceResizedPod", message));
    }

    /// Emits why a pod was resized that is within its recommended bounds.
    pub(super) fn emit_shrunk_first(&self, pod: &PodState) {
        let message = "Requests were lowered to the recommendation, since a resize of another pod on the node is deferred.";
        self.emit(of_pod(pod), NewEvent::normal("ShrunkForDeferredResize", message));
    }

    /// Emits that a pod was evicted.
    pub(super) fn emit_evicted(&self, vpa: &VerticalPodAutoscaler, pod: &PodState, cause: &Cause) {
        let why = if *cause == Cause::Mode { String::new() } else { format!(" In place: {cause}.") };
        let message = format!("Pod was evicted by VPA Updater to apply resource recommendation.{why}");
        self.emit(of_pod(pod), NewEvent::normal("EvictedByVPA", message));
        let name = &pod.object.name;
        let message = format!("VPA Updater evicted Pod {name} to apply resource recommendation.{why}");
        self.emit(of_vpa(vpa), NewEvent::normal("EvictedPod", message));
    }

    /// Emits what a pod waits for. The node reports its own actions on a resize; here only pods that wait for it are
    /// reported.
    pub(super) fn emit_wait(&self, vpa: &VerticalPodAutoscaler, pod: &PodState, wait: &Wait) {
        let is_routine = matches!(
            wait,
            Wait::InProgress { newer: false, .. }
                | Wait::Proposed { newer: false, .. }
                | Wait::Report { .. }
                | Wait::Pending
                // Emitted once, for the VPA.
                | Wait::Replacements { .. }
        );
        // Emitted when it began.
        let is_backoff = matches!(wait, Wait::Backoff(_));
        if is_routine || is_backoff {
            return;
        }
        self.emit_once(
            vpa,
            pod,
            Some(NewEvent::normal("VPAUpdateWaiting", format!("{}: {wait}", wait.reason()))),
        );
    }

    /// Emits that another VPA controls the pods of a VPA, unless the last event said the same.
    pub(super) fn emit_overlap(&self, key: &ObjectRef, vpa: &VerticalPodAutoscaler, overlap: Option<&str>) {
        let mut history = self.history.lock();
        let Some(message) = overlap else {
            if let Some(own) = history.get_mut(key) {
                own.overlap = None;
            }
            return;
        };
        let emitted = &mut history.entry(key.clone()).or_default().overlap;
        if emitted.as_deref() == Some(message) {
            return;
        }
        *emitted = Some(message.to_owned());
        drop(history);
        self.emit(of_vpa(vpa), NewEvent::warning("OverlappingVPA", message));
    }

    /// Emits that pods of a VPA are created without the admission webhook, and what to do.
    pub(super) fn emit_not_admitted(&self, vpa: &VerticalPodAutoscaler, interval: Duration) {
        let message = format!(
            "Pods that replace evicted ones are created without the recommendation, so pods are evicted at most once in \
             {} s. Check that the API server reaches the service or URL in the MutatingWebhookConfiguration of the \
             admission webhook: with failurePolicy Ignore it creates pods without a webhook that it cannot reach. Outside \
             a pod, plumb run needs --register-by-url and --webhook-address.",
            interval.as_secs()
        );
        self.emit(of_vpa(vpa), NewEvent::warning("AdmissionNotReached", message));
    }

    /// Emits that the node of a pod cannot hold the recommendation. Returns whether it was emitted.
    pub(super) fn emit_infeasible(&self, vpa: &VerticalPodAutoscaler, pod: &PodState) -> bool {
        let message = "Previously recorded in-place update was infeasible, current recommendation is not lower than \
                       previous, skipping resize";
        self.emit_once(vpa, pod, Some(NewEvent::normal("InPlaceResizeSkipped", message)))
    }

    /// Emits that a request was refused.
    pub(super) fn emit_refused(
        &self,
        vpa: &VerticalPodAutoscaler,
        pod: &PodState,
        what: &str,
        refusal: &Refusal,
    ) {
        let message = format!("{}: {what} was refused: {refusal}", refusal.reason());
        self.emit_once(vpa, pod, Some(NewEvent::warning("VPAUpdateRefused", message)));
    }

    /// Emits an event for a pod and for its VPA, unless it equals the last one. Returns whether it was emitted. `None` only
    /// forgets the last one.
    fn emit_once(&self, vpa: &VerticalPodAutoscaler, pod: &PodState, event: Option<NewEvent>) -> bool {
        let mut index = self.index.lock();
        let Some(memory) = index.memory(&pod.object, &pod.uid) else { return false };
        let text = event.as_ref().map(|event| format!("{} {}", event.reason, event.message));
        if memory.last_event == text {
            return false;
        }
        memory.last_event = text;
        drop(index);
        let Some(event) = event else { return false };
        let message = format!("Pod {}: {}", pod.object.name, event.message);
        self.emit(of_vpa(vpa), NewEvent { message, ..event.clone() });
        self.emit(of_pod(pod), event);
        true
    }

    fn emit(&self, regarding: ObjectReference, event: NewEvent) {
        self.recorder.record(regarding, event, self.config.clock.now());
    }
}

fn of_pod(pod: &PodState) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        namespace: Some(pod.object.namespace.clone()),
        name: Some(pod.object.name.clone()),
        uid: Some(pod.uid.clone()),
        ..ObjectReference::default()
    }
}

pub(super) fn of_vpa(vpa: &VerticalPodAutoscaler) -> ObjectReference {
    ObjectReference {
        api_version: Some(VerticalPodAutoscaler::api_version(&()).into_owned()),
        kind: Some(VerticalPodAutoscaler::kind(&()).into_owned()),
        namespace: vpa.namespace(),
        name: vpa.metadata.name.clone(),
        uid: vpa.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}
