//! `AdmissionReview`s: the request to a webhook, and its response.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use serde_json::{Value, json};

use super::super::matching::Invocation;
use super::super::{Attributes, request};
use crate::error::ApiError;

/// The response of a webhook.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Verdict {
    pub(super) allowed: bool,
    /// The operations of a JSON patch.
    pub(super) patch: Option<Value>,
    /// The `Status` with the reason of a denial.
    pub(super) status: Option<Value>,
    pub(super) warnings: Vec<String>,
    /// The keys and values of `auditAnnotations`.
    pub(super) annotations: Vec<(String, String)>,
}

/// The `AdmissionReview` of a write.
pub(super) fn request(uid: &str, invocation: &Invocation, attributes: &Attributes<'_>, new: &Value) -> Value {
    let mut request = request::of(uid, invocation, attributes, new);
    request["object"] = invocation.object(attributes, new).into_owned();
    request["oldObject"] = invocation.old_object(attributes).into_owned();
    json!({ "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request })
}

/// Parses the response to a review.
pub(super) fn verdict(uid: &str, mutating: bool, answer: &Value) -> Result<Verdict, String> {
    let response = match answer.get("response") {
        Some(response) if response.is_object() => response,
        _ => return Err("webhook response was absent".to_owned()),
    };
    let text = |field: &str| response[field].as_str().unwrap_or_default();
    if text("uid") != uid {
        return Err(format!("expected response.uid={uid:?}, got {:?}", text("uid")));
    }
    let (version, kind) =
        (answer["apiVersion"].as_str().unwrap_or_default(), answer["kind"].as_str().unwrap_or_default());
    if (version, kind) != ("admission.k8s.io/v1", "AdmissionReview") {
        return Err(format!(
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {}, Kind={kind}",
            if version.is_empty() { "/" } else { version }
        ));
    }
    let (patch, patch_type) = (text("patch"), response.get("patchType").filter(|given| !given.is_null()));
    match (patch.is_empty(), patch_type) {
        (false, _) if !mutating => return Err("validating webhook may not return response.patch".to_owned()),
        (_, Some(_)) if !mutating => {
            return Err("validating webhook may not return response.patchType".to_owned());
        }
        (false, None) => return Err("webhook returned response.patch but not response.patchType".to_owned()),
        (true, Some(_)) => {
            return Err("webhook returned response.patchType but not response.patch".to_owned());
        }
        (false, Some(given)) if given == "" => {
            return Err("webhook returned invalid response.patchType of \"\"".to_owned());
        }
        (false, Some(given)) if given != "JSONPatch" => {
            return Err(format!("unsupported patch type {given}"));
        }
        (true, None) | (false, Some(_)) => {}
    }
    let undecodable = |why: String| format!("received undecodable patch in webhook response: {why}");
    let patch = match patch {
        "" => None,
        patch => {
            let bytes = STANDARD.decode(patch).map_err(|error| undecodable(error.to_string()))?;
            Some(serde_json::from_slice(&bytes).map_err(|error| undecodable(error.to_string()))?)
        }
    };
    let annotations = response["auditAnnotations"].as_object().into_iter().flatten();
    let annotations = annotations.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
    let warnings = response["warnings"].as_array().into_iter().flatten();
    Ok(Verdict {
        allowed: response["allowed"] == true,
        patch,
        status: response.get("status").filter(|status| status.is_object()).cloned(),
        annotations: annotations.collect(),
        warnings: warnings.filter_map(|warning| warning.as_str().map(str::to_owned)).collect(),
    })
}

/// The error of a denied write, with the webhook's message.
pub(super) fn refusal(hook: &str, verdict: &Verdict) -> ApiError {
    let mut status = verdict.status.clone().unwrap_or_else(|| json!({}));
    let denied = format!("admission webhook {hook:?} denied the request");
    let word = |field: &str| status[field].as_str().unwrap_or_default().to_owned();
    let message = match (word("message"), word("reason")) {
        (message, _) if !message.is_empty() => format!("{denied}: {message}"),
        (_, reason) if !reason.is_empty() => format!("{denied}: {reason}"),
        _ => format!("{denied} without explanation"),
    };
    let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok());
    let code = code.filter(|code| (400..600).contains(code)).unwrap_or(400);
    status["kind"] = json!("Status");
    status["apiVersion"] = json!("v1");
    status["metadata"] = json!({});
    status["status"] = json!("Failure");
    status["message"] = json!(message);
    status["code"] = json!(code);
    ApiError::given(StatusCode::from_u16(code).unwrap_or(StatusCode::BAD_REQUEST), message, status)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(response: Value) -> Value {
        json!({ "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response })
    }

    #[test]
    fn an_invalid_response_is_refused_with_the_message_of_kube_apiserver() {
        let patch = STANDARD.encode("[]");
        let table = [
            (true, json!({}), "webhook response was absent"),
            (true, answer(json!({ "uid": "b" })), "expected response.uid=\"a\", got \"b\""),
            (
                true,
                json!({ "response": { "uid": "a" } }),
                "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind=",
            ),
            (
                true,
                answer(json!({ "uid": "a", "patch": patch })),
                "webhook returned response.patch but not response.patchType",
            ),
            (
                true,
                answer(json!({ "uid": "a", "patchType": "JSONPatch" })),
                "webhook returned response.patchType but not response.patch",
            ),
            (
                false,
                answer(json!({ "uid": "a", "patch": patch, "patchType": "JSONPatch" })),
                "validating webhook may not return response.patch",
            ),
            (
                false,
                answer(json!({ "uid": "a", "patchType": "JSONPatch" })),
                "validating webhook may not return response.patchType",
            ),
        ];
        for (mutating, answer, expected) in table {
            assert_eq!(verdict("a", mutating, &answer).unwrap_err(), expected, "{answer}");
        }
        let fine = answer(json!({ "uid": "a", "allowed": true, "patch": patch, "patchType": "JSONPatch" }));
        assert_eq!(verdict("a", true, &fine).unwrap().patch, Some(json!([])));
    }

    #[test]
    fn a_denial_has_the_status_of_the_webhook() {
        let table = [
            (None, 400, "admission webhook \"x\" denied the request without explanation"),
            (
                Some(json!({ "code": 200 })),
                400,
                "admission webhook \"x\" denied the request without explanation",
            ),
            (
                Some(json!({ "message": "no", "code": 403 })),
                403,
                "admission webhook \"x\" denied the request: no",
            ),
            (
                Some(json!({ "reason": "Because" })),
                400,
                "admission webhook \"x\" denied the request: Because",
            ),
        ];
        for (status, code, message) in table {
            let error = refusal("x", &Verdict { status, ..Verdict::default() });
            assert_eq!((error.code.as_u16(), error.message.as_str()), (code, message));
            assert_eq!(error.to_status()["message"], message);
        }
    }
}
