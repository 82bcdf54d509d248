//! A container's environment.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Namespace, Pod, Service};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use plumb_node::cri_config::ConfigError;
use plumb_node::env::{ApiServerAddress, EnvFacts, environment};
use plumb_node::objects::Objects;
use plumb_node::services::Services;
use plumb_testkit::{eventually, object};
use serde_json::{Value, json};

use super::cluster::{Cluster, NODE};

fn facts() -> EnvFacts {
    EnvFacts {
        pod_ips: vec!["10.0.0.5".parse().unwrap(), "fd00::5".parse().unwrap()],
        host_ips: vec!["192.168.1.1".parse().unwrap()],
        allocatable: serde_json::from_value(json!({ "cpu": "3500m", "memory": "4Gi" })).unwrap(),
        api_server: None,
    }
}

/// The variables of the first container of a pod.
async fn variables(cluster: &Cluster, pod: &Pod) -> Result<Vec<(String, String)>, ConfigError> {
    let objects = Objects::new(cluster.node());
    let container = &pod.spec.as_ref().unwrap().containers[0];
    let env = environment(&objects, None, pod, container, &facts()).await?;
    Ok(env.into_iter().map(|env| (env.name, env.value)).collect())
}

/// A pod whose first container has these variables, bound to the node.
async fn pod(cluster: &Cluster, container: Value) -> Pod {
    let mut container = container;
    (container["name"], container["image"]) = (json!("c"), json!("i"));
    cluster
        .pod(json!({ "serviceAccountName": "robot", "containers": [container, {
        "name": "other", "image": "i", "resources": { "requests": { "memory": "100Mi" } },
    }] }))
        .await
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[tokio::test]
async fn variables_come_from_objects_and_from_each_other() {
    let cluster = Cluster::start();
    cluster.config_map("settings", json!({ "A": "1", "B": "2" })).await;
    cluster.secret("keys", json!({ "token": "t" })).await;
    let pod = pod(&cluster, json!({
        "envFrom": [
            { "configMapRef": { "name": "settings" }, "prefix": "CFG_" },
            { "secretRef": { "name": "missing", "optional": true } },
            { "secretRef": { "name": "keys" }, "prefix": "KEY_" },
        ],
        "env": [
            { "name": "CFG_B", "value": "own" },
            { "name": "TOKEN", "valueFrom": { "secretKeyRef": { "name": "keys", "key": "token" } } },
            { "name": "NONE", "valueFrom": { "configMapKeyRef": { "name": "settings", "key": "x", "optional": true } } },
            { "name": "URL", "value": "$(CFG_A)-$(TOKEN)-$(LATER)-$$(CFG_A)" },
            { "name": "LATER", "value": "l" },
            { "name": "EMPTY" },
        ],
    })).await;
    let expected = [
        ("CFG_A", "1"),
        ("CFG_B", "own"),
        ("KEY_token", "t"),
        ("TOKEN", "t"),
        ("URL", "1-t-$(LATER)-$(CFG_A)"),
        ("LATER", "l"),
        ("EMPTY", ""),
    ];
    assert_eq!(variables(&cluster, &pod).await.unwrap(), pairs(&expected));
}

#[tokio::test]
async fn a_pod_gets_its_fields_through_the_downward_api() {
    let cluster = Cluster::start();
    let fields = [
        ("NAME", "metadata.name"),
        ("NAMESPACE", "metadata.namespace"),
        ("LABEL", "metadata.labels['app']"),
        ("NO_LABEL", "metadata.labels['none']"),
        ("NODE", "spec.nodeName"),
        ("ACCOUNT", "spec.serviceAccountName"),
        ("IP", "status.podIP"),
        ("IPS", "status.podIPs"),
        ("HOST", "status.hostIP"),
        ("HOSTS", "status.hostIPs"),
        ("UID", "metadata.uid"),
    ];
    let fields = fields
        .map(|(name, path)| json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": path } } }));
    let pod = pod(&cluster, json!({ "env": fields })).await;
    let (name, uid) = (pod.metadata.name.clone().unwrap(), pod.metadata.uid.clone().unwrap());
    let expected = [
        ("NAME", name.as_str()),
        ("NAMESPACE", "default"),
        ("LABEL", "web"),
        ("NO_LABEL", ""),
        ("NODE", NODE),
        ("ACCOUNT", "robot"),
        ("IP", "10.0.0.5"),
        ("IPS", "10.0.0.5,fd00::5"),
        ("HOST", "192.168.1.1"),
        ("HOSTS", "192.168.1.1"),
        ("UID", uid.as_str()),
    ];
    assert_eq!(variables(&cluster, &pod).await.unwrap(), pairs(&expected));
}

#[tokio::test]
async fn resources_are_divided_by_the_divisor_and_default_to_allocatable() {
    let cluster = Cluster::start();
    let table = [
        ("limits.cpu", None, None, "2"),
        ("limits.cpu", None, Some("1m"), "1500"),
        ("requests.cpu", None, Some("1m"), "250"),
        ("limits.memory", None, Some("1Mi"), "4096"),
        ("requests.memory", None, None, "0"),
        ("requests.memory", Some("other"), Some("1Mi"), "100"),
        ("limits.cpu", Some("other"), Some("1m"), "3500"),
    ];
    let refs: Vec<Value> = table
        .iter()
        .enumerate()
        .map(|(number, (resource, container, divisor, _))| {
            let mut source = json!({ "resource": resource });
            if let Some(container) = container {
                source["containerName"] = json!(container);
            }
            if let Some(divisor) = divisor {
                source["divisor"] = json!(divisor);
            }
            json!({ "name": format!("R{number}"), "valueFrom": { "resourceFieldRef": source } })
        })
        .collect();
    let pod = pod(
        &cluster,
        json!({
            "env": refs, "resources": { "requests": { "cpu": "250m" }, "limits": { "cpu": "1500m" } },
        }),
    )
    .await;
    let found: Vec<String> =
        variables(&cluster, &pod).await.unwrap().into_iter().map(|(_, value)| value).collect();
    assert_eq!(found, table.map(|(.., expected)| expected));
}

#[tokio::test]
async fn missing_objects_are_reported_with_the_kubelets_messages() {
    let cluster = Cluster::start();
    cluster.config_map("settings", json!({ "A": "1" })).await;
    cluster.secret("keys", json!({ "token": "t" })).await;
    let one = |source: Value| json!({ "env": [{ "name": "X", "valueFrom": source }] });
    let table = [
        (json!({ "envFrom": [{ "configMapRef": { "name": "gone" } }] }), r#"configmap "gone" not found"#),
        (
            one(json!({ "configMapKeyRef": { "name": "settings", "key": "x" } })),
            "couldn't find key x in ConfigMap default/settings",
        ),
        (
            one(json!({ "secretKeyRef": { "name": "keys", "key": "x" } })),
            "couldn't find key x in Secret default/keys",
        ),
        (one(json!({ "secretKeyRef": { "name": "gone", "key": "x" } })), r#"secret "gone" not found"#),
    ];
    for (container, expected) in table {
        let pod = pod(&cluster, container.clone()).await;
        let refused = variables(&cluster, &pod).await.unwrap_err();
        assert_eq!(refused, ConfigError::Container(expected.to_owned()), "{container}");
    }
}

#[tokio::test]
async fn programs_find_the_api_server_unless_disabled() {
    let cluster = Cluster::start();
    let own = json!({ "env": [
        { "name": "KUBERNETES_SERVICE_PORT", "value": "1" },
        { "name": "URL", "value": "https://$(KUBERNETES_SERVICE_HOST)" },
    ]});
    let pod = pod(&cluster, own).await;
    let objects = Objects::new(cluster.node());
    let api_server =
        ApiServerAddress { service: ("10.1.1.1".into(), 6443), host: ("127.0.0.1".into(), 7000) };
    let facts = EnvFacts { api_server: Some(api_server), ..facts() };
    let container = &pod.spec.as_ref().unwrap().containers[0];
    let env = environment(&objects, None, &pod, container, &facts).await.unwrap();
    let value = |name: &str| env.iter().find(|env| env.name == name).map(|env| env.value.as_str());
    assert_eq!(value("URL"), Some("https://10.1.1.1"));
    assert_eq!(value("KUBERNETES_SERVICE_PORT"), Some("1"));
    assert_eq!(value("KUBERNETES_PORT_6443_TCP"), Some("tcp://10.1.1.1:6443"));

    // The host network does not have what the node set up for pods.
    let mut on_host = pod.clone();
    on_host.spec.as_mut().unwrap().host_network = Some(true);
    let env = environment(&objects, None, &on_host, container, &facts).await.unwrap();
    let host = env.iter().find(|env| env.name == "KUBERNETES_SERVICE_HOST").unwrap();
    assert_eq!(host.value, "127.0.0.1");
}

/// Services that are watched.
fn watched(cluster: &Cluster) -> Services {
    let services = Services::default();
    let (watching, client) = (services.clone(), cluster.node());
    tokio::spawn(async move { watching.run(client).await });
    services
}

async fn service(cluster: &Cluster, namespace: &str, name: &str, spec: Value) -> Service {
    let services = Api::<Service>::namespaced(cluster.admin(), namespace);
    let service = object(json!({ "metadata": { "name": name }, "spec": spec }));
    services.create(&PostParams::default(), &service).await.unwrap()
}

#[tokio::test]
async fn containers_get_variables_of_the_services_of_their_namespace() {
    let cluster = Cluster::start();
    let namespaces = Api::<Namespace>::all(cluster.admin());
    let elsewhere = object(json!({ "metadata": { "name": "elsewhere" } }));
    namespaces.create(&PostParams::default(), &elsewhere).await.unwrap();
    let http = json!([{ "name": "http", "port": 80 }]);
    let web = service(&cluster, "default", "web", json!({ "ports": http })).await;
    let web = web.spec.unwrap().cluster_ip.unwrap();
    service(&cluster, "default", "peers", json!({ "ports": http, "clusterIP": "None" })).await;
    service(&cluster, "elsewhere", "far", json!({ "ports": http })).await;
    let own = json!({ "env": [
        { "name": "URL", "value": "http://$(WEB_SERVICE_HOST):$(WEB_SERVICE_PORT_HTTP)" },
        { "name": "WEB_SERVICE_PORT", "value": "own" },
    ]});
    let pod = pod(&cluster, own).await;
    let (objects, services) = (Objects::new(cluster.node()), watched(&cluster));
    let api_server =
        ApiServerAddress { service: ("10.1.1.1".into(), 6443), host: ("127.0.0.1".into(), 7000) };
    let facts = EnvFacts { api_server: Some(api_server), ..facts() };
    let env = async |pod: &Pod| {
        let container = &pod.spec.as_ref().unwrap().containers[0];
        let env = environment(&objects, Some(&services), pod, container, &facts).await.unwrap();
        env.into_iter().map(|env| (env.name, env.value)).collect::<BTreeMap<String, String>>()
    };
    let linked = env(&pod).await;
    assert_eq!(linked["WEB_SERVICE_HOST"], web);
    assert_eq!(linked["WEB_PORT_80_TCP"], format!("tcp://{web}:80"));
    // They can be referred to, and the container's own variables come first.
    assert_eq!((&*linked["URL"], &*linked["WEB_SERVICE_PORT"]), (&*format!("http://{web}:80"), "own"));
    let of_others = |name: &String| name.starts_with("PEERS") || name.starts_with("FAR");
    assert!(!linked.keys().any(of_others), "{linked:?}");

    // The API server is named in any case.
    let mut unlinked = pod.clone();
    unlinked.spec.as_mut().unwrap().enable_service_links = Some(false);
    let unlinked = env(&unlinked).await;
    assert!(!unlinked.contains_key("WEB_SERVICE_HOST"));
    assert_eq!(
        (&*unlinked["URL"], &*unlinked["KUBERNETES_SERVICE_HOST"]),
        ("http://$(WEB_SERVICE_HOST):$(WEB_SERVICE_PORT_HTTP)", "10.1.1.1")
    );

    // Deleted and created Services count from the next start of a container on.
    let services_of_default = Api::<Service>::default_namespaced(cluster.admin());
    services_of_default.delete("web", &DeleteParams::default()).await.unwrap();
    service(&cluster, "default", "new", json!({ "ports": http })).await;
    eventually(async || {
        let now = env(&pod).await;
        !now.contains_key("WEB_SERVICE_HOST") && now.contains_key("NEW_SERVICE_HOST")
    })
    .await;
}

#[tokio::test]
async fn a_service_kubernetes_of_another_namespace_hides_the_api_server() {
    let cluster = Cluster::start();
    let namespaces = Api::<Namespace>::all(cluster.admin());
    let team = object(json!({ "metadata": { "name": "team" } }));
    namespaces.create(&PostParams::default(), &team).await.unwrap();
    let mut hosts = BTreeMap::new();
    for namespace in ["default", "team"] {
        let made = service(&cluster, namespace, "kubernetes", json!({ "ports": [{ "port": 1 }] })).await;
        hosts.insert(namespace, made.spec.unwrap().cluster_ip.unwrap());
    }
    let (objects, services) = (Objects::new(cluster.node()), watched(&cluster));
    let api_server =
        ApiServerAddress { service: ("10.1.1.1".into(), 6443), host: ("127.0.0.1".into(), 7000) };
    let facts = EnvFacts { api_server: Some(api_server), ..facts() };
    for (namespace, expected) in [("default", "10.1.1.1"), ("team", &*hosts["team"])] {
        let containers = json!([{ "name": "c" }]);
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "namespace": namespace, "name": "p" }, "spec": { "containers": containers },
        }))
        .unwrap();
        let container = &pod.spec.as_ref().unwrap().containers[0];
        let env = environment(&objects, Some(&services), &pod, container, &facts).await.unwrap();
        let host = env.iter().find(|env| env.name == "KUBERNETES_SERVICE_HOST").unwrap();
        assert_eq!(host.value, expected, "{namespace}");
    }
}
