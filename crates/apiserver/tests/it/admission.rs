//! Admission plugins, as seen by a client.

use plumb_apiserver::Limits;
use plumb_apiserver::admission::Plugins;
use plumb_resize::rules::Rules;
use serde_json::{Value, json};

use super::scenarios;
use super::test_api_server::{TestApiServer, pod};

const PODS: &str = "/api/v1/namespaces/default/pods";

#[tokio::test]
async fn system_namespaces_cannot_be_deleted_and_a_terminating_one_rejects_new_objects() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    for name in ["default", "kube-system", "kube-public"] {
        assert_eq!(
            apiserver.delete(&format!("/api/v1/namespaces/{name}"), &Value::Null).await.rejected(),
            (
                403,
                "Forbidden".into(),
                format!("namespaces \"{name}\" is forbidden: this namespace may not be deleted")
            )
        );
    }
    apiserver.post("/api/v1/namespaces", &json!({ "metadata": { "name": "short" } })).await.ok();
    apiserver.delete("/api/v1/namespaces/short", &Value::Null).await.ok();
    let maps = "/api/v1/namespaces/short/configmaps";
    let answer = apiserver.post(maps, &json!({ "metadata": { "name": "a" } })).await;
    assert_eq!(answer.body["details"]["causes"][0]["reason"], "NamespaceTerminating");
    assert_eq!(
        answer.rejected().2,
        "configmaps \"a\" is forbidden: unable to create new content in namespace short because it is being terminated"
    );
    let nowhere = apiserver
        .post("/api/v1/namespaces/nowhere/configmaps", &json!({ "metadata": { "name": "a" } }))
        .await;
    assert_eq!(nowhere.rejected().2, "namespaces \"nowhere\" not found");
}

#[tokio::test]
async fn a_pod_gets_the_priority_of_its_class() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    let made = apiserver.post(PODS, &pod("plain", "1m", "1Mi")).await.ok();
    assert_eq!(
        (&made["spec"]["priority"], &made["spec"]["preemptionPolicy"]),
        (&json!(0), &json!("PreemptLowerPriority"))
    );
    let mut critical = pod("critical", "1m", "1Mi");
    critical["spec"]["priorityClassName"] = json!("system-node-critical");
    assert_eq!(apiserver.post(PODS, &critical).await.ok()["spec"]["priority"], 2_000_001_000);
    let mut lost = pod("lost", "1m", "1Mi");
    lost["spec"]["priorityClassName"] = json!("nope");
    assert_eq!(
        apiserver.post(PODS, &lost).await.rejected().2,
        "pods \"lost\" is forbidden: no PriorityClass with name nope was found"
    );
    let class = |name: &str| json!({ "metadata": { "name": name }, "value": 7, "globalDefault": true });
    apiserver.post(classes, &class("usual")).await.ok();
    assert_eq!(
        apiserver.post(classes, &class("second")).await.rejected().2,
        "priorityclasses.scheduling.k8s.io \"second\" is forbidden: PriorityClass usual is already marked as \
         default. Only one default can exist"
    );
    let made = apiserver.post(PODS, &pod("next", "1m", "1Mi")).await.ok();
    assert_eq!((&made["spec"]["priorityClassName"], &made["spec"]["priority"]), (&json!("usual"), &json!(7)));
}

#[tokio::test]
async fn a_pod_runs_as_a_service_account_and_finds_its_token() {
    let apiserver = TestApiServer::open_with(Rules::v1_36(), Plugins::default());
    assert_eq!(
        apiserver.post(PODS, &pod("web", "1m", "1Mi")).await.rejected(),
        (
            403,
            "Forbidden".into(),
            "pods \"web\" is forbidden: error looking up service account default/default: serviceaccount \
             \"default\" not found"
                .into()
        )
    );
    let account = json!({ "metadata": { "name": "default" }, "imagePullSecrets": [{ "name": "registry" }] });
    apiserver.post("/api/v1/namespaces/default/serviceaccounts", &account).await.ok();
    let made = apiserver.post(PODS, &pod("web", "1m", "1Mi")).await.ok();
    let spec = &made["spec"];
    assert_eq!(
        (&spec["serviceAccountName"], &spec["serviceAccount"]),
        (&json!("default"), &json!("default"))
    );
    assert_eq!(spec["imagePullSecrets"], json!([{ "name": "registry" }]));
    let volume = spec["volumes"][0]["name"].as_str().unwrap();
    assert!(volume.starts_with("kube-api-access-"), "{volume}");
    assert!(spec.get("initContainers").is_none(), "nothing is made of what is not there");
    assert_eq!(spec["containers"][0]["volumeMounts"][0]["name"], volume);
    let mut bare = pod("bare", "1m", "1Mi");
    bare["spec"]["automountServiceAccountToken"] = json!(false);
    assert!(apiserver.post(PODS, &bare).await.ok()["spec"].get("volumes").is_none());
}

#[tokio::test]
async fn a_pod_of_a_new_namespace_waits_for_its_account() {
    let apiserver = TestApiServer::open_with(Rules::v1_36(), Plugins::default());
    let web = pod("web", "1m", "1Mi");
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let others = async {
        // Neither of these is the one that it waits for.
        apiserver.post(accounts, &json!({ "metadata": { "name": "default-2" } })).await.ok();
        apiserver.post("/api/v1/namespaces", &json!({ "metadata": { "name": "near" } })).await.ok();
        apiserver
            .post("/api/v1/namespaces/near/serviceaccounts", &json!({ "metadata": { "name": "default" } }))
            .await
            .ok();
        apiserver.post(accounts, &json!({ "metadata": { "name": "default" } })).await.ok();
    };
    let (made, ()) = tokio::join!(apiserver.post(PODS, &web), others);
    assert_eq!(made.ok()["spec"]["serviceAccountName"], "default");

    let mut named = pod("named", "1m", "1Mi");
    named["spec"]["serviceAccountName"] = json!("missing");
    assert_eq!(
        apiserver.post(PODS, &named).await.rejected().2,
        "pods \"named\" is forbidden: error looking up service account default/missing: serviceaccount \
         \"missing\" not found"
    );
}

#[tokio::test]
async fn pods_that_wait_for_a_service_account_do_not_block_other_writes() {
    let apiserver = TestApiServer::narrow(Rules::v1_36(), Limits { writing: 1, ..Limits::default() });
    let (one, two) = (pod("one", "1m", "1Mi"), pod("two", "1m", "1Mi"));
    let account = json!({ "metadata": { "name": "default" } });
    let (one, two, account) = tokio::join!(
        apiserver.post(PODS, &one),
        apiserver.post(PODS, &two),
        apiserver.post("/api/v1/namespaces/default/serviceaccounts", &account),
    );
    account.ok();
    // They take the one place in turn.
    for made in [one, two] {
        assert_eq!(made.ok()["spec"]["serviceAccountName"], "default");
    }
}

#[tokio::test]
async fn plugins_set_default_fields_of_new_objects() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let node = apiserver.post("/api/v1/nodes", &json!({ "metadata": { "name": "n" } })).await.ok();
    assert_eq!(
        node["spec"]["taints"],
        json!([{ "key": "node.kubernetes.io/not-ready", "effect": "NoSchedule" }])
    );
    let made = apiserver.post(PODS, &pod("web", "1m", "1Mi")).await.ok();
    let keys: Vec<&str> = made["spec"]["tolerations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["key"].as_str().unwrap())
        .collect();
    assert_eq!(keys, ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]);
    assert_eq!(made["spec"]["tolerations"][0]["tolerationSeconds"], 300);
    let class = json!({
        "metadata": { "name": "gold", "annotations": { "storageclass.kubernetes.io/is-default-class": "true" } },
        "provisioner": "example.com/disk",
    });
    apiserver.post("/apis/storage.k8s.io/v1/storageclasses", &class).await.ok();
    let claim = json!({ "metadata": { "name": "c" }, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } },
    } });
    let claim = apiserver.post("/api/v1/namespaces/default/persistentvolumeclaims", &claim).await.ok();
    assert_eq!(claim["spec"]["storageClassName"], "gold");
}

#[tokio::test]
async fn a_runtime_class_sets_the_overhead_of_its_pods() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let class = json!({
        "metadata": { "name": "box" }, "handler": "box", "overhead": { "podFixed": { "cpu": "250m" } },
        "scheduling": { "nodeSelector": { "kind": "box" } },
    });
    apiserver.post("/apis/node.k8s.io/v1/runtimeclasses", &class).await.ok();
    let with = |name: &str, class: Option<&str>, overhead: Option<&str>| {
        let mut pod = pod(name, "1m", "1Mi");
        if let Some(class) = class {
            pod["spec"]["runtimeClassName"] = json!(class);
        }
        if let Some(cpu) = overhead {
            pod["spec"]["overhead"] = json!({ "cpu": cpu });
        }
        pod
    };
    let made = apiserver.post(PODS, &with("a", Some("box"), None)).await.ok();
    assert_eq!(made["spec"]["overhead"], json!({ "cpu": "250m" }));
    assert_eq!(made["spec"]["nodeSelector"], json!({ "kind": "box" }));
    apiserver.post(PODS, &with("b", Some("box"), Some("0.25"))).await.ok();
    let table = [
        (with("c", Some("none"), None), "pod rejected: RuntimeClass \"none\" not found"),
        (
            with("c", Some("box"), Some("1")),
            "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
        ),
        (
            with("c", None, Some("1")),
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
        ),
    ];
    for (pod, why) in table {
        assert_eq!(apiserver.post(PODS, &pod).await.rejected().2, format!("pods \"c\" is forbidden: {why}"));
    }
}

#[tokio::test]
async fn a_runtime_class_says_where_its_pods_run() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let taint = |effect: &str| json!({ "key": "box", "operator": "Exists", "effect": effect });
    let class = json!({
        "metadata": { "name": "box" }, "handler": "box",
        "scheduling": { "nodeSelector": { "kind": "box" }, "tolerations": [taint("NoSchedule")] },
    });
    apiserver.post("/apis/node.k8s.io/v1/runtimeclasses", &class).await.ok();
    let with = |name: &str, selector: Value, tolerations: Value| {
        let mut pod = pod(name, "1m", "1Mi");
        pod["spec"]["runtimeClassName"] = json!("box");
        pod["spec"]["nodeSelector"] = selector;
        pod["spec"]["tolerations"] = tolerations;
        pod
    };
    let other = json!({ "key": "other", "operator": "Exists" });
    let made = apiserver.post(PODS, &with("a", json!({ "disk": "ssd" }), json!([other]))).await.ok();
    assert_eq!(made["spec"]["nodeSelector"], json!({ "disk": "ssd", "kind": "box" }));
    let tolerations = made["spec"]["tolerations"].as_array().unwrap();
    assert!(tolerations.contains(&other) && tolerations.contains(&taint("NoSchedule")), "{tolerations:?}");
    // What the pod tolerates already is not added.
    let wide = json!({ "key": "box", "operator": "Exists" });
    let made = apiserver.post(PODS, &with("b", json!({}), json!([wide]))).await.ok();
    let tolerations = made["spec"]["tolerations"].as_array().unwrap();
    assert!(tolerations.contains(&wide) && !tolerations.contains(&taint("NoSchedule")), "{tolerations:?}");
    let refused = apiserver.post(PODS, &with("c", json!({ "kind": "plain" }), json!([]))).await.rejected().2;
    let why =
        "conflict: runtimeClass.scheduling.nodeSelector[kind] = box; pod.spec.nodeSelector[kind] = plain";
    assert_eq!(refused, format!("pods \"c\" is forbidden: {why}"));
}

#[tokio::test]
async fn admission_has_the_messages_of_kube_apiserver() {
    let apiserver = TestApiServer::open_with(Rules::v1_36(), Plugins::default());
    scenarios::play(&apiserver, include_str!("admission.json")).await;
}
