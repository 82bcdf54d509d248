//! `plumb kubeconfig`: a kubeconfig with a client certificate that expires, for a user or for a further administrator.
//!
//! The certificate comes from the cluster's own signer (`kubernetes.io/kube-apiserver-client`) by a
//! CertificateSigningRequest that the caller makes and approves, so this works on any Kubernetes, takes no access to the
//! key of the certificate authority, and leaves a trace in the API.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Args;
use jiff::SignedDuration;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestCondition, CertificateSigningRequestSpec,
};
use kube::Client;
use kube::api::{ObjectMeta, PostParams};
use plumb_apiserver::kubeconfig::Entry;
use plumb_apiserver::pki::{NODE_CLIENT_USER, certificate_pem};
use plumb_client::Api;
use plumb_cluster::announce;
use plumb_cluster::flags::values::length_of_time;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

use crate::client::{Cluster, block_on, refusal};

/// The signer of client certificates.
const SIGNER: &str = "kubernetes.io/kube-apiserver-client";
/// The group that no certificate of this signer may name: upstream's CertificateSubjectRestriction refuses it.
const MASTERS: &str = "system:masters";
/// The shortest lifetime that Kubernetes takes.
const SHORTEST: SignedDuration = SignedDuration::from_mins(10);

/// Issue a client certificate that expires, and write a kubeconfig with it.
///
/// The cluster signs the certificate; the caller must be allowed to create and approve certificate signing requests.
/// Roles decide what the user may do, for example: `kubectl create clusterrolebinding alice --clusterrole cluster-admin
/// --user alice`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    plumb kubeconfig alice --expires 8h --out alice.kubeconfig\n  \
    plumb kubeconfig ci --group deployers --expires 720h --out ci.kubeconfig")]
pub(crate) struct Issue {
    /// The user of the certificate.
    user: String,
    /// A group of the user; may be given several times.
    #[arg(long = "group", value_name = "GROUP")]
    groups: Vec<String>,
    /// How long the certificate is valid, such as 8h; ten minutes at least. The cluster may make it shorter.
    #[arg(long, default_value = "24h", value_name = "TIME", value_parser = length_of_time)]
    expires: SignedDuration,
    /// The file to write; it must not exist. It holds a private key and is readable by its owner only.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    cluster: Cluster,
}

pub(crate) fn run(args: Issue) -> anyhow::Result<()> {
    args.check()?;
    block_on(async {
        let (config, client) = args.cluster.config().await?;
        let authority = config.root_cert.as_ref().context(
            "the kubeconfig of this cluster names no certificate authority, so a new one could not verify the server",
        )?;
        let authority = authority.iter().map(|der| certificate_pem(der)).collect::<String>();
        let (certificate, key) = issue(&client, &args).await?;
        let server = config.cluster_url.to_string();
        let entry = Entry::of_pem(&args.user, server.trim_end_matches('/'), &authority, &certificate, &key);
        entry.create(&args.out)?;
        announce!(
            "{} holds a certificate of {}; kubectl --kubeconfig {} auth whoami",
            args.out.display(),
            args.user,
            args.out.display()
        );
        Ok(())
    })
}

impl Issue {
    fn check(&self) -> anyhow::Result<()> {
        if self.user.is_empty() || self.groups.iter().any(String::is_empty) {
            bail!("a user and a group need a name");
        }
        if self.user.starts_with("system:") || self.groups.iter().any(|group| group.starts_with("system:")) {
            bail!(
                "names that begin with `system:` belong to the cluster itself ({MASTERS} would bypass every role); give the \
                 user a role instead: kubectl create clusterrolebinding NAME --clusterrole cluster-admin --user USER"
            );
        }
        if self.user == NODE_CLIENT_USER {
            bail!(
                "{NODE_CLIENT_USER} is the API server itself, which reads logs and runs commands on every node"
            );
        }
        if self.expires < SHORTEST {
            bail!("--expires {:#}: Kubernetes takes ten minutes or more", self.expires);
        }
        if self.out.exists() {
            bail!("{} exists; --out names a new file", self.out.display());
        }
        Ok(())
    }
}

/// Has the cluster sign a certificate; answers with it and its key, both in PEM.
async fn issue(client: &Client, args: &Issue) -> anyhow::Result<(String, String)> {
    let key = KeyPair::generate().context("making a key")?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    for group in &args.groups {
        params.distinguished_name.push(DnType::OrganizationName, group.as_str());
    }
    params.distinguished_name.push(DnType::CommonName, args.user.as_str());
    let request = params.serialize_request(&key).and_then(|request| request.pem());
    let request = CertificateSigningRequest {
        metadata: ObjectMeta { generate_name: Some("plumb-kubeconfig-".to_owned()), ..ObjectMeta::default() },
        spec: CertificateSigningRequestSpec {
            request: ByteString(request.context("making a certificate signing request")?.into_bytes()),
            signer_name: SIGNER.to_owned(),
            usages: Some(vec!["digital signature".to_owned(), "client auth".to_owned()]),
            expiration_seconds: Some(i32::try_from(args.expires.as_secs()).unwrap_or(i32::MAX)),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    };
    let requests: Api<CertificateSigningRequest> = Api::all(client.clone());
    let mut made = requests.create(&PostParams::default(), &request).await.map_err(refusal)?;
    let name = made.metadata.name.clone().unwrap_or_default();
    made.status.get_or_insert_default().conditions.get_or_insert_default().push(
        CertificateSigningRequestCondition {
            type_: "Approved".to_owned(),
            status: "True".to_owned(),
            reason: Some("PlumbKubeconfig".to_owned()),
            message: Some("Approved by the caller of plumb kubeconfig.".to_owned()),
            ..CertificateSigningRequestCondition::default()
        },
    );
    let approved = requests.replace_subresource("approval", &name, &PostParams::default(), &made).await;
    approved.map_err(refusal).with_context(|| format!("approving the certificate signing request {name}"))?;
    let certificate = plumb_node::join::wait_until_issued(client, &name).await?;
    Ok((certificate, key.serialize_pem()))
}
