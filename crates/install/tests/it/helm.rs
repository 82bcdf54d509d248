//! The chart through a real Helm, and the manifests on a real API server: `testbed obtain --helm` gets them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use kube::ResourceExt;
use plumb_install::apply::{Change, Mode};
use plumb_install::uninstall::{Removal, uninstall};
use plumb_install::{Component, Options, manifests, yaml};
use plumb_testbed::{Cache, Cluster, Config, Parts};
use serde_json::Value;

use super::apply::{all, installed};

fn helm() -> Command {
    Command::new(Cache::of_user().unwrap().helm().unwrap())
}

fn chart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/helm/plumb")
}

fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stdout).unwrap()
}

/// Objects by kind and name.
fn by_name(objects: impl IntoIterator<Item = Value>) -> BTreeMap<(String, String), Value> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let named = objects.into_iter().filter(|object| !object.is_null());
    named.map(|object| ((text(&object["kind"]), text(&object["metadata"]["name"])), object)).collect()
}

/// The output of `plumb install` without the namespace, which Helm creates itself.
fn printed(options: &Options) -> BTreeMap<(String, String), Value> {
    let objects: Vec<Value> = serde_saphyr::from_multiple(&yaml(&manifests(options)).unwrap()).unwrap();
    by_name(objects.into_iter().filter(|object| object["kind"] != "Namespace"))
}

fn templated(options: &Options, values: &[&str]) -> BTreeMap<(String, String), Value> {
    let mut command = helm();
    command.args(["template", "plumb"]).arg(chart()).args(["--include-crds", "-n", &options.namespace]);
    for value in values {
        command.args(["--set", value]);
    }
    by_name(serde_saphyr::from_multiple::<Value>(&output(&mut command)).unwrap())
}

#[test]
#[ignore = "needs Helm; .ci/kubernetes runs it"]
fn helm_renders_the_manifests_that_plumb_install_prints() {
    output(helm().arg("lint").arg("--strict").arg(chart()));
    assert_eq!(templated(&all(), &[]), printed(&all()));

    let options = Options {
        namespace: "elsewhere".to_owned(),
        image: "registry.example.com/plumb:2".to_owned(),
        replicas: 1,
        components: vec![Component::Recommender, Component::Updater, Component::Admission],
        service_monitor: true,
        feature_gates: "InPlace=true".to_owned(),
        extra_args: BTreeMap::from([(
            Component::Updater,
            vec!["--updater-interval=30s".to_owned(), "--min-replicas=1".to_owned()],
        )]),
        ..Options::default()
    };
    let values = [
        "image=registry.example.com/plumb:2",
        "replicas=1",
        "components.rollout=false",
        "serviceMonitor=true",
        "featureGates=InPlace=true",
        "extraArgs.updater={--updater-interval=30s,--min-replicas=1}",
    ];
    let mut rendered = templated(&options, &values);
    // Helm has no condition for definitions.
    rendered.retain(|(_, name), _| {
        !["rolloutpolicies.plumb.dev", "clonesets.apps.kruise.io"].contains(&name.as_str())
    });
    assert_eq!(rendered, printed(&options));

    let components = vec![Component::Autoscaler, Component::Rollout];
    let in_one = Options { components, ..Options::default() };
    assert_eq!(templated(&in_one, &["components.autoscaler=true"]), printed(&in_one));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Kubernetes and Helm; .ci/kubernetes runs it"]
async fn a_real_api_server_takes_what_is_applied_printed_and_installed_by_helm() {
    let cluster = Cluster::start(Config::of(Parts::ApiServer)).await.unwrap();
    let client = cluster.client().await.unwrap();
    let options = all();
    let first = installed(&client, &options, Mode::default()).await.unwrap();
    assert!(first.iter().all(|(_, change)| *change == Change::Created), "{first:?}");
    let second = installed(&client, &options, Mode::default()).await.unwrap();
    assert!(second.iter().all(|(_, change)| *change == Change::Unchanged), "{second:?}");

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("manifests.yaml");
    let printed = Options { replicas: 1, ..options.clone() };
    std::fs::write(&file, yaml(&manifests(&printed)).unwrap()).unwrap();
    let mut kubectl = Command::new(cluster.kubectl());
    kubectl.env("KUBECONFIG", cluster.kubeconfig_path()).args(["apply", "-f"]).arg(&file);
    let said = output(&mut kubectl);
    assert_eq!(said.lines().filter(|line| line.starts_with("deployment.apps/plumb-")).count(), 4, "{said}");

    let removal = Removal { namespace: options.namespace.clone(), ..Removal::default() };
    uninstall(&client, &removal, &mut |_, _| {}).await.unwrap();
    let deployments: plumb_client::Api<k8s_openapi::api::apps::v1::Deployment> =
        plumb_client::Api::all(client.clone());
    let left = deployments.list(&kube::api::ListParams::default()).await.unwrap();
    assert!(left.items.is_empty(), "{:?}", left.items.iter().map(ResourceExt::name_any).collect::<Vec<_>>());

    // No controller runs that would finalize the former namespace.
    let mut install = helm();
    install.args(["install", "plumb"]).arg(chart()).args([
        "-n",
        "with-helm",
        "--create-namespace",
        "--kubeconfig",
    ]);
    output(install.arg(cluster.kubeconfig_path()));
    assert_eq!(deployments.list(&kube::api::ListParams::default()).await.unwrap().items.len(), 4);
    let mut uninstall = helm();
    uninstall.args(["uninstall", "plumb", "-n", "with-helm", "--kubeconfig"]);
    output(uninstall.arg(cluster.kubeconfig_path()));
    cluster.stop().await.unwrap();
}
