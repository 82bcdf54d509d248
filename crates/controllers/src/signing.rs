//! What everybody may know of a cluster, signed with each of the tokens of those who want to join it: whoever has a token
//! can tell that whoever answers knows it too. `kubeadm join` asks for that; `plumb node` goes by the hash of the authority.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::PostParams;
use plumb_follow::{Backoff, Known, follow, is_settled};
use ring::hmac;
use tokio::sync::mpsc;

use crate::Clients;
use crate::tokens::{NAMESPACE, TYPE, end};

/// The name of this controller's user.
pub const NAME: &str = "bootstrap-signer";
/// Where it is told, and what of it is signed.
const PUBLIC: &str = "kube-public";
const INFO: &str = "cluster-info";
const SIGNED: &str = "kubeconfig";
/// What the names of signatures begin with; the token's follows.
const PREFIX: &str = "jws-kubeconfig-";
/// The longest time between two looks: a signature ends with its token.
const LOOK: Duration = Duration::from_mins(10);

/// What is to be told in the place of what is, if that is something else.
pub fn decide<'a>(
    told: &BTreeMap<String, String>,
    tokens: impl Iterator<Item = &'a Secret>,
    now: Timestamp,
) -> Option<BTreeMap<String, String>> {
    let text = told.get(SIGNED)?;
    let mut wanted: BTreeMap<String, String> = told.clone();
    wanted.retain(|name, _| !name.starts_with(PREFIX));
    for token in tokens.filter(|token| token.type_.as_deref() == Some(TYPE)) {
        let data = |name: &str| {
            let bytes = token.data.as_ref()?.get(name)?;
            std::str::from_utf8(&bytes.0).ok()
        };
        let over = data("expiration").is_some() && end(token).is_none_or(|end| end <= now);
        if let (Some(id), Some(secret), Some("true"), false) =
            (data("token-id"), data("token-secret"), data("usage-bootstrap-signing"), over)
        {
            wanted.insert(format!("{PREFIX}{id}"), sign(text, id, secret));
        }
    }
    (wanted != *told).then_some(wanted)
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

/// Keeps the signatures as they should be until the future is dropped.
pub async fn run(clients: Clients, clock: Arc<dyn Fn() -> Timestamp + Send + Sync>) {
    let (tell_tokens, mut tokens_told) = mpsc::channel(64);
    let (tell_info, mut info_told) = mpsc::channel(64);
    let (type_, name) = (format!("type={TYPE}"), format!("metadata.name={INFO}"));
    let tokens_of =
        follow(Api::<Secret>::namespaced(clients.watch.clone(), NAMESPACE), Some(&type_), tell_tokens);
    let info_of = follow(Api::<ConfigMap>::namespaced(clients.watch, PUBLIC), Some(&name), tell_info);
    let maps: Api<ConfigMap> = Api::namespaced(clients.write, PUBLIC);
    let work = async {
        let (mut tokens, mut infos) = (Known::default(), Known::default());
        // Until both are known, no signature is known to be one too many.
        let mut seen = (false, false);
        let mut backoff = Backoff::default();
        let mut failed = false;
        loop {
            tokio::select! {
                Some(news) = tokens_told.recv() => { seen.0 = true; tokens.take(news); }
                Some(news) = info_told.recv() => { seen.1 = true; infos.take(news); }
                () = backoff.wait(), if failed => {}
                () = tokio::time::sleep(LOOK) => {}
                else => return,
            }
            failed = false;
            let place = (PUBLIC.to_owned(), INFO.to_owned());
            let (true, true, Some(info)) = (seen.0, seen.1, infos.get(&place)) else { continue };
            let none = BTreeMap::new();
            let told = info.data.as_ref().unwrap_or(&none);
            let Some(data) = decide(told, tokens.iter().map(|(_, token)| token), clock()) else { continue };
            let signed = ConfigMap { data: Some(data), ..info.clone() };
            match maps.replace(INFO, &PostParams::default(), &signed).await {
                Ok(_) => backoff.reset(),
                // Somebody else wrote it, which will be told.
                Err(kube::Error::Api(status)) if status.is_conflict() => {}
                Err(error) if is_settled(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "what a cluster tells could not be signed, will try again");
                    failed = true;
                }
            }
        }
    };
    tokio::join!(tokens_of, info_of, work);
}
