//! The signers that Kubernetes has, and what each asks of a request, in the words of Kubernetes.

use std::collections::BTreeSet;

use crate::Request;

/// What the user of a node is called, before its name.
pub const NODE_USER: &str = "system:node:";
/// The group of nodes.
pub const NODES_GROUP: &str = "system:nodes";

/// Who signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signer {
    /// For clients of the API server, of any user.
    Client,
    /// For nodes, as clients of the API server.
    NodeClient,
    /// For nodes, as servers that the API server asks.
    NodeServing,
}

/// What a key may be used for: what the signers here let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Usage {
    /// Signatures.
    DigitalSignature,
    /// The encryption of other keys, as RSA needs it.
    KeyEncipherment,
    /// To be a client.
    ClientAuth,
    /// To be a server.
    ServerAuth,
}

impl Usage {
    /// A usage by its name.
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
    /// The signer of a name, if it is one of these.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Client, Self::NodeClient, Self::NodeServing].into_iter().find(|signer| signer.name() == name)
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Client => "kubernetes.io/kube-apiserver-client",
            Self::NodeClient => "kubernetes.io/kube-apiserver-client-kubelet",
            Self::NodeServing => "kubernetes.io/kubelet-serving",
        }
    }

    /// What a certificate may be used for that this signer makes of a request; or why it makes none.
    pub fn check(self, request: &Request, usages: &[String]) -> Result<Vec<Usage>, Unfit> {
        match self {
            Self::Client => client_usages(usages)?,
            Self::NodeClient => {
                of_node(request)?;
                let unwanted = [
                    (!request.hosts.is_empty(), "DNS"),
                    (!request.mails.is_empty(), "Email"),
                    (!request.addresses.is_empty(), "IP"),
                    (!request.uris.is_empty(), "URI"),
                ];
                if let Some((_, kind)) = unwanted.iter().find(|(has, _)| *has) {
                    return unfit(format!("{kind} subjectAltNames are not allowed"));
                }
                exactly(usages, "client auth")?;
            }
            Self::NodeServing => {
                of_node(request)?;
                if request.hosts.is_empty() && request.addresses.is_empty() {
                    return unfit("DNS or IP subjectAltName is required");
                }
                let unwanted = [(!request.mails.is_empty(), "Email"), (!request.uris.is_empty(), "URI")];
                if let Some((_, kind)) = unwanted.iter().find(|(has, _)| *has) {
                    return unfit(format!("{kind} subjectAltNames are not allowed"));
                }
                exactly(usages, "server auth")?;
            }
        }
        // All of them were found among the allowed ones.
        Ok(usages.iter().filter_map(|usage| Usage::named(usage)).collect())
    }
}

fn unfit<T>(why: impl Into<String>) -> Result<T, Unfit> {
    Err(Unfit(why.into()))
}

/// A request of a node with no other group: a second group might grant more.
fn of_node(request: &Request) -> Result<(), Unfit> {
    if request.organizations != [NODES_GROUP] {
        return unfit(format!("subject organization is not {NODES_GROUP}"));
    }
    if !request.common_name.starts_with(NODE_USER) {
        return unfit(format!("subject common name does not begin with {NODE_USER}"));
    }
    Ok(())
}

/// Just what this purpose needs; whether the key is one that encrypts others is left to who has it.
fn exactly(usages: &[String], purpose: &str) -> Result<(), Unfit> {
    let given: BTreeSet<&str> = usages.iter().map(String::as_str).collect();
    let least: BTreeSet<&str> = ["digital signature", purpose].into();
    let most: BTreeSet<&str> = ["digital signature", "key encipherment", purpose].into();
    if given == least || given == most {
        return Ok(());
    }
    let names: Vec<&str> = most.into_iter().collect();
    unfit(format!("usages did not match [{}]", names.join(" ")))
}

fn client_usages(usages: &[String]) -> Result<(), Unfit> {
    let optional = ["digital signature", "key encipherment"];
    let foreign = usages.iter().find(|usage| *usage != "client auth" && !optional.contains(&usage.as_str()));
    if let Some(foreign) = foreign {
        return unfit(format!("invalid usage for client certificate: {foreign}"));
    }
    if !usages.iter().any(|usage| usage == "client auth") {
        return unfit("missing required usage for client certificate: client auth");
    }
    Ok(())
}
