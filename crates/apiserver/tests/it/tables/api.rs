//! Print columns of RBAC, leases, admission and other cluster kinds.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::{case, shows};

#[tokio::test]
async fn roles_and_bindings_have_their_print_columns() {
    let subjects = json!([
        { "kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "ann" },
        { "kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "bob" },
        { "kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "devs" },
        { "kind": "ServiceAccount", "namespace": "default", "name": "robot" },
    ]);
    let binding = |name: &str, kind: &str, subjects: Value| {
        json!({
            "metadata": { "name": name }, "subjects": subjects,
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "view" },
        })
    };
    let columns = "Name | Role | Age | (Users) | (Groups) | (ServiceAccounts)";
    let cases = [
        case(
            "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles",
            json!({ "metadata": { "name": "r" }, "rules": [] }),
            json!(["r", "2026-01-02T03:04:05Z"]),
        ),
        case(
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            json!({ "metadata": { "name": "c" }, "rules": [] }),
            json!(["c", "2026-01-02T03:04:05Z"]),
        ),
        case(
            "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
            binding("b", "Role", subjects),
            json!(["b", "Role/view", "0s", "ann, bob", "devs", "default/robot"]),
        ),
        case(
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            binding("empty", "ClusterRole", json!([])),
            json!(["empty", "ClusterRole/view", "0s", "", "", ""]),
        ),
    ];
    let kinds = [
        ("/roles", "Name | Created At"),
        ("/clusterroles", "Name | Created At"),
        ("/rolebindings", columns),
        ("/clusterrolebindings", columns),
    ];
    shows(&kinds, &cases).await;
}

#[tokio::test]
async fn classes_and_leases_have_their_print_columns() {
    let priorities = "/apis/scheduling.k8s.io/v1/priorityclasses";
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let cases = [
        case(
            priorities,
            json!({ "metadata": { "name": "high" }, "value": 1000, "globalDefault": true }),
            json!(["high", 1000, true, "0s", "PreemptLowerPriority"]),
        ),
        case(
            priorities,
            json!({ "metadata": { "name": "low" }, "value": -1, "preemptionPolicy": "Never" }),
            json!(["low", -1, false, "0s", "Never"]),
        ),
        case(
            "/apis/node.k8s.io/v1/runtimeclasses",
            json!({ "metadata": { "name": "gvisor" }, "handler": "runsc" }),
            json!(["gvisor", "runsc", "0s"]),
        ),
        case(leases, json!({ "metadata": { "name": "free" }, "spec": {} }), json!(["free", "", "0s"])),
        case(
            leases,
            json!({ "metadata": { "name": "held" }, "spec": { "holderIdentity": "a-1" } }),
            json!(["held", "a-1", "0s"]),
        ),
    ];
    let kinds = [
        ("/priorityclasses", "Name | Value | Global-Default | Age | PreemptionPolicy"),
        ("/runtimeclasses", "Name | Handler | Age"),
        ("/leases", "Name | Holder | Age"),
    ];
    shows(&kinds, &cases).await;
}

#[tokio::test]
async fn a_certificate_signing_request_prints_its_conditions() {
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let request = |name: &str, more: Value| {
        let mut spec = json!({ "request": CSR, "signerName": "x.io/s", "usages": ["client auth"] });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "metadata": { "name": name }, "spec": spec })
    };
    let is = |conditions: &[&str]| {
        let all = conditions.iter().map(|kind| json!({ "type": kind, "status": "True" }));
        json!({ "conditions": all.collect::<Vec<_>>() })
    };
    let certificate = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap().cert.pem();
    let issued = json!({ "certificate": BASE64_STANDARD.encode(certificate) });
    let row = |name: &str, duration: &str, condition: &str| {
        json!([name, "0s", "x.io/s", "kubernetes-admin", duration, condition])
    };
    let cases = [
        case(path, request("new", json!({})), row("new", "<none>", "Pending")),
        case(path, request("day", json!({ "expirationSeconds": 86_400 })), row("day", "24h", "Pending")),
        case(path, request("yes", json!({})), row("yes", "<none>", "Approved")).approval(is(&["Approved"])),
        case(path, request("no", json!({})), row("no", "<none>", "Denied,Failed"))
            .approval(is(&["Denied"]))
            .status(is(&["Denied", "Failed"])),
        case(path, request("there", json!({})), row("there", "<none>", "Pending,Issued")).status(issued),
    ];
    let columns = "Name | Age | SignerName | Requestor | RequestedDuration | Condition";
    shows(&[("/certificatesigningrequests", columns)], &cases).await;
}

/// A request for a certificate for `a`, in base64.
const CSR: &str = "\
    LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIR01HNENBUUF3RERFS01BZ0dBMVVFQXd3QllUQlpN\
    Qk1HQnlxR1NNNDlBZ0VHQ0NxR1NNNDlBd0VIQTBJQQpCRVVnTi9LUzRmeEJ1ampEL1VhM3UyZTQzRHBkYnBhVDRrMDBF\
    OGM2SGVGOXhDeENDNWpQM244elVRaDAxRHJoCnhUdTI2WmN3ZjFPZjVTdE52Q2dQUEVTZ0FEQUtCZ2dxaGtqT1BRUURB\
    Z05JQURCRkFpQmFvNldiSldjVUhGa2EKMThWdFlxVlFBSWtDYnBoR1ZTNFZUdjJJSDRFMjNnSWhBTEI2RDNjb2lvREEw\
    WHplUnoxdHpWZmRGSDVBWElncAo3VjF1MXRWa2xtK3YKLS0tLS1FTkQgQ0VSVElGSUNBVEUgUkVRVUVTVC0tLS0tCg==";

#[tokio::test]
async fn admission_kinds_have_their_print_columns() {
    let hook = |name: &str| {
        json!({
            "name": name, "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": { "url": "https://127.0.0.1:1/a" },
        })
    };
    let policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    let bindings = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
    let resources = json!({ "resourceRules": [
        { "apiGroups": ["x.io"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["things"] },
    ]});
    let binding = |name: &str, more: Value| {
        let mut spec = json!({ "policyName": "p", "validationActions": ["Warn"] });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "metadata": { "name": name }, "spec": spec })
    };
    let cases = [
        case(
            "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
            json!({ "metadata": { "name": "two" }, "webhooks": [hook("a.x.io"), hook("b.x.io")] }),
            json!(["two", 2, "0s"]),
        ),
        case(
            "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
            json!({ "metadata": { "name": "one" }, "webhooks": [hook("a.x.io")] }),
            json!(["one", 1, "0s"]),
        ),
        case(
            policies,
            json!({ "metadata": { "name": "p" }, "spec": {
                "matchConstraints": resources, "validations": [{ "expression": "true" }],
            }}),
            json!(["p", 1, "<unset>", "0s"]),
        ),
        case(
            policies,
            json!({ "metadata": { "name": "q" }, "spec": {
                "matchConstraints": resources, "validations": [{ "expression": "true" }],
                "paramKind": { "apiVersion": "v1", "kind": "ConfigMap" },
            }}),
            json!(["q", 1, "v1/ConfigMap", "0s"]),
        ),
        case(bindings, binding("plain", json!({})), json!(["plain", "p", "<unset>", "0s"])),
        case(
            bindings,
            binding("named", json!({ "paramRef": { "name": "c", "parameterNotFoundAction": "Allow" } })),
            json!(["named", "p", "*/c", "0s"]),
        ),
        case(
            bindings,
            binding(
                "placed",
                json!({ "paramRef": {
                    "name": "c", "namespace": "n", "parameterNotFoundAction": "Allow",
                }}),
            ),
            json!(["placed", "p", "n/c", "0s"]),
        ),
        case(
            bindings,
            binding(
                "chosen",
                json!({ "paramRef": {
                    "selector": { "matchLabels": { "a": "b" } }, "parameterNotFoundAction": "Allow",
                }}),
            ),
            json!(["chosen", "p", "a=b", "0s"]),
        ),
        case(
            "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies",
            json!({ "metadata": { "name": "m" }, "spec": {
                "matchConstraints": resources, "reinvocationPolicy": "Never", "mutations": [
                    { "patchType": "JSONPatch", "jsonPatch": { "expression": "[JSONPatch{op: 'add', path: '/a', value: 1}]" } },
                ],
            }}),
            json!(["m", 1, "<unset>", "0s"]),
        ),
        case(
            "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings",
            json!({ "metadata": { "name": "m" }, "spec": { "policyName": "m" } }),
            json!(["m", "m", "<unset>", "0s"]),
        ),
        case(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            json!({ "metadata": { "name": "things.x.io" }, "spec": {
                "group": "x.io", "scope": "Namespaced", "names": { "plural": "things", "kind": "Thing" },
                "versions": [{ "name": "v1", "served": true, "storage": true, "schema": {
                    "openAPIV3Schema": { "type": "object" },
                }}],
            }}),
            json!(["things.x.io", "2026-01-02T03:04:05Z"]),
        ),
    ];
    let kinds = [
        ("/validatingwebhookconfigurations", "Name | Webhooks | Age"),
        ("/mutatingwebhookconfigurations", "Name | Webhooks | Age"),
        ("/validatingadmissionpolicies", "Name | Validations | ParamKind | Age"),
        ("/validatingadmissionpolicybindings", "Name | PolicyName | ParamRef | Age"),
        ("/mutatingadmissionpolicies", "Name | Mutations | ParamKind | Age"),
        ("/mutatingadmissionpolicybindings", "Name | PolicyName | ParamRef | Age"),
        ("/customresourcedefinitions", "Name | Created At"),
    ];
    shows(&kinds, &cases).await;
}

#[tokio::test]
async fn api_services_and_flow_control_have_their_print_columns() {
    let services = "/apis/apiregistration.k8s.io/v1/apiservices";
    let levels = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations";
    let schemas = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
    let service = |name: &str, group: &str| {
        json!({ "metadata": { "name": name }, "spec": {
            "group": group, "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10,
            "insecureSkipTLSVerify": true, "service": { "namespace": "default", "name": "s" },
        }})
    };
    let available = |status: &str, reason: &str| json!({ "conditions": [{ "type": "Available", "status": status, "reason": reason }] });
    let queuing = json!({ "queues": 16, "handSize": 4, "queueLengthLimit": 10 });
    let cases = [
        case(services, service("v1.a.io", "a.io"), json!(["v1.a.io", "default/s", "True", "0s"]))
            .status(available("True", "Passed")),
        case(
            services,
            service("v1.b.io", "b.io"),
            json!(["v1.b.io", "default/s", "False (ServiceNotFound)", "0s"]),
        )
        .status(available("False", "ServiceNotFound")),
        case(
            services,
            json!({ "metadata": { "name": "v1.c.io" }, "spec": {
                "group": "c.io", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10,
            }}),
            json!(["v1.c.io", "Local", "True", "0s"]),
        ),
        case(
            levels,
            json!({ "metadata": { "name": "queued" }, "spec": { "type": "Limited", "limited": {
                "nominalConcurrencyShares": 7, "limitResponse": { "type": "Queue", "queuing": queuing },
            }}}),
            json!(["queued", "Limited", 7, 16, 4, 10, "0s"]),
        ),
        case(
            levels,
            json!({ "metadata": { "name": "refused" }, "spec": { "type": "Limited", "limited": {
                "limitResponse": { "type": "Reject" },
            }}}),
            json!(["refused", "Limited", 30, "<none>", "<none>", "<none>", "0s"]),
        ),
        case(
            schemas,
            json!({ "metadata": { "name": "f" }, "spec": {
                "priorityLevelConfiguration": { "name": "queued" }, "matchingPrecedence": 50,
                "distinguisherMethod": { "type": "ByUser" },
            }}),
            json!(["f", "queued", 50, "ByUser", "0s", "False"]),
        )
        .status(json!({ "conditions": [{ "type": "Dangling", "status": "False" }] })),
        case(
            schemas,
            json!({ "metadata": { "name": "g" }, "spec": {
                "priorityLevelConfiguration": { "name": "queued" },
            }}),
            json!(["g", "queued", 1000, "<none>", "0s", "?"]),
        ),
    ];
    let kinds = [
        ("/apiservices", "Name | Service | Available | Age"),
        (
            "/prioritylevelconfigurations",
            "Name | Type | NominalConcurrencyShares | Queues | HandSize | QueueLengthLimit | Age",
        ),
        ("/flowschemas", "Name | PriorityLevel | MatchingPrecedence | DistinguisherMethod | Age | MissingPL"),
    ];
    shows(&kinds, &cases).await;
}

#[tokio::test]
async fn resource_claims_print_their_state() {
    let claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
    let claim = |name: &str| json!({ "metadata": { "name": name }, "spec": {} });
    let user = json!([{ "resource": "pods", "name": "p", "uid": "1" }]);
    let cases = [
        case(claims, claim("new"), json!(["new", "pending", "0s"])),
        case(claims, claim("met"), json!(["met", "allocated", "0s"])).status(json!({ "allocation": {} })),
        case(claims, claim("used"), json!(["used", "allocated,reserved", "0s"]))
            .status(json!({ "allocation": {}, "reservedFor": user })),
        case(claims, claim("goes"), json!(["goes", "deleted", "0s"])).deleted(),
        case(
            "/apis/resource.k8s.io/v1/resourceslices",
            json!({ "metadata": { "name": "s" }, "spec": {
                "driver": "x.io", "nodeName": "n1",
                "pool": { "name": "n1", "generation": 1, "resourceSliceCount": 1 },
            }}),
            json!(["s", "n1", "x.io", "n1", "0s"]),
        ),
        case(
            "/apis/resource.k8s.io/v1/deviceclasses",
            json!({ "metadata": { "name": "gpu" }, "spec": {} }),
            json!(["gpu", "0s"]),
        ),
    ];
    let kinds = [
        ("/resourceclaims", "Name | State | Age"),
        ("/resourceslices", "Name | Node | Driver | Pool | Age"),
        ("/deviceclasses", "Name | Age"),
    ];
    shows(&kinds, &cases).await;
}
