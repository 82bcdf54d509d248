//! Real `kubectl`, as people use it.

use std::path::Path;
use std::process::{Command, Stdio};

use plumb_testbed::{Assets, Cache, Parts, Release};

use super::cluster::Cluster;
use super::processes::{Lines, first_line, kill};

const POD: &str = r"
apiVersion: v1
kind: Pod
metadata: {name: 2pod}
spec:
  containers:
  - name: stress
    image: plumb/load
    resizePolicy:
    - {resourceName: cpu, policy: RestartNotRequired}
    resources:
      limits: {cpu: 500m, memory: 500Mi}
      requests: {cpu: 500m, memory: 500Mi}
";

/// The testbed's `kubectl`, turned to a cluster.
pub(super) fn command(cluster: &Cluster, args: &[&str]) -> Command {
    command_with(&cluster.kubeconfig(), args)
}

/// The testbed's `kubectl`, with a kubeconfig.
pub(super) fn command_with(kubeconfig: &Path, args: &[&str]) -> Command {
    let cache = Cache::of_user().unwrap();
    let assets =
        Assets::find(&cache, Release::default(), Parts::ApiServer).expect("`testbed obtain` was run");
    let mut command = Command::new(assets.kubectl);
    command.args(args).env("KUBECONFIG", kubeconfig);
    command
}

/// Runs `kubectl`, feeds it, and answers with what it prints.
#[track_caller]
pub(super) fn kubectl(cluster: &Cluster, args: &[&str], input: &str) -> String {
    let mut child = command(cluster, args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "kubectl {}: {said}", args.join(" "));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
#[ignore = "needs the testbed's kubectl; .ci/kubernetes runs it"]
fn kubectl_applies_resizes_explains_and_deletes() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(&folder.path().join("data"));
    let run = |args: &[&str]| kubectl(&cluster, args, "");
    assert!(kubectl(&cluster, &["apply", "-f", "-", "--validate=false"], POD).contains("pod/2pod created"));
    assert!(run(&["get", "pods"]).contains("READY"));
    let patch = r#"{"spec":{"containers":[{"name":"stress","resources":{"requests":{"cpu":"650m"},"limits":{"cpu":"650m"}}}]}}"#;
    assert!(run(&["patch", "pod", "2pod", "--patch", patch]).contains("patched"));
    assert!(
        run(&["patch", "pod", "2pod", "--subresource", "resize", "--patch", patch]).contains("no change")
    );
    let status = "jsonpath={.status.resize} {.spec.containers[0].resources.requests.cpu} \
                  {.status.containerStatuses[0].allocatedResources.cpu}";
    assert_eq!(run(&["get", "pod", "2pod", "-o", status]), "Proposed 650m 500m");
    assert!(run(&["explain", "pod.spec.containers.resizePolicy"]).contains("restartPolicy"));
    assert!(run(&["describe", "pod", "2pod"]).contains("Service Account:  default"));
    assert!(run(&["label", "pod", "2pod", "app=web"]).contains("labeled"));
    assert!(run(&["get", "pods", "-l", "app=web", "-o", "name"]).contains("pod/2pod"));
    assert!(run(&["create", "deployment", "web", "--image=plumb/load", "--replicas=2"]).contains("created"));
    assert!(run(&["scale", "deployment", "web", "--replicas=5"]).contains("scaled"));
    assert_eq!(run(&["get", "deployment", "web", "-o", "jsonpath={.spec.replicas}"]), "5");
    assert!(run(&["api-resources"]).contains("deployments"));
    assert!(run(&["delete", "pod", "2pod"]).contains("deleted"));
    assert!(run(&["wait", "--for=delete", "pod/2pod", "--timeout=180s"]).is_empty());
}

const WEB: &str = r"
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  containers:
  - name: main
    image: plumb/load
    resources: {limits: {cpu: 500m, memory: 500Mi}, requests: {cpu: 500m, memory: 500Mi}}
";

const EVENT: &str = r"
apiVersion: v1
kind: Event
metadata: {name: web.1}
involvedObject: {apiVersion: v1, kind: Pod, name: web, namespace: default}
reason: Resized
message: from 500m to 650m
type: Normal
";

/// What people type, in order, and a part of what they then see.
const SESSION: &[(&[&str], &str)] = &[
    (&["get", "pods", "-o", "wide"], "NOMINATED NODE"),
    (&["get", "pod", "web", "-o", "yaml"], "qosClass: Guaranteed"),
    (&["get", "pods", "--show-labels"], "app=web"),
    (&["get", "pods", "-A", "--sort-by=.metadata.name", "--chunk-size=1"], "NAMESPACE"),
    (&["get", "pods", "-l", "app in (web),!other", "-o", "name"], "pod/web"),
    (
        &["get", "pods", "--field-selector", "metadata.name=web,status.phase!=Running", "-o", "name"],
        "pod/web",
    ),
    (&["describe", "pod", "web"], "TokenExpirationSeconds:  3607"),
    (
        &[
            "patch",
            "pod",
            "web",
            "--type=json",
            "-p",
            r#"[{"op":"add","path":"/metadata/labels/a","value":"1"}]"#,
        ],
        "patched",
    ),
    (&["patch", "pod", "web", "--type=merge", "-p", r#"{"metadata":{"labels":{"a":"2"}}}"#], "patched"),
    (&["patch", "pod", "web", "--type=strategic", "-p", r#"{"metadata":{"labels":{"a":"3"}}}"#], "patched"),
    (&["patch", "pod", "web", "-p", r#"{"metadata":{"labels":{"a":"3"}}}"#], "no change"),
    (
        &[
            "patch",
            "pod",
            "web",
            "--subresource",
            "resize",
            "-p",
            r#"{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"650m"},"limits":{"cpu":"650m"}}}]}}"#,
        ],
        "patched",
    ),
    (
        &[
            "get",
            "pod",
            "web",
            "--subresource",
            "resize",
            "-o",
            "jsonpath={.spec.containers[0].resources.limits.cpu}",
        ],
        "650m",
    ),
    (&["annotate", "pod", "web", "note=seen"], "annotated"),
    (&["label", "pod", "web", "a-", "b=4"], "modified"),
    (&["wait", "--for=jsonpath={.status.phase}=Pending", "pod/web", "--timeout=180s"], "condition met"),
    (&["create", "configmap", "settings", "--from-literal=k=v"], "created"),
    (&["create", "secret", "generic", "hidden", "--from-literal=k=v"], "created"),
    (&["create", "namespace", "team"], "created"),
    (&["create", "serviceaccount", "robot", "-n", "team"], "created"),
    (&["create", "deployment", "web", "--image=plumb/load", "--replicas=2"], "created"),
    (&["scale", "deployment", "web", "--replicas=5"], "scaled"),
    (&["set", "resources", "deployment", "web", "--requests=cpu=200m"], "resource requirements updated"),
    (&["get", "deployment", "web", "-o", "jsonpath={.spec.replicas} {.metadata.generation}"], "5 3"),
    (&["expose", "deployment", "web", "--port=80"], "exposed"),
    (&["autoscale", "deployment", "web", "--max=3"], "autoscaled"),
    (&["create", "job", "once", "--image=plumb/load"], "created"),
    (&["create", "cronjob", "often", "--image=plumb/load", "--schedule=*/5 * * * *"], "created"),
    (&["get", "all"], "deployment.apps/web"),
    (&["events", "--for", "pod/web"], "Resized"),
    (&["get", "events", "--field-selector", "involvedObject.name=web"], "from 500m to 650m"),
    (&["explain", "deployment.spec.strategy.rollingUpdate"], "maxSurge"),
    (&["explain", "pods", "--recursive"], "resizePolicy"),
    // It asks for `/openapi/v2` in protobuf.
    (&["explain", "deployment.spec", "--output=plaintext-openapiv2"], "progressDeadlineSeconds"),
    (&["api-resources", "--api-group=apps"], "statefulsets"),
    (&["api-versions"], "autoscaling/v2"),
    (&["version"], "v1.36"),
    (&["get", "--raw", "/readyz"], "ok"),
    (&["delete", "configmap,secret", "--all"], "deleted"),
    (&["delete", "pod", "web", "--now"], "deleted"),
    (&["wait", "--for=delete", "pod/web", "--timeout=180s"], ""),
    (&["delete", "deployment", "web", "--cascade=orphan", "--wait=false"], "deleted"),
];

#[test]
#[ignore = "needs the testbed's kubectl; .ci/kubernetes runs it"]
fn a_session_at_the_keyboard() {
    for dialect in ["kep", "v1.36"] {
        let folder = tempfile::tempdir().unwrap();
        let cluster = Cluster::start_with(&folder.path().join("data"), &["--resize-dialect", dialect]);
        assert!(kubectl(&cluster, &["apply", "-f", "-"], WEB).contains("pod/web created"));
        assert!(kubectl(&cluster, &["apply", "-f", "-"], WEB).contains("unchanged"));
        assert!(kubectl(&cluster, &["create", "-f", "-"], EVENT).contains("created"));
        for (args, seen) in SESSION {
            let printed = kubectl(&cluster, args, "");
            assert!(printed.contains(seen), "{dialect}: kubectl {}: {printed}", args.join(" "));
        }
    }
}

#[test]
#[ignore = "needs the testbed's kubectl; .ci/kubernetes runs it"]
fn kubectl_shows_differences_edits_and_tries() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(&folder.path().join("data"));
    let map = |value: &str| {
        format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: m}}, data: {{k: {value}}}}}")
    };
    kubectl(&cluster, &["apply", "-f", "-"], &map("old"));

    // It exits with 1 when there is a difference.
    let file = folder.path().join("map.yaml");
    std::fs::write(&file, map("new")).unwrap();
    let diff = command(&cluster, &["diff", "-f", file.to_str().unwrap()]).output().unwrap();
    assert_eq!(diff.status.code(), Some(1), "{}", String::from_utf8_lossy(&diff.stderr));
    assert!(String::from_utf8_lossy(&diff.stdout).contains("+  k: new"));
    let tried = kubectl(&cluster, &["apply", "--dry-run=server", "-f", "-"], &map("new"));
    assert!(tried.contains("configured (server dry run)"), "{tried}");
    let value = || kubectl(&cluster, &["get", "configmap", "m", "-o", "jsonpath={.data.k}"], "");
    assert_eq!(value(), "old");

    let edited = command(&cluster, &["edit", "configmap", "m"])
        .env("KUBE_EDITOR", "sed -i s/old/edited/")
        .output()
        .unwrap();
    assert!(edited.status.success(), "{}", String::from_utf8_lossy(&edited.stderr));
    assert_eq!(value(), "edited");
    assert!(kubectl(&cluster, &["replace", "-f", "-"], &map("replaced")).contains("replaced"));
    assert_eq!(value(), "replaced");

    // A refusal has its own message.
    let wrong = command(&cluster, &["create", "configmap", "m"]).output().unwrap();
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("configmaps \"m\" already exists"));
}

#[test]
#[ignore = "needs the testbed's kubectl; .ci/kubernetes runs it"]
fn kubectl_watches() {
    let folder = tempfile::tempdir().unwrap();
    // No other user may create config maps.
    let cluster = Cluster::start_with(&folder.path().join("data"), &["--components", "apiserver"]);
    kubectl(&cluster, &["create", "configmap", "first"], "");
    let mut watch = command(&cluster, &["get", "configmaps", "--watch", "--output-watch-events"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = Lines::of(watch.stdout.take().unwrap());
    let mut next = || lines.next().unwrap();
    assert!(next().starts_with("EVENT"));
    assert!(next().starts_with("ADDED      first"));
    kubectl(&cluster, &["create", "configmap", "second", "--from-literal=k=v"], "");
    assert!(next().starts_with("ADDED      second   1"));
    kubectl(&cluster, &["delete", "configmap", "first"], "");
    assert!(next().starts_with("DELETED    first"));
    kill(&mut watch);
}

#[test]
#[ignore = "needs the testbed's kubectl; .ci/kubernetes runs it"]
fn kubectl_auth_whoami_and_can_i_work() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(&folder.path().join("data"));
    let run = |args: &[&str]| kubectl(&cluster, args, "");
    assert!(run(&["auth", "whoami"]).contains("kubernetes-admin"));
    assert_eq!(run(&["auth", "can-i", "delete", "nodes"]).trim(), "yes");
    let tuner = "--as=system:serviceaccount:default:tuner";
    assert!(
        run(&["auth", "can-i", "--list", tuner]).contains("selfsubjectaccessreviews.authorization.k8s.io")
    );
    run(&["create", "role", "resizer", "--verb=patch", "--resource=pods/resize"]);
    run(&["create", "rolebinding", "tuner", "--role=resizer", "--serviceaccount=default:tuner"]);
    assert_eq!(run(&["auth", "can-i", "patch", "pods", "--subresource=resize", tuner]).trim(), "yes");
    assert!(run(&["auth", "can-i", "--list", tuner]).contains("pods/resize"));
    assert!(run(&["auth", "whoami", tuner]).contains("system:serviceaccounts:default"));
    run(&["create", "serviceaccount", "tuner"]);
    assert_eq!(run(&["create", "token", "tuner", "--duration=10m"]).trim().split('.').count(), 3);
    let wait = ["wait", "--for=create", "--timeout=180s"];
    run(&[&wait[..], &["configmap/kube-root-ca.crt", "serviceaccount/default"]].concat());
    let authority = run(&["get", "configmap", "kube-root-ca.crt", "-o", "jsonpath={.data.ca\\.crt}"]);
    assert!(authority.starts_with("-----BEGIN CERTIFICATE-----"));
    assert!(run(&["get", "clusterrole", "edit", "-o", "jsonpath={.rules}"]).contains("deployments"));
}

const CONTROLLER: &str = r"
apiVersion: v1
kind: ReplicationController
metadata: {name: old}
spec:
  replicas: 2
  selector: {app: old}
  template:
    metadata: {labels: {app: old}}
    spec: {containers: [{name: main, image: plumb/load}]}
";

#[test]
#[ignore = "needs the testbed's kubectl; .ci/kubernetes runs it"]
fn kubectl_runs_replaces_and_tries_pods_and_scales_replication_controllers() {
    let folder = tempfile::tempdir().unwrap();
    let flags = ["--components", "apiserver,controllers", "--resize-dialect", "v1.36"];
    let cluster = Cluster::start_with(&folder.path().join("data"), &flags);
    let run = |args: &[&str]| kubectl(&cluster, args, "");
    assert!(run(&["cluster-info"]).contains("Kubernetes control plane"));
    assert!(run(&["run", "once", "--image=plumb/load", "--restart=Never"]).contains("pod/once created"));
    let field = |object: &str, path: &str| run(&["get", object, "-o", &format!("jsonpath={{{path}}}")]);
    assert_eq!(field("pod/once", ".spec.restartPolicy"), "Never");
    let image = |image: &str| format!(r#"{{"spec":{{"containers":[{{"name":"once","image":"{image}"}}]}}}}"#);
    assert!(run(&["patch", "pod", "once", "--dry-run=server", "-p", &image("other:1")]).contains("patched"));
    assert_eq!(field("pod/once", ".spec.containers[0].image"), "plumb/load");
    let whole = run(&["get", "pod", "once", "-o", "json"]);
    let replaced = whole.replace(r#""image": "plumb/load""#, r#""image": "other:2""#);
    assert!(kubectl(&cluster, &["replace", "-f", "-"], &replaced).contains("pod/once replaced"));
    assert_eq!(field("pod/once", ".spec.containers[0].image"), "other:2");

    assert!(kubectl(&cluster, &["create", "-f", "-"], CONTROLLER).contains("created"));
    let wait = |count: &str| {
        let condition = format!("--for=jsonpath={{.status.replicas}}={count}");
        run(&["wait", &condition, "rc/old", "--timeout=180s"]);
    };
    wait("2");
    let of_controller: (&[&str], &str) = (&["describe", "rc", "old"], "2 current / 2 desired");
    let of_pods: (&[&str], &str) = (&["describe", "pods", "-l", "app=old"], "ReplicationController/old");
    for (args, part) in [of_controller, of_pods] {
        let described = run(args);
        assert!(described.contains(part), "{described}");
    }
    let note = r#"{"metadata":{"annotations":{"x":"y"}}}"#;
    for pod in run(&["get", "pods", "-l", "app=old", "-o", "name"]).lines() {
        assert!(run(&["patch", pod, "-p", note]).contains("patched"));
        assert_eq!(field(pod, ".metadata.annotations.x"), "y");
    }
    assert!(run(&["scale", "rc", "old", "--replicas=1"]).contains("scaled"));
    wait("1");
    run(&["scale", "rc", "old", "--current-replicas=1", "--replicas=3"]);
    wait("3");
    run(&["delete", "rc", "old", "--timeout=180s"]);
    run(&["wait", "--for=delete", "pods", "-l", "app=old", "--timeout=180s"]);

    run(&["create", "deployment", "web", "--image=plumb/load"]);
    let file = folder.path().join("web.yaml");
    let changed =
        run(&["get", "deployment", "web", "-o", "yaml"]).replace("image: plumb/load", "image: other:3");
    std::fs::write(&file, changed).unwrap();
    let diff = command(&cluster, &["diff", "-f", file.to_str().unwrap()]).output().unwrap();
    assert_eq!(diff.status.code(), Some(1), "{}", String::from_utf8_lossy(&diff.stderr));
    assert!(String::from_utf8_lossy(&diff.stdout).contains("image: other:3"));
}

#[test]
#[ignore = "needs the testbed's kubectl; .ci/kubernetes runs it"]
fn kubectl_is_a_proxy_at_a_free_port_and_at_a_socket() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start_with(&folder.path().join("data"), &["--components", "apiserver"]);
    let socket = folder.path().join("proxy");
    let ask = |stream: &mut dyn ReadWrite| {
        stream.write_all(b"GET /api/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 200") && text.contains("APIVersions"), "{text}");
    };
    for args in [
        vec!["proxy".to_owned(), "--port=0".to_owned()],
        vec!["proxy".to_owned(), format!("--unix-socket={}", socket.display())],
    ] {
        let words: Vec<&str> = args.iter().map(String::as_str).collect();
        let mut proxy = command(&cluster, &words).stdout(Stdio::piped()).spawn().unwrap();
        let line = first_line(&mut proxy);
        let at = line.trim().strip_prefix("Starting to serve on ").unwrap_or_else(|| panic!("{line}"));
        if at.starts_with('/') {
            ask(&mut std::os::unix::net::UnixStream::connect(at).unwrap());
        } else {
            ask(&mut std::net::TcpStream::connect(at).unwrap());
        }
        kill(&mut proxy);
    }
}

/// A connection, whatever it is made of.
trait ReadWrite: std::io::Read + std::io::Write {}

impl<T: std::io::Read + std::io::Write> ReadWrite for T {}
