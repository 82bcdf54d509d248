//! The storage class `local-path`, which a new cluster has.

use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{ListParams, PostParams};
use plumb_client::Api;
use plumb_controller_runtime::Backoff;
use plumb_controller_runtime::api_error::settled;
use plumb_placement::volumes::{IS_DEFAULT_CLASS, LOCAL_PATH_PROVISIONER, default_class};

use super::NAME;

/// The name of the class.
pub const CLASS: &str = "local-path";
/// Where the `ConfigMap` is that says that the class was created once.
const NAMESPACE: &str = "kube-system";

/// Creates the class once in the life of a cluster: a user who deletes it does not find it again. It is the default unless
/// there is another default. Retries until it succeeds.
pub fn run(client: Client) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let mut backoff = Backoff::default();
        while let Err(error) = create(&client).await {
            tracing::debug!(%error, class = CLASS, "cannot create the storage class, will retry");
            backoff.wait().await;
        }
    })
}

async fn create(client: &Client) -> kube::Result<()> {
    let maps = Api::<ConfigMap>::namespaced(client.clone(), NAMESPACE);
    if maps.get_opt(NAME).await?.is_some() {
        return Ok(());
    }
    let classes = Api::<StorageClass>::all(client.clone());
    let existing = classes.list(&ListParams::default()).await?;
    let is_default = default_class(&existing.items).is_none();
    let params = PostParams::default();
    settled(classes.create(&params, &class(is_default)).await)?;
    // Last: a start that was interrupted before creates the class with the next.
    let map = ConfigMap {
        metadata: ObjectMeta { name: Some(NAME.to_owned()), ..ObjectMeta::default() },
        data: Some([("storage-class".to_owned(), CLASS.to_owned())].into()),
        ..ConfigMap::default()
    };
    settled(maps.create(&params, &map).await)
}

fn class(is_default: bool) -> StorageClass {
    let annotations = is_default.then(|| [(IS_DEFAULT_CLASS.to_owned(), "true".to_owned())].into());
    StorageClass {
        metadata: ObjectMeta { name: Some(CLASS.to_owned()), annotations, ..ObjectMeta::default() },
        provisioner: LOCAL_PATH_PROVISIONER.to_owned(),
        volume_binding_mode: Some("WaitForFirstConsumer".to_owned()),
        reclaim_policy: Some("Delete".to_owned()),
        allow_volume_expansion: Some(true),
        ..StorageClass::default()
    }
}
