//! A config map `kube-root-ca.crt` in every namespace: what pods trust the API server by.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use std::collections::BTreeMap;
use tokio::sync::{mpsc, watch};

use crate::Clients;
use crate::accounts::is_active;
use plumb_follow::{Backoff, Known, follow, is_settled};

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

/// What has to be done to a namespace's map.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// It is missing.
    Create(ConfigMap),
    /// It says something else.
    Update(ConfigMap),
}

/// What has to be done in the namespaces that may be concerned (all if none is named), for an authority.
pub fn decide(
    namespaces: &Known<Namespace>,
    maps: &Known<ConfigMap>,
    authority: &str,
    concerned: Option<&str>,
) -> Vec<(String, Action)> {
    let judge = |name: &str, namespace: &Namespace| {
        let action =
            is_active(namespace).then(|| judge(maps.get(&(name.to_owned(), MAP.to_owned())), authority));
        action.flatten().map(|action| (name.to_owned(), action))
    };
    match concerned {
        Some(name) => {
            let found = namespaces.get(&(String::new(), name.to_owned()));
            found.and_then(|namespace| judge(name, namespace)).into_iter().collect()
        }
        None => namespaces.iter().filter_map(|((_, name), namespace)| judge(name, namespace)).collect(),
    }
}

fn judge(found: Option<&ConfigMap>, authority: &str) -> Option<Action> {
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

/// Keeps the maps as they should be, until the future is dropped. The authority may change.
pub async fn run(clients: Clients, mut authority: watch::Receiver<String>) {
    let (tell_namespaces, mut namespaces_told) = mpsc::channel(64);
    let (tell_maps, mut maps_told) = mpsc::channel(64);
    let namespaces_of = follow(Api::<Namespace>::all(clients.watch.clone()), None, tell_namespaces);
    let maps_of = follow(
        Api::<ConfigMap>::all(clients.watch.clone()),
        Some("metadata.name=kube-root-ca.crt"),
        tell_maps,
    );
    let work = async {
        let (mut namespaces, mut maps) = (Known::default(), Known::default());
        let mut seen = (false, false);
        let mut failed = false;
        let mut backoff = Backoff::default();
        loop {
            let concerned: Option<String> = tokio::select! {
                Some(told) = namespaces_told.recv() => { seen.0 = true; namespaces.take(told).map(|(_, name)| name) }
                Some(told) = maps_told.recv() => { seen.1 = true; maps.take(told).map(|(namespace, _)| namespace) }
                Ok(()) = authority.changed() => None,
                () = backoff.wait(), if failed => None,
                else => return,
            };
            if !(seen.0 && seen.1) {
                continue;
            }
            failed = false;
            let wanted = authority.borrow().clone();
            for (namespace, action) in decide(&namespaces, &maps, &wanted, concerned.as_deref()) {
                if let Err(error) = perform(&clients.write, &namespace, action).await
                    && !is_settled(&error)
                {
                    tracing::warn!(%error, namespace, "cannot publish the authority, will try again");
                    failed = true;
                }
            }
            if !failed {
                backoff.reset();
            }
        }
    };
    tokio::join!(namespaces_of, maps_of, work);
}

async fn perform(client: &Client, namespace: &str, action: Action) -> Result<(), kube::Error> {
    let maps = Api::<ConfigMap>::namespaced(client.clone(), namespace);
    let done = match action {
        Action::Create(map) => maps.create(&PostParams::default(), &map).await,
        Action::Update(map) => maps.replace(MAP, &PostParams::default(), &map).await,
    };
    match done {
        // Somebody else wrote it, which will be told.
        Err(kube::Error::Api(status)) if status.is_conflict() => Ok(()),
        done => done.map(drop),
    }
}
