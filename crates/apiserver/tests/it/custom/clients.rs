//! A custom kind derived by kube-rs.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, CustomResource, CustomResourceExt as _};
use plumb_apiserver::authn::User;
use plumb_resize::rules::Rules;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::super::test_api_server::TestApiServer;

/// What a pool of workers is to be.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Pool",
    namespaced,
    shortname = "po",
    status = "PoolStatus",
    scale(spec_replicas_path = ".spec.workers", status_replicas_path = ".status.ready"),
    printcolumn(name = "Workers", type_ = "integer", json_path = ".spec.workers")
)]
struct PoolSpec {
    #[schemars(range(min = 0, max = 10))]
    workers: i32,
    #[serde(default = "calm")]
    mood: String,
}

fn calm() -> String {
    "calm".to_owned()
}

/// What it is.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
struct PoolStatus {
    ready: i32,
}

#[tokio::test]
async fn a_derived_kind_is_defined_and_used_through_kube() {
    let apiserver = TestApiServer::open(Rules::kep());
    let user = User::new("kubernetes-admin", "", ["system:masters"]);
    let client = Client::new(apiserver.server.inside(user), "default");
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let (post, patch) = (PostParams::default(), PatchParams::default());
    definitions.create(&post, &Pool::crd()).await.unwrap();

    let pools: Api<Pool> = Api::namespaced(client, "default");
    let made = pools.create(&post, &Pool::new("a", PoolSpec { workers: 2, mood: calm() })).await.unwrap();
    assert_eq!(made.metadata.generation, Some(1));
    let status = Patch::Merge(json!({ "status": { "ready": 1 } }));
    let ready = pools.patch_status("a", &patch, &status).await.unwrap();
    assert_eq!(ready.status.map(|status| status.ready), Some(1));
    let scale = Patch::Merge(json!({ "spec": { "replicas": 5 } }));
    pools.patch_scale("a", &patch, &scale).await.unwrap();
    assert_eq!(pools.get_scale("a").await.unwrap().status.map(|status| status.replicas), Some(1));
    assert_eq!(pools.get("a").await.unwrap().spec.workers, 5);
    let refused = pools.patch("a", &patch, &Patch::Merge(json!({ "spec": { "workers": 11 } }))).await;
    assert!(refused.unwrap_err().to_string().contains("should be less than or equal to 10"));
    assert_eq!(pools.list(&ListParams::default()).await.unwrap().items.len(), 1);
    definitions.delete("pools.example.com", &DeleteParams::default()).await.unwrap();
    assert!(pools.list(&ListParams::default()).await.is_err());
}
