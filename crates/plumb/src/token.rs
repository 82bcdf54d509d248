//! `plumb token`: the tokens by which machines join, as kubeadm has them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::{Context as _, bail};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Client;
use kube::api::{DeleteParams, ListParams, ObjectMeta, PostParams};
use plumb_client::Api;
use plumb_cluster::invitation::{Invitation, read_invitation};
use plumb_cluster::{announce, say};
use plumb_node::join::CaPin;
use serde_json::json;

use crate::cli::{Token, TokenCommand};
use crate::client::{Output, block_on, print, refusal, table, write_out};

const NAMESPACE: &str = "kube-system";
const TYPE: &str = "bootstrap.kubernetes.io/token";
const PREFIX: &str = "bootstrap-token-";
/// The group that the default bindings know.
const GROUP: &str = "system:bootstrappers:plumb:default-node-token";
const LETTERS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";

pub(crate) fn run(args: Token) -> anyhow::Result<()> {
    block_on(async {
        match args.command {
            TokenCommand::Create { ttl, description, token_only, cluster } => {
                let (client, _) = cluster.connect().await?;
                create(&client, ttl, description, token_only).await
            }
            TokenCommand::List { output, cluster } => list(&cluster.connect().await?.0, output).await,
            TokenCommand::Delete { token, cluster } => delete(&cluster.connect().await?.0, &token).await,
        }
    })
}

async fn create(
    client: &Client,
    ttl: SignedDuration,
    description: Option<String>,
    token_only: bool,
) -> anyhow::Result<()> {
    if ttl.is_negative() {
        bail!("--ttl {ttl:#}: a token cannot have expired before it is made");
    }
    // Before the token is created, since no node can use a token without it.
    let invitation = invitation(client).await?;
    let (id, secret) = (word(6)?, word(16)?);
    let mut data: BTreeMap<String, String> = [
        ("token-id", id.as_str()),
        ("token-secret", secret.as_str()),
        ("usage-bootstrap-authentication", "true"),
        ("usage-bootstrap-signing", "true"),
        ("auth-extra-groups", GROUP),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .collect();
    if !ttl.is_zero() {
        let end = Timestamp::now().checked_add(ttl).context("--ttl is too long")?;
        data.insert("expiration".to_owned(), end.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    }
    data.extend(description.map(|text| ("description".to_owned(), text)));
    let token = Secret {
        metadata: ObjectMeta { name: Some(format!("{PREFIX}{id}")), ..ObjectMeta::default() },
        type_: Some(TYPE.to_owned()),
        string_data: Some(data),
        ..Secret::default()
    };
    if is_on_loopback(&invitation.server) {
        say!(
            "plumb: {} is reached from this machine only; start `plumb up` with --listen 0.0.0.0:6443 (or \
             --advertise-address) for others to join",
            invitation.server
        );
    }
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    secrets.create(&PostParams::default(), &token).await.map_err(refusal)?;
    if token_only {
        announce!("{id}.{secret}");
        return Ok(());
    }
    let hash = CaPin::of_pem(&invitation.authority).context("the cluster's authority is no certificate")?;
    announce!("plumb node --server {} --token {id}.{secret} --ca-hash {hash}", invitation.server);
    Ok(())
}

/// The address of the cluster and its certificate authority, which are public.
async fn invitation(client: &Client) -> anyhow::Result<Invitation> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-public");
    let info = maps.get_opt("cluster-info").await.map_err(refusal)?;
    info.as_ref().and_then(read_invitation).context(
        "the cluster does not say where it is (the ConfigMap cluster-info in kube-public); the controllers of \
         `plumb up` write it",
    )
}

async fn list(client: &Client, output: Option<Output>) -> anyhow::Result<()> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let wanted = ListParams::default().fields(&format!("type={TYPE}"));
    let found = secrets.list(&wanted).await.map_err(refusal)?;
    let tokens = found.items.into_iter().map(|secret| {
        let data = |name: &str| {
            let bytes = secret.data.as_ref()?.get(name)?;
            String::from_utf8(bytes.0.clone()).ok()
        };
        [data("token-id"), data("expiration"), data("description")]
    });
    match output {
        Some(Output::Name) => {
            let names: String = tokens.filter_map(|[id, ..]| Some(id? + "\n")).collect();
            write_out(&names)
        }
        Some(output @ (Output::Json | Output::Yaml)) => {
            let values = tokens.map(|[id, expires, description]| {
                json!({ "token": id, "expires": expires, "description": description })
            });
            print(&values.collect(), output)
        }
        None | Some(Output::Wide) => {
            let head = ["TOKEN", "EXPIRES", "DESCRIPTION"].map(str::to_owned);
            let rows = tokens.map(|[id, expires, description]| {
                let expires = expires.unwrap_or_else(|| "never".to_owned());
                [id.unwrap_or_default(), expires, description.unwrap_or_default()]
            });
            let rows: Vec<Vec<String>> = std::iter::once(head).chain(rows).map(Vec::from).collect();
            write_out(&table(&rows))
        }
    }
}

async fn delete(client: &Client, token: &str) -> anyhow::Result<()> {
    let id = token.split('.').next().unwrap_or_default();
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    match secrets.delete(&format!("{PREFIX}{id}"), &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => {
            bail!("there is no token {id}; `plumb token ls` lists them");
        }
        deleted => deleted.map(drop).map_err(refusal)?,
    }
    announce!("token {id} is revoked; machines that have joined with it stay");
    Ok(())
}

/// Whether no other machine reaches the server at this URL.
fn is_on_loopback(url: &str) -> bool {
    let Some(host) = url.parse::<http::Uri>().ok().and_then(|url| url.host().map(str::to_owned)) else {
        return false;
    };
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// Random letters and digits.
fn word(length: usize) -> anyhow::Result<String> {
    let random = rustls_random();
    let mut letters = String::with_capacity(length);
    while letters.len() < length {
        let mut byte = [0];
        random.fill(&mut byte).map_err(|_| anyhow::anyhow!("the system has no random numbers"))?;
        // Every letter with the same probability: values beyond the last whole round are rejected.
        if usize::from(byte[0]) < LETTERS.len() * (256 / LETTERS.len()) {
            letters.push(char::from(LETTERS[usize::from(byte[0]) % LETTERS.len()]));
        }
    }
    Ok(letters)
}

fn rustls_random() -> &'static dyn rustls::crypto::SecureRandom {
    rustls::crypto::ring::default_provider().secure_random
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_on_loopback_is_known_by_its_url() {
        for (url, expected) in [
            ("https://127.0.0.1:6443", true),
            ("https://[::1]:6443", true),
            ("https://localhost:6443", true),
            ("https://192.0.2.7:6443", false),
            ("https://plumb.example:6443", false),
        ] {
            assert_eq!(is_on_loopback(url), expected, "{url}");
        }
    }
}
