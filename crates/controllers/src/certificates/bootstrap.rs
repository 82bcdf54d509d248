//! Whether a machine with a bootstrap token may get a client certificate for a node name.
//!
//! A bootstrap token is shared among machines. With it alone a machine must not become a node that exists: it would get
//! that node's pods and their secrets. A machine that was that node before proves it with the key of its last
//! certificate.

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Node;
use plumb_certificates::{CLIENT_KEY, Request, Signer, encoded_key};

/// Why a machine does not get a node name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameTaken {
    /// A node of this name exists, and its last key is another one.
    #[error(
        "a node of this name exists, and the request does not have its key; give this machine another name, or delete \
         the node first"
    )]
    Node,
    /// A request with another key was approved for this name, and its node has not registered yet.
    #[error(
        "another machine was approved for this name and has not registered yet; give this machine another name, or \
         delete the approved certificate signing request"
    )]
    Request,
}

/// Checks that a request for a node's client certificate, made with a bootstrap token, takes no other machine's name.
///
/// `node` is the Node of the name, if it exists; `others` are the requests that the cluster has.
pub fn check_name<'a>(
    request: &Request,
    node: Option<&Node>,
    others: impl IntoIterator<Item = &'a CertificateSigningRequest>,
) -> Result<(), NameTaken> {
    let key = encoded_key(&request.public_key);
    if let Some(node) = node {
        let known = node.metadata.annotations.as_ref().and_then(|annotations| annotations.get(CLIENT_KEY));
        return if known == Some(&key) { Ok(()) } else { Err(NameTaken::Node) };
    }
    let is_rival = |other: &CertificateSigningRequest| {
        other.spec.signer_name == Signer::NodeClient.name()
            && is_approved(other)
            && Request::parse(&other.spec.request.0).is_ok_and(|other| {
                other.common_name == request.common_name && other.public_key != request.public_key
            })
    };
    if others.into_iter().any(is_rival) { Err(NameTaken::Request) } else { Ok(()) }
}

fn is_approved(request: &CertificateSigningRequest) -> bool {
    let conditions = request.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Approved" && condition.status == "True")
}
