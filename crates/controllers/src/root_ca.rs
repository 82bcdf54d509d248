//! The config map `kube-root-ca.crt` in every namespace: the CA bundle that pods trust.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::Client;
use kube::api::{ObjectMeta, PostParams};
use plumb_client::Api;
use plumb_controller_runtime::api_error::settled_or_conflict;
use plumb_controller_runtime::{
    Informer, InformerFactory, ObjectRef, Reconciler, Requeue, Store, WatchConfig,
};
use tokio::sync::watch;

use crate::Clients;
use crate::accounts::is_active;

/// The name of this controller's user.
pub const NAME: &str = "root-ca-cert-publisher";
/// The name of the map, and of the file in it.
pub const MAP: &str = "kube-root-ca.crt";
const FILE: &str = "ca.crt";
const DESCRIPTION: (&str, &str) = (
    "kubernetes.io/description",
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the \
     internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes \
     clusters.",
);

/// The write of a namespace's config map.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// It is missing.
    Create(ConfigMap),
    /// The config map differs.
    Update(ConfigMap),
}

/// The write of the config map of an active namespace, for a CA bundle.
pub fn decide(found: Option<&ConfigMap>, authority: &str) -> Option<Action> {
    let data = BTreeMap::from([(FILE.to_owned(), authority.to_owned())]);
    let (key, value) = DESCRIPTION;
    let Some(found) = found else {
        let metadata = ObjectMeta {
            name: Some(MAP.to_owned()),
            annotations: Some([(key.to_owned(), value.to_owned())].into()),
            ..ObjectMeta::default()
        };
        return Some(Action::Create(ConfigMap { metadata, data: Some(data), ..ConfigMap::default() }));
    };
    let described =
        found.metadata.annotations.as_ref().is_some_and(|all| all.get(key).is_some_and(|own| own == value));
    if described && found.data.as_ref() == Some(&data) {
        return None;
    }
    let mut wanted = found.clone();
    wanted.data = Some(data);
    wanted.metadata.annotations.get_or_insert_default().insert(key.to_owned(), value.to_owned());
    Some(Action::Update(wanted))
}

/// Reconciles the config maps until the future is dropped. The CA bundle may change.
pub fn run(
    clients: Clients,
    informers: &InformerFactory,
    authority: watch::Receiver<String>,
) -> BoxFuture<'static, ()> {
    let namespaces = informers.informer::<Namespace>();
    let maps = Informer::<ConfigMap>::new(WatchConfig::default().fields(format!("metadata.name={MAP}")));
    let reconciler = Publisher {
        client: clients.write.clone(),
        namespaces: namespaces.store().clone(),
        maps: maps.store().clone(),
        authority: authority.clone(),
    };
    let controller =
        clients.controller(NAME, reconciler).reconciles(&namespaces).watches(&maps, |change, queue| {
            if let Some(map) = change.latest() {
                queue.add(ObjectRef::cluster(ObjectRef::of(&**map).namespace));
            }
        });
    let queue = controller.queue().clone();
    let rotated = clients.supervisor.finish("root-ca-cert-publisher/rotation", move || {
        let mut authority = authority.clone();
        let namespaces = namespaces.clone();
        let queue = queue.clone();
        async move {
            while authority.changed().await.is_ok() {
                for namespace in namespaces.all() {
                    queue.add(ObjectRef::of(&*namespace));
                }
            }
        }
    });
    let informing = maps.supervised(Api::all(clients.watch), &clients.supervisor);
    Box::pin(async move { _ = tokio::join!(informing, rotated, controller.run()) })
}

/// Reconciles namespaces.
struct Publisher {
    client: Client,
    namespaces: Arc<Store<Namespace>>,
    maps: Arc<Store<ConfigMap>>,
    authority: watch::Receiver<String>,
}

impl Reconciler for Publisher {
    type Key = ObjectRef;
    type Error = kube::Error;

    async fn reconcile(&self, namespace: &ObjectRef) -> kube::Result<Requeue> {
        if self.namespaces.get(namespace).is_some_and(|namespace| is_active(&namespace)) {
            let found = self.maps.get(&ObjectRef::namespaced(&*namespace.name, MAP));
            let authority = self.authority.borrow().clone();
            if let Some(action) = decide(found.as_deref(), &authority) {
                perform(&self.client, &namespace.name, action).await?;
            }
        }
        Ok(Requeue::AwaitChange)
    }
}

async fn perform(client: &Client, namespace: &str, action: Action) -> Result<(), kube::Error> {
    let maps = Api::<ConfigMap>::namespaced(client.clone(), namespace);
    let done = match action {
        Action::Create(map) => maps.create(&PostParams::default(), &map).await,
        Action::Update(map) => maps.replace(MAP, &PostParams::default(), &map).await,
    };
    settled_or_conflict(done)
}
