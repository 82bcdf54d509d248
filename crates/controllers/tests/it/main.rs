//! The controllers, on a real API server in this process.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod autoscaling;
mod certificates;
mod collecting;
mod endpoints;
mod events;
mod heartbeats;
mod jobs;
mod node_ipam;
mod panics;
mod quotas;
mod rollouts;
mod sets;
mod volumes;
mod workloads;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use plumb_apiserver::admission::Plugins;
use plumb_controller_runtime::InformerFactory;
use plumb_controller_runtime::api_error::is_settled;
use plumb_controller_runtime::metrics::Metrics;
use plumb_controllers::{Clients, GROUPS, WATCHER, accounts, aggregation, root_ca, user_of};
use plumb_metrics::Text;
use plumb_resize::rules::Rules;
use plumb_supervise::Supervisor;
use plumb_testkit::{Options, TestCluster, until, until_gone};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// A cluster with its controllers, each with the permissions of its own role.
struct Cluster {
    admin: Client,
    authority: watch::Sender<String>,
    metrics: Metrics,
    _running: JoinSet<()>,
    _informing: JoinSet<()>,
}

impl Cluster {
    fn start() -> Self {
        let plugins = Plugins::default();
        let cluster = TestCluster::with(Options { rules: Rules::kep(), plugins, ..Options::default() });
        let informers = InformerFactory::default();
        let supervisor = Supervisor::default();
        let metrics = Metrics::default();
        let clients = |name: &str| Clients {
            watch: cluster.client(WATCHER),
            write: cluster.client_as(&user_of(name), GROUPS),
            supervisor: supervisor.clone(),
            metrics: metrics.clone(),
        };
        let (authority, published) = watch::channel("first".to_owned());
        let mut running = JoinSet::new();
        running.spawn(accounts::run(clients(accounts::NAME), &informers));
        running.spawn(root_ca::run(clients(root_ca::NAME), &informers, published));
        running.spawn(aggregation::run(clients(aggregation::NAME), &informers));
        let informing = informers.start(&cluster.client(WATCHER), &supervisor);
        Self { admin: cluster.admin(), authority, metrics, _running: running, _informing: informing }
    }

    async fn namespace(&self, name: &str) {
        let namespace: Namespace = serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap();
        Api::all(self.admin.clone()).create(&PostParams::default(), &namespace).await.unwrap();
    }
}

#[tokio::test]
async fn every_namespace_has_a_default_account_and_the_authority() {
    let cluster = Cluster::start();
    cluster.namespace("team").await;
    for namespace in ["default", "kube-system", "kube-public", "kube-node-lease", "team"] {
        let accounts: Api<ServiceAccount> = Api::namespaced(cluster.admin.clone(), namespace);
        let first = until(&accounts, "default", |_| true).await;
        let maps: Api<ConfigMap> = Api::namespaced(cluster.admin.clone(), namespace);
        let says = |text: &'static str| move |map: &ConfigMap| map.data.as_ref().unwrap()["ca.crt"] == text;
        until(&maps, "kube-root-ca.crt", says("first")).await;
        if namespace != "team" {
            continue;
        }
        // A deleted object is recreated, and a changed one is restored.
        accounts.delete("default", &DeleteParams::default()).await.unwrap();
        until(&accounts, "default", |account| account.metadata.uid != first.metadata.uid).await;
        maps.delete("kube-root-ca.crt", &DeleteParams::default()).await.unwrap();
        until(&maps, "kube-root-ca.crt", says("first")).await;
        let patch = json!({ "data": { "ca.crt": "mine", "more": "x" } });
        maps.patch("kube-root-ca.crt", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
        until(&maps, "kube-root-ca.crt", |map| map.data.as_ref().unwrap().len() == 1).await;
        cluster.authority.send_replace("second".to_owned());
        until(&maps, "kube-root-ca.crt", says("second")).await;
    }
}

#[tokio::test]
async fn namespaces_that_are_deleted_at_once_fail_no_reconcile() {
    let cluster = Cluster::start();
    let namespaces: Api<Namespace> = Api::all(cluster.admin.clone());
    // The controllers may have observed a namespace and not its deletion.
    for number in 0..20 {
        let name = format!("brief-{number}");
        cluster.namespace(&name).await;
        namespaces.delete(&name, &DeleteParams::default()).await.unwrap();
    }
    // The 404 that they get then does not count as a failure.
    let late: ConfigMap = serde_json::from_value(json!({ "metadata": { "name": "late" } })).unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(cluster.admin.clone(), "brief-0");
    let refused = maps.create(&PostParams::default(), &late).await.unwrap_err();
    assert!(refused.to_string().contains("because it is being terminated"), "{refused:?}");
    assert!(is_settled(&refused), "{refused:?}");
    cluster.namespace("last").await;
    let maps: Api<ConfigMap> = Api::namespaced(cluster.admin.clone(), "last");
    until(&maps, "kube-root-ca.crt", |_| true).await;
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.admin.clone(), "last");
    until(&accounts, "default", |_| true).await;
    let mut text = Text::default();
    cluster.metrics.render(&mut text);
    let text = text.finish();
    let errors = text.lines().filter(|line| line.starts_with("controller_runtime_reconcile_errors_total{"));
    let errors: Vec<&str> = errors.collect();
    assert!(errors.len() >= 3 && errors.iter().all(|line| line.ends_with(" 0")), "{errors:?}");
}

#[tokio::test]
async fn roles_gather_what_they_select_and_follow_it() {
    let cluster = Cluster::start();
    let roles: Api<ClusterRole> = Api::all(cluster.admin.clone());
    let count = |role: &ClusterRole| role.rules.as_ref().map_or(0, Vec::len);
    // The number of rules that kube-controller-manager 1.36.4 aggregates if metrics-server's own role exists, too.
    for (name, rules) in [("view", 13), ("edit", 28), ("admin", 30)] {
        until(&roles, name, |role| count(role) == rules).await;
    }
    let added: ClusterRole = serde_json::from_value(json!({
        "metadata": { "name": "resizer", "labels": { "rbac.authorization.k8s.io/aggregate-to-edit": "true" } },
        "rules": [{ "apiGroups": [""], "resources": ["pods/resize"], "verbs": ["patch"] }],
    }))
    .unwrap();
    roles.create(&PostParams::default(), &added).await.unwrap();
    // `admin` aggregates `edit`, which aggregates the new role.
    until(&roles, "edit", |role| count(role) == 29).await;
    until(&roles, "admin", |role| count(role) == 31).await;
    roles.delete("resizer", &DeleteParams::default()).await.unwrap();
    until(&roles, "admin", |role| count(role) == 30).await;
}
