//! What a node may read and write.

use http::Method;
use serde_json::{Value, json};

use super::{As, Cluster, admin, node, pod_on};

/// Two nodes, and a pod on the first that needs things.
async fn cluster() -> Cluster {
    let cluster = Cluster::start();
    for name in ["n1", "n2"] {
        let body = json!({ "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name } } });
        cluster.post(&node(name), "/api/v1/nodes", &body).await.ok();
    }
    let mut pod = pod_on("n1", "web");
    pod["spec"]["serviceAccountName"] = json!("web");
    pod["spec"]["imagePullSecrets"] = json!([{ "name": "pull" }]);
    pod["spec"]["containers"][0]["env"] = json!([
        { "name": "A", "valueFrom": { "secretKeyRef": { "name": "env", "key": "k" } } },
        { "name": "B", "valueFrom": { "configMapKeyRef": { "name": "env", "key": "k" } } },
    ]);
    pod["spec"]["volumes"] = json!([
        { "name": "s", "secret": { "secretName": "vol" } },
        { "name": "c", "configMap": { "name": "vol" } },
        { "name": "p", "persistentVolumeClaim": { "claimName": "data" } },
        { "name": "t", "projected": { "sources": [
            { "serviceAccountToken": { "path": "token", "audience": "vault" } },
            { "secret": { "name": "projected" } }] } },
    ]);
    cluster.make("/api/v1/namespaces/default/pods", &pod).await;
    cluster.make("/api/v1/namespaces/default/pods", &pod_on("n2", "other")).await;
    cluster
        .make("/api/v1/namespaces/default/serviceaccounts", &json!({ "metadata": { "name": "web" } }))
        .await;
    for name in ["pull", "env", "vol", "projected", "unrelated", "stage"] {
        cluster.make("/api/v1/namespaces/default/secrets", &json!({ "metadata": { "name": name } })).await;
    }
    let volume = json!({ "metadata": { "name": "disk" }, "spec": {
        "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"],
        "claimRef": { "namespace": "default", "name": "data" },
        "csi": { "driver": "d", "volumeHandle": "h", "nodeStageSecretRef": { "namespace": "default", "name": "stage" } } } });
    cluster.make("/api/v1/persistentvolumes", &volume).await;
    cluster
}

#[tokio::test]
async fn a_node_reads_what_its_pods_need_and_writes_what_is_its_own() {
    let cluster = cluster().await;
    let (one, two) = (node("n1"), node("n2"));
    let space = "/api/v1/namespaces/default";
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    let (get, patch, put, post, delete) =
        (Method::GET, Method::PATCH, Method::PUT, Method::POST, Method::DELETE);
    let table: Vec<(&As, &Method, String, bool)> = vec![
        (&one, &get, format!("{space}/secrets/pull"), true),
        (&one, &get, format!("{space}/secrets/env"), true),
        (&one, &get, format!("{space}/secrets/vol"), true),
        (&one, &get, format!("{space}/secrets/projected"), true),
        (&one, &get, format!("{space}/secrets/stage"), true),
        (&one, &get, format!("{space}/secrets/unrelated"), false),
        (&one, &get, format!("{space}/secrets"), false),
        (&one, &get, format!("{space}/secrets?watch=1&fieldSelector=metadata.name%3Dvol"), true),
        (&one, &get, format!("{space}/secrets?watch=1&fieldSelector=metadata.name%3Dunrelated"), false),
        (&one, &get, "/api/v1/secrets".into(), false),
        (&one, &put, format!("{space}/secrets/vol"), false),
        (&two, &get, format!("{space}/secrets/vol"), false),
        (&two, &get, format!("{space}/secrets/stage"), false),
        (&one, &get, format!("{space}/configmaps/env"), true),
        (&one, &get, format!("{space}/configmaps/vol"), true),
        (&one, &get, format!("{space}/configmaps/unrelated"), false),
        (&one, &get, format!("{space}/persistentvolumeclaims/data"), true),
        (&one, &get, format!("{space}/persistentvolumeclaims"), false),
        (&two, &get, format!("{space}/persistentvolumeclaims/data"), false),
        (&one, &get, "/api/v1/persistentvolumes/disk".into(), true),
        (&two, &get, "/api/v1/persistentvolumes/disk".into(), false),
        (&one, &get, format!("{space}/serviceaccounts/web"), true),
        (&one, &get, format!("{space}/serviceaccounts/default"), false),
        (&one, &get, format!("{space}/pods/web"), true),
        (&one, &get, format!("{space}/pods/other"), false),
        // Network policies select pods of the whole cluster (`plumb:node-network-policies`).
        (&one, &get, "/api/v1/pods".into(), true),
        (&one, &get, "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1".into(), true),
        (&one, &get, "/api/v1/pods?fieldSelector=spec.nodeName%3Dn2".into(), true),
        (&one, &get, "/api/v1/pods?watch=1&fieldSelector=spec.nodeName%3Dn1".into(), true),
        (&one, &get, "/api/v1/nodes/n1".into(), true),
        (&one, &get, "/api/v1/nodes/n2".into(), true),
        (&one, &get, "/api/v1/nodes".into(), true),
        (&one, &get, "/api/v1/nodes?watch=1&fieldSelector=metadata.name%3Dn1".into(), true),
        (&one, &get, "/api/v1/services".into(), true),
        (&one, &get, "/apis/discovery.k8s.io/v1/endpointslices".into(), true),
        (&one, &get, "/apis/node.k8s.io/v1/runtimeclasses".into(), true),
        (&one, &get, "/apis/storage.k8s.io/v1/csidrivers".into(), true),
        (&one, &post, format!("{space}/events"), true),
        (&one, &patch, "/api/v1/nodes/n1/status".into(), true),
        (&one, &patch, "/api/v1/nodes/n2/status".into(), false),
        (&one, &patch, "/api/v1/nodes/n2".into(), false),
        (&one, &delete, "/api/v1/nodes/n1".into(), false),
        (&one, &patch, format!("{space}/pods/web/status"), true),
        (&one, &patch, format!("{space}/pods/other/status"), false),
        (&one, &patch, format!("{space}/pods/web"), false),
        (&one, &patch, format!("{space}/pods/web/resize"), false),
        (&one, &post, format!("{space}/pods"), false),
        (&one, &delete, format!("{space}/pods/other"), false),
        (&one, &get, format!("{leases}/n1"), true),
        (&one, &get, format!("{leases}/n2"), false),
        (&one, &get, leases.into(), false),
        (&one, &get, "/apis/rbac.authorization.k8s.io/v1/clusterroles".into(), false),
        (&one, &delete, format!("{space}/pods/web"), true),
    ];
    for (who, method, path, allowed) in table {
        let body = if *method == post { json!({ "metadata": { "name": "x" } }) } else { json!({}) };
        let answer = cluster.request(who, method.clone(), &path, &body).await;
        assert_eq!(answer.code != 403, allowed, "{method} {path}: {} {}", answer.code, answer.body);
    }
}

#[tokio::test]
async fn a_secret_is_out_of_reach_once_the_last_pod_that_needs_it_is_gone() {
    let cluster = cluster().await;
    let secret = "/api/v1/namespaces/default/secrets/unrelated";
    let pods = "/api/v1/namespaces/default/pods";
    let one = node("n1");
    for name in ["a", "b"] {
        let mut pod = pod_on("", name);
        pod["spec"]["volumes"] = json!([{ "name": "s", "secret": { "secretName": "unrelated" } }]);
        cluster.make(pods, &pod).await;
    }
    assert_eq!(cluster.get(&one, secret).await.code, 403);
    for name in ["a", "b"] {
        let binding = json!({ "metadata": { "name": name }, "target": { "kind": "Node", "name": "n1" } });
        cluster.make(&format!("{pods}/{name}/binding"), &binding).await;
        assert_eq!(cluster.get(&one, secret).await.code, 200);
    }
    let now = json!({ "gracePeriodSeconds": 0 });
    cluster.request(&admin(), Method::DELETE, &format!("{pods}/a"), &now).await.ok();
    assert_eq!(cluster.get(&one, secret).await.code, 200);
    cluster.request(&one, Method::DELETE, &format!("{pods}/b"), &now).await.ok();
    let (code, message) = cluster.get(&one, secret).await.rejected();
    let text = "secrets \"unrelated\" is forbidden: User \"system:node:n1\" cannot get resource \"secrets\" in API group \"\" in the namespace \"default\": no relationship found between node 'n1' and this object";
    assert_eq!((code, message.as_str()), (403, text));
}

#[tokio::test]
async fn a_node_cannot_change_labels_and_taints_that_attract_pods() {
    let cluster = cluster().await;
    let one = node("n1");
    let table = [
        (json!({ "metadata": { "labels": { "example.com/a": "b" } } }), None),
        (json!({ "metadata": { "labels": { "node.kubernetes.io/x": "y" } } }), None),
        (
            json!({ "metadata": { "labels": { "node-restriction.kubernetes.io/x": "y", "foo.k8s.io/z": "y" } } }),
            Some(
                "nodes \"n1\" is forbidden: is not allowed to modify labels: foo.k8s.io/z, node-restriction.kubernetes.io/x",
            ),
        ),
        (
            json!({ "spec": { "taints": [{ "key": "a", "effect": "NoSchedule" }] } }),
            Some("nodes \"n1\" is forbidden: node \"n1\" is not allowed to modify taints"),
        ),
        (
            json!({ "metadata": { "ownerReferences": [{ "apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "y" }] } }),
            Some("nodes \"n1\" is forbidden: node \"n1\" is not allowed to modify ownerReferences"),
        ),
    ];
    for (change, text) in table {
        let answer = cluster.patch(&one, "/api/v1/nodes/n1", &change).await;
        match text {
            None => drop(answer.ok()),
            Some(text) => assert_eq!(answer.rejected(), (403, text.to_owned()), "{change}"),
        }
    }
    let new = json!({ "metadata": { "name": "n3", "labels": { "node-restriction.kubernetes.io/x": "y" } } });
    let (code, message) = cluster.post(&node("n3"), "/api/v1/nodes", &new).await.rejected();
    assert_eq!(code, 403);
    assert!(
        message.ends_with(
            "node \"n3\" is not allowed to set the following labels: node-restriction.kubernetes.io/x"
        ),
        "{message}"
    );
    let (code, message) =
        cluster.post(&one, "/api/v1/nodes", &json!({ "metadata": { "name": "n3" } })).await.rejected();
    assert_eq!(code, 403);
    assert!(message.ends_with("node \"n1\" is not allowed to modify node \"n3\""), "{message}");
    let lease = json!({ "metadata": { "name": "n2" } });
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    assert_eq!(cluster.post(&one, leases, &lease).await.rejected().0, 403);
    cluster.post(&one, leases, &json!({ "metadata": { "name": "n1" } })).await.ok();
}

#[tokio::test]
async fn a_node_can_create_only_mirror_pods() {
    let cluster = cluster().await;
    let one = node("n1");
    let pods = "/api/v1/namespaces/default/pods";
    let uid = cluster.get(&admin(), "/api/v1/nodes/n1").await.ok()["metadata"]["uid"].clone();
    let mirror = |change: &dyn Fn(&mut Value)| {
        let mut pod = pod_on("n1", "mirror");
        pod["metadata"]["annotations"] = json!({ "kubernetes.io/config.mirror": "abc" });
        pod["metadata"]["ownerReferences"] =
            json!([{ "apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid, "controller": true }]);
        change(&mut pod);
        pod
    };
    let table: [(Value, &str); 7] = [
        (
            mirror(&|pod| pod["metadata"]["annotations"] = json!({})),
            "pod does not have \"kubernetes.io/config.mirror\" annotation, node \"n1\" can only create mirror pods",
        ),
        (
            mirror(&|pod| pod["spec"]["nodeName"] = json!("n2")),
            "node \"n1\" can only create pods with spec.nodeName set to itself",
        ),
        (
            mirror(&|pod| pod["metadata"]["ownerReferences"] = json!([])),
            "node \"n1\" can only create pods with an owner reference set to itself",
        ),
        (
            mirror(&|pod| pod["metadata"]["ownerReferences"][0]["controller"] = json!(false)),
            "node \"n1\" can only create pods with a controller owner reference set to itself",
        ),
        (
            mirror(&|pod| {
                pod["spec"]["volumes"] = json!([{ "name": "v", "secret": { "secretName": "unrelated" } }]);
            }),
            "node \"n1\" can not create pods that reference secrets",
        ),
        (
            mirror(&|pod| {
                pod["spec"]["volumes"] =
                    json!([{ "name": "v", "persistentVolumeClaim": { "claimName": "c" } }]);
            }),
            "node \"n1\" can not create pods that reference persistentvolumeclaims",
        ),
        (
            mirror(&|pod| pod["spec"]["serviceAccountName"] = json!("web")),
            "node \"n1\" can not create pods that reference serviceaccounts",
        ),
    ];
    for (pod, text) in table {
        let (code, message) = cluster.post(&one, pods, &pod).await.rejected();
        assert_eq!(code, 403, "{text}: {message}");
        assert!(message.ends_with(text), "{message}");
    }
    cluster.post(&one, pods, &mirror(&|_| ())).await.ok();
}

#[tokio::test]
async fn a_node_gets_tokens_for_its_own_pods_and_their_audiences() {
    let cluster = cluster().await;
    let path = "/api/v1/namespaces/default/serviceaccounts/web/token";
    let uid =
        cluster.get(&admin(), "/api/v1/namespaces/default/pods/web").await.ok()["metadata"]["uid"].clone();
    let bound = |name: &str, uid: &Value, audiences: Value| {
        json!({ "spec": { "audiences": audiences,
            "boundObjectRef": { "kind": "Pod", "apiVersion": "v1", "name": name, "uid": uid } } })
    };
    cluster.post(&node("n1"), path, &bound("web", &uid, json!(["vault"]))).await.ok();
    let table = [
        (node("n1"), json!({ "spec": {} }), "node requested token not bound to a pod"),
        (
            node("n1"),
            bound("web", &Value::Null, json!(["vault"])),
            "node requested token with a pod binding without a uid",
        ),
        (
            node("n1"),
            bound("web", &uid, json!(["other"])),
            "audience \"other\" not found in pod spec volume, system:node:n1 is not authorized to request tokens for this audience",
        ),
        (
            node("n2"),
            bound("web", &uid, json!(["vault"])),
            "no relationship found between node 'n2' and this object",
        ),
    ];
    for (who, body, text) in table {
        let (code, message) = cluster.post(&who, path, &body).await.rejected();
        assert_eq!(code, 403, "{message}");
        assert!(message.ends_with(text), "{message}");
    }
}
