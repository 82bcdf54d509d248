//! The CRI configuration of a pod.

use std::net::IpAddr;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::Pod;
use plumb_node::cri_config::{
    ClusterDns, ConfigError, HASH, SandboxDefaults, container, host_name, oom_score_adj, pod_dns, sandbox,
    spec_hash,
};
use plumb_resize::pod::{PodResources, PodShape};
use plumb_runtime::types::{
    ContainerConfig, Env, Image, LinuxResources, NamespaceMode, Protocol, QosClass, SandboxConfig,
    SeccompProfile,
};
use serde_json::{Value, json};

fn pod(spec: Value) -> Pod {
    let mut spec = spec;
    if spec.get("containers").is_none() {
        spec["containers"] = json!([{ "name": "c", "image": "i" }]);
    }
    let metadata = json!({
        "name": "web-0", "namespace": "shop", "uid": "u-1",
        "labels": { "app": "web" }, "annotations": { "virtual.plumb.dev/model": "cpu=1" },
    });
    serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
}

fn place() -> SandboxDefaults {
    SandboxDefaults {
        log_root: PathBuf::from("/logs"),
        cluster_dns: Some(ClusterDns { servers: vec!["10.96.0.10".into()], domain: "cluster.local".into() }),
        ..SandboxDefaults::default()
    }
}

fn sandbox_of(spec: Value) -> Result<SandboxConfig, ConfigError> {
    let (pod, defaults) = (pod(spec), place());
    let dns = pod_dns(&pod, defaults.cluster_dns.as_ref(), None).dns;
    sandbox(&pod, QosClass::Burstable, 2, LinuxResources::default(), &defaults, dns)
}

/// The first container of a pod, of an image that runs as this user.
fn container_of(pod: &Pod, image_user: &str) -> Result<ContainerConfig, ConfigError> {
    let image = Image { user: image_user.into(), ..Image::default() };
    let env = [("HOST", "db"), ("PORT", "1")];
    let env = env.map(|(name, value)| Env { name: name.into(), value: value.into() }).to_vec();
    let first = &pod.spec.as_ref().unwrap().containers[0];
    container(pod, first, 3, LinuxResources::default(), &image, env, Vec::new())
}

#[test]
fn a_sandbox_is_named_and_labelled_after_its_pod() {
    let config = sandbox_of(json!({})).unwrap();
    assert_eq!((config.meta.name.as_str(), config.meta.attempt), ("web-0", 2));
    assert_eq!(config.hostname, "web-0");
    assert_eq!(config.log_directory, Some(PathBuf::from("/logs/shop_web-0_u-1")));
    let labels = [
        ("app", "web"),
        ("io.kubernetes.pod.name", "web-0"),
        ("io.kubernetes.pod.namespace", "shop"),
        ("io.kubernetes.pod.uid", "u-1"),
    ];
    assert_eq!(config.labels, labels.map(|(name, value)| (name.into(), value.into())).into());
    assert_eq!(config.annotations["virtual.plumb.dev/model"], "cpu=1");
    assert_eq!(config.dns.unwrap().servers, ["10.96.0.10"]);
}

#[test]
fn a_pod_has_the_namespaces_of_its_spec() {
    use NamespaceMode::{Container, Node, Pod};
    let table = [
        (json!({}), (Pod, Container, Pod)),
        (json!({ "shareProcessNamespace": true }), (Pod, Pod, Pod)),
        (json!({ "hostPID": true, "hostIPC": true }), (Pod, Node, Node)),
        (json!({ "hostNetwork": true }), (Node, Container, Pod)),
    ];
    for (spec, expected) in table {
        let namespaces = sandbox_of(spec.clone()).unwrap().namespaces;
        assert_eq!((namespaces.network, namespaces.pid, namespaces.ipc), expected, "{spec}");
    }
}

#[test]
fn ports_aliases_and_kernel_parameters_are_passed_on() {
    let config = sandbox_of(json!({
        "containers": [{ "name": "c", "image": "i", "ports": [
            { "containerPort": 80, "hostPort": 8080, "hostIP": "127.0.0.1" },
            { "containerPort": 53, "hostPort": 5353, "protocol": "UDP" },
            { "containerPort": 90 },
        ]}],
        "hostAliases": [{ "ip": "10.1.2.3", "hostnames": ["a", "b"] }],
        "securityContext": { "sysctls": [{ "name": "net.core.somaxconn", "value": "99" }] },
    }))
    .unwrap();
    let ports: Vec<_> = config
        .port_mappings
        .iter()
        .map(|port| (port.protocol, port.container_port, port.host_port))
        .collect();
    assert_eq!(ports, [(Protocol::Tcp, 80, 8080), (Protocol::Udp, 53, 5353)]);
    let address: IpAddr = "10.1.2.3".parse().unwrap();
    assert_eq!(config.host_aliases, [(address, vec!["a".to_owned(), "b".to_owned()])]);
    assert_eq!(config.sysctls["net.core.somaxconn"], "99");
}

#[test]
fn a_pod_on_the_machines_network_has_its_name_and_ports() {
    let config = sandbox_of(json!({
        "hostNetwork": true,
        "containers": [{ "name": "c", "image": "i", "ports": [{ "containerPort": 80, "hostPort": 80 }] }],
    }))
    .unwrap();
    assert_eq!((config.hostname.as_str(), config.port_mappings.len()), ("", 0));
}

#[test]
fn host_names_fit_the_kernel() {
    let mut long = pod(json!({}));
    long.metadata.name = Some(format!("{}-{}", "a".repeat(62), "b".repeat(9)));
    assert_eq!(host_name(&long), "a".repeat(62));
    assert_eq!(host_name(&pod(json!({ "hostname": "other" }))), "other");
    let full = json!({ "hostname": "h", "subdomain": "s", "setHostnameAsFQDN": true });
    assert_eq!(sandbox_of(full).unwrap().hostname, "h.s.shop.svc.cluster.local");
    // `/etc/hosts` has the full name of every pod with a subdomain.
    let domain = |spec: Value| sandbox_of(spec).unwrap().domain;
    assert_eq!(domain(json!({ "hostname": "h", "subdomain": "s" })), "s.shop.svc.cluster.local");
    assert_eq!(domain(json!({ "hostname": "h" })), "");
    assert_eq!(domain(json!({ "subdomain": "s", "hostNetwork": true })), "");
    let long = json!({ "hostname": "h".repeat(60), "subdomain": "s", "setHostnameAsFQDN": true });
    let refused = sandbox_of(long).unwrap_err();
    assert!(refused.to_string().ends_with("is too long (64 characters is the max, 85 characters requested)"));
    assert_eq!(refused.event_reason(), "FailedCreatePodSandBox");
}

#[test]
fn user_namespaces_are_refused_rather_than_ignored() {
    let refused = sandbox_of(json!({ "hostUsers": false })).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "can't set `spec.hostUsers: false`, runtime does not support user namespaces"
    );
}

#[test]
fn a_container_is_configured_by_its_spec() {
    let pod = pod(json!({ "terminationGracePeriodSeconds": 7, "containers": [{
        "name": "c", "image": "i:1", "command": ["sh", "$(HOST)", "$(NONE)"], "args": ["$$(PORT)", "$(PORT)"],
        "workingDir": "/srv", "tty": true, "stdin": true,
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
        "lifecycle": { "stopSignal": "SIGQUIT", "preStop": { "exec": { "command": ["true"] } } },
    }]}));
    let config = container_of(&pod, "").unwrap();
    assert_eq!((config.meta.name.as_str(), config.meta.attempt, config.image.as_str()), ("c", 3, "i:1"));
    assert_eq!(config.command, ["sh", "db", "$(NONE)"]);
    assert_eq!(config.args, ["$(PORT)", "1"]);
    assert_eq!(config.working_dir.as_deref(), Some("/srv"));
    assert!(config.tty && config.stdin);
    assert_eq!(config.stop_signal.as_deref(), Some("SIGQUIT"));
    assert_eq!(config.log_path, Some(PathBuf::from("c/3.log")));
    assert_eq!((config.log_limits.max_size, config.log_limits.max_files), (10 << 20, 5));
    assert_eq!(config.labels["io.kubernetes.container.name"], "c");
    let annotation = |name: &str| config.annotations[&format!("io.kubernetes.{name}")].as_str();
    assert_eq!(annotation("container.restartCount"), "3");
    assert_eq!(annotation("container.terminationMessagePath"), "/dev/termination-log");
    assert_eq!(annotation("pod.terminationGracePeriod"), "7");
    assert_eq!(annotation("container.preStopHandler"), r#"{"exec":{"command":["true"]}}"#);
}

#[test]
fn the_security_context_of_a_container_overrides_that_of_its_pod() {
    let pod = pod(json!({
        "securityContext": {
            "runAsUser": 1000, "runAsGroup": 2000, "fsGroup": 3000, "supplementalGroups": [4000],
            "supplementalGroupsPolicy": "Strict", "seccompProfile": { "type": "Unconfined" },
        },
        "containers": [{ "name": "c", "image": "i", "securityContext": {
            "runAsUser": 1001, "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
            "capabilities": { "add": ["NET_ADMIN"], "drop": ["ALL"] }, "procMount": "Unmasked",
        }}],
    }));
    let security = container_of(&pod, "").unwrap().security;
    assert_eq!((security.user.as_deref(), security.group), (Some("1001"), Some(2000)));
    assert_eq!(security.supplemental_groups, [3000, 4000]);
    assert!(security.strict_groups && security.no_new_privs && security.read_only_rootfs);
    assert!(!security.privileged);
    assert_eq!(security.seccomp, SeccompProfile::Unconfined);
    assert_eq!(security.capabilities.add, ["NET_ADMIN"]);
    assert_eq!(security.capabilities.drop, ["ALL"]);
    assert_eq!(security.masked_paths, Some(Vec::new()));
}

#[test]
fn a_container_that_must_not_run_as_root_does_not() {
    let must = |user: Option<i64>| {
        let own = json!({ "runAsNonRoot": true, "runAsUser": user });
        pod(json!({ "containers": [{ "name": "c", "image": "i", "securityContext": own }] }))
    };
    let whose = r#"(pod: "web-0_shop(u-1)", container: c)"#;
    let table = [
        (Some(0), "1", Some("container's runAsUser breaks non-root policy")),
        (Some(5), "0", None),
        (None, "", Some("container has runAsNonRoot and image will run as root")),
        (None, "0:7", Some("container has runAsNonRoot and image will run as root")),
        (None, "1000", None),
        (
            None,
            "nobody",
            Some(
                "container has runAsNonRoot and image has non-numeric user (nobody), cannot verify user is non-root",
            ),
        ),
    ];
    for (user, image_user, expected) in table {
        let refused = container_of(&must(user), image_user).err();
        let expected = expected.map(|why| ConfigError::Container(format!("{why} {whose}")));
        assert_eq!(refused, expected, "{user:?} {image_user:?}");
        assert!(refused.is_none_or(|refused| refused.waiting_reason() == "CreateContainerConfigError"));
    }
}

#[test]
fn the_hash_changes_with_the_image_and_not_with_resources() {
    let mut pod = pod(json!({}));
    let first = container_of(&pod, "").unwrap().annotations[HASH].clone();
    let own = &mut pod.spec.as_mut().unwrap().containers[0];
    own.resources = serde_json::from_value(json!({ "limits": { "cpu": "1" } })).unwrap();
    assert_eq!(container_of(&pod, "").unwrap().annotations[HASH], first);
    let own = &mut pod.spec.as_mut().unwrap().containers[0];
    own.image = Some("i:2".into());
    assert_ne!(format!("{:x}", spec_hash(own)), first);
}

#[test]
fn pods_as_important_as_the_node_are_killed_last() {
    let mut pod = pod(json!({}));
    let shape = PodShape::of(&pod).unwrap();
    let resources = PodResources::desired(pod.spec.as_ref().unwrap()).unwrap();
    let score = |pod: &Pod| oom_score_adj(pod, &shape, &resources, 0, 1 << 30);
    assert_eq!(score(&pod), 1000);
    pod.spec.as_mut().unwrap().priority = Some(2_000_001_000);
    assert_eq!(score(&pod), -997);
}
