//! The signers of Kubernetes and their rules for requests, with the messages of Kubernetes.

use std::collections::BTreeSet;

use crate::Request;

/// The prefix of the user name of a node.
pub const NODE_USER: &str = "system:node:";
/// The group of nodes.
pub const NODES_GROUP: &str = "system:nodes";

/// A signer of Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signer {
    /// Signs client certificates of any user.
    Client,
    /// Signs client certificates of nodes.
    NodeClient,
    /// Signs serving certificates of nodes.
    NodeServing,
}

/// A key usage that one of these signers allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Usage {
    /// Digital signatures.
    DigitalSignature,
    /// The encryption of other keys, which RSA needs.
    KeyEncipherment,
    /// Client authentication.
    ClientAuth,
    /// Server authentication.
    ServerAuth,
}

impl Usage {
    /// Finds a usage by its name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "digital signature" | "signing" => Some(Self::DigitalSignature),
            "key encipherment" => Some(Self::KeyEncipherment),
            "client auth" => Some(Self::ClientAuth),
            "server auth" => Some(Self::ServerAuth),
            _ => None,
        }
    }
}

/// Why a signer does not sign a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unfit(String);

impl Signer {
    /// Finds a signer by its name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Client, Self::NodeClient, Self::NodeServing].into_iter().find(|signer| signer.name() == name)
    }

    /// The name of the signer (`spec.signerName`).
    pub const fn name(self) -> &'static str {
        match self {
            Self::Client => "kubernetes.io/kube-apiserver-client",
            Self::NodeClient => "kubernetes.io/kube-apiserver-client-kubelet",
            Self::NodeServing => "kubernetes.io/kubelet-serving",
        }
    }

    /// Checks a request. Returns the key usages of the certificate, or why the signer rejects the request.
    pub fn check(self, request: &Request, usages: &[String]) -> Result<Vec<Usage>, Unfit> {
        match self {
            Self::Client => client_usages(usages)?,
            Self::NodeClient => {
                check_node_subject(request)?;
                let unwanted = [
                    (!request.hosts.is_empty(), "DNS"),
                    (!request.mails.is_empty(), "Email"),
                    (!request.addresses.is_empty(), "IP"),
                    (!request.uris.is_empty(), "URI"),
                ];
                if let Some((_, kind)) = unwanted.iter().find(|(has, _)| *has) {
                    return unfit(format!("{kind} subjectAltNames are not allowed"));
                }
                check_usages(usages, "client auth")?;
            }
            Self::NodeServing => {
                check_node_subject(request)?;
                if request.hosts.is_empty() && request.addresses.is_empty() {
                    return unfit("DNS or IP subjectAltName is required");
                }
                let unwanted = [(!request.mails.is_empty(), "Email"), (!request.uris.is_empty(), "URI")];
                if let Some((_, kind)) = unwanted.iter().find(|(has, _)| *has) {
                    return unfit(format!("{kind} subjectAltNames are not allowed"));
                }
                check_usages(usages, "server auth")?;
            }
        }
        // The checks above allow only known usages.
        Ok(usages.iter().filter_map(|usage| Usage::named(usage)).collect())
    }
}

fn unfit<T>(why: impl Into<String>) -> Result<T, Unfit> {
    Err(Unfit(why.into()))
}

/// Checks that the subject is a node with no other group, since another group could grant more permissions.
fn check_node_subject(request: &Request) -> Result<(), Unfit> {
    if request.organizations != [NODES_GROUP] {
        return unfit(format!("subject organization is not {NODES_GROUP}"));
    }
    if !request.common_name.starts_with(NODE_USER) {
        return unfit(format!("subject common name does not begin with {NODE_USER}"));
    }
    Ok(())
}

/// Checks that the usages are exactly those of a purpose. Key encipherment is optional, since only RSA needs it.
fn check_usages(usages: &[String], purpose: &str) -> Result<(), Unfit> {
    let requested: BTreeSet<&str> = usages.iter().map(String::as_str).collect();
    let required: BTreeSet<&str> = ["digital signature", purpose].into();
    let allowed: BTreeSet<&str> = ["digital signature", "key encipherment", purpose].into();
    if requested == required || requested == allowed {
        return Ok(());
    }
    let names: Vec<&str> = allowed.into_iter().collect();
    unfit(format!("usages did not match [{}]", names.join(" ")))
}

fn client_usages(usages: &[String]) -> Result<(), Unfit> {
    let optional = ["digital signature", "key encipherment"];
    let unsupported =
        usages.iter().find(|usage| *usage != "client auth" && !optional.contains(&usage.as_str()));
    if let Some(unsupported) = unsupported {
        return unfit(format!("invalid usage for client certificate: {unsupported}"));
    }
    if !usages.iter().any(|usage| usage == "client auth") {
        return unfit("missing required usage for client certificate: client auth");
    }
    Ok(())
}
