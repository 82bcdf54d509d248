//! Print columns of workloads and Jobs.

use serde_json::{Value, json};

use super::{case, shows};

fn template() -> Value {
    json!({
        "metadata": { "labels": { "app": "a" } },
        "spec": { "containers": [{ "name": "x", "image": "i:1" }, { "name": "y", "image": "j" }] },
    })
}

#[tokio::test]
async fn workloads_print_their_replica_counts() {
    let selector = json!({ "matchLabels": { "app": "a" } });
    let picky = json!({ "matchLabels": { "app": "a" }, "matchExpressions": [
        { "key": "zone", "operator": "In", "values": ["b", "a"] },
        { "key": "old", "operator": "DoesNotExist" },
        { "key": "any", "operator": "Exists" },
        { "key": "no", "operator": "NotIn", "values": ["x"] },
    ]});
    let mut labelled = template();
    labelled["metadata"]["labels"] = json!({ "app": "a", "zone": "a", "any": "" });
    let mut placed = template();
    placed["spec"]["nodeSelector"] = json!({ "disk": "ssd", "arch": "arm64" });
    let cases = [
        case(
            "/apis/apps/v1/namespaces/default/deployments",
            json!({ "metadata": { "name": "new" }, "spec": { "selector": selector, "template": template() } }),
            json!(["new", "0/1", 0, 0, "0s", "x,y", "i:1,j", "app=a"]),
        ),
        case(
            "/apis/apps/v1/namespaces/default/deployments",
            json!({ "metadata": { "name": "d" }, "spec": {
                "replicas": 3, "selector": picky, "template": labelled,
            }}),
            json!([
                "d",
                "1/3",
                2,
                1,
                "0s",
                "x,y",
                "i:1,j",
                "any,app=a,no notin (x),!old,zone in (a,b)",
            ]),
        )
        .status(json!({
            "replicas": 3, "updatedReplicas": 2, "readyReplicas": 1, "availableReplicas": 1,
            "unavailableReplicas": 2,
        })),
        case(
            "/apis/apps/v1/namespaces/default/replicasets",
            json!({ "metadata": { "name": "r" }, "spec": {
                "replicas": 2, "selector": selector, "template": template(),
            }}),
            json!(["r", 2, 2, 1, "0s", "x,y", "i:1,j", "app=a"]),
        )
        .status(json!({ "replicas": 2, "readyReplicas": 1 })),
        case(
            "/apis/apps/v1/namespaces/default/statefulsets",
            json!({ "metadata": { "name": "s" }, "spec": {
                "replicas": 2, "serviceName": "s", "selector": selector, "template": template(),
            }}),
            json!(["s", "1/2", "0s", "x,y", "i:1,j"]),
        )
        .status(json!({ "replicas": 2, "readyReplicas": 1 })),
        case(
            "/apis/apps/v1/namespaces/default/daemonsets",
            json!({ "metadata": { "name": "d" }, "spec": { "selector": selector, "template": placed } }),
            json!(["d", 5, 4, 3, 2, 1, "arch=arm64,disk=ssd", "0s", "x,y", "i:1,j", "app=a"]),
        )
        .status(json!({
            "desiredNumberScheduled": 5, "currentNumberScheduled": 4, "numberReady": 3, "numberMisscheduled": 0,
            "updatedNumberScheduled": 2, "numberAvailable": 1,
        })),
        case(
            "/api/v1/namespaces/default/replicationcontrollers",
            json!({ "metadata": { "name": "r" }, "spec": {
                "replicas": 2, "selector": { "app": "a" }, "template": template(),
            }}),
            json!(["r", 2, 1, 1, "0s", "x,y", "i:1,j", "app=a"]),
        )
        .status(json!({ "replicas": 1, "readyReplicas": 1 })),
    ];
    let kinds = [
        (
            "/deployments",
            "Name | Ready | Up-to-date | Available | Age | (Containers) | (Images) | (Selector)",
        ),
        ("/replicasets", "Name | Desired | Current | Ready | Age | (Containers) | (Images) | (Selector)"),
        ("/statefulsets", "Name | Ready | Age | (Containers) | (Images)"),
        (
            "/daemonsets",
            "Name | Desired | Current | Ready | Up-to-date | Available | Node Selector | Age | \
             (Containers) | (Images) | (Selector)",
        ),
        (
            "/replicationcontrollers",
            "Name | Desired | Current | Ready | Age | (Containers) | (Images) | (Selector)",
        ),
    ];
    shows(&kinds, &cases).await;
}

#[tokio::test]
async fn a_controller_revision_prints_its_controller() {
    let path = "/apis/apps/v1/namespaces/default/controllerrevisions";
    let owner = |version: &str, kind: &str, controller: bool| json!({ "apiVersion": version, "kind": kind, "name": "Web", "uid": "1", "controller": controller });
    let cases = [
        case(
            path,
            json!({ "metadata": { "name": "free" }, "data": {}, "revision": 1 }),
            json!(["free", "<none>", 1, "0s"]),
        ),
        case(
            path,
            json!({ "data": {}, "revision": 3, "metadata": { "name": "owned", "ownerReferences": [
                owner("v1", "Pod", false), owner("apps/v1", "StatefulSet", true),
            ]}}),
            json!(["owned", "statefulset.apps/Web", 3, "0s"]),
        ),
        case(
            path,
            json!({ "data": {}, "revision": 3, "metadata": { "name": "core", "ownerReferences": [
                owner("v1", "ReplicationController", true),
            ]}}),
            json!(["core", "replicationcontroller/Web", 3, "0s"]),
        ),
    ];
    shows(&[("/controllerrevisions", "Name | Controller | Revision | Age")], &cases).await;
}

#[tokio::test]
async fn a_job_prints_its_progress() {
    let path = "/apis/batch/v1/namespaces/default/jobs";
    let job = |name: &str, mut spec: Value| {
        spec["template"] = template();
        spec["template"]["spec"]["restartPolicy"] = json!("Never");
        spec["template"]["metadata"]["labels"]["job"] = json!(name);
        spec["selector"] = json!({ "matchLabels": { "job": name } });
        spec["manualSelector"] = json!(true);
        json!({ "metadata": { "name": name }, "spec": spec })
    };
    let is = |condition: &str| json!([{ "type": condition, "status": "True" }]);
    let row = |name: &str, status: &str, completions: &str, duration: &str| {
        json!([name, status, completions, duration, "0s", "x,y", "i:1,j", format!("job={name}")])
    };
    let cases = [
        case(path, job("new", json!({})), row("new", "Running", "0/1", "")),
        case(path, job("any", json!({ "parallelism": 3 })), row("any", "Running", "2/1 of 3", "30s"))
            .status(json!({ "succeeded": 2, "startTime": "2026-01-02T03:03:35Z" })),
        case(path, job("done", json!({ "completions": 5 })), row("done", "Complete", "5/5", "2m10s")).status(
            json!({
                "succeeded": 5, "startTime": "2026-01-02T03:00:00Z",
                "completionTime": "2026-01-02T03:02:10Z", "conditions": [
                    { "type": "SuccessCriteriaMet", "status": "True" }, { "type": "Complete", "status": "True" },
                ],
            }),
        ),
        case(path, job("failed", json!({ "completions": 2 })), row("failed", "Failed", "0/2", "60s"))
            .status(json!({
                "startTime": "2026-01-02T03:03:05Z", "conditions": [
                    { "type": "FailureTarget", "status": "True" }, { "type": "Failed", "status": "True" },
                ],
            })),
        case(path, job("failing", json!({})), row("failing", "FailureTarget", "0/1", ""))
            .status(json!({ "conditions": is("FailureTarget") })),
        case(path, job("enough", json!({})), row("enough", "SuccessCriteriaMet", "0/1", ""))
            .status(json!({ "conditions": is("SuccessCriteriaMet") })),
        case(path, job("paused", json!({ "suspend": true })), row("paused", "Suspended", "0/1", ""))
            .status(json!({ "conditions": is("Suspended") })),
        case(path, job("goes", json!({ "suspend": true })), row("goes", "Terminating", "0/1", ""))
            .status(json!({ "conditions": is("Suspended") }))
            .deleted(),
    ];
    let columns = "Name | Status | Completions | Duration | Age | (Containers) | (Images) | (Selector)";
    shows(&[("/jobs", columns)], &cases).await;
}

#[tokio::test]
async fn a_cron_job_prints_its_last_schedule() {
    let path = "/apis/batch/v1/namespaces/default/cronjobs";
    let cron_job = |name: &str, mut spec: Value| {
        let mut template = template();
        template["spec"]["restartPolicy"] = json!("Never");
        spec["schedule"] = json!("*/5 * * * *");
        spec["jobTemplate"] = json!({ "spec": { "template": template } });
        json!({ "metadata": { "name": name }, "spec": spec })
    };
    let cases = [
        case(
            path,
            cron_job("new", json!({})),
            json!(["new", "*/5 * * * *", "<none>", "False", 0, "<none>", "0s", "x,y", "i:1,j", "<none>",]),
        ),
        case(
            path,
            cron_job("ran", json!({ "timeZone": "Europe/Berlin", "suspend": true })),
            json!(
                ["ran", "*/5 * * * *", "Europe/Berlin", "True", 2, "4m5s", "0s", "x,y", "i:1,j", "<none>",]
            ),
        )
        .status(json!({
            "active": [{ "name": "a" }, { "name": "b" }], "lastScheduleTime": "2026-01-02T03:00:00Z",
        })),
    ];
    let columns = "Name | Schedule | Timezone | Suspend | Active | Last Schedule | Age | (Containers) | \
                   (Images) | (Selector)";
    shows(&[("/cronjobs", columns)], &cases).await;
}

#[tokio::test]
async fn an_autoscaler_prints_the_value_and_target_of_each_metric() {
    let path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    let autoscaler = |name: &str, metrics: Value| {
        json!({ "metadata": { "name": name }, "spec": {
            "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
            "minReplicas": 2, "maxReplicas": 5, "metrics": metrics,
        }})
    };
    let row = |name: &str, targets: &str, current: i64| {
        json!([name, "Deployment/web", targets, "2", 5, current, "0s"])
    };
    let resource = |name: &str, target: Value| json!({ "type": "Resource", "resource": { "name": name, "target": target } });
    let share = |percent: i64| json!({ "type": "Utilization", "averageUtilization": percent });
    let average = |amount: &str| json!({ "type": "AverageValue", "averageValue": amount });
    let value = |amount: &str| json!({ "type": "Value", "value": amount });
    let cases = [
        case(
            path,
            autoscaler("new", json!([resource("cpu", share(80))])),
            row("new", "cpu: <unknown>/80%", 0),
        ),
        case(
            path,
            autoscaler("two", json!([resource("cpu", share(80)), resource("memory", average("1Gi"))])),
            row("two", "cpu: 50%/80%, memory: 512Mi/1Gi", 3),
        )
        .status(json!({ "currentReplicas": 3, "desiredReplicas": 3, "conditions": [], "currentMetrics": [
            { "type": "Resource", "resource": { "name": "cpu", "current": {
                "averageUtilization": 50, "averageValue": "100m",
            }}},
            { "type": "Resource", "resource": { "name": "memory", "current": { "averageValue": "512Mi" } } },
        ]})),
        case(
            path,
            autoscaler(
                "many",
                json!([
                    { "type": "External", "external": { "metric": { "name": "q" }, "target": average("30") } },
                    { "type": "Pods", "pods": { "metric": { "name": "p" }, "target": average("20") } },
                    resource("cpu", share(80)),
                    resource("memory", share(80)),
                ]),
            ),
            row("many", "15/30 (avg), 12/20 + 2 more...", 3),
        )
        .status(json!({ "currentReplicas": 3, "desiredReplicas": 3, "conditions": [], "currentMetrics": [
            { "type": "External", "external": {
                "metric": { "name": "q" }, "current": { "averageValue": "15" },
            }},
            { "type": "Pods", "pods": { "metric": { "name": "p" }, "current": { "averageValue": "12" } } },
        ]})),
        case(
            path,
            autoscaler(
                "others",
                json!([
                    { "type": "Object", "object": {
                        "metric": { "name": "o" }, "target": value("10"),
                        "describedObject": { "apiVersion": "v1", "kind": "Service", "name": "s" },
                    }},
                    { "type": "ContainerResource", "containerResource": {
                        "name": "cpu", "container": "x", "target": share(70),
                    }},
                ]),
            ),
            row("others", "7/10, cpu: 30%/70%", 3),
        )
        .status(json!({ "currentReplicas": 3, "desiredReplicas": 3, "conditions": [], "currentMetrics": [
            { "type": "Object", "object": {
                "metric": { "name": "o" }, "current": { "value": "7" },
                "describedObject": { "apiVersion": "v1", "kind": "Service", "name": "s" },
            }},
            { "type": "ContainerResource", "containerResource": {
                "name": "cpu", "container": "x",
                "current": { "averageUtilization": 30, "averageValue": "30m" },
            }},
        ]})),
        case(
            "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers",
            json!({ "metadata": { "name": "first" }, "spec": {
                "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
                "minReplicas": 2, "maxReplicas": 5, "targetCPUUtilizationPercentage": 60,
            }}),
            row("first", "cpu: 40%/60%", 1),
        )
        .status(json!({
            "currentReplicas": 1, "desiredReplicas": 1, "currentCPUUtilizationPercentage": 40,
        })),
    ];
    let columns = "Name | Reference | Targets | MinPods | MaxPods | Replicas | Age";
    shows(&[("/horizontalpodautoscalers", columns)], &cases).await;
}

#[tokio::test]
async fn a_budget_prints_its_allowed_disruptions() {
    let path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let budget = |name: &str, mut spec: Value| {
        spec["selector"] = json!({ "matchLabels": { "app": "a" } });
        json!({ "metadata": { "name": name }, "spec": spec })
    };
    let cases = [
        case(path, budget("min", json!({ "minAvailable": 2 })), json!(["min", "2", "N/A", 1, "0s"])).status(
            json!({ "disruptionsAllowed": 1, "currentHealthy": 3, "desiredHealthy": 2, "expectedPods": 3 }),
        ),
        case(path, budget("max", json!({ "maxUnavailable": "50%" })), json!(["max", "N/A", "50%", 0, "0s"])),
    ];
    let columns = "Name | Min Available | Max Unavailable | Allowed Disruptions | Age";
    shows(&[("/poddisruptionbudgets", columns)], &cases).await;
}
