//! Installation on an API server.

use http::{Request, Response};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::{Client, ResourceExt as _};
use plumb_client::Api;
use plumb_install::apply::{ApplyError, Change, Mode, apply};
use plumb_install::uninstall::{Removal, uninstall};
use plumb_install::upstream::REPLICAS_ANNOTATION;
use plumb_install::{Component, Options, manifests};
use plumb_testkit::{TestCluster, object};
use plumb_vpa_admission::registration;
use serde_json::json;

/// The components that are installed by default.
pub(crate) fn all() -> Options {
    Options::default()
}

/// The change of each object.
pub(crate) async fn installed(
    client: &Client,
    options: &Options,
    mode: Mode,
) -> Result<Vec<(String, Change)>, ApplyError> {
    let mut changes = Vec::new();
    apply(client, options, mode, &mut |what, change| changes.push((what.to_owned(), change))).await?;
    Ok(changes)
}

/// A Deployment of upstream's updater.
pub(crate) async fn create_upstream(client: &Client) {
    let deployment: Deployment = object(json!({
        "metadata": { "name": "vpa-updater", "namespace": "kube-system" },
        "spec": {
            "replicas": 3,
            "selector": { "matchLabels": { "app": "vpa-updater" } },
            "template": {
                "metadata": { "labels": { "app": "vpa-updater" } },
                "spec": { "containers": [{ "name": "updater", "image": "registry.k8s.io/autoscaling/vpa-updater:1.8.1" }] },
            },
        },
    }));
    let api: Api<Deployment> = Api::namespaced(client.clone(), "kube-system");
    api.create(&PostParams::default(), &deployment).await.unwrap();
}

#[tokio::test]
async fn installing_twice_changes_nothing_and_an_edit_is_undone() {
    let cluster = TestCluster::start();
    let admin = cluster.admin();
    let options = all();
    let first = installed(&admin, &options, Mode::default()).await.unwrap();
    assert_eq!(first.len(), manifests(&options).len());
    assert!(first.iter().all(|(_, change)| *change == Change::Created), "{first:?}");
    let second = installed(&admin, &options, Mode::default()).await.unwrap();
    assert!(second.iter().all(|(_, change)| *change == Change::Unchanged), "{second:?}");

    let deployments: Api<Deployment> = Api::namespaced(admin.clone(), &options.namespace);
    let edit = json!({ "spec": { "template": { "spec": { "containers": [{ "name": "updater", "image": "x" }] } } } });
    deployments.patch("plumb-updater", &PatchParams::default(), &Patch::Strategic(&edit)).await.unwrap();
    let third = installed(&admin, &options, Mode::default()).await.unwrap();
    let changed: Vec<_> = third.iter().filter(|(_, change)| *change != Change::Unchanged).collect();
    assert_eq!(changed, [&("deployment.apps/plumb-updater".to_owned(), Change::Configured)]);
}

#[tokio::test]
async fn the_processes_of_another_layout_are_deleted() {
    let cluster = TestCluster::start();
    let admin = cluster.admin();
    let separate = all();
    let components = vec![Component::Autoscaler, Component::Rollout];
    let in_one = Options { components, ..Options::default() };
    installed(&admin, &separate, Mode::default()).await.unwrap();
    let deployments: Api<Deployment> = Api::namespaced(admin.clone(), &separate.namespace);
    let names = async || {
        let listed = deployments.list(&ListParams::default()).await.unwrap();
        listed.items.iter().map(kube::ResourceExt::name_any).collect::<Vec<_>>()
    };
    let dry = Mode { dry_run: true, ..Mode::default() };
    installed(&admin, &in_one, dry).await.unwrap();
    assert_eq!(names().await.len(), 4, "a dry run deletes nothing");

    let said = installed(&admin, &in_one, Mode::default()).await.unwrap();
    let deleted = said.iter().filter(|(_, change)| *change == Change::Deleted).map(|(what, _)| &**what);
    let objects_of = |name: &str| {
        ["serviceaccount", "deployment.apps", "poddisruptionbudget.policy"]
            .map(|kind| format!("{kind}/{name}"))
    };
    assert_eq!(
        deleted.collect::<Vec<_>>(),
        ["plumb-recommender", "plumb-updater", "plumb-admission"].map(objects_of).concat()
    );
    assert_eq!(names().await, ["plumb-autoscaler", "plumb-rollout"]);

    installed(&admin, &separate, Mode::default()).await.unwrap();
    assert_eq!(names().await, ["plumb-admission", "plumb-recommender", "plumb-rollout", "plumb-updater"]);
}

#[tokio::test]
async fn a_dry_run_stores_nothing() {
    let cluster = TestCluster::start();
    let admin = cluster.admin();
    let mode = Mode { dry_run: true, ..Mode::default() };
    let said = installed(&admin, &Options::default(), mode).await.unwrap();
    assert!(said.iter().all(|(_, change)| *change == Change::Created), "{said:?}");
    let deployments: Api<Deployment> = Api::all(admin.clone());
    assert!(deployments.list(&ListParams::default()).await.unwrap().items.is_empty());
    let crds: Api<CustomResourceDefinition> = Api::all(admin);
    assert!(crds.list(&ListParams::default()).await.unwrap().items.is_empty());
}

#[tokio::test]
async fn without_the_resize_subresource_nothing_is_installed() {
    // An older API server, to which only requests that it serves are sent.
    let service = tower::service_fn(|request: Request<Body>| async move {
        assert_eq!((request.method().as_str(), request.uri().path()), ("GET", "/api/v1"));
        let list = json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "v1",
            "resources": [
                { "name": "pods", "singularName": "pod", "namespaced": true, "kind": "Pod", "verbs": ["get"] },
                { "name": "pods/eviction", "singularName": "", "namespaced": true, "kind": "Eviction", "verbs": ["create"] },
            ],
        });
        Ok::<_, std::io::Error>(Response::new(Body::from(list.to_string().into_bytes())))
    });
    let client = Client::new(service, "default");
    let refused = installed(&client, &Options::default(), Mode::default()).await;
    assert!(matches!(refused, Err(ApplyError::NoResize)), "{refused:?}");
}

#[tokio::test]
async fn in_a_cluster_of_plumb_up_its_own_components_are_not_installed_again() {
    let cluster = TestCluster::start();
    let admin = cluster.admin();
    let webhook = object::<MutatingWebhookConfiguration>(json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": { "name": registration::NAME },
        "webhooks": [{
            "name": "vpa.k8s.io", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": { "url": "https://127.0.0.1:7000/" },
        }],
    }));
    let webhooks: Api<MutatingWebhookConfiguration> = Api::all(admin.clone());
    let params = PatchParams::apply(registration::FIELD_MANAGER).force();
    webhooks.patch(registration::NAME, &params, &Patch::Apply(webhook)).await.unwrap();
    for dry_run in [true, false] {
        let mode = Mode { dry_run, ..Mode::default() };
        let refused = installed(&admin, &all(), mode).await.unwrap_err().to_string();
        assert!(refused.contains("`plumb up` runs the autoscaler of this cluster itself"), "{refused}");
        let rollout = Options { components: vec![Component::Rollout], ..Options::default() };
        installed(&admin, &rollout, Mode { dry_run: true, ..mode }).await.unwrap();
    }
    let deployments: Api<Deployment> = Api::all(admin);
    assert!(deployments.list(&ListParams::default()).await.unwrap().items.is_empty());
}

#[tokio::test]
async fn a_second_installation_in_another_namespace_is_refused() {
    let cluster = TestCluster::start();
    let admin = cluster.admin();
    installed(&admin, &all(), Mode::default()).await.unwrap();
    let elsewhere = Options { namespace: "other".to_owned(), ..Options::default() };
    let refused = installed(&admin, &elsewhere, Mode::default()).await.unwrap_err().to_string();
    assert!(refused.starts_with("Plumb is installed in namespace plumb-system:"), "{refused}");
    let namespaces: Api<Namespace> = Api::all(admin.clone());
    assert!(namespaces.get_opt("other").await.unwrap().is_none());
    let removal = Removal { namespace: "other".to_owned(), ..Removal::default() };
    let refused = uninstall(&admin, &removal, &mut |_, _| {}).await.unwrap_err().to_string();
    assert!(refused.contains("`plumb uninstall -n plumb-system` removes it"), "{refused}");
    let repeated = installed(&admin, &all(), Mode::default()).await.unwrap();
    assert!(repeated.iter().all(|(_, change)| *change == Change::Unchanged), "{repeated:?}");
}

#[tokio::test]
async fn beside_a_running_vpa_nothing_is_installed_unless_it_is_to_be_replaced() {
    let cluster = TestCluster::start();
    let admin = cluster.admin();
    let options = Options::default();
    create_upstream(&admin).await;
    let refused = installed(&admin, &options, Mode::default()).await.unwrap_err().to_string();
    assert!(refused.contains("kube-system/vpa-updater") && refused.contains("--replace-vpa"), "{refused}");

    let mode = Mode { replace_vpa: true, ..Mode::default() };
    let said = installed(&admin, &options, mode).await.unwrap();
    let at = |wanted: &str| said.iter().position(|(what, _)| what.starts_with(wanted)).unwrap();
    assert!(at("deployment.apps/vpa-updater") < at("deployment.apps/plumb-updater"), "{said:?}");
    let deployments: Api<Deployment> = Api::namespaced(admin.clone(), "kube-system");
    let stopped = deployments.get("vpa-updater").await.unwrap();
    assert_eq!(stopped.spec.as_ref().unwrap().replicas, Some(0));
    assert_eq!(stopped.annotations()[REPLICAS_ANNOTATION], "3");

    // A replaced Deployment stays at zero, and its annotation has the former replicas.
    installed(&admin, &options, Mode::default()).await.unwrap();
    let stopped = deployments.get("vpa-updater").await.unwrap();
    assert_eq!(stopped.annotations()[REPLICAS_ANNOTATION], "3");
}

#[tokio::test]
async fn definitions_of_another_installer_stay_unless_it_is_replaced() {
    let cluster = TestCluster::start();
    let admin = cluster.admin();
    let crds: Api<CustomResourceDefinition> = Api::all(admin.clone());
    for mut crd in plumb_install::crds(&Component::ALL) {
        crd.annotations_mut().remove("plumb.dev/crd-definition");
        crds.create(&PostParams::default(), &crd).await.unwrap();
    }
    let of_crds = |said: Vec<(String, Change)>| -> Vec<Change> {
        said.into_iter().filter(|(what, _)| what.starts_with("custom")).map(|(_, change)| change).collect()
    };
    let said = installed(&admin, &all(), Mode::default()).await.unwrap();
    assert_eq!(of_crds(said), [Change::Left; 4]);
    let mode = Mode { replace_vpa: true, ..Mode::default() };
    let said = installed(&admin, &all(), mode).await.unwrap();
    assert_eq!(of_crds(said), [Change::Configured, Change::Configured, Change::Left, Change::Left]);
}
