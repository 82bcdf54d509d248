//! Print columns of the core group.

use plumb_resize::rules::Rules;
use serde_json::{Value, json};

use super::{case, columns, shows, table};
use crate::it::test_api_server::TestApiServer;

const NODES: &str = "/api/v1/nodes";
const EVENTS: &str = "/api/v1/namespaces/default/events";

fn named(name: &str) -> Value {
    json!({ "metadata": { "name": name } })
}

#[tokio::test]
async fn a_node_prints_its_readiness_and_roles() {
    let columns = "Name | Status | Roles | Age | Version | (Internal-IP) | (External-IP) | (OS-Image) | \
                   (Kernel-Version) | (Container-Runtime)";
    let is_ready = |status: &str| json!({ "conditions": [{ "type": "Ready", "status": status }] });
    let unknown = |name: &str, status: &str| {
        json!([name, status, "<none>", "0s", "", "<none>", "<none>", "<unknown>", "<unknown>", "<unknown>"])
    };
    let cases = [
        case(NODES, named("new"), unknown("new", "Unknown")),
        case(NODES, named("ready"), unknown("ready", "Ready")).status(is_ready("True")),
        case(NODES, named("silent"), unknown("silent", "NotReady")).status(is_ready("Unknown")),
        case(
            NODES,
            json!({ "metadata": { "name": "cordoned" }, "spec": { "unschedulable": true } }),
            unknown("cordoned", "NotReady,SchedulingDisabled"),
        )
        .status(is_ready("False")),
        case(
            NODES,
            json!({ "metadata": { "name": "known", "labels": {
                "node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/control-plane": "",
                "kubernetes.io/role": "edge",
            }}}),
            json!([
                "known",
                "Ready",
                "control-plane,edge,worker",
                "0s",
                "v1.36.4",
                "10.0.0.1",
                "1.2.3.4",
                "Debian 12",
                "6.1.0 (amd64)",
                "containerd://2.0",
            ]),
        )
        .status(json!({
            "conditions": [{ "type": "Ready", "status": "True" }],
            "addresses": [
                { "type": "Hostname", "address": "known" }, { "type": "InternalIP", "address": "10.0.0.1" },
                { "type": "InternalIP", "address": "10.0.0.2" }, { "type": "ExternalIP", "address": "1.2.3.4" },
            ],
            "nodeInfo": {
                "kubeletVersion": "v1.36.4", "osImage": "Debian 12", "kernelVersion": "6.1.0",
                "architecture": "amd64", "containerRuntimeVersion": "containerd://2.0", "machineID": "",
                "systemUUID": "", "bootID": "", "kubeProxyVersion": "", "operatingSystem": "linux",
            },
        })),
    ];
    shows(&[("/nodes", columns)], &cases).await;
}

#[tokio::test]
async fn namespaces_config_maps_secrets_and_accounts_have_their_print_columns() {
    let data = "/api/v1/namespaces/default/configmaps";
    let secrets = "/api/v1/namespaces/default/secrets";
    let cases = [
        case("/api/v1/namespaces", named("n"), json!(["n", "Active", "0s"])),
        case(data, named("empty"), json!(["empty", 0, "0s"])),
        case(
            data,
            json!({
                "metadata": { "name": "full" }, "data": { "a": "1", "b": "2" }, "binaryData": { "c": "AA==" },
            }),
            json!(["full", 3, "0s"]),
        ),
        case(secrets, named("plain"), json!(["plain", "Opaque", 0, "0s"])),
        case(
            secrets,
            json!({ "metadata": { "name": "typed" }, "type": "example.com/a", "data": { "a": "AA==" } }),
            json!(["typed", "example.com/a", 1, "0s"]),
        ),
        case("/api/v1/namespaces/default/serviceaccounts", named("robot"), json!(["robot", "0s"])),
        case(
            "/api/v1/namespaces/default/limitranges",
            json!({ "metadata": { "name": "l" }, "spec": { "limits": [] } }),
            json!(["l", "2026-01-02T03:04:05Z"]),
        ),
        case(
            "/api/v1/namespaces/default/podtemplates",
            json!({ "metadata": { "name": "t" }, "template": {
                "metadata": { "labels": { "b": "2", "a": "1" } },
                "spec": { "containers": [{ "name": "x", "image": "i" }, { "name": "y", "image": "j" }] },
            }}),
            json!(["t", "x,y", "i,j", "a=1,b=2"]),
        ),
    ];
    let kinds = [
        ("/namespaces", "Name | Status | Age"),
        ("/configmaps", "Name | Data | Age"),
        ("/secrets", "Name | Type | Data | Age"),
        ("/serviceaccounts", "Name | Age"),
        ("/limitranges", "Name | Created At"),
        ("/podtemplates", "Name | Containers | Images | Pod Labels"),
    ];
    shows(&kinds, &cases).await;
}

#[tokio::test]
async fn a_quota_prints_its_usage() {
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    let cases = [
        case(quotas, named("new"), json!(["new", "", "", "0s"])),
        case(
            quotas,
            named("used"),
            json!([
                "used",
                "pods: 0/10, requests.cpu: 500m/2",
                "limits.cpu: 1/4, limits.memory: 1Gi/8Gi",
                "0s"
            ]),
        )
        .status(json!({
            "hard": { "requests.cpu": "2", "limits.memory": "8Gi", "limits.cpu": "4", "pods": "10" },
            "used": { "requests.cpu": "0.5", "limits.memory": "1024Mi", "limits.cpu": "1" },
        })),
    ];
    shows(&[("/resourcequotas", "Name | Request | Limit | Age")], &cases).await;
}

#[tokio::test]
async fn an_event_prints_when_it_was_last_seen() {
    let columns = "Last Seen | Type | Reason | Object | (Subobject) | (Source) | Message | (First Seen) | \
                   (Count) | (Name)";
    let about = json!({ "kind": "Pod", "namespace": "default", "name": "web" });
    let cases = [
        case(
            EVENTS,
            json!({
                "metadata": { "name": "old" }, "type": "Warning", "reason": "BackOff",
                "message": " it\tcrashes\n", "count": 7, "source": { "component": "kubelet", "host": "n1" },
                "involvedObject": {
                    "kind": "Pod", "namespace": "default", "name": "web", "fieldPath": "spec.containers{a}",
                },
                "firstTimestamp": "2026-01-02T02:04:05Z", "lastTimestamp": "2026-01-02T03:03:55Z",
            }),
            json!([
                "10s",
                "Warning",
                "BackOff",
                "pod/web",
                "spec.containers{a}",
                "kubelet, n1",
                "it\tcrashes",
                "60m",
                7,
                "old",
            ]),
        ),
        case(
            EVENTS,
            json!({
                "metadata": { "name": "unknown" }, "type": "Normal", "reason": "Seen", "message": "m",
                "involvedObject": { "kind": "Pod", "namespace": "default" },
                "source": { "component": "c" },
            }),
            json!(["<unknown>", "Normal", "Seen", "pod", "", "c", "m", "<unknown>", 1, "unknown"]),
        ),
        case(
            EVENTS,
            json!({
                "metadata": { "name": "once" }, "type": "Normal", "reason": "Scheduled", "message": "m",
                "action": "Binding", "involvedObject": about, "eventTime": "2026-01-02T03:00:05.250000Z",
                "reportingComponent": "default-scheduler", "reportingInstance": "s-1",
            }),
            json!([
                "3m59s",
                "Normal",
                "Scheduled",
                "pod/web",
                "",
                "default-scheduler, s-1",
                "m",
                "3m59s",
                1,
                "once"
            ]),
        ),
        case(
            "/apis/events.k8s.io/v1/namespaces/default/events",
            json!({
                "metadata": { "name": "series" }, "type": "Normal", "reason": "Pulled", "note": "n",
                "action": "Pulling", "regarding": about, "eventTime": "2026-01-02T03:00:05.000000Z",
                "reportingController": "kubelet", "reportingInstance": "n1",
                "series": { "count": 5, "lastObservedTime": "2026-01-02T03:04:00.000000Z" },
            }),
            json!(["5s", "Normal", "Pulled", "pod/web", "", "kubelet, n1", "n", "4m", 5, "series"]),
        ),
    ];
    shows(&[("/events", columns)], &cases).await;
}

#[tokio::test]
async fn a_table_without_rows_has_its_columns() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let table = table(&apiserver, "/api/v1/componentstatuses").await;
    assert_eq!(columns(&table).join(" | "), "Name | Status | Message | Error");
    assert_eq!(table["rows"], json!([]));
}
