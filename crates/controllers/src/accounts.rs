//! An account named `default` in every namespace, for pods that name none.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::PostParams;
use kube::{Api, Client, Resource as _};
use tokio::sync::mpsc;

use crate::Clients;
use plumb_follow::{Backoff, Known, Place, follow, is_settled};

/// The name of this controller's user.
pub const NAME: &str = "service-account-controller";
/// The account that every namespace has.
pub const DEFAULT: &str = "default";

/// Whether a namespace takes new objects.
pub(crate) fn is_active(namespace: &Namespace) -> bool {
    let phase = namespace.status.as_ref().and_then(|status| status.phase.as_deref());
    namespace.meta().deletion_timestamp.is_none() && phase != Some("Terminating")
}

/// The namespaces, of those that may be concerned (all if none is named), that have no default account.
pub fn decide(
    namespaces: &Known<Namespace>,
    accounts: &Known<ServiceAccount>,
    concerned: Option<&str>,
) -> BTreeSet<String> {
    let lacks = |name: &str| accounts.get(&(name.to_owned(), DEFAULT.to_owned())).is_none();
    let active = |name: &str, namespace: &Namespace| is_active(namespace) && lacks(name);
    match concerned {
        Some(name) => {
            let found = namespaces.get(&(String::new(), name.to_owned()));
            found.filter(|namespace| active(name, namespace)).map(|_| name.to_owned()).into_iter().collect()
        }
        None => namespaces
            .iter()
            .filter(|((_, name), namespace)| active(name, namespace))
            .map(|((_, name), _)| name.clone())
            .collect(),
    }
}

/// Makes the accounts that are missing, until the future is dropped.
pub async fn run(clients: Clients) {
    let (tell_namespaces, mut namespaces_told) = mpsc::channel(64);
    let (tell_accounts, mut accounts_told) = mpsc::channel(64);
    let namespaces_of = follow(Api::<Namespace>::all(clients.watch.clone()), None, tell_namespaces);
    let accounts_of = follow(
        Api::<ServiceAccount>::all(clients.watch.clone()),
        Some("metadata.name=default"),
        tell_accounts,
    );
    let work = async {
        let (mut namespaces, mut accounts) = (Known::default(), Known::default());
        // Until both are known, nothing is known to be missing.
        let mut seen = (false, false);
        let mut retry = BTreeSet::new();
        let mut backoff = Backoff::default();
        loop {
            let concerned: Option<Place> = tokio::select! {
                Some(told) = namespaces_told.recv() => { seen.0 = true; namespaces.take(told).map(|(_, name)| (String::new(), name)) }
                Some(told) = accounts_told.recv() => { seen.1 = true; accounts.take(told).map(|(namespace, _)| (String::new(), namespace)) }
                () = backoff.wait(), if !retry.is_empty() => None,
                else => return,
            };
            if !(seen.0 && seen.1) {
                continue;
            }
            retry.clear();
            for namespace in decide(&namespaces, &accounts, concerned.as_ref().map(|(_, name)| name.as_str()))
            {
                if let Err(error) = make(&clients.write, &namespace).await
                    && !is_settled(&error)
                {
                    tracing::warn!(%error, namespace, "cannot make the default service account, will try again");
                    retry.insert(namespace);
                }
            }
            if retry.is_empty() {
                backoff.reset();
            }
        }
    };
    tokio::join!(namespaces_of, accounts_of, work);
}

async fn make(client: &Client, namespace: &str) -> Result<(), kube::Error> {
    let account = ServiceAccount {
        metadata: kube::api::ObjectMeta {
            name: Some(DEFAULT.to_owned()),
            ..kube::api::ObjectMeta::default()
        },
        ..ServiceAccount::default()
    };
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), namespace);
    accounts.create(&PostParams::default(), &account).await.map(drop)
}
