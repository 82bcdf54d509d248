//! Two realistic custom kinds: one like the VPA, one like a `CloneSet`.

use http::Method;
use plumb_resize::rules::Rules;
use serde_json::{Value, json};

use super::super::test_api_server::TestApiServer;
use super::{DEFINITIONS, definition, version};

/// A kind with the fields of the autoscaler's.
fn vertical_autoscaler() -> Value {
    let amounts = json!({
        "type": "object",
        "additionalProperties": {
            "anyOf": [{ "type": "integer" }, { "type": "string" }], "x-kubernetes-int-or-string": true,
            "pattern": "^(\\+|-)?(([0-9]+(\\.[0-9]*)?)|(\\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\\+|-)?(([0-9]+(\\.[0-9]*)?)|(\\.[0-9]+))))?$",
        },
    });
    let policy = json!({
        "type": "object",
        "properties": {
            "containerName": { "type": "string" },
            "mode": { "type": "string", "enum": ["Auto", "Off"] },
            "minAllowed": amounts, "maxAllowed": amounts,
            "controlledResources": { "type": "array", "items": { "type": "string" } },
            "controlledValues": { "type": "string", "enum": ["RequestsAndLimits", "RequestsOnly"] },
        },
    });
    let spec = json!({
        "type": "object",
        "required": ["targetRef"],
        "properties": {
            "targetRef": {
                "type": "object", "required": ["kind", "name"], "x-kubernetes-map-type": "atomic",
                "properties": {
                    "apiVersion": { "type": "string" }, "kind": { "type": "string" }, "name": { "type": "string" },
                },
            },
            "updatePolicy": {
                "type": "object",
                "properties": {
                    "updateMode": {
                        "type": "string", "default": "Recreate",
                        "enum": ["Off", "Initial", "Recreate", "InPlaceOrRecreate", "InPlace", "Auto"],
                    },
                    "minReplicas": { "type": "integer", "format": "int32" },
                },
            },
            "resourcePolicy": {
                "type": "object",
                "properties": { "containerPolicies": { "type": "array", "items": policy } },
            },
        },
    });
    let status = json!({
        "type": "object",
        "properties": {
            "recommendation": {
                "type": "object",
                "properties": { "containerRecommendations": { "type": "array", "items": {
                    "type": "object", "required": ["target"],
                    "properties": {
                        "containerName": { "type": "string" }, "target": amounts, "lowerBound": amounts,
                        "upperBound": amounts, "uncappedTarget": amounts,
                    },
                }}},
            },
            "conditions": { "type": "array", "items": {
                "type": "object", "required": ["type", "status"],
                "properties": {
                    "type": { "type": "string" }, "status": { "type": "string" },
                    "lastTransitionTime": { "type": "string", "format": "date-time" },
                    "message": { "type": "string" }, "reason": { "type": "string" },
                },
            }},
        },
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": "verticalpodautoscalers.autoscaling.k8s.io",
            "annotations": { "api-approved.kubernetes.io": "https://github.com/kubernetes/kubernetes/pull/63797" },
        },
        "spec": {
            "group": "autoscaling.k8s.io", "scope": "Namespaced",
            "names": {
                "plural": "verticalpodautoscalers", "singular": "verticalpodautoscaler",
                "kind": "VerticalPodAutoscaler", "shortNames": ["vpa"],
            },
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": { "status": {} },
                "additionalPrinterColumns": [
                    { "name": "Mode", "type": "string", "jsonPath": ".spec.updatePolicy.updateMode" },
                    { "name": "CPU", "type": "string",
                      "jsonPath": ".status.recommendation.containerRecommendations[0].target.cpu" },
                    { "name": "Provided", "type": "string",
                      "jsonPath": ".status.conditions[?(@.type=='RecommendationProvided')].status" },
                    { "name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp" },
                ],
                "schema": { "openAPIV3Schema": {
                    "type": "object", "required": ["spec"], "properties": { "spec": spec, "status": status },
                }},
            }],
        },
    })
}

#[tokio::test]
async fn the_autoscalers_kind_can_be_defined_and_used() {
    let apiserver = TestApiServer::open(Rules::kep());
    apiserver.post(DEFINITIONS, &vertical_autoscaler()).await.ok();
    let path = "/apis/autoscaling.k8s.io/v1/namespaces/default/verticalpodautoscalers";
    let vpa = json!({
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", "metadata": { "name": "web" },
        "spec": {
            "targetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
            "updatePolicy": {},
            "resourcePolicy": { "containerPolicies": [{
                "containerName": "*", "minAllowed": { "cpu": "50m", "memory": 1_048_576 }, "unknown": 1,
            }]},
        },
    });
    let made = apiserver.post(path, &vpa).await;
    assert_eq!(
        made.warnings,
        [r#"299 - "unknown field \"spec.resourcePolicy.containerPolicies[0].unknown\"""#]
    );
    let made = made.ok();
    assert_eq!(made["spec"]["updatePolicy"]["updateMode"], "Recreate");
    assert_eq!(made["metadata"]["generation"], 1);
    let status = json!({ "status": {
        "recommendation": { "containerRecommendations": [{ "containerName": "main", "target": { "cpu": "2" } }] },
        "conditions": [{ "type": "RecommendationProvided", "status": "True" }],
    }});
    let media = "application/merge-patch+json";
    apiserver.request(Method::PATCH, &format!("{path}/web/status"), media, status.to_string()).await.ok();
    let (code, _, message) = apiserver
        .merge(&format!("{path}/web"), &json!({"spec": {"updatePolicy": {"updateMode": "Sometimes"}}}))
        .await
        .rejected();
    assert_eq!(code, 422);
    assert!(message.contains(
        "spec.updatePolicy.updateMode: Unsupported value: \"Sometimes\": supported values: \"Off\", \"Initial\", \"Recreate\""
    ), "{message}");
    let table = apiserver.table(path).await.ok();
    let names: Vec<&str> = table["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|own| own["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["Name", "Mode", "CPU", "Provided", "Age"]);
    assert_eq!(table["rows"][0]["cells"], json!(["web", "Recreate", "2", "True", "0s"]));
}

/// A kind with the fields of a set of clones: a template, a scale, keyed lists, rules.
fn clones() -> Value {
    let mut one = version(
        "v1alpha1",
        json!({
            "type": "object",
            "required": ["replicas", "selector", "template"],
            "properties": {
                "replicas": { "type": "integer", "format": "int32", "minimum": 0, "default": 1 },
                "selector": {
                    "type": "object", "x-kubernetes-map-type": "atomic",
                    "properties": { "matchLabels": { "type": "object", "additionalProperties": { "type": "string" } } },
                },
                "template": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
                "updateStrategy": {
                    "type": "object", "default": { "type": "InPlaceIfPossible" },
                    "properties": {
                        "type": { "type": "string", "enum": ["ReCreate", "InPlaceIfPossible", "InPlaceOnly"] },
                        "maxUnavailable": {
                            "x-kubernetes-int-or-string": true, "anyOf": [{ "type": "integer" }, { "type": "string" }],
                            "default": "20%",
                            "x-kubernetes-validations": [{
                                "rule": "type(self) == int ? self >= 0 : self.matches('^[0-9]+%$')",
                                "message": "is a number or a percentage",
                            }],
                        },
                    },
                },
                "scaleStrategy": {
                    "type": "object",
                    "properties": { "podsToDelete": {
                        "type": "array", "maxItems": 50, "x-kubernetes-list-type": "set",
                        "items": { "type": "string", "maxLength": 253 },
                    }},
                },
            },
            "x-kubernetes-validations": [{
                "rule": "self.selector == oldSelf.selector", "message": "selector is immutable", "fieldPath": ".selector",
            }],
        }),
    );
    one["schema"]["openAPIV3Schema"]["properties"]["status"] = json!({
        "type": "object",
        "properties": {
            "replicas": { "type": "integer" }, "labelSelector": { "type": "string" },
            "readyReplicas": { "type": "integer" },
        },
    });
    one["subresources"] = json!({ "status": {}, "scale": {
        "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.labelSelector",
    }});
    let mut set = definition("clonesets", "CloneSet", json!([one]));
    set["spec"]["names"]["shortNames"] = json!(["clone"]);
    set["spec"]["names"]["categories"] = json!(["all"]);
    set
}

const CLONES: &str = "/apis/example.com/v1alpha1/namespaces/default/clonesets";

fn set(name: &str) -> Value {
    json!({
        "apiVersion": "example.com/v1alpha1", "kind": "CloneSet", "metadata": { "name": name },
        "spec": {
            "selector": { "matchLabels": { "app": "web" } },
            "template": { "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [{ "name": "a" }] } },
            "updateStrategy": {},
        },
    })
}

#[tokio::test]
async fn custom_resources_are_created_scaled_and_validated() {
    let apiserver = TestApiServer::open(Rules::kep());
    apiserver.post(DEFINITIONS, &clones()).await.ok();
    let made = apiserver.post(CLONES, &set("web")).await.ok();
    assert_eq!(made["spec"]["replicas"], 1);
    assert_eq!(made["spec"]["updateStrategy"]["maxUnavailable"], "20%");
    assert_eq!(made["spec"]["template"]["spec"]["containers"][0]["name"], "a");

    let scale = format!("{CLONES}/web/scale");
    let scaled = apiserver.merge(&scale, &json!({"spec": {"replicas": 5}})).await.ok();
    assert_eq!(scaled["spec"]["replicas"], 5);
    apiserver
        .merge(
            &format!("{CLONES}/web/status"),
            &json!({"status": {"replicas": 4, "labelSelector": "app=web"}}),
        )
        .await
        .ok();
    let read = apiserver.get(&scale).await.ok();
    assert_eq!(read["status"], json!({ "replicas": 4, "selector": "app=web" }));
    assert_eq!(apiserver.get(&format!("{CLONES}/web")).await.ok()["metadata"]["generation"], 2);

    let table = [
        (
            json!({"spec": {"selector": {"matchLabels": {"app": "other"}}}}),
            "spec.selector: Invalid value: selector is immutable",
        ),
        (
            json!({"spec": {"updateStrategy": {"maxUnavailable": "half"}}}),
            "spec.updateStrategy.maxUnavailable: Invalid value: \"half\": is a number or a percentage",
        ),
        (
            json!({"spec": {"scaleStrategy": {"podsToDelete": ["a", "a"]}}}),
            "spec.scaleStrategy.podsToDelete[1]: Duplicate value: \"a\"",
        ),
        (json!({"spec": {"replicas": -1}}), "spec.replicas in body should be greater than or equal to 0"),
    ];
    for (patch, part) in table {
        let (code, _, message) = apiserver.merge(&format!("{CLONES}/web"), &patch).await.rejected();
        assert_eq!(code, 422);
        assert!(message.contains(part), "{message}");
    }
}

#[tokio::test]
async fn rules_about_a_value_of_another_type_fail_even_if_they_would_be_true() {
    let apiserver = TestApiServer::open(Rules::kep());
    let mut definition = clones();
    let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema["properties"]["spec"]["properties"]["scaleStrategy"]["x-kubernetes-validations"] =
        json!([{ "rule": "!has(self.podsToDelete)" }]);
    apiserver.post(DEFINITIONS, &definition).await.ok();
    // For an object of another kind only the rules are evaluated.
    let mut other = set("web");
    other["kind"] = json!("Other");
    other["spec"]["scaleStrategy"] = json!(1.5);
    let (code, _, message) = apiserver.post(CLONES, &other).await.rejected();
    assert_eq!(code, 422);
    let part = "spec.scaleStrategy: Invalid value: \"object\": invalid data, expected a map for the provided schema with \
                type=object evaluating rule: !has(self.podsToDelete)";
    assert!(message.contains(part), "{message}");
}

#[tokio::test]
async fn values_that_were_invalid_before_a_rule_are_tolerated_until_they_change() {
    let apiserver = TestApiServer::open(Rules::kep());
    let loose = json!({ "type": "object", "properties": {
        "name": { "type": "string", "maxLength": 20 }, "other": { "type": "string", "maxLength": 20 },
    }});
    let first = definition("things", "Thing", json!([version("v1", loose.clone())]));
    apiserver.post(DEFINITIONS, &first).await.ok();
    let path = "/apis/example.com/v1/namespaces/default/things";
    let thing = json!({
        "apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": {"name": "UPPER"},
    });
    apiserver.post(path, &thing).await.ok();
    let mut strict = loose;
    strict["properties"]["name"]["pattern"] = json!("^[a-z]+$");
    strict["properties"]["name"]["x-kubernetes-validations"] = json!([{ "rule": "self != 'UPPER'" }]);
    strict["properties"]["other"]["default"] = json!("filled");
    let patch = json!({ "spec": { "versions": [version("v1", strict)] } });
    apiserver.merge(&format!("{DEFINITIONS}/things.example.com"), &patch).await.ok();
    let read = apiserver.get(&format!("{path}/t")).await.ok();
    assert_eq!(read["spec"], json!({ "name": "UPPER", "other": "filled" }), "defaults come when it is read");
    apiserver.merge(&format!("{path}/t"), &json!({"spec": {"other": "changed"}})).await.ok();
    let (code, _, _) =
        apiserver.merge(&format!("{path}/t"), &json!({"spec": {"name": "LOUD"}})).await.rejected();
    assert_eq!(code, 422);
}

/// The scales of custom and of built-in kinds are of one kind, and are decoded as strictly as any object.
#[tokio::test]
async fn a_patch_of_a_scale_is_as_strict_as_one_of_an_object() {
    let apiserver = TestApiServer::open(Rules::kep());
    apiserver.post(DEFINITIONS, &clones()).await.ok();
    apiserver.post(CLONES, &set("web")).await.ok();
    let sets = "/apis/apps/v1/namespaces/default/replicasets";
    let template = json!({ "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [{ "name": "a", "image": "i" }] } });
    let spec =
        json!({ "replicas": 1, "selector": { "matchLabels": { "app": "web" } }, "template": template });
    apiserver.post(sets, &json!({ "metadata": { "name": "web" }, "spec": spec })).await.ok();
    for scale in [format!("{CLONES}/web/scale"), format!("{sets}/web/scale")] {
        let patch = async |query: &str, operations: Value| {
            let path = format!("{scale}{query}");
            apiserver
                .request(Method::PATCH, &path, "application/json-patch+json", operations.to_string())
                .await
        };
        let unknown = json!([{ "op": "add", "path": "/spec/size", "value": 2 }]);
        let warned = patch("", unknown.clone()).await;
        assert_eq!(warned.warnings, [r#"299 - "unknown field \"spec.size\"""#], "{scale}");
        assert_eq!(patch("?fieldValidation=Ignore", unknown.clone()).await.warnings, [""; 0], "{scale}");
        let (code, _, message) = patch("?fieldValidation=Strict", unknown).await.rejected();
        assert_eq!(code, 422, "{message}");
        assert!(message.ends_with(r#"strict decoding error: unknown field "spec.size""#), "{message}");
        let mut whole = apiserver.get(&scale).await.ok();
        whole["spec"]["size"] = json!(2);
        let (code, _, message) =
            apiserver.put(&format!("{scale}?fieldValidation=Strict"), &whole).await.rejected();
        assert_eq!(code, 400, "{message}");

        // A Scale without replicas has no such field.
        let none = patch("", json!([{ "op": "replace", "path": "/spec/replicas", "value": 0 }])).await.ok();
        assert_eq!(none["spec"], json!({}), "{scale}");
        let (code, _, message) =
            patch("", json!([{ "op": "test", "path": "/spec/replicas", "value": 0 }])).await.rejected();
        assert_eq!(code, 422, "{message}");
        let some = patch("", json!([{ "op": "replace", "path": "/spec/replicas", "value": 3 }])).await.ok();
        assert_eq!(some["spec"]["replicas"], 3, "{scale}");
    }
    let merged = json!({ "spec": { "replicas": 4 } });
    let (code, _, message) = apiserver.strategic(&format!("{CLONES}/web/scale"), &merged).await.rejected();
    assert_eq!(code, 415, "{message}");
    assert_eq!(apiserver.strategic(&format!("{sets}/web/scale"), &merged).await.ok()["spec"]["replicas"], 4);
}
