//! What programs in real containers find: files of volumes, variables, users, kernel parameters, names; and what they
//! do when a container starts, stops or is not live.

use std::fs;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret};
use kube::api::{DeleteParams, LogParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::machine::{Machine, create, pods, soon, until};

/// A container in which the machine's own programs run a script.
pub(super) fn script(name: &str, script: &str, mounts: &[Value]) -> Value {
    let own = ["bin", "lib", "lib64"];
    let own = own.map(|name| json!({ "name": name, "mountPath": format!("/{name}"), "readOnly": true }));
    let mounts: Vec<Value> = own.into_iter().chain(mounts.iter().cloned()).collect();
    json!({
        "name": name, "image": "plumb/load", "command": ["/bin/sh", "-c", script],
        "env": [{ "name": "PATH", "value": "/bin" }], "volumeMounts": mounts,
    })
}

/// A pod that ends when its scripts do.
pub(super) fn pod(name: &str, spec: Value) -> Pod {
    let mut spec = spec;
    let folders = [("bin", "/usr/bin"), ("lib", "/usr/lib"), ("lib64", "/usr/lib64")];
    let own = folders.map(|(name, path)| json!({ "name": name, "hostPath": { "path": path } }));
    let volumes = spec["volumes"].as_array().cloned().unwrap_or_default();
    spec["volumes"] = own.into_iter().chain(volumes).collect();
    for (field, value) in [
        ("nodeName", json!("plumb")),
        ("restartPolicy", json!("Never")),
        ("terminationGracePeriodSeconds", json!(1)),
        ("automountServiceAccountToken", json!(false)),
    ] {
        if spec.get(field).is_none() {
            spec[field] = value;
        }
    }
    let labels = json!({ "app": "web" });
    serde_json::from_value(json!({ "metadata": { "name": name, "labels": labels }, "spec": spec })).unwrap()
}

fn at(name: &str) -> Value {
    json!({ "name": name, "mountPath": format!("/{name}") })
}

async fn object<K>(client: &Client, namespace: &str, object: Value)
where
    K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
        + serde::de::DeserializeOwned
        + serde::Serialize
        + Clone
        + std::fmt::Debug,
{
    let object: K = serde_json::from_value(object).unwrap();
    Api::namespaced(client.clone(), namespace).create(&PostParams::default(), &object).await.unwrap();
}

/// Waits until a pod has succeeded, and answers with what a container of it printed.
pub(super) async fn printed(pods: &Api<Pod>, name: &str, container: &str) -> String {
    let is_over = |pod: &Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        matches!(phase, Some("Succeeded" | "Failed"))
    };
    let pod = until(pods, name, "over", is_over).await;
    let params = LogParams { container: Some(container.to_owned()), ..LogParams::default() };
    let log = pods.logs(name, &params).await.unwrap();
    assert_eq!(pod.status.unwrap().phase.as_deref(), Some("Succeeded"), "{log}");
    log
}

/// The objects that the files and variables come from; another namespace has one of the same name.
async fn objects(client: &Client) {
    object::<ConfigMap>(
        client,
        "default",
        json!({ "metadata": { "name": "settings" }, "data": { "a": "one" }, "binaryData": { "raw": "//4=" } }),
    )
    .await;
    let secret = |value: &str| json!({ "metadata": { "name": "keys" }, "stringData": { "token": value } });
    object::<Secret>(client, "default", secret("ours")).await;
    let other: Namespace = serde_json::from_value(json!({ "metadata": { "name": "other" } })).unwrap();
    Api::all(client.clone()).create(&PostParams::default(), &other).await.unwrap();
    object::<Secret>(client, "other", secret("theirs")).await;
}

/// Volumes of every kind that files are projected to. They show the limits of one container, and those of another one
/// that has none.
fn projections(limited: &str, unlimited: &str) -> Value {
    let fields = json!([
        { "path": "name", "fieldRef": { "fieldPath": "metadata.name" } },
        { "path": "labels", "fieldRef": { "fieldPath": "metadata.labels" }, "mode": 0o400 },
        { "path": "cpu", "resourceFieldRef": { "containerName": limited, "resource": "limits.cpu", "divisor": "1m" } },
        { "path": "memory", "resourceFieldRef": { "containerName": limited, "resource": "requests.memory" } },
        { "path": "most", "resourceFieldRef": { "containerName": unlimited, "resource": "limits.cpu" } },
    ]);
    let item = json!([{ "key": "a", "path": "deep/a", "mode": 0o400 }]);
    json!([
        { "name": "map", "configMap": { "name": "settings" } },
        { "name": "item", "configMap": { "name": "settings", "items": item } },
        { "name": "key", "secret": { "secretName": "keys", "defaultMode": 0o400 } },
        { "name": "self", "downwardAPI": { "items": fields, "defaultMode": 0o440 } },
        { "name": "all", "projected": { "sources": [
            { "configMap": { "name": "settings", "items": item } },
            { "secret": { "name": "keys" } },
            { "downwardAPI": { "items": fields } },
        ] } },
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_of_any_user_read_objects_and_fields_of_their_pod() {
    let Some(machine) = Machine::here() else { return };
    let cluster = machine.start(&[]);
    let (client, api) = (cluster.client().await, pods(&cluster).await);
    objects(&client).await;
    let mounts: Vec<Value> = ["map", "item", "key", "self", "all"].map(at).to_vec();
    let files = "cat /map/a /item/deep/a /key/token /all/deep/a /all/token /self/name /all/labels /self/cpu \
                 /self/memory | tr '\\n' ' '; echo; od -An -tx1 /map/raw; \
                 stat -Lc %a /map/a /item/deep/a /key/token /self/name /self/labels; \
                 [ $(cat /self/most) -ge 64 ] && echo all of the node; touch /map/x 2>/dev/null || echo refused; \
                 echo $(id -u) $(id -g) $A $TOKEN $PRE_a $BOTH $IP; cat /proc/sys/kernel/shm_rmid_forced";
    let mut root = script("root", &format!("printf '%s\\n' \"$1\"; {files}"), &mounts);
    root["command"] = json!(["/bin/sh", "-c", root["command"][2], "sh", "$(BOTH)"]);
    root["resources"] = json!({ "limits": { "cpu": "250m" }, "requests": { "memory": "32Mi" } });
    let mut other = script("other", files, &mounts);
    other["securityContext"] =
        json!({ "runAsUser": 65534, "runAsGroup": 3000, "allowPrivilegeEscalation": false });
    for container in [&mut root, &mut other] {
        let more = json!([
            { "name": "A", "valueFrom": { "configMapKeyRef": { "name": "settings", "key": "a" } } },
            { "name": "TOKEN", "valueFrom": { "secretKeyRef": { "name": "keys", "key": "token" } } },
            { "name": "BOTH", "value": "$(A)-$(TOKEN)" },
            { "name": "IP", "valueFrom": { "fieldRef": { "fieldPath": "status.podIP" } } },
        ]);
        container["env"].as_array_mut().unwrap().extend(more.as_array().unwrap().clone());
        container["envFrom"] = json!([{ "configMapRef": { "name": "settings" }, "prefix": "PRE_" }]);
    }
    let context = json!({ "fsGroup": 1001, "sysctls": [{ "name": "kernel.shm_rmid_forced", "value": "1" }] });
    let spec = json!({ "containers": [root, other], "volumes": projections("root", "other"), "securityContext": context });
    create(&api, &pod("files", spec)).await;
    let text = printed(&api, "files", "root").await;
    let ip = api.get("files").await.unwrap().status.unwrap().pod_ip.unwrap();
    let lines = |first: &str, ids: &str| {
        let text = "oneoneoursoneoursfilesapp=\"web\"25033554432\n ff fe\n644\n440\n440\n440\n440\nall of the node\nrefused\n";
        format!("{first}{text}{ids} one ours one one-ours {ip}\n1\n")
    };
    assert_eq!(text, lines("one-ours\n", "0 0"));
    assert_eq!(printed(&api, "files", "other").await, lines("", "65534 3000"));
    // `containerStatuses[].user` (KEP-3619).
    let statuses = api.get("files").await.unwrap().status.unwrap().container_statuses.unwrap();
    for (name, uid, gid) in [("root", 0, 0), ("other", 65534, 3000)] {
        let user = statuses.iter().find(|status| status.name == name).and_then(|status| status.user.clone());
        let user = user.and_then(|user| user.linux).unwrap();
        assert_eq!((user.uid, user.gid), (uid, gid), "{name}");
        let mut groups = user.supplemental_groups.unwrap_or_default();
        groups.retain(|group| *group != gid);
        assert_eq!(groups, [1001], "{name}");
    }
    cluster.stop();
    machine.clear();
}

/// The files below a folder whose names begin so.
fn files_below(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_named = entry.file_name().to_string_lossy().starts_with(prefix);
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(files_below(&entry.path(), prefix)),
            Ok(kind) if kind.is_file() && is_named => found.push(entry.path()),
            _ => {}
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_are_rotated_at_the_size_of_the_flag_and_as_many_are_kept_as_it_says() {
    let Some(machine) = Machine::here() else { return };
    let flags = ["--container-log-max-size", "4Ki", "--container-log-max-files", "3"];
    let cluster = machine.start(&flags);
    let api = pods(&cluster).await;
    let script = script("printer", "i=0; while [ $i -lt 50000 ]; do echo line $i; i=$((i+1)); done", &[]);
    create(&api, &pod("logs", json!({ "containers": [script] }))).await;
    printed(&api, "logs", "printer").await;
    let logs = files_below(&machine.data(), "0.log");
    assert_eq!(logs.len(), 3, "{logs:?}");
    let text: String = logs.iter().map(|log| fs::read_to_string(log).unwrap()).collect();
    assert!(text.contains(" line 49999\n") && !text.contains(" line 0\n"), "{} bytes", text.len());
    cluster.stop();
    machine.clear();
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_of_any_user_share_empty_directories_on_disk_and_in_memory() {
    let Some(machine) = Machine::here() else { return };
    let cluster = machine.start(&[]);
    let api = pods(&cluster).await;
    let volumes =
        json!([{ "name": "disk", "emptyDir": {} }, { "name": "memory", "emptyDir": { "medium": "Memory" } }]);
    let mounts: Vec<Value> = ["disk", "memory"].map(at).to_vec();
    let write = "for d in disk memory; do stat -c %a /$d; for m in 644 666 777; do f=/$d/$(id -u)-$m; \
                 echo content > $f; chmod $m $f; echo $(stat -c '%a %u' $f) $(cat $f); done; done; \
                 [ $(stat -fc %T /memory) = tmpfs ] && echo tmpfs; touch /disk/$(id -u)-done; \
                 until [ -e /disk/0-done ] && [ -e /disk/1000-done ]; do sleep 0.1; done; ls /memory | tr '\\n' ' '";
    let mut other = script("other", write, &mounts);
    other["securityContext"] = json!({ "runAsUser": 1000 });
    let containers = json!([script("root", write, &mounts), other]);
    create(&api, &pod("shared", json!({ "containers": containers, "volumes": volumes }))).await;
    for (name, user) in [("root", 0), ("other", 1000)] {
        let files = format!("777\n644 {user} content\n666 {user} content\n777 {user} content\n");
        let there = "0-644 0-666 0-777 1000-644 1000-666 1000-777 ";
        assert_eq!(printed(&api, "shared", name).await, format!("{files}{files}tmpfs\n{there}"));
    }
    cluster.stop();
    machine.clear();
}

/// The reason for which the first container of a pod waits.
fn waits(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?.container_statuses.as_ref()?.first()?;
    status.state.as_ref()?.waiting.as_ref()?.reason.clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_of_volumes_are_mounted_at_paths_that_are_expanded() {
    let Some(machine) = Machine::here() else { return };
    let cluster = machine.start(&[]);
    let (client, api) = (cluster.client().await, pods(&cluster).await);
    objects(&client).await;
    let part =
        |name: &str, path: &str, part: &str| json!({ "name": name, "mountPath": path, "subPath": part });
    let expanded =
        |expression: &str| json!({ "name": "data", "mountPath": "/part", "subPathExpr": expression });
    let variable =
        |name: &str, path: &str| json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": path } } });
    let mounts = [
        part("map", "/one", "a"),
        part("key", "/two", "token"),
        part("all", "/three", "deep"),
        part("self", "/four", "name"),
        // A file that the image, or the node, has there already.
        part("map", "/etc/hosts", "a"),
        at("data"),
        expanded("$(NAME)/log"),
    ];
    let text =
        "cat /one /two /three/a /four /etc/hosts; echo; echo new > /part/file; cat /data/parts/log/file";
    let mut main = script("main", text, &mounts);
    main["env"].as_array_mut().unwrap().push(variable("NAME", "metadata.name"));
    let mut volumes = projections("main", "main");
    volumes.as_array_mut().unwrap().push(json!({ "name": "data", "emptyDir": {} }));
    create(&api, &pod("parts", json!({ "containers": [main], "volumes": volumes }))).await;
    assert_eq!(printed(&api, "parts", "main").await, "oneoursonepartsone\nnew\n");

    // No expansion leads out of the volume, and none is run by a shell.
    let data = json!([{ "name": "data", "emptyDir": {} }]);
    for (name, value) in [("absolute", "/tmp"), ("above", "..")] {
        let mut main = script("main", "true", &[expanded("$(WHERE)")]);
        main["env"].as_array_mut().unwrap().push(json!({ "name": "WHERE", "value": value }));
        create(&api, &pod(name, json!({ "containers": [main], "volumes": data }))).await;
        until(&api, name, "refused", |pod| waits(pod).as_deref() == Some("CreateContainerConfigError")).await;
    }
    let mut main = script("main", "ls /data", &[at("data"), expanded("`date`")]);
    main["env"].as_array_mut().unwrap().push(variable("NAME", "metadata.name"));
    create(&api, &pod("literal", json!({ "containers": [main], "volumes": data }))).await;
    assert_eq!(printed(&api, "literal", "main").await, "`date`\n");

    // One that fails is expanded anew when the pod has changed.
    let mut main = script("main", "ls /data", &[at("data"), expanded("$(WHERE)/x")]);
    main["env"].as_array_mut().unwrap().push(variable("WHERE", "metadata.annotations['where']"));
    create(&api, &pod("later", json!({ "containers": [main], "volumes": data }))).await;
    until(&api, "later", "refused", |pod| waits(pod).as_deref() == Some("CreateContainerConfigError")).await;
    let note = Patch::Merge(json!({ "metadata": { "annotations": { "where": "here" } } }));
    api.patch("later", &PatchParams::default(), &note).await.unwrap();
    assert_eq!(printed(&api, "later", "main").await, "here\n");
    cluster.stop();
    machine.clear();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_has_the_names_and_the_resolver_that_it_asks_for() {
    let Some(machine) = Machine::here() else { return };
    let cluster = machine.start(&[]);
    let api = pods(&cluster).await;
    let spec = |more: Value| {
        let mut spec =
            json!({ "containers": [script("main", "cat /etc/hosts /etc/resolv.conf; hostname", &[])] });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    };
    let own = json!({
        "hostAliases": [{ "ip": "192.0.2.7", "hostnames": ["foo", "bar"] }], "hostname": "other",
        "dnsPolicy": "None", "dnsConfig": {
            "nameservers": ["192.0.2.8"], "searches": ["resolv.example.com"], "options": [{ "name": "ndots", "value": "3" }],
        },
    });
    create(&api, &pod("own", spec(own))).await;
    let text = printed(&api, "own", "main").await;
    assert!(text.starts_with("# Kubernetes-managed hosts file.\n"), "{text}");
    assert!(text.contains("192.0.2.7\tfoo\tbar\n"), "{text}");
    let resolver = "search resolv.example.com\nnameserver 192.0.2.8\noptions ndots:3\nother\n";
    assert!(text.ends_with(resolver), "{text}");
    // The default is the DNS of the cluster.
    create(
        &api,
        &pod("cluster", spec(json!({ "hostname": "h", "subdomain": "s", "setHostnameAsFQDN": true }))),
    )
    .await;
    let text = printed(&api, "cluster", "main").await;
    assert!(text.contains("search default.svc.cluster.local svc.cluster.local cluster.local"), "{text}");
    assert!(text.contains("\nnameserver 10.96.0.10\noptions ndots:5\n"), "{text}");
    assert!(text.ends_with("\nh.s.default.svc.cluster.local\n"), "{text}");
    // On the network of the machine it has the names of the machine.
    create(&api, &pod("host", spec(json!({ "hostNetwork": true })))).await;
    let text = printed(&api, "host", "main").await;
    assert!(text.starts_with("# Kubernetes-managed hosts file (host network).\n"), "{text}");
    assert!(text.contains(&fs::read_to_string("/etc/hosts").unwrap()), "{text}");
    cluster.stop();
    machine.clear();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_is_reported_as_running_after_its_post_start_hook_and_stops_after_its_pre_stop_hook() {
    let Some(machine) = Machine::here() else { return };
    let cluster = machine.start(&[]);
    let api = pods(&cluster).await;
    let folder = tempfile::tempdir().unwrap();
    let volumes = json!([{ "name": "host", "hostPath": { "path": folder.path() } }]);
    let mut main = script("main", "touch /host/runs; exec sleep 1000", &[at("host")]);
    let next = script("next", "exec sleep 1000", &[]);
    let run = |script: &str| json!({ "exec": { "command": ["/bin/sh", "-c", script] } });
    let start = "until [ -e /host/go ]; do sleep 0.1; done; echo yes > /host/started";
    let stop = "cat /proc/1/cmdline | tr '\\0' ' ' > /host/stopping";
    main["lifecycle"] = json!({ "postStart": run(start), "preStop": run(stop) });
    let spec = json!({ "containers": [main, next], "volumes": volumes, "terminationGracePeriodSeconds": 60 });
    create(&api, &pod("hooks", spec)).await;
    soon("runs beside its postStart hook", || folder.path().join("runs").exists()).await;
    let status = api.get("hooks").await.unwrap().status.unwrap();
    let states = status.container_statuses.unwrap_or_default().into_iter().filter_map(|status| status.state);
    let is_running: Vec<bool> = states.map(|state| state.running.is_some()).collect();
    assert!(!is_running.contains(&true), "before the hook has completed: {is_running:?}");
    fs::write(folder.path().join("go"), "").unwrap();
    let is_ready = |pod: &Pod| {
        let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
        statuses.is_some_and(|all| all.len() == 2 && all.iter().all(|status| status.ready))
    };
    until(&api, "hooks", "ready", is_ready).await;
    assert_eq!(fs::read_to_string(folder.path().join("started")).unwrap(), "yes\n");
    let params = DeleteParams::default().grace_period(30);
    api.delete("hooks", &params).await.unwrap();
    let stopping = folder.path().join("stopping");
    soon("the preStop hook", || stopping.exists()).await;
    let seen = || fs::read_to_string(&stopping).unwrap_or_default();
    soon("the preStop hook beside the container", || {
        seen().contains("sleep 1000") || seen().contains("/bin/sh")
    })
    .await;
    cluster.stop();
    machine.clear();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_says_why_it_ended_and_one_that_is_not_live_is_restarted() {
    let Some(machine) = Machine::here() else { return };
    let cluster = machine.start(&[]);
    let api = pods(&cluster).await;
    let mut main = script("main", "echo -n DONE > /words/last", &[at("words")]);
    main["terminationMessagePath"] = json!("/words/last");
    main["terminationMessagePolicy"] = json!("FallbackToLogsOnError");
    main["securityContext"] =
        json!({ "runAsUser": 1000, "runAsNonRoot": true, "readOnlyRootFilesystem": true });
    let volumes = json!([{ "name": "words", "emptyDir": {} }]);
    create(&api, &pod("said", json!({ "containers": [main], "volumes": volumes }))).await;
    printed(&api, "said", "main").await;
    let status = api.get("said").await.unwrap().status.unwrap().container_statuses.unwrap().remove(0);
    let ended = status.state.unwrap().terminated.unwrap();
    assert_eq!((ended.reason.as_deref(), ended.message.as_deref()), (Some("Completed"), Some("DONE")));

    let exec = |path: &str| json!({ "exec": { "command": ["/bin/cat", path] }, "periodSeconds": 1, "failureThreshold": 1 });
    let text = "touch /health/$0; echo up; exec sleep 1000";
    let container = |name: &str| {
        let mut one = script(name, text, &[at("health")]);
        one["command"].as_array_mut().unwrap().push(json!(name));
        one
    };
    let (mut sick, mut well, mut slow) = (container("sick"), container("well"), container("slow"));
    sick["livenessProbe"] = exec("/health/none");
    well["livenessProbe"] = exec("/health/well");
    well["livenessProbe"]["initialDelaySeconds"] = json!(5);
    // A command takes its time on a loaded machine.
    well["livenessProbe"]["timeoutSeconds"] = json!(60);
    slow["readinessProbe"] = exec("/health/none");
    let spec = json!({
        "containers": [sick, well, slow], "volumes": [{ "name": "health", "emptyDir": {} }], "restartPolicy": "Always",
    });
    create(&api, &pod("probed", spec)).await;
    let of = |pod: &Pod, name: &str| {
        let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
        statuses.iter().find(|status| status.name == name).cloned()
    };
    let restarted = |pod: &Pod| {
        of(pod, "sick").is_some_and(|status| status.restart_count >= 1)
            && of(pod, "well").is_some_and(|status| status.ready)
    };
    let pod = until(&api, "probed", "restarted", restarted).await;
    for (name, ready) in [("well", true), ("slow", false)] {
        let status = of(&pod, name).unwrap();
        assert_eq!((status.restart_count, status.ready), (0, ready), "{name}");
    }
    cluster.stop();
    machine.clear();
}
