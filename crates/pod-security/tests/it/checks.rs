//! Tests of each check, in each version in which it changed.

use serde_json::{Value, json};

use super::pods::{pod, violations};

/// Evaluates a pod with these fields by each policy, and expects the message of one check, or none.
#[track_caller]
fn check(id: &str, fields: &[(&str, Value)], expected: &[(&str, &str)]) {
    let pod = pod(fields);
    for (policy, message) in expected {
        let ids = if message.is_empty() { Vec::new() } else { vec![id] };
        let message = (*message).to_owned();
        assert_eq!(violations(&pod, policy), (ids, message), "{policy}: {fields:?}");
    }
}

const INIT: &str = "/spec/initContainers/0";
const A: &str = "/spec/containers/0";
const B: &str = "/spec/containers/1";
const DEBUG: &str = "/spec/ephemeralContainers/0";

/// The pointer to a field of the security context of an object.
fn security(object: &str, field: &str) -> String {
    format!("{object}/securityContext/{field}")
}

#[test]
fn a_compliant_pod_complies_with_every_level_in_every_version() {
    let pod = pod(&[]);
    for level in ["privileged", "baseline", "restricted"] {
        for version in (0..=40).map(|minor| format!("v1.{minor}")).chain(["latest".to_owned()]) {
            let (ids, message) = violations(&pod, &format!("{level}:{version}"));
            assert_eq!((ids, &*message), (Vec::new(), ""), "{level}:{version}");
        }
    }
}

#[test]
fn the_level_privileged_allows_everything() {
    let fields = [("/spec/hostPID", json!(true)), ("/spec/containers/0/securityContext", Value::Null)];
    assert_eq!(violations(&pod(&fields), "privileged:latest"), (Vec::new(), String::new()));
}

#[test]
fn allow_privilege_escalation_must_be_false_except_in_windows_pods_since_1_25() {
    let id = "allowPrivilegeEscalation";
    let one = "allowPrivilegeEscalation != false (container \"a\" must set securityContext.allowPrivilegeEscalation=false)";
    let field = security(A, id);
    check(
        id,
        &[(&field, json!(true))],
        &[
            ("baseline:latest", ""),
            ("restricted:v1.7", ""),
            ("restricted:v1.8", one),
            ("restricted:v1.25", one),
            ("restricted:latest", one),
        ],
    );
    check(id, &[(&field, Value::Null)], &[("restricted:v1.8", one), ("restricted:latest", one)]);
    check(
        id,
        &[(&field, json!(true)), ("/spec/os", json!({ "name": "windows" }))],
        &[("restricted:v1.24", one), ("restricted:v1.25", "")],
    );
    check(
        id,
        &[(&field, json!(true)), ("/spec/os", json!({ "name": "linux" }))],
        &[("restricted:v1.25", one)],
    );
    let fields = [INIT, DEBUG].map(|container| (security(container, id), Value::Null));
    let fields = fields.each_ref().map(|(field, value)| (field.as_str(), value.clone()));
    let several = "allowPrivilegeEscalation != false (containers \"init\", \"debug\" must set securityContext.allowPrivilegeEscalation=false)";
    check(id, &fields, &[("restricted:latest", several)]);
}

#[test]
fn an_app_armor_profile_must_not_be_unconfined() {
    let id = "appArmorProfile";
    let profile = |name: &str| json!({ "type": name });
    for allowed in ["RuntimeDefault", "Localhost"] {
        check(
            id,
            &[
                (&security("/spec", id), profile(allowed)),
                (&security(A, id), profile(allowed)),
                (
                    "/metadata/annotations",
                    json!({
                        "container.apparmor.security.beta.kubernetes.io/a": "runtime/default",
                        "container.apparmor.security.beta.kubernetes.io/b": "localhost/x",
                        "container.apparmor.security.beta.kubernetes.io/init": "",
                        "example.com/a": "unconfined",
                    }),
                ),
            ],
            &[("baseline:v1.0", ""), ("restricted:latest", "")],
        );
    }
    let of_pod = "forbidden AppArmor profile (pod must not set AppArmor profile type to \"Unconfined\")";
    check(
        id,
        &[(&security("/spec", id), profile("Unconfined"))],
        &[("privileged:latest", ""), ("baseline:v1.0", of_pod), ("restricted:latest", of_pod)],
    );
    check(
        id,
        &[
            (&security("/spec", id), profile("Unconfined")),
            (&security(B, id), profile("Unconfined")),
            (&security(A, id), profile("Other")),
            (
                "/metadata/annotations",
                json!({
                    "container.apparmor.security.beta.kubernetes.io/b": "unconfined",
                    "container.apparmor.security.beta.kubernetes.io/a": "x\n",
                }),
            ),
        ],
        &[(
            "baseline:latest",
            "forbidden AppArmor profiles (pod and containers \"a\", \"b\" and annotations must not set AppArmor profile \
             type to \"Other\", \"Unconfined\", \"container.apparmor.security.beta.kubernetes.io/a=\"x\\n\"\", \
             \"container.apparmor.security.beta.kubernetes.io/b=\"unconfined\"\")",
        )],
    );
    check(
        id,
        &[(
            "/metadata/annotations",
            json!({ "container.apparmor.security.beta.kubernetes.io/a": "unconfined" }),
        )],
        &[(
            "baseline:latest",
            "forbidden AppArmor profile (annotation must not set AppArmor profile type to \
             \"container.apparmor.security.beta.kubernetes.io/a=\"unconfined\"\")",
        )],
    );
}

#[test]
fn baseline_allows_the_default_capabilities_to_be_added() {
    let id = "capabilities_baseline";
    let added = |names: &[&str]| json!({ "drop": ["ALL"], "add": names });
    let all = [
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    ];
    check(
        id,
        &[(&security(A, "capabilities"), added(&all))],
        &[("baseline:v1.0", ""), ("baseline:latest", "")],
    );
    check(
        id,
        &[
            (&security(A, "capabilities"), added(&["SYS_ADMIN", "CHOWN", "NET_RAW"])),
            (&security(B, "capabilities"), added(&["NET_RAW"])),
        ],
        &[(
            "baseline:latest",
            "non-default capabilities (containers \"a\", \"b\" must not include \"NET_RAW\", \"SYS_ADMIN\" in \
             securityContext.capabilities.add)",
        )],
    );
    // Before v1.22 the level restricted has no check of its own.
    check(
        id,
        &[(&security(A, "capabilities"), added(&["NET_RAW"]))],
        &[(
            "restricted:v1.21",
            "non-default capabilities (container \"a\" must not include \"NET_RAW\" in securityContext.capabilities.add)",
        )],
    );
}

#[test]
fn restricted_requires_all_capabilities_to_be_dropped_since_1_22() {
    let id = "capabilities_restricted";
    let field = security(A, "capabilities");
    let keeps =
        "unrestricted capabilities (container \"a\" must set securityContext.capabilities.drop=[\"ALL\"])";
    for capabilities in [Value::Null, json!({}), json!({ "drop": ["all", "NET_RAW"] })] {
        check(
            id,
            &[(&field, capabilities.clone())],
            &[("restricted:v1.21", ""), ("restricted:v1.22", keeps), ("restricted:latest", keeps)],
        );
        check(
            id,
            &[(&field, capabilities), ("/spec/os", json!({ "name": "windows" }))],
            &[("restricted:v1.24", keeps), ("restricted:v1.25", "")],
        );
    }
    check(
        id,
        &[(&field, json!({ "drop": ["ALL"], "add": ["NET_BIND_SERVICE"] }))],
        &[("restricted:v1.22", ""), ("restricted:latest", "")],
    );
    check(
        id,
        &[
            (&field, json!({ "add": ["CHOWN", "NET_BIND_SERVICE"] })),
            (&security(INIT, "capabilities"), json!({ "drop": ["ALL"], "add": ["AUDIT_WRITE", "CHOWN"] })),
        ],
        &[(
            "restricted:latest",
            "unrestricted capabilities (container \"a\" must set securityContext.capabilities.drop=[\"ALL\"]; \
             containers \"init\", \"a\" must not include \"AUDIT_WRITE\", \"CHOWN\" in securityContext.capabilities.add)",
        )],
    );
}

#[test]
fn host_namespaces_are_forbidden() {
    let id = "hostNamespaces";
    let all =
        [("/spec/hostIPC", json!(true)), ("/spec/hostPID", json!(true)), ("/spec/hostNetwork", json!(true))];
    let message = "host namespaces (hostNetwork=true, hostPID=true, hostIPC=true)";
    check(
        id,
        &all,
        &[("baseline:v1.0", message), ("baseline:latest", message), ("restricted:latest", message)],
    );
    check(id, &[("/spec/hostIPC", json!(true))], &[("baseline:latest", "host namespaces (hostIPC=true)")]);
    check(id, &[("/spec/hostIPC", json!(false))], &[("baseline:latest", "")]);
}

#[test]
fn host_path_volumes_are_forbidden_and_restricted_reports_them_once() {
    let volumes = json!([
        { "name": "x", "hostPath": { "path": "/" } },
        { "name": "y", "emptyDir": {} },
        { "name": "z", "hostPath": { "path": "/" } },
    ]);
    let fields = [("/spec/volumes", volumes)];
    let baseline = "hostPath volumes (volumes \"x\", \"z\")";
    check("hostPathVolumes", &fields, &[("baseline:v1.0", baseline), ("baseline:latest", baseline)]);
    let restricted = "restricted volume types (volumes \"x\", \"z\" use restricted volume type \"hostPath\")";
    check(
        "restrictedVolumes",
        &fields,
        &[("restricted:v1.0", restricted), ("restricted:latest", restricted)],
    );
    let one = [("/spec/volumes", json!([{ "name": "x", "hostPath": { "path": "/" } }]))];
    check("hostPathVolumes", &one, &[("baseline:latest", "hostPath volumes (volume \"x\")")]);
}

#[test]
fn restricted_allows_volumes_of_nine_types() {
    let id = "restrictedVolumes";
    let volumes = json!([
        { "name": "v1", "configMap": {} },
        { "name": "v2", "csi": { "driver": "x" } },
        { "name": "v3", "downwardAPI": {} },
        { "name": "v4", "emptyDir": {} },
        { "name": "v5", "ephemeral": {} },
        { "name": "v6", "image": {} },
        { "name": "v7", "persistentVolumeClaim": { "claimName": "x" } },
        { "name": "v8", "projected": {} },
        { "name": "v9", "secret": {} },
    ]);
    check(id, &[("/spec/volumes", volumes)], &[("restricted:v1.0", ""), ("restricted:latest", "")]);
    for (name, source) in [
        ("gcePersistentDisk", json!({ "pdName": "x" })),
        ("awsElasticBlockStore", json!({ "volumeID": "x" })),
        ("gitRepo", json!({ "repository": "x" })),
        ("nfs", json!({ "path": "x", "server": "x" })),
        ("iscsi", json!({ "iqn": "x", "lun": 1, "targetPortal": "x" })),
        ("glusterfs", json!({ "endpoints": "x", "path": "x" })),
        ("rbd", json!({ "image": "x", "monitors": [] })),
        ("flexVolume", json!({ "driver": "x" })),
        ("cinder", json!({ "volumeID": "x" })),
        ("cephfs", json!({ "monitors": [] })),
        ("flocker", json!({})),
        ("fc", json!({})),
        ("azureFile", json!({ "secretName": "x", "shareName": "x" })),
        ("vsphereVolume", json!({ "volumePath": "x" })),
        ("quobyte", json!({ "registry": "x", "volume": "x" })),
        ("azureDisk", json!({ "diskName": "x", "diskURI": "x" })),
        ("photonPersistentDisk", json!({ "pdID": "x" })),
        ("portworxVolume", json!({ "volumeID": "x" })),
        ("scaleIO", json!({ "gateway": "x", "secretRef": {}, "system": "x" })),
        ("storageos", json!({})),
    ] {
        let fields = [("/spec/volumes", json!([{ "name": "v", name: source }]))];
        let message =
            format!("restricted volume types (volume \"v\" uses restricted volume type \"{name}\")");
        check(id, &fields, &[("baseline:latest", ""), ("restricted:v1.0", &message)]);
    }
    let several = json!([
        { "name": "x", "nfs": { "path": "x", "server": "x" } },
        { "name": "y", "fc": {} },
        { "name": "z" },
    ]);
    check(
        id,
        &[("/spec/volumes", several)],
        &[(
            "restricted:latest",
            "restricted volume types (volumes \"x\", \"y\", \"z\" use restricted volume types \"fc\", \"nfs\", \"unknown\")",
        )],
    );
}

#[test]
fn host_ports_are_forbidden() {
    let id = "hostPorts";
    let ports = |host: &[i32]| {
        let each = host.iter().map(|host| json!({ "containerPort": 80, "hostPort": host }));
        Value::Array(each.collect())
    };
    check(id, &[(&format!("{A}/ports"), ports(&[0]))], &[("baseline:latest", "")]);
    check(
        id,
        &[(&format!("{A}/ports"), ports(&[12345]))],
        &[("baseline:v1.0", "hostPort (container \"a\" uses hostPort 12345)")],
    );
    let several = "hostPort (containers \"init\", \"b\" use hostPorts 12345, 20, 443)";
    check(
        id,
        &[(&format!("{INIT}/ports"), ports(&[443, 20])), (&format!("{B}/ports"), ports(&[12345, 20]))],
        &[("baseline:latest", several), ("restricted:latest", several)],
    );
}

#[test]
fn probes_and_handlers_must_not_name_hosts_since_1_34() {
    let id = "hostProbesAndHostLifecycle";
    let http = |host: &str| json!({ "httpGet": { "port": 80, "host": host } });
    let tcp = |host: &str| json!({ "tcpSocket": { "port": 80, "host": host } });
    for field in
        ["livenessProbe", "readinessProbe", "startupProbe", "lifecycle/postStart", "lifecycle/preStop"]
    {
        let pointer = format!("{A}/{field}");
        check(id, &[(&pointer, http(""))], &[("baseline:latest", "")]);
        for action in [http("127.0.0.1"), tcp("127.0.0.1")] {
            let message =
                "probe or lifecycle host (container \"a\" uses probe or lifecycle host \"127.0.0.1\")";
            check(
                id,
                &[(&pointer, action)],
                &[("baseline:v1.33", ""), ("baseline:v1.34", message), ("restricted:latest", message)],
            );
        }
    }
    check(
        id,
        &[
            (&format!("{INIT}/livenessProbe"), http("b.example")),
            (&format!("{B}/readinessProbe"), tcp("a.example")),
            (&format!("{A}/lifecycle/preStop"), tcp("b.example")),
        ],
        &[(
            "baseline:latest",
            "probe or lifecycle host (containers \"a\", \"b\", \"init\" use probe or lifecycle hosts \"a.example\", \
             \"b.example\")",
        )],
    );
}

#[test]
fn containers_must_not_be_privileged() {
    let id = "privileged";
    let message = "privileged (containers \"a\", \"debug\" must not set securityContext.privileged=true)";
    check(
        id,
        &[
            (&security(A, id), json!(true)),
            (&security(DEBUG, id), json!(true)),
            (&security(B, id), json!(false)),
        ],
        &[("baseline:v1.0", message), ("baseline:latest", message), ("restricted:latest", message)],
    );
}

#[test]
fn proc_must_be_masked_and_since_1_35_only_restricted_requires_it_in_a_user_namespace() {
    let field = security(A, "procMount");
    let message = "procMount (container \"a\" must not set securityContext.procMount to \"Unmasked\")";
    let unmasked = [(field.as_str(), json!("Unmasked"))];
    check("procMount", &[(&field, json!("Default"))], &[("restricted:latest", "")]);
    check(
        "procMount",
        &unmasked,
        &[
            ("baseline:v1.0", message),
            ("baseline:v1.35", message),
            ("restricted:v1.0", message),
            ("restricted:v1.34", message),
        ],
    );
    check(
        "procMount_restricted",
        &unmasked,
        &[("restricted:v1.35", message), ("restricted:latest", message)],
    );
    let with_namespace = [(field.as_str(), json!("Unmasked")), ("/spec/hostUsers", json!(false))];
    check(
        "procMount",
        &with_namespace,
        &[("baseline:v1.34", message), ("baseline:v1.35", ""), ("restricted:v1.34", message)],
    );
    check("procMount_restricted", &with_namespace, &[("restricted:v1.35", message)]);
    let without = [(field.as_str(), json!("Unmasked")), ("/spec/hostUsers", json!(true))];
    check("procMount", &without, &[("baseline:latest", message)]);
}

#[test]
fn containers_must_run_as_non_root_except_in_a_user_namespace_since_1_35() {
    let id = "runAsNonRoot";
    let of_pod = security("/spec", id);
    let unset = "runAsNonRoot != true (pod or containers \"init\", \"a\", \"b\", \"debug\" must set \
                 securityContext.runAsNonRoot=true)";
    check(
        id,
        &[(&of_pod, Value::Null)],
        &[("baseline:latest", ""), ("restricted:v1.0", unset), ("restricted:latest", unset)],
    );
    check(
        id,
        &[(&of_pod, Value::Null), ("/spec/hostUsers", json!(false))],
        &[("restricted:v1.34", unset), ("restricted:v1.35", ""), ("restricted:latest", "")],
    );
    let own = [INIT, A, B, DEBUG].map(|container| (security(container, id), json!(true)));
    let mut fields: Vec<(&str, Value)> = own.iter().map(|(field, value)| (&**field, value.clone())).collect();
    fields.push((&of_pod, Value::Null));
    check(id, &fields, &[("restricted:v1.0", ""), ("restricted:latest", "")]);
    fields.push((&of_pod, json!(false)));
    let pod = "runAsNonRoot != true (pod must not set securityContext.runAsNonRoot=false)";
    check(id, &fields, &[("restricted:latest", pod)]);
    fields.pop();
    let field = security(B, id);
    fields.push((&field, Value::Null));
    let one = "runAsNonRoot != true (pod or container \"b\" must set securityContext.runAsNonRoot=true)";
    check(id, &fields, &[("restricted:latest", one)]);
    check(
        id,
        &[(&of_pod, json!(false)), (&security(A, id), json!(false))],
        &[(
            "restricted:latest",
            "runAsNonRoot != true (pod and container \"a\" must not set securityContext.runAsNonRoot=false)",
        )],
    );
}

#[test]
fn run_as_user_must_not_be_root_since_1_23_except_in_a_user_namespace_since_1_35() {
    let id = "runAsUser";
    let fields =
        [(security("/spec", id), json!(0)), (security(A, id), json!(0)), (security(B, id), json!(1))];
    let mut fields: Vec<(&str, Value)> =
        fields.iter().map(|(field, value)| (&**field, value.clone())).collect();
    let message = "runAsUser=0 (pod and container \"a\" must not set runAsUser=0)";
    check(
        id,
        &fields,
        &[
            ("baseline:latest", ""),
            ("restricted:v1.22", ""),
            ("restricted:v1.23", message),
            ("restricted:v1.35", message),
            ("restricted:latest", message),
        ],
    );
    fields.push(("/spec/hostUsers", json!(false)));
    check(id, &fields, &[("restricted:v1.34", message), ("restricted:v1.35", "")]);
    check(
        id,
        &[(&security("/spec", id), json!(0))],
        &[("restricted:latest", "runAsUser=0 (pod must not set runAsUser=0)")],
    );
}

#[test]
fn selinux_labels_have_a_type_for_containers_and_no_user_or_role() {
    let id = "seLinuxOptions";
    for allowed in ["", "container_t", "container_init_t", "container_kvm_t"] {
        let fields = [(&*security("/spec", id), json!({ "type": allowed, "level": "s0" }))];
        check(id, &fields, &[("baseline:v1.0", ""), ("restricted:latest", "")]);
    }
    let engine = [(&*security(A, id), json!({ "type": "container_engine_t" }))];
    check(
        id,
        &engine,
        &[
            (
                "baseline:v1.30",
                "seLinuxOptions (container \"a\" set forbidden securityContext.seLinuxOptions: type \"container_engine_t\")",
            ),
            ("baseline:v1.31", ""),
            ("baseline:latest", ""),
        ],
    );
    check(
        id,
        &[
            (&security("/spec", id), json!({ "type": "spc_t" })),
            (&security(A, id), json!({ "user": "u" })),
            (&security(B, id), json!({ "role": "r", "type": "other_t" })),
        ],
        &[(
            "baseline:latest",
            "seLinuxOptions (pod and containers \"a\", \"b\" set forbidden securityContext.seLinuxOptions: types \
             \"other_t\", \"spc_t\"; user may not be set; role may not be set)",
        )],
    );
    check(
        id,
        &[(&security("/spec", id), json!({ "user": "u" }))],
        &[(
            "baseline:latest",
            "seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: user may not be set)",
        )],
    );
}

#[test]
fn seccomp_annotations_count_until_1_18() {
    let id = "seccompProfile_baseline";
    let annotations = |profile: &str| {
        json!({
            "seccomp.security.alpha.kubernetes.io/pod": profile,
            "container.seccomp.security.alpha.kubernetes.io/a": profile,
            "container.seccomp.security.alpha.kubernetes.io/no-container": "unconfined",
        })
    };
    for allowed in ["runtime/default", "docker/default", "localhost/x"] {
        check(id, &[("/metadata/annotations", annotations(allowed))], &[("baseline:v1.18", "")]);
    }
    let message = "seccompProfile (forbidden annotations \
                   container.seccomp.security.alpha.kubernetes.io/a=\"unconfined\", \
                   seccomp.security.alpha.kubernetes.io/pod=\"unconfined\")";
    check(
        id,
        &[("/metadata/annotations", annotations("unconfined"))],
        &[
            ("baseline:v1.0", message),
            ("baseline:v1.18", message),
            ("restricted:v1.18", message),
            ("baseline:v1.19", ""),
            ("restricted:v1.19", ""),
        ],
    );
    check(
        id,
        &[("/metadata/annotations", json!({ "seccomp.security.alpha.kubernetes.io/pod": "" }))],
        &[(
            "baseline:v1.0",
            "seccompProfile (forbidden annotation seccomp.security.alpha.kubernetes.io/pod=\"\")",
        )],
    );
}

#[test]
fn a_seccomp_profile_must_not_be_unconfined_since_1_19() {
    let unconfined = json!({ "type": "Unconfined" });
    let of_pod = security("/spec", "seccompProfile");
    let fields = [(of_pod.as_str(), unconfined.clone())];
    let message = "seccompProfile (pod must not set securityContext.seccompProfile.type to \"Unconfined\")";
    check(
        "seccompProfile_baseline",
        &fields,
        &[("baseline:v1.18", ""), ("baseline:v1.19", message), ("baseline:latest", message)],
    );
    check(
        "seccompProfile_restricted",
        &fields,
        &[("restricted:v1.18", ""), ("restricted:v1.19", message), ("restricted:latest", message)],
    );
    let own = security(A, "seccompProfile");
    check(
        "seccompProfile_baseline",
        &[(&of_pod, json!({ "type": "Other" })), (&own, unconfined)],
        &[(
            "baseline:latest",
            "seccompProfile (pod and container \"a\" must not set securityContext.seccompProfile.type to \"Other\", \
             \"Unconfined\")",
        )],
    );
    check(
        "seccompProfile_baseline",
        &[(&of_pod, json!({ "type": "Localhost" })), (&own, json!({ "type": "RuntimeDefault" }))],
        &[("baseline:latest", ""), ("restricted:latest", "")],
    );
}

#[test]
fn restricted_requires_a_seccomp_profile_since_1_19_except_in_windows_pods_since_1_25() {
    let id = "seccompProfile_restricted";
    let of_pod = security("/spec", "seccompProfile");
    let message = "seccompProfile (pod or containers \"init\", \"a\", \"b\", \"debug\" must set \
                   securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")";
    check(
        id,
        &[(&of_pod, Value::Null)],
        &[("restricted:v1.18", ""), ("restricted:v1.19", message), ("restricted:latest", message)],
    );
    check(
        id,
        &[(&of_pod, Value::Null), ("/spec/os", json!({ "name": "windows" }))],
        &[("restricted:v1.24", message), ("restricted:v1.25", "")],
    );
    let own = [INIT, A, DEBUG]
        .map(|container| (security(container, "seccompProfile"), json!({ "type": "Localhost" })));
    let mut fields: Vec<(&str, Value)> = own.iter().map(|(field, value)| (&**field, value.clone())).collect();
    fields.push((&of_pod, Value::Null));
    let one = "seccompProfile (pod or container \"b\" must set securityContext.seccompProfile.type to \
               \"RuntimeDefault\" or \"Localhost\")";
    check(id, &fields, &[("restricted:latest", one)]);
}

#[test]
fn only_safe_sysctls_may_be_set() {
    let id = "sysctls";
    let field = security("/spec", id);
    for (since, names) in [
        (
            0,
            &[
                "kernel.shm_rmid_forced",
                "net.ipv4.ip_local_port_range",
                "net.ipv4.tcp_syncookies",
                "net.ipv4.ping_group_range",
                "net.ipv4.ip_unprivileged_port_start",
            ][..],
        ),
        (27, &["net.ipv4.ip_local_reserved_ports"]),
        (
            29,
            &[
                "net.ipv4.tcp_keepalive_time",
                "net.ipv4.tcp_fin_timeout",
                "net.ipv4.tcp_keepalive_intvl",
                "net.ipv4.tcp_keepalive_probes",
            ],
        ),
        (32, &["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"]),
    ] {
        for name in names {
            let fields = [(&*field, json!([{ "name": name, "value": "1" }]))];
            if let Some(before) = u64::checked_sub(since, 1) {
                let message = format!("forbidden sysctls ({name})");
                check(id, &fields, &[(&format!("baseline:v1.{before}"), &message)]);
            }
            check(id, &fields, &[(&format!("baseline:v1.{since}"), ""), ("restricted:latest", "")]);
        }
    }
    let several = json!([{ "name": "kernel.sem", "value": "1" }, { "name": "a", "value": "1" }]);
    check(id, &[(&field, several)], &[("baseline:latest", "forbidden sysctls (kernel.sem, a)")]);
}

#[test]
fn windows_containers_must_not_be_host_processes() {
    let id = "windowsHostProcess";
    let options = |is_host_process: bool| json!({ "hostProcess": is_host_process });
    let both = [
        (security("/spec", "windowsOptions"), options(true)),
        (security(A, "windowsOptions"), options(true)),
        (security(B, "windowsOptions"), options(false)),
    ];
    let fields: Vec<(&str, Value)> = both.iter().map(|(field, value)| (&**field, value.clone())).collect();
    let message =
        "hostProcess (pod and container \"a\" must not set securityContext.windowsOptions.hostProcess=true)";
    check(id, &fields, &[("baseline:v1.0", message), ("restricted:latest", message)]);
    check(
        id,
        &fields[1..2],
        &[(
            "baseline:latest",
            "hostProcess (container \"a\" must not set securityContext.windowsOptions.hostProcess=true)",
        )],
    );
}
