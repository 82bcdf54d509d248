//! What a resize may not do to a pod.

use crate::case::{Amounts, Case, Container};
use crate::step::{Call, Expect, Expectation, Refusal, ResizeRequest, Step, Who};

use super::{POD_UPDATE_IS_REFUSED, SMALL};

const RESIZE: &str = "/api/v1/namespaces/{ns}/pods/{pod}/resize";
const POD: &str = "/api/v1/namespaces/{ns}/pods/{pod}";
const DRY_PODS: &str = "/api/v1/namespaces/{ns}/pods?dryRun=All&fieldValidation=Strict";

pub(super) const CASES: &[Case] = &[
    Case::new(
        "change-of-qos-class-is-refused",
        &[SMALL],
        &[Step::resize(
            &[("main", Amounts::guaranteed("200m", "64Mi"))],
            invalid(
                "spec: Invalid value: \"Burstable\": Pod QOS Class may not change as a result of resizing",
                "FieldValueInvalid",
            ),
        )],
    ),
    Case::new(
        "best-effort-pod-gets-no-resources",
        &[Container::new("main", Amounts::NONE)],
        &[Step::resize(
            &[("main", Amounts::cpu("100m"))],
            invalid("Pod QOS Class may not change as a result of resizing", "FieldValueInvalid"),
        )],
    ),
    Case::new(
        "limit-below-request-is-refused",
        &[SMALL],
        &[
            Step::resize(
                &[("main", Amounts::new(("300m", "200m"), ("32Mi", "64Mi")))],
                invalid("must be less than or equal to cpu limit of 200m", "FieldValueInvalid"),
            ),
            Step::resize(
                &[("main", Amounts::new(("100m", "200m"), ("128Mi", "64Mi")))],
                invalid("must be less than or equal to memory limit of 64Mi", "FieldValueInvalid"),
            ),
        ],
    ),
    Case::new(
        "limits-are-not-removed",
        &[SMALL],
        &[Step::request(
            Who::Us,
            Call::Patch(r#"{"spec":{"containers":[{"name":"main","resources":{"limits":{"cpu":null}}}]}}"#),
            RESIZE,
            invalid("resource limits cannot be removed", "FieldValueForbidden"),
        )],
    ),
    Case::new(
        "containers-are-not-added",
        &[SMALL],
        &[Step::request(
            Who::Us,
            Call::Patch(
                r#"{"spec":{"containers":[{"name":"other","image":"{image}","resources":{"requests":{"cpu":"1"}}}]}}"#,
            ),
            RESIZE,
            invalid("containers may not be added or removed on resize", "FieldValueForbidden"),
        )],
    ),
    Case::new(
        "only-cpu-and-memory-change",
        &[SMALL],
        &[
            Step::request(
                Who::Us,
                Call::Patch(STORAGE),
                RESIZE,
                invalid("only cpu and memory resources are mutable", "FieldValueForbidden"),
            ),
            Step::request(
                Who::Us,
                Call::Patch(STORAGE),
                POD,
                Expect {
                    v1_36: POD_UPDATE_IS_REFUSED,
                    kep: Expectation::Refused(Refusal::invalid("Forbidden: ").because("FieldValueForbidden")),
                },
            ),
        ],
    ),
    Case::new(
        "resize-changes-nothing-but-resources",
        &[SMALL],
        &[Step::request(
            Who::Us,
            Call::Patch(
                r#"{"metadata":{"labels":{"sneaky":"yes"}},"spec":{"activeDeadlineSeconds":1000,
                        "containers":[{"name":"main","image":"other"}]}}"#,
            ),
            RESIZE,
            Expect::both(Expectation::Returned(&[
                ("/metadata/labels/sneaky", ""),
                ("/metadata/generation", "1"),
                ("/spec/activeDeadlineSeconds", ""),
            ])),
        )],
    ),
    Case::new(
        "resize-that-changes-nothing-is-none",
        &[SMALL],
        &[Step::resize_by(
            ResizeRequest::PatchResize,
            &[("main", SMALL.amounts)],
            Expect::both(Expectation::Applied { restarts: &[] }),
        )],
    ),
    Case::new(
        "pod-that-is-never-restarted-asks-for-no-restarts",
        &[],
        &[Step::request(
            Who::Us,
            Call::Create(
                r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"{pod}"},"spec":{"restartPolicy":"Never","containers":[
                    {"name":"main","image":"{image}","resizePolicy":[
                        {"resourceName":"memory","restartPolicy":"RestartContainer"}]}]}}"#,
            ),
            DRY_PODS,
            invalid("must be 'NotRequired' when pod `restartPolicy` is 'Never'", "FieldValueInvalid"),
        )],
    ),
    Case::new(
        "words-of-the-alpha-are-understood-by-the-dialect-of-it",
        &[],
        &[Step::request(
            Who::Us,
            Call::Create(
                r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"{pod}"},"spec":{"containers":[
                    {"name":"main","image":"{image}","resizePolicy":[
                        {"resourceName":"cpu","policy":"RestartNotRequired"},
                        {"resourceName":"memory","policy":"Restart"}]}]}}"#,
            ),
            DRY_PODS,
            Expect {
                v1_36: Expectation::Refused(Refusal {
                    code: 400,
                    reason: "BadRequest",
                    message: "unknown field \"spec.containers[0].resizePolicy[0].policy\"",
                    cause: None,
                }),
                kep: Expectation::Returned(&[(
                    "/spec/containers/0/resizePolicy",
                    r#"[{"resourceName":"cpu","restartPolicy":"NotRequired"},
                        {"resourceName":"memory","restartPolicy":"RestartContainer"}]"#,
                )]),
            },
        )],
    ),
];

const STORAGE: &str =
    r#"{"spec":{"containers":[{"name":"main","resources":{"requests":{"ephemeral-storage":"1Mi"}}}]}}"#;

const fn invalid(message: &'static str, cause: &'static str) -> Expect {
    Expect::both(Expectation::Refused(Refusal::invalid(message).because(cause)))
}
