//! Removal of an installation.

use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use plumb_client::Api;
use plumb_install::apply::Mode;
use plumb_install::uninstall::{Removal, UninstallError, UninstallOutcome, uninstall};
use plumb_install::upstream::REPLICAS_ANNOTATION;
use plumb_resize::rules::Rules;
use plumb_rollout::api::RolloutPolicySpec;
use plumb_rollout::workloads::{AdmissionContext, WorkloadKind, admit};
use plumb_testkit::{TestCluster, object, until};
use plumb_vpa_admission::registration;
use plumb_vpa_api::VerticalPodAutoscaler;
use serde_json::json;

use super::apply::{all, create_upstream, installed};

async fn removed(client: &Client, removal: &Removal) -> Result<Vec<String>, UninstallError> {
    let mut said = Vec::new();
    uninstall(client, removal, &mut |what, done| said.push(format!("{what} {done}"))).await?;
    Ok(said)
}

async fn create_vpa(client: &Client) {
    let vpa: VerticalPodAutoscaler = object(json!({
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", "metadata": { "name": "web" },
        "spec": {
            "targetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
            "updatePolicy": { "updateMode": "InPlace" },
        },
    }));
    let vpas: Api<VerticalPodAutoscaler> = Api::default_namespaced(client.clone());
    vpas.create(&PostParams::default(), &vpa).await.unwrap();
}

#[tokio::test]
async fn an_uninstall_removes_all_objects_and_restores_the_replicas_of_upstream() {
    let cluster = TestCluster::start();
    let admin = cluster.admin();
    let options = all();
    create_upstream(&admin).await;
    let mode = Mode { replace_vpa: true, ..Mode::default() };
    installed(&admin, &options, mode).await.unwrap();
    create_vpa(&admin).await;
    let removal = Removal { namespace: options.namespace.clone(), ..Removal::default() };

    let refused = removed(&admin, &removal).await.unwrap_err().to_string();
    assert!(refused.contains("default/web: updateMode InPlace") && refused.contains("--force"), "{refused}");
    let deployments: Api<Deployment> = Api::all(admin.clone());
    assert_eq!(deployments.list(&ListParams::default()).await.unwrap().items.len(), 5);

    let dry_run = removed(&admin, &Removal { force: true, dry_run: true, ..removal.clone() }).await.unwrap();
    assert_eq!(deployments.list(&ListParams::default()).await.unwrap().items.len(), 5);
    let said = removed(&admin, &Removal { force: true, ..removal.clone() }).await.unwrap();
    assert_eq!(said, dry_run);
    let left = deployments.list(&ListParams::default()).await.unwrap().items;
    let [upstream] = &left[..] else { panic!("{left:?}") };
    assert_eq!(upstream.spec.as_ref().unwrap().replicas, Some(3));
    assert!(!upstream.annotations().contains_key(REPLICAS_ANNOTATION));
    assert!(said.last().unwrap().ends_with("scaled to 3"), "{said:?}");

    // VPAs stay, and so do their definitions.
    let vpas: Api<VerticalPodAutoscaler> = Api::default_namespaced(admin.clone());
    vpas.get("web").await.unwrap();
    let purge = Removal { force: true, delete_crds: true, ..removal };
    let said = removed(&admin, &purge).await.unwrap();
    assert_eq!(said.iter().filter(|line| line.starts_with("customresource")).count(), 4, "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workload_that_a_rollout_holds_is_released() {
    let cluster = TestCluster::start();
    let admin = cluster.admin();
    let options = all();
    installed(&admin, &options, Mode::default()).await.unwrap();
    let deployment = |cpu: &str| {
        let labels = json!({ "app": "web" });
        let container = json!({ "name": "main", "image": "i", "resources": { "requests": { "cpu": cpu, "memory": "1Mi" } } });
        json!({
            "metadata": { "name": "web" },
            "spec": { "selector": { "matchLabels": labels }, "template": {
                "metadata": { "labels": labels }, "spec": { "containers": [container] },
            } },
        })
    };
    let rules = Rules::v1_36();
    let policy = RolloutPolicySpec::default();
    let context =
        AdmissionContext { enabled: true, policy: Some(&policy), rules: &rules, now: Timestamp::now() };
    let held = admit(WorkloadKind::Deployment, &deployment("100m"), &deployment("200m"), &context);
    let deployments: Api<Deployment> = Api::default_namespaced(admin.clone());
    deployments.create(&PostParams::default(), &object(held.object.unwrap())).await.unwrap();
    let is_paused =
        async || deployments.get("web").await.unwrap().spec.is_some_and(|spec| spec.paused == Some(true));
    let removal = Removal { namespace: options.namespace.clone(), ..Removal::default() };
    let released = "deployment.apps/web of namespace default released".to_owned();

    let said = removed(&admin, &Removal { dry_run: true, ..removal.clone() }).await.unwrap();
    assert!(said.contains(&released) && is_paused().await, "{said:?}");
    let said = removed(&admin, &removal).await.unwrap();
    assert!(said.contains(&released) && !is_paused().await, "{said:?}");
    let conditions = deployments.get("web").await.unwrap().status.unwrap().conditions.unwrap();
    let resizing = conditions.iter().find(|one| one.type_ == plumb_rollout::workloads::CONDITION).unwrap();
    assert_eq!(resizing.status, "False");
    let again = removed(&admin, &removal).await.unwrap();
    assert!(!again.contains(&released), "{again:?}");
}

#[tokio::test]
async fn without_an_installation_no_vpa_is_refused_and_nothing_is_removed() {
    let cluster = TestCluster::start();
    let admin = cluster.admin();
    plumb_vpa::install::install(&admin).await.unwrap();
    create_vpa(&admin).await;
    let removal = Removal { namespace: "plumb-system".to_owned(), ..Removal::default() };
    let mut said = Vec::new();
    let outcome = uninstall(&admin, &removal, &mut |what, _| said.push(what.to_owned())).await.unwrap();
    assert_eq!((outcome, said), (UninstallOutcome::NotInstalled, Vec::new()));
    // The definitions are removed only with --force: upstream would refuse the VPA after it comes back.
    let delete_crds = Removal { delete_crds: true, ..removal };
    assert!(matches!(removed(&admin, &delete_crds).await, Err(UninstallError::Refused(_))));
}

/// Defines a kind of OpenKruise with an open schema.
async fn define(client: &Client, kind: WorkloadKind) {
    let open = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let schema =
        json!({ "openAPIV3Schema": { "type": "object", "properties": { "spec": open, "status": open } } });
    let version = |name: &str, storage: bool| json!({ "name": name, "served": true, "storage": storage, "schema": schema, "subresources": { "status": {} } });
    let plural = kind.plural();
    let definition: CustomResourceDefinition = object(json!({
        "metadata": { "name": format!("{plural}.{}", kind.group()) },
        "spec": {
            "group": kind.group(), "scope": "Namespaced",
            "names": { "kind": kind.name(), "listKind": format!("{}List", kind.name()), "plural": plural,
                "singular": plural.trim_end_matches('s') },
            "versions": [version("v1alpha1", false), version("v1beta1", true)],
        },
    }));
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions.create(&PostParams::default(), &definition).await.unwrap();
    until(&definitions, &definition.name_any(), |one| {
        let status = one.status.clone().unwrap_or_default();
        status.conditions.iter().flatten().any(|one| one.type_ == "Established" && one.status == "True")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn workloads_of_openkruise_that_a_rollout_holds_are_released() {
    let cluster = TestCluster::start();
    let admin = cluster.admin();
    let options = all();
    installed(&admin, &options, Mode::default()).await.unwrap();
    let set = |kind: WorkloadKind, cpu: &str| {
        let labels = json!({ "app": "web" });
        let container = json!({ "name": "main", "image": "i", "resources": { "requests": { "cpu": cpu, "memory": "1Mi" } } });
        json!({
            "apiVersion": kind.api_version(), "kind": kind.name(), "metadata": { "name": "web", "namespace": "default" },
            "spec": { "selector": { "matchLabels": labels }, "template": {
                "metadata": { "labels": labels }, "spec": { "containers": [container] },
            } },
        })
    };
    let rules = Rules::v1_36();
    let policy = RolloutPolicySpec::default();
    let context =
        AdmissionContext { enabled: true, policy: Some(&policy), rules: &rules, now: Timestamp::now() };
    let mut sets = Vec::new();
    for kind in [WorkloadKind::AdvancedStatefulSet, WorkloadKind::AdvancedDaemonSet] {
        define(&admin, kind).await;
        let held = admit(kind, &set(kind, "100m"), &set(kind, "200m"), &context).object.unwrap();
        let held: DynamicObject = object(held);
        let resource = ApiResource::from_gvk_with_plural(
            &held.types.as_ref().unwrap().try_into().unwrap(),
            kind.plural(),
        );
        let api: Api<DynamicObject> = Api::namespaced_with(admin.clone(), "default", &resource);
        api.create(&PostParams::default(), &held).await.unwrap();
        sets.push(api);
    }
    let is_paused = async |api: &Api<DynamicObject>| {
        api.get("web").await.unwrap().data["spec"]["updateStrategy"]["rollingUpdate"]["paused"] == true
    };
    let removal = Removal { namespace: options.namespace.clone(), ..Removal::default() };
    let released = ["statefulset", "daemonset"]
        .map(|kind| format!("{kind}.apps.kruise.io/web of namespace default released"));

    let said = removed(&admin, &Removal { dry_run: true, ..removal.clone() }).await.unwrap();
    assert!(released.iter().all(|line| said.contains(line)), "{said:?}");
    for api in &sets {
        assert!(is_paused(api).await);
    }
    let said = removed(&admin, &removal).await.unwrap();
    assert!(released.iter().all(|line| said.contains(line)), "{said:?}");
    for api in &sets {
        assert!(!is_paused(api).await);
    }
}

#[tokio::test]
async fn boosted_pods_without_an_updater_are_reported() {
    let cluster = TestCluster::start();
    let admin = cluster.admin();
    let options = all();
    installed(&admin, &options, Mode::default()).await.unwrap();
    let pods: Api<Pod> = Api::default_namespaced(admin.clone());
    for (name, annotations) in [
        ("boosted", json!({ "vpaCpuStartupBoost/app": r#"{"requests":{"cpu":"100m"}}"# })),
        ("plain", json!({})),
    ] {
        let container =
            json!({ "name": "app", "image": "i", "resources": { "requests": { "cpu": "300m" } } });
        let pod = json!({ "metadata": { "name": name, "annotations": annotations },
            "spec": { "automountServiceAccountToken": false, "containers": [container] } });
        pods.create(&PostParams::default(), &object(pod)).await.unwrap();
    }
    let removal = Removal { namespace: options.namespace.clone(), ..Removal::default() };
    let left = "pod/boosted of namespace default left with its CPU start-up boost: resize or recreate it";
    for dry_run in [true, false] {
        let said = removed(&admin, &Removal { dry_run, ..removal.clone() }).await.unwrap();
        let of_pods: Vec<&String> = said.iter().filter(|line| line.starts_with("pod/")).collect();
        assert_eq!(of_pods, [left], "{said:?}");
    }
}

#[tokio::test]
async fn objects_of_the_same_name_that_are_not_of_an_installation_stay() {
    let cluster = TestCluster::start();
    let admin = cluster.admin();
    let mut other: Deployment = object(json!({
        "metadata": { "name": "plumb-updater", "namespace": "kube-system" },
        "spec": {
            "selector": { "matchLabels": { "app": "x" } },
            "template": {
                "metadata": { "labels": { "app": "x" } },
                "spec": { "containers": [{ "name": "x", "image": "x" }] },
            },
        },
    }));
    other.spec.as_mut().unwrap().replicas = Some(1);
    let api: Api<Deployment> = Api::namespaced(admin.clone(), "kube-system");
    api.create(&PostParams::default(), &other).await.unwrap();
    let removal = Removal { namespace: "kube-system".to_owned(), ..Removal::default() };
    let said = removed(&admin, &removal).await.unwrap();
    assert_eq!(said, ["deployment.apps/plumb-updater left: it does not carry the label of an installation"]);
    api.get("plumb-updater").await.unwrap();
}

#[tokio::test]
async fn the_webhook_that_plumb_up_registers_for_itself_stays() {
    let cluster = TestCluster::start();
    let admin = cluster.admin();
    let webhook = |url: &str| {
        object::<MutatingWebhookConfiguration>(json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": { "name": registration::NAME },
            "webhooks": [{
                "name": "vpa.k8s.io", "sideEffects": "None", "admissionReviewVersions": ["v1"],
                "clientConfig": { "url": url },
            }],
        }))
    };
    let api: Api<MutatingWebhookConfiguration> = Api::all(admin.clone());
    let params = PatchParams::apply(registration::FIELD_MANAGER).force();
    let removal = Removal { namespace: "plumb-system".to_owned(), ..Removal::default() };
    for (url, outcome) in [
        ("https://127.0.0.1:7000/", "left: `plumb up` registered it for itself"),
        ("https://webhooks.example.com/", "deleted"),
    ] {
        api.patch(registration::NAME, &params, &Patch::Apply(webhook(url))).await.unwrap();
        let reported = removed(&admin, &removal).await.unwrap();
        let what = "mutatingwebhookconfiguration.admissionregistration.k8s.io";
        assert_eq!(reported, [format!("{what}/{} {outcome}", registration::NAME)]);
    }
}
