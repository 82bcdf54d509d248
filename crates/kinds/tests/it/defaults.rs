//! Defaulting, kind by kind.

use plumb_kinds::defaults;
use plumb_resize::rules::Rules;
use serde_json::{Value, json};

fn complete(kind: &str, mut object: Value, rules: &Rules) -> Value {
    let (group, version, kind) = match kind.split('/').collect::<Vec<_>>()[..] {
        [version, kind] => ("", version, kind),
        [group, version, kind] => (group, version, kind),
        _ => panic!("{kind} is no kind"),
    };
    defaults::apply(group, version, kind, &mut object, rules);
    object
}

/// Each row: a kind, what came in, and a pointer to a part of what comes out.
fn check(table: &[(&str, Value, &str, Value)]) {
    for (kind, object, pointer, expected) in table {
        let complete = complete(kind, object.clone(), &Rules::v1_36());
        let part = complete.pointer(pointer).cloned().unwrap_or(Value::Null);
        assert_eq!(part, *expected, "{kind} {object} at {pointer}");
    }
}

#[test]
fn a_minimal_pod_gets_the_defaults_of_kube_apiserver() {
    let pod = json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}});
    assert_eq!(
        complete("v1/Pod", pod, &Rules::v1_36()),
        json!({
            "metadata": {"name": "a"},
            "spec": {
                "containers": [{
                    "name": "c",
                    "image": "nginx",
                    "imagePullPolicy": "Always",
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File",
                }],
                "dnsPolicy": "ClusterFirst",
                "enableServiceLinks": true,
                "restartPolicy": "Always",
                "schedulerName": "default-scheduler",
                "securityContext": {},
                "terminationGracePeriodSeconds": 30,
            },
        })
    );
}

#[test]
fn defaults_are_applied_to_pods_and_to_pod_templates() {
    let container = |more: Value| {
        let mut container = json!({"name": "c", "image": "a:1"});
        container.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        container
    };
    let pod = |container: Value| json!({"spec": {"containers": [container]}});
    let probe = json!({"httpGet": {"port": 80}, "timeoutSeconds": 5, "periodSeconds": 0});
    let volumes = |volume: Value| json!({"spec": {"containers": [], "volumes": [volume]}});
    check(&[
        ("v1/Pod", pod(container(json!({}))), "/spec/containers/0/imagePullPolicy", json!("IfNotPresent")),
        (
            "v1/Pod",
            pod(container(json!({"ports": [{"containerPort": 80}]}))),
            "/spec/containers/0/ports/0",
            json!({"containerPort": 80, "protocol": "TCP"}),
        ),
        (
            "v1/Pod",
            pod(container(json!({"livenessProbe": probe}))),
            "/spec/containers/0/livenessProbe",
            json!({
                "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"},
                "timeoutSeconds": 5, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3,
            }),
        ),
        (
            "v1/Pod",
            pod(container(json!({"startupProbe": {"grpc": {"port": 1}}}))),
            "/spec/containers/0/startupProbe/grpc",
            json!({"port": 1, "service": ""}),
        ),
        (
            "v1/Pod",
            pod(container(json!({"lifecycle": {"preStop": {"httpGet": {"port": "http"}}}}))),
            "/spec/containers/0/lifecycle/preStop/httpGet",
            json!({"port": "http", "path": "/", "scheme": "HTTP"}),
        ),
        (
            "v1/Pod",
            pod(container(
                json!({"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}),
            )),
            "/spec/containers/0/env/0/valueFrom/fieldRef/apiVersion",
            json!("v1"),
        ),
        ("v1/Pod", volumes(json!({"name": "v"})), "/spec/volumes/0/emptyDir", json!({})),
        (
            "v1/Pod",
            volumes(json!({"name": "v", "configMap": {"name": "m"}})),
            "/spec/volumes/0/configMap/defaultMode",
            json!(420),
        ),
        (
            "v1/Pod",
            volumes(json!({"name": "v", "secret": {"secretName": "s", "defaultMode": 0}})),
            "/spec/volumes/0/secret/defaultMode",
            json!(0),
        ),
        (
            "v1/Pod",
            volumes(json!({"name": "v", "hostPath": {"path": "/"}})),
            "/spec/volumes/0/hostPath/type",
            json!(""),
        ),
        (
            "v1/Pod",
            volumes(json!({"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}})),
            "/spec/volumes/0/projected",
            json!({
                "defaultMode": 420,
                "sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}}],
            }),
        ),
        (
            "v1/Pod",
            json!({"spec": {"hostNetwork": true, "containers": [container(json!({"ports": [{"containerPort": 8}]}))]}}),
            "/spec/containers/0/ports/0/hostPort",
            json!(8),
        ),
        (
            "v1/Pod",
            json!({"spec": {"serviceAccount": "old", "containers": []}}),
            "/spec/serviceAccountName",
            json!("old"),
        ),
        ("v1/Pod", json!({"status": {"podIP": "10.0.0.1"}}), "/status/podIPs", json!([{"ip": "10.0.0.1"}])),
        (
            "batch/v1/CronJob",
            json!({"spec": {"jobTemplate": {"spec": {"template": {"spec": {"containers": [container(json!({}))]}}}}}}),
            "/spec/jobTemplate/spec",
            json!({"template": {"spec": {
                "containers": [{
                    "name": "c", "image": "a:1", "imagePullPolicy": "IfNotPresent",
                    "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                }],
                "dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "schedulerName": "default-scheduler",
                "securityContext": {}, "terminationGracePeriodSeconds": 30,
            }}}),
        ),
    ]);
}

#[test]
fn a_pod_requests_what_it_limits_but_a_template_does_not() {
    let limited =
        json!([{"name": "c", "image": "a:1", "resources": {"limits": {"cpu": "1", "memory": "100u"}}}]);
    let requests = "/spec/containers/0/resources/requests";
    check(&[
        ("v1/Pod", json!({"spec": {"containers": limited}}), requests, json!({"cpu": "1", "memory": "1m"})),
        (
            "apps/v1/Deployment",
            json!({"spec": {"template": {"spec": {"containers": limited}}}}),
            &format!("/spec/template{requests}"),
            Value::Null,
        ),
        (
            "apps/v1/Deployment",
            json!({"spec": {"template": {"spec": {"containers": limited}}}}),
            "/spec/template/spec/containers/0/resources/limits",
            json!({"cpu": "1", "memory": "1m"}),
        ),
    ]);
}

#[test]
fn resize_policies_are_defaulted_where_the_dialect_does() {
    let pod = json!({"spec": {"containers": [{"name": "c", "image": "a:1"}]}});
    let policies = |rules: &Rules| {
        complete("v1/Pod", pod.clone(), rules)["spec"]["containers"][0]["resizePolicy"].clone()
    };
    assert_eq!(policies(&Rules::v1_36()), Value::Null);
    assert_eq!(
        policies(&Rules::kep()),
        json!([
            {"resourceName": "cpu", "restartPolicy": "NotRequired"},
            {"resourceName": "memory", "restartPolicy": "NotRequired"},
        ])
    );
}

#[test]
fn defaults_of_services_depend_on_their_type() {
    let service = |spec: Value| json!({"spec": spec});
    check(&[
        (
            "v1/Service",
            service(json!({"ports": [{"port": 80}]})),
            "/spec",
            json!({
                "type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
                "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
            }),
        ),
        (
            "v1/Service",
            service(json!({"type": "LoadBalancer", "sessionAffinity": "ClientIP"})),
            "/spec",
            json!({
                "type": "LoadBalancer", "sessionAffinity": "ClientIP", "internalTrafficPolicy": "Cluster",
                "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10800}},
                "externalTrafficPolicy": "Cluster", "allocateLoadBalancerNodePorts": true,
            }),
        ),
        (
            "v1/Service",
            service(json!({"type": "ExternalName", "externalName": "a.b"})),
            "/spec",
            json!({"type": "ExternalName", "externalName": "a.b", "sessionAffinity": "None"}),
        ),
    ]);
}

#[test]
fn defaults_are_applied_to_workloads() {
    let templated =
        json!({"spec": {"template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}}}});
    check(&[
        (
            "apps/v1/Deployment",
            templated.clone(),
            "/spec/strategy",
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}),
        ),
        ("apps/v1/Deployment", templated.clone(), "/spec/progressDeadlineSeconds", json!(600)),
        ("apps/v1/Deployment", templated.clone(), "/spec/replicas", json!(1)),
        ("apps/v1/Deployment", json!({"spec": {"replicas": 0}}), "/spec/replicas", json!(0)),
        (
            "apps/v1/Deployment",
            json!({"spec": {"strategy": {"type": "Recreate"}}}),
            "/spec/strategy",
            json!({"type": "Recreate"}),
        ),
        (
            "apps/v1/DaemonSet",
            templated.clone(),
            "/spec/updateStrategy",
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}),
        ),
        (
            "apps/v1/StatefulSet",
            templated.clone(),
            "/spec/updateStrategy",
            json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}),
        ),
        (
            "apps/v1/StatefulSet",
            json!({"spec": {"volumeClaimTemplates": [{"metadata": {"name": "d"}, "spec": {}}]}}),
            "/spec/volumeClaimTemplates/0",
            json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "d"},
                "spec": {"volumeMode": "Filesystem"}, "status": {"phase": "Pending"},
            }),
        ),
        (
            "apps/v1/StatefulSet",
            templated.clone(),
            "/spec/persistentVolumeClaimRetentionPolicy",
            json!({"whenDeleted": "Retain", "whenScaled": "Retain"}),
        ),
        ("apps/v1/ReplicaSet", templated.clone(), "/spec/replicas", json!(1)),
        ("batch/v1/Job", templated.clone(), "/metadata/labels", json!({"a": "b"})),
        ("batch/v1/Job", templated.clone(), "/spec/completions", json!(1)),
        ("batch/v1/Job", json!({"spec": {"parallelism": 2}}), "/spec/completions", Value::Null),
        ("batch/v1/Job", json!({"spec": {"backoffLimitPerIndex": 1}}), "/spec/backoffLimit", json!(i32::MAX)),
        (
            "batch/v1/Job",
            json!({"spec": {"podFailurePolicy": {}}}),
            "/spec/podReplacementPolicy",
            json!("Failed"),
        ),
        ("batch/v1/CronJob", json!({}), "/spec/concurrencyPolicy", json!("Allow")),
        ("v1/ReplicationController", templated, "/spec/selector", json!({"a": "b"})),
    ]);
}

#[test]
fn defaults_are_applied_to_the_other_kinds() {
    check(&[
        (
            "v1/Secret",
            json!({"stringData": {"a": "b"}}),
            "",
            json!({"type": "Opaque", "data": {"a": "Yg=="}}),
        ),
        ("v1/ConfigMap", json!({"data": {"a": "b"}}), "", json!({"data": {"a": "b"}})),
        (
            "v1/Namespace",
            json!({"metadata": {"name": "n"}}),
            "",
            json!({
                "metadata": {"name": "n", "labels": {"kubernetes.io/metadata.name": "n"}},
                "status": {"phase": "Active"},
            }),
        ),
        (
            "v1/Namespace",
            json!({"metadata": {"generateName": "n-"}}),
            "/metadata",
            json!({"generateName": "n-"}),
        ),
        (
            "v1/Node",
            json!({"status": {"capacity": {"cpu": "4"}}}),
            "/status/allocatable",
            json!({"cpu": "4"}),
        ),
        ("v1/Node", json!({"spec": {"podCIDR": "10.0.0.0/24"}}), "/spec/podCIDRs", json!(["10.0.0.0/24"])),
        (
            "v1/LimitRange",
            json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "1", "memory": "1Gi"}}]}}),
            "/spec/limits/0",
            json!({
                "type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "1", "memory": "1Gi"},
                "default": {"cpu": "2"}, "defaultRequest": {"cpu": "2", "memory": "1Gi"},
            }),
        ),
        ("v1/ResourceQuota", json!({"spec": {"hard": {"cpu": "1n"}}}), "/spec/hard/cpu", json!("1m")),
        (
            "v1/PersistentVolumeClaim",
            json!({"spec": {}}),
            "",
            json!({"spec": {"volumeMode": "Filesystem"}, "status": {"phase": "Pending"}}),
        ),
        ("v1/PersistentVolume", json!({}), "/spec/persistentVolumeReclaimPolicy", json!("Retain")),
        (
            "v1/Endpoints",
            json!({"subsets": [{"ports": [{"port": 1}]}]}),
            "/subsets/0/ports/0/protocol",
            json!("TCP"),
        ),
        (
            "discovery.k8s.io/v1/EndpointSlice",
            json!({"ports": [{"port": 1}]}),
            "/ports/0",
            json!({"port": 1, "name": "", "protocol": "TCP"}),
        ),
        ("autoscaling/v2/HorizontalPodAutoscaler", json!({}), "/spec/minReplicas", json!(1)),
        (
            "autoscaling/v2/HorizontalPodAutoscaler",
            json!({"spec": {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 1}}}}),
            "/spec/behavior",
            json!({
                "scaleUp": {
                    "stabilizationWindowSeconds": 0, "selectPolicy": "Max",
                    "policies": [
                        {"type": "Pods", "value": 4, "periodSeconds": 15},
                        {"type": "Percent", "value": 100, "periodSeconds": 15},
                    ],
                },
                "scaleDown": {
                    "stabilizationWindowSeconds": 1, "selectPolicy": "Max",
                    "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
                },
            }),
        ),
        (
            "autoscaling/v1/HorizontalPodAutoscaler",
            json!({}),
            "/spec/targetCPUUtilizationPercentage",
            json!(80),
        ),
        (
            "networking.k8s.io/v1/NetworkPolicy",
            json!({"spec": {"egress": [{"ports": [{"port": 1}]}]}}),
            "/spec",
            json!({"egress": [{"ports": [{"port": 1, "protocol": "TCP"}]}], "policyTypes": ["Ingress", "Egress"]}),
        ),
        (
            "rbac.authorization.k8s.io/v1/RoleBinding",
            json!({"roleRef": {"kind": "Role"}, "subjects": [{"kind": "User"}, {"kind": "ServiceAccount"}]}),
            "",
            json!({
                "roleRef": {"kind": "Role", "apiGroup": "rbac.authorization.k8s.io"},
                "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io"}, {"kind": "ServiceAccount"}],
            }),
        ),
        ("scheduling.k8s.io/v1/PriorityClass", json!({}), "/preemptionPolicy", json!("PreemptLowerPriority")),
        (
            "storage.k8s.io/v1/StorageClass",
            json!({}),
            "",
            json!({"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"}),
        ),
        ("coordination.k8s.io/v1/Lease", json!({"spec": {}}), "", json!({"spec": {}})),
        ("v1/Event", json!({"reason": "a"}), "", json!({"reason": "a"})),
        ("example.com/v1/Unknown", json!({"spec": {}}), "", json!({"spec": {}})),
    ]);
}

#[test]
fn defaulting_is_idempotent() {
    for (kind, object) in [
        (
            "v1/Pod",
            json!({"spec": {"containers": [{"name": "c", "image": "a", "resources": {"limits": {"cpu": "1"}}}], "volumes": [{"name": "v"}]}}),
        ),
        ("v1/Service", json!({"spec": {"ports": [{"port": 1}]}})),
        ("apps/v1/StatefulSet", json!({"spec": {"volumeClaimTemplates": [{}]}})),
        ("batch/v1/Job", json!({})),
    ] {
        for rules in [Rules::kep(), Rules::v1_36()] {
            let once = complete(kind, object.clone(), &rules);
            assert_eq!(complete(kind, once.clone(), &rules), once, "{kind}");
        }
    }
}

/// What kube-apiserver stores beside the defaults: what its strategies decide, allocate or generate.
const NOT_DEFAULTS: [&str; 13] = [
    "/metadata",
    "/status",
    "/spec/clusterIP",
    "/spec/clusterIPs",
    "/spec/ipFamilies",
    "/spec/ipFamilyPolicy",
    "/spec/finalizers",
    "/spec/selector",
    "/spec/template/metadata",
    "/spec/ports/0/nodePort",
    "/spec/healthCheckNodePort",
    "/spec/terminationGracePeriodSeconds",
    "/spec/containers/0/lifecycle/stopSignal",
];

/// Where what is stored differs from what we make of it.
fn differences(path: &str, stored: &Value, ours: &Value, found: &mut Vec<String>) {
    if NOT_DEFAULTS.contains(&path) {
        return;
    }
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => matches!(text.as_str(), "" | "0"),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    };
    let nothing = Value::Object(serde_json::Map::new());
    let filled = |value: &Value, other: &Value| value.is_null() && other.is_object();
    let stored = if filled(stored, ours) { &nothing } else { stored };
    let ours = if filled(ours, stored) { &nothing } else { ours };
    match (stored, ours) {
        (Value::Object(left), Value::Object(right)) => {
            for field in left.keys().chain(right.keys().filter(|field| !left.contains_key(*field))) {
                let value =
                    |map: &serde_json::Map<String, Value>| map.get(field).cloned().unwrap_or_default();
                differences(&format!("{path}/{field}"), &value(left), &value(right), found);
            }
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            for (i, (left, right)) in left.iter().zip(right).enumerate() {
                differences(&format!("{path}/{i}"), left, right, found);
            }
        }
        // What is empty is written or left out by the encoder, not by the defaults.
        (stored, ours) if stored == ours || (is_empty(stored) && is_empty(ours)) => {}
        (stored, ours) => found.push(format!("{path}: stored {stored}, ours {ours}")),
    }
}

#[test]
fn defaults_are_those_that_kube_apiserver_stores() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("defaults.json")).expect("the cases are JSON");
    let mut found = Vec::new();
    for case in cases {
        let text = |field: &str| case[field].as_str().unwrap_or_default();
        let mut object = case["object"].clone();
        defaults::apply(text("group"), text("version"), text("kind"), &mut object, &Rules::v1_36());
        let mut of_this = Vec::new();
        differences("", &case["stored"], &object, &mut of_this);
        found.extend(of_this.into_iter().map(|difference| format!("{} {difference}", text("name"))));
    }
    assert!(found.is_empty(), "{found:#?}");
}
