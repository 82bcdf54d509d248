//! A service account named `default` in every namespace, for pods that name none.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::{ObjectMeta, PostParams};
use kube::{Client, Resource as _};
use plumb_client::Api;
use plumb_controller_runtime::api_error::settled;
use plumb_controller_runtime::{
    Informer, InformerFactory, ObjectRef, Reconciler, Requeue, Store, WatchConfig,
};

use crate::Clients;

/// The name of this controller's user.
pub const NAME: &str = "service-account-controller";

/// The account that every namespace has.
pub const DEFAULT: &str = "default";

/// Whether a namespace takes new objects.
pub(crate) fn is_active(namespace: &Namespace) -> bool {
    let phase = namespace.status.as_ref().and_then(|status| status.phase.as_deref());
    namespace.meta().deletion_timestamp.is_none() && phase != Some("Terminating")
}

/// Creates the accounts that are missing, until the future is dropped.
pub fn run(clients: Clients, informers: &InformerFactory) -> BoxFuture<'static, ()> {
    let namespaces = informers.informer::<Namespace>();
    let accounts =
        Informer::<ServiceAccount>::new(WatchConfig::default().fields(format!("metadata.name={DEFAULT}")));
    let reconciler = AccountCreator {
        client: clients.write.clone(),
        namespaces: namespaces.store().clone(),
        accounts: accounts.store().clone(),
    };
    let controller =
        clients.controller(NAME, reconciler).reconciles(&namespaces).watches(&accounts, |change, queue| {
            if let Some(account) = change.latest() {
                queue.add(ObjectRef::cluster(ObjectRef::of(&**account).namespace));
            }
        });
    let informing = accounts.supervised(Api::all(clients.watch), &clients.supervisor);
    Box::pin(async move { _ = tokio::join!(informing, controller.run()) })
}

/// Reconciles namespaces.
struct AccountCreator {
    client: Client,
    namespaces: Arc<Store<Namespace>>,
    accounts: Arc<Store<ServiceAccount>>,
}

impl Reconciler for AccountCreator {
    type Key = ObjectRef;
    type Error = kube::Error;

    async fn reconcile(&self, namespace: &ObjectRef) -> kube::Result<Requeue> {
        let is_active = self.namespaces.get(namespace).is_some_and(|namespace| is_active(&namespace));
        if is_active && self.accounts.get(&ObjectRef::namespaced(&*namespace.name, DEFAULT)).is_none() {
            settled(create(&self.client, &namespace.name).await)?;
        }
        Ok(Requeue::AwaitChange)
    }
}

async fn create(client: &Client, namespace: &str) -> kube::Result<()> {
    let account = ServiceAccount {
        metadata: ObjectMeta { name: Some(DEFAULT.to_owned()), ..ObjectMeta::default() },
        ..ServiceAccount::default()
    };
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), namespace);
    accounts.create(&PostParams::default(), &account).await.map(drop)
}
