//! The bootstrap signer: signs `cluster-info` with each bootstrap token, so that a machine with a token can verify that the
//! server knows the token, too. `kubeadm join` asks for that; `plumb node` verifies the hash of the authority.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::PostParams;
use plumb_client::Api;
use plumb_controller_runtime::api_error::settled_or_conflict;
use plumb_controller_runtime::{Clock, Informer, ObjectRef, Reconciler, Requeue, Store, WatchConfig};
use ring::hmac;

use crate::Clients;
use crate::tokens::{NAMESPACE, TYPE, expires_at};

/// The name of this controller's user.
pub const NAME: &str = "bootstrap-signer";
/// The config map, and which of its keys is signed.
const PUBLIC: &str = "kube-public";
const INFO: &str = "cluster-info";
const SIGNED: &str = "kubeconfig";
/// The prefix of the keys of signatures; the token's ID follows.
const PREFIX: &str = "jws-kubeconfig-";
/// The resync period: a signature expires with its token.
const RESYNC: Duration = Duration::from_mins(10);

/// The new data of the config map, if it changes.
pub fn decide<'a>(
    data: &BTreeMap<String, String>,
    tokens: impl Iterator<Item = &'a Secret>,
    now: Timestamp,
) -> Option<BTreeMap<String, String>> {
    let text = data.get(SIGNED)?;
    let mut wanted: BTreeMap<String, String> = data.clone();
    wanted.retain(|name, _| !name.starts_with(PREFIX));
    for token in tokens.filter(|token| token.type_.as_deref() == Some(TYPE)) {
        let data = |name: &str| {
            let bytes = token.data.as_ref()?.get(name)?;
            std::str::from_utf8(&bytes.0).ok()
        };
        let over = data("expiration").is_some() && expires_at(token).is_none_or(|end| end <= now);
        if let (Some(id), Some(secret), Some("true"), false) =
            (data("token-id"), data("token-secret"), data("usage-bootstrap-signing"), over)
        {
            wanted.insert(format!("{PREFIX}{id}"), sign(text, id, secret));
        }
    }
    (wanted != *data).then_some(wanted)
}

/// A signature (JWS, HS256) of a text that goes beside it.
fn sign(text: &str, id: &str, secret: &str) -> String {
    let encode = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
    // As written by upstream, letter by letter: it is part of what is signed.
    let header = encode(format!("{{\"alg\":\"HS256\",\"kid\":\"{id}\"}}").as_bytes());
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let signature = hmac::sign(&key, format!("{header}.{}", encode(text.as_bytes())).as_bytes());
    format!("{header}..{}", encode(signature.as_ref()))
}

/// Reconciles the signatures until the future is dropped.
pub fn run(clients: Clients, clock: Clock) -> BoxFuture<'static, ()> {
    let tokens = Informer::<Secret>::new(WatchConfig::default().fields(format!("type={TYPE}")));
    let infos = Informer::<ConfigMap>::new(WatchConfig::default().fields(format!("metadata.name={INFO}")));
    let reconciler = BootstrapSigner {
        api: Api::namespaced(clients.write.clone(), PUBLIC),
        tokens: tokens.store().clone(),
        infos: infos.store().clone(),
        clock: clock.clone(),
    };
    let info = || ObjectRef::namespaced(PUBLIC, INFO);
    let controller = clients
        .controller(NAME, reconciler)
        .with_clock(clock)
        .reconciles(&infos)
        .watches(&tokens, move |_, queue| queue.add(info()));
    let informing = (
        tokens.supervised(Api::namespaced(clients.watch.clone(), NAMESPACE), &clients.supervisor),
        infos.supervised(Api::namespaced(clients.watch, PUBLIC), &clients.supervisor),
    );
    Box::pin(async move { _ = tokio::join!(informing.0, informing.1, controller.run()) })
}

/// Reconciles the config map `cluster-info`.
struct BootstrapSigner {
    api: Api<ConfigMap>,
    tokens: Arc<Store<Secret>>,
    infos: Arc<Store<ConfigMap>>,
    clock: Clock,
}

impl Reconciler for BootstrapSigner {
    type Key = ObjectRef;
    type Error = kube::Error;

    async fn reconcile(&self, info: &ObjectRef) -> kube::Result<Requeue> {
        let Some(found) = self.infos.get(info) else { return Ok(Requeue::AwaitChange) };
        let none = BTreeMap::new();
        let tokens = self.tokens.all();
        let tokens = tokens.iter().map(|token| &**token);
        if let Some(data) = decide(found.data.as_ref().unwrap_or(&none), tokens, self.clock.now()) {
            let signed = ConfigMap { data: Some(data), ..(*found).clone() };
            settled_or_conflict(self.api.replace(INFO, &PostParams::default(), &signed).await)?;
        }
        Ok(Requeue::After(RESYNC))
    }
}
