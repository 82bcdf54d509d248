//! Installing the definitions: what is written, and above all what is not.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use plumb_testkit::TestCluster;
use plumb_vpa::install::{
    DEFINITION_ANNOTATION, InstallError, InstallOutcome, KeepReason, fingerprint, install, install_one,
};
use plumb_vpa_api::{VerticalPodAutoscaler, VerticalPodAutoscalerSpec, crds};
use serde_json::json;

const VPA: &str = "verticalpodautoscalers.autoscaling.k8s.io";

fn definitions(client: &Client) -> Api<CustomResourceDefinition> {
    Api::all(client.clone())
}

fn outcomes(installed: Vec<(String, InstallOutcome)>) -> Vec<InstallOutcome> {
    installed.into_iter().map(|(_, outcome)| outcome).collect()
}

/// The definition of autoscalers as an earlier version had it.
fn earlier() -> CustomResourceDefinition {
    let mut crd = crds::vertical_pod_autoscaler();
    crd.spec.names.short_names = None;
    let columns = crd.spec.versions[0].additional_printer_columns.as_mut().unwrap();
    columns.truncate(1);
    crd
}

/// Installs the earlier version.
async fn install_earlier(client: &Client) -> [String; 2] {
    let fingerprints = [fingerprint(&earlier()), fingerprint(&crds::vertical_pod_autoscaler())];
    let installed = install_one(client, earlier(), &[&fingerprints[0]]).await.unwrap();
    assert_eq!(installed, InstallOutcome::Created);
    fingerprints
}

async fn install_present(client: &Client, fingerprints: &[String; 2]) -> InstallOutcome {
    let released = [&*fingerprints[0], &*fingerprints[1]];
    install_one(client, crds::vertical_pod_autoscaler(), &released).await.unwrap()
}

#[tokio::test]
async fn absent_definitions_are_created_and_objects_can_be_written_at_once() {
    let cluster = TestCluster::start();
    let client = &cluster.admin();
    assert_eq!(outcomes(install(client).await.unwrap()), [InstallOutcome::Created, InstallOutcome::Created]);
    let vpas: Api<VerticalPodAutoscaler> = Api::default_namespaced(client.clone());
    let vpa = VerticalPodAutoscaler::new("web", VerticalPodAutoscalerSpec::default());
    vpas.create(&PostParams::default(), &vpa).await.unwrap();
}

#[tokio::test]
async fn installing_again_writes_nothing() {
    let cluster = TestCluster::start();
    let client = &cluster.admin();
    install(client).await.unwrap();
    let before = definitions(client).get(VPA).await.unwrap();
    assert_eq!(
        outcomes(install(client).await.unwrap()),
        [InstallOutcome::Unchanged, InstallOutcome::Unchanged]
    );
    let after = definitions(client).get(VPA).await.unwrap();
    assert_eq!(before.resource_version(), after.resource_version());
}

#[tokio::test]
async fn an_earlier_definition_of_ours_is_updated_and_additions_of_others_stay() {
    let cluster = TestCluster::start();
    let client = &cluster.admin();
    let fingerprints = install_earlier(client).await;
    let label = json!({ "metadata": { "labels": { "team": "platform" } } });
    definitions(client).patch(VPA, &PatchParams::default(), &Patch::Merge(label)).await.unwrap();

    assert_eq!(install_present(client, &fingerprints).await, InstallOutcome::Updated);
    let now = definitions(client).get(VPA).await.unwrap();
    assert_eq!(now.spec.names.short_names, Some(vec!["vpa".to_owned()]));
    assert_eq!(now.labels()["team"], "platform");
    assert_eq!(now.annotations()[DEFINITION_ANNOTATION], fingerprints[1]);
    assert_eq!(install_present(client, &fingerprints).await, InstallOutcome::Unchanged);
}

#[tokio::test]
async fn an_edit_is_kept_whether_or_not_there_is_an_update() {
    let cluster = TestCluster::start();
    let client = &cluster.admin();
    let fingerprints = install_earlier(client).await;
    let mut edited = definitions(client).get(VPA).await.unwrap();
    edited.spec.versions[0].deprecation_warning = Some("ask the platform team".to_owned());
    edited.spec.versions[0].deprecated = Some(true);
    let edited = definitions(client).replace(VPA, &PostParams::default(), &edited).await.unwrap();

    let outcome = install_present(client, &fingerprints).await;
    let InstallOutcome::Kept(KeepReason::Edited(why)) = outcome else { panic!("{outcome:?}") };
    assert!(why.contains(".spec.versions"), "{why}");
    let now = definitions(client).get(VPA).await.unwrap();
    assert_eq!(now.resource_version(), edited.resource_version(), "nothing was written");
    let again = install_one(client, earlier(), &[&fingerprints[0]]).await.unwrap();
    assert_eq!(again, InstallOutcome::Unchanged);
}

#[tokio::test]
async fn a_definition_of_another_installer_is_left_alone_if_it_serves_v1() {
    let cluster = TestCluster::start();
    let client = &cluster.admin();
    let foreign = PostParams { field_manager: Some("helm".to_owned()), ..PostParams::default() };
    let made = definitions(client).create(&foreign, &crds::vertical_pod_autoscaler()).await.unwrap();
    let installed = outcomes(install(client).await.unwrap());
    assert_eq!(
        installed,
        [InstallOutcome::Created, InstallOutcome::Kept(KeepReason::Foreign("helm".to_owned()))]
    );
    let now = definitions(client).get(VPA).await.unwrap();
    assert_eq!(now.resource_version(), made.resource_version());

    definitions(client).delete(VPA, &DeleteParams::default()).await.unwrap();
    let mut old = crds::vertical_pod_autoscaler();
    old.spec.versions.remove(0);
    old.spec.versions[0].served = true;
    old.spec.versions[0].storage = true;
    definitions(client).create(&foreign, &old).await.unwrap();
    let refused = install(client).await.unwrap_err();
    assert!(matches!(&refused, InstallError::NotServed { name, .. } if name == VPA), "{refused}");
}

#[tokio::test]
async fn a_definition_of_a_newer_version_is_not_downgraded() {
    let cluster = TestCluster::start();
    let client = &cluster.admin();
    install_one(client, earlier(), &["from-the-future"]).await.unwrap();
    let installed = outcomes(install(client).await.unwrap());
    assert_eq!(installed, [InstallOutcome::Created, InstallOutcome::Kept(KeepReason::Newer)]);
}

#[tokio::test]
async fn installers_that_start_together_agree() {
    let cluster = TestCluster::start();
    let client = &cluster.admin();
    let installs = (0..8).map(|_| async { install(client).await.unwrap() });
    for installed in futures_util::future::join_all(installs).await {
        assert!(
            outcomes(installed)
                .iter()
                .all(|outcome| matches!(outcome, InstallOutcome::Created | InstallOutcome::Unchanged)),
            "each creates it or finds it"
        );
    }
}

#[tokio::test]
async fn a_definition_that_is_being_deleted_is_an_error_and_not_waited_for() {
    let cluster = TestCluster::start();
    let client = &cluster.admin();
    install(client).await.unwrap();
    let held = json!({ "metadata": { "finalizers": ["example.com/held"] } });
    definitions(client).patch(VPA, &PatchParams::default(), &Patch::Merge(held)).await.unwrap();
    definitions(client).delete(VPA, &DeleteParams::default()).await.unwrap();
    let refused = install(client).await.unwrap_err();
    assert!(matches!(&refused, InstallError::Terminating(name) if name == VPA), "{refused}");
}
