//! The proposal's "Backward Compatibility and Negative Tests".

use crate::case::{Amounts, Case};
use crate::step::{Call, Expect, Expectation, Refusal, Step, Who};

use super::{LARGE, POD_UPDATE_IS_REFUSED, SMALL};

const POD: &str = "/api/v1/namespaces/{ns}/pods/{pod}";
/// A refused or ineffective write: the node of the pod writes these fields itself.
const DRY_POD: &str = "/api/v1/namespaces/{ns}/pods/{pod}?dryRun=All";
const DRY_RESIZE: &str = "/api/v1/namespaces/{ns}/pods/{pod}/resize?dryRun=All";
const DRY_STATUS: &str = "/api/v1/namespaces/{ns}/pods/{pod}/status?dryRun=All";
const JOBS: &str = "/apis/batch/v1/namespaces/{ns}/jobs";
const JOB: &str = "/apis/batch/v1/namespaces/{ns}/jobs/{pod}";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/{ns}/deployments";
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/{ns}/deployments/{pod}";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles";
const ROLE_BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/rolebindings";

pub(super) const CASES: &[Case] = &[
    Case::new(
        "node-writes-allocated-resources-and-no-more",
        &[SMALL],
        &[
            // The API server ignores the spec in the request.
            Step::request(
                Who::ItsNode,
                Call::Patch(
                    r#"{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"50m"}}}]},
                        "status":{"containerStatuses":[{"name":"main","allocatedResources":{"cpu":"50m"}}]}}"#,
                ),
                DRY_STATUS,
                Expect::both(Expectation::Returned(&[
                    ("/status/containerStatuses/0/allocatedResources/cpu", "\"50m\""),
                    ("/spec/containers/0/resources/requests/cpu", "\"100m\""),
                ])),
            ),
            Step::request(Who::ItsNode, Call::Patch(GROW), DRY_POD, Expect::both(FORBIDDEN)),
            Step::request(Who::ItsNode, Call::Patch(GROW), DRY_RESIZE, Expect::both(FORBIDDEN)),
        ],
    ),
    Case::new(
        "only-its-node-writes-allocated-resources",
        &[SMALL],
        &[
            Step::request(Who::AnotherNode, Call::Patch(ALLOCATE), DRY_STATUS, Expect::both(FORBIDDEN)),
            Step::request(Who::User, Call::Patch(ALLOCATE), DRY_STATUS, Expect::both(FORBIDDEN)),
            // Kubernetes lets an administrator write what the kubelet overwrites next.
            Step::request(
                Who::Us,
                Call::Patch(ALLOCATE),
                DRY_STATUS,
                Expect { v1_36: Expectation::Untried, kep: FORBIDDEN },
            ),
            // Other endpoints ignore it, like all of the status.
            Step::request(
                Who::Us,
                Call::Patch(ALLOCATE),
                DRY_POD,
                Expect::both(Expectation::Returned(&[(
                    "/status/containerStatuses/0/allocatedResources/cpu",
                    "\"100m\"",
                )])),
            ),
        ],
    ),
    Case::new(
        "right-to-resize-is-no-right-to-the-pod",
        &[SMALL],
        &[
            Step::request(
                Who::Us,
                Call::Create(
                    r#"{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":"{pod}"},
                        "rules":[{"apiGroups":[""],"resources":["pods/resize"],"verbs":["patch"]}]}"#,
                ),
                ROLES,
                Expect::both(Expectation::Nothing),
            ),
            Step::request(
                Who::Us,
                Call::Create(
                    r#"{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{"name":"{pod}"},
                        "roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"{pod}"},
                        "subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"{resizer}"}]}"#,
                ),
                ROLE_BINDINGS,
                Expect::both(Expectation::Nothing),
            ),
            Step::request(
                Who::Resizer,
                Call::Patch(GROW),
                DRY_RESIZE,
                Expect::both(Expectation::Returned(&[(
                    "/spec/containers/0/resources/requests/cpu",
                    "\"200m\"",
                )])),
            ),
            Step::request(Who::Resizer, Call::Patch(GROW), DRY_POD, Expect::both(FORBIDDEN)),
        ],
    ),
    Case::new(
        "template-of-a-job-does-not-change",
        &[],
        &[
            Step::request(
                Who::Us,
                Call::Create(
                    r#"{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"{pod}"},"spec":{"parallelism":0,"template":{
                        "spec":{"restartPolicy":"Never","containers":[
                            {"name":"main","image":"{image}","resources":{"requests":{"cpu":"100m"}}}]}}}}"#,
                ),
                JOBS,
                Expect::both(Expectation::Nothing),
            ),
            Step::request(
                Who::Us,
                Call::Patch(GROW_TEMPLATE),
                JOB,
                Expect::both(Expectation::Refused(
                    Refusal::invalid("field is immutable").because("FieldValueInvalid"),
                )),
            ),
        ],
    ),
    Case::new(
        "template-of-a-suspended-job-follows-the-dialect",
        &[],
        &[
            Step::request(
                Who::Us,
                Call::Create(
                    r#"{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"{pod}"},"spec":{"suspend":true,"template":{
                        "spec":{"restartPolicy":"Never","containers":[
                            {"name":"main","image":"{image}","resources":{"requests":{"cpu":"100m"}}}]}}}}"#,
                ),
                JOBS,
                Expect::both(Expectation::Nothing),
            ),
            Step::request(
                Who::Us,
                Call::Patch(GROW_TEMPLATE),
                JOB,
                Expect {
                    v1_36: Expectation::Returned(&[(
                        "/spec/template/spec/containers/0/resources/requests/cpu",
                        "\"200m\"",
                    )]),
                    kep: Expectation::Refused(
                        Refusal::invalid("field is immutable").because("FieldValueInvalid"),
                    ),
                },
            ),
        ],
    ),
    Case::new(
        "template-of-a-deployment-makes-new-pods",
        &[],
        &[
            Step::request(
                Who::Us,
                Call::Create(
                    r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"{pod}"},"spec":{"replicas":1,
                        "selector":{"matchLabels":{"app":"{pod}"}},"template":{"metadata":{"labels":{
                            "app":"{pod}","plumb.dev/conformance-case":"{pod}"}},
                        "spec":{"terminationGracePeriodSeconds":1,"containers":[
                            {"name":"main","image":"{image}","command":{command},"resources":{"requests":{"cpu":"100m"}}}]}}}}"#,
                ),
                DEPLOYMENTS,
                Expect::both(Expectation::Replaced { cpu: "100m" }),
            ),
            Step::request(
                Who::Us,
                Call::Patch(GROW_TEMPLATE),
                DEPLOYMENT,
                Expect::both(Expectation::Replaced { cpu: "200m" }),
            ),
            Step::request(
                Who::Us,
                Call::Patch(r#"{"spec":{"replicas":0}}"#),
                DEPLOYMENT,
                Expect::both(Expectation::Replaced { cpu: "" }),
            ),
        ],
    ),
    Case::new(
        "old-client-does-not-lose-what-it-does-not-know",
        // Not the default policy, which would replace a lost one.
        &[SMALL.restarts_on(&["memory"])],
        &[
            Step::request(
                Who::Us,
                Call::Update {
                    without: &["/spec/containers/0/resizePolicy", "/status", "/metadata/resourceVersion"],
                    with: r#"{"metadata":{"labels":{"seen":"yes"}}}"#,
                },
                POD,
                Expect {
                    v1_36: POD_UPDATE_IS_REFUSED,
                    kep: Expectation::Returned(&[
                        ("/metadata/labels/seen", "\"yes\""),
                        ("/spec/containers/0/resizePolicy/0/restartPolicy", "\"NotRequired\""),
                        ("/spec/containers/0/resizePolicy/1/restartPolicy", "\"RestartContainer\""),
                        ("/status/containerStatuses/0/allocatedResources/cpu", "\"100m\""),
                    ]),
                },
            ),
            // What Kubernetes keeps as well is what is allocated.
            Step::request(
                Who::Us,
                Call::Update {
                    without: &["/status", "/metadata/resourceVersion"],
                    with: r#"{"metadata":{"labels":{"seen":"again"}}}"#,
                },
                POD,
                Expect::both(Expectation::Returned(&[
                    ("/metadata/labels/seen", "\"again\""),
                    ("/status/containerStatuses/0/allocatedResources/cpu", "\"100m\""),
                ])),
            ),
            // The policies still bind.
            Step::resize(
                &[("main", Amounts::new(("200m", "400m"), ("32Mi", "64Mi")))],
                Expect::both(Expectation::Applied { restarts: &[] }),
            ),
            Step::resize(&[("main", LARGE)], Expect::both(Expectation::Applied { restarts: &[("main", 1)] })),
        ],
    ),
];

const GROW: &str = r#"{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"200m"}}}]}}"#;
const ALLOCATE: &str =
    r#"{"status":{"containerStatuses":[{"name":"main","allocatedResources":{"cpu":"50m"}}]}}"#;
const GROW_TEMPLATE: &str = r#"{"spec":{"template":{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"200m"}}}]}}}}"#;

const FORBIDDEN: Expectation = Expectation::Refused(Refusal::forbidden(""));
