//! Whether the API server would admit a pod of a set's template.
//!
//! The schema of a CustomResourceDefinition cannot hold the rules for pods: a quantity, a port or a request above its limit is found
//! when the first pod is created, and a running pod was deleted for it by then. So a pod of the template is created in a dry
//! run before the first pod is updated: by the rules, and the admission, of whichever API server serves the set. That takes
//! one request for each template, not one for each pod.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use kube::api::PostParams;
use kube::{Client, ResourceExt as _};
use parking_lot::Mutex;
use plumb_client::Api;
use plumb_controller_runtime::ObjectRef;
use plumb_controller_runtime::api_error::Denial;
use serde_json::Value;

use super::instances::instance;
use super::over_quota;
use crate::api::cloneset::CloneSet;
use crate::engine::Refusal;
use crate::request::RequestError;

/// After which time a refusal is checked again that may have another reason than the template: a policy, a webhook, a quota.
const CHECKED_AGAIN: SignedDuration = SignedDuration::from_secs(30);

/// The part of a pod's name, and its instance id, in a dry run.
pub(super) const INSTANCE: &str = "dry-run";

/// Whether the API server would admit a pod of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It would.
    Admitted,
    /// A further pod exceeds a quota, as the API server replies. The quota may admit one that takes the place of another.
    OverQuota(String),
    /// It would not, for this reason.
    Refused(String),
}

impl Verdict {
    /// Reads the answer to a dry run, and whether it stays so; an error if it says nothing about the pod.
    fn read(answer: kube::Result<Pod>) -> Result<(Self, bool), kube::Error> {
        // It may be refused later: then its creation fails, and no other pod is deleted.
        let Err(error) = answer else { return Ok((Self::Admitted, true)) };
        match (&error, Refusal::of(&error)) {
            // The name is taken, which is checked last.
            (kube::Error::Api(status), _) if status.is_already_exists() => Ok((Self::Admitted, true)),
            (kube::Error::Api(status), Refusal::Refused(_, message)) => {
                let denial = Denial::of(status);
                let is_exceeded = denial == Some(Denial::Quota) && over_quota::is_exceeded(&message);
                let verdict = if is_exceeded { Self::OverQuota(message) } else { Self::Refused(message) };
                // What the API server itself finds invalid stays so. A webhook, which denies with 400 if it gives no code, or
                // a ValidatingAdmissionPolicy, which denies with 422, may be changed.
                Ok((verdict, denial.is_none() && matches!(status.code, 400 | 422)))
            }
            _ => Err(error),
        }
    }
}

/// A template that was checked.
#[derive(Debug)]
struct Checked {
    uid: Option<String>,
    template: Value,
    verdict: Verdict,
    /// When it is checked again; none if it stays so.
    until: Option<Timestamp>,
}

/// The templates that were checked, the latest of each set. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct DryRuns(Arc<Mutex<HashMap<ObjectRef, Checked>>>);

impl DryRuns {
    /// What is known about the template of a set, and until when.
    pub(super) fn known(
        &self,
        key: &ObjectRef,
        set: &CloneSet,
        now: Timestamp,
    ) -> Option<(Verdict, Option<Timestamp>)> {
        let checked = self.0.lock();
        let checked = checked.get(key)?;
        let is_current = checked.uid == set.metadata.uid
            && checked.template == set.spec.template
            && checked.until.is_none_or(|until| now < until);
        is_current.then(|| (checked.verdict.clone(), checked.until))
    }

    /// Creates a pod of the template of a set in a dry run, and notes the answer.
    pub(super) async fn check(
        &self,
        client: &Client,
        key: &ObjectRef,
        set: &CloneSet,
        template: &PodTemplateSpec,
        now: Timestamp,
    ) -> Result<(Verdict, Option<Timestamp>), RequestError> {
        let claims = set.claim_templates().unwrap_or_default();
        let (pod, _) = instance(set, template, &claims, INSTANCE, INSTANCE, now);
        let api: Api<Pod> = Api::namespaced(client.clone(), set.namespace().as_deref().unwrap_or_default());
        let params = PostParams { dry_run: true, ..PostParams::default() };
        let (verdict, stays) = Verdict::read(api.create(&params, &pod).await).map_err(RequestError::of(
            "creating in a dry run",
            "Pod of CloneSet",
            key.clone(),
        ))?;
        let until = if stays { None } else { now.checked_add(CHECKED_AGAIN).ok() };
        let checked = Checked {
            uid: set.metadata.uid.clone(),
            template: set.spec.template.clone(),
            verdict: verdict.clone(),
            until,
        };
        self.0.lock().insert(key.clone(), checked);
        Ok((verdict, until))
    }

    /// Whether a further pod of the template of a set exceeds a quota.
    pub(super) fn is_over_quota(&self, key: &ObjectRef) -> bool {
        let checked = self.0.lock();
        checked.get(key).is_some_and(|checked| matches!(checked.verdict, Verdict::OverQuota(_)))
    }

    /// Forgets a set that is gone.
    pub(super) fn forget(&self, key: &ObjectRef) {
        self.0.lock().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn only_what_the_api_server_itself_finds_invalid_stays_refused() {
        let webhook = "admission webhook \"images.example.com\" denied the request: unknown registry";
        let policy = "pods \"web\" is forbidden: ValidatingAdmissionPolicy 'images' with binding 'images' denied request: \
                      unknown registry";
        let table = [
            (422, "Pod \"web\" is invalid: spec.containers[0].image: Required value", true),
            (400, "Pod in version \"v1\" cannot be handled as a Pod", true),
            (400, webhook, false),
            (403, webhook, false),
            (422, policy, false),
            (403, "pods \"web\" is forbidden: maximum cpu usage per Container is 1, but limit is 2", false),
            (403, "pods \"web\" is forbidden: failed quota: team: must specify memory for: c", false),
        ];
        for (code, message, stays) in table {
            let status = Status { code, ..Status::failure(message, "") };
            let read = Verdict::read(Err(kube::Error::Api(Box::new(status))));
            assert_eq!(read.unwrap(), (Verdict::Refused(message.to_owned()), stays), "{code} {message}");
        }
        let status =
            Status { code: 503, ..Status::failure("apiserver is shutting down", "ServiceUnavailable") };
        assert!(Verdict::read(Err(kube::Error::Api(Box::new(status)))).is_err());
    }
}
