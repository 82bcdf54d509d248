//! The plugins `CertificateApproval`, `CertificateSigning` and `CertificateSubjectRestriction`.

use serde_json::Value;

use crate::registry::certificate_signing_request::request::read;
use plumb_apiserver::admission::{Attributes, Operation, Plugin};
use plumb_apiserver::authz::{Ask, MASTERS, Objects};
use plumb_apiserver::error::ApiError;
use plumb_apiserver::pki::NODE_CLIENT_USER;

const GROUP: &str = "certificates.k8s.io";
const REQUESTS: &str = "certificatesigningrequests";

/// Rejects an approval by a user who may not `approve` for the signer of the request.
pub(crate) struct CertificateApproval;

impl Plugin for CertificateApproval {
    fn name(&self) -> &'static str {
        "CertificateApproval"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation == Operation::Update
            && attributes.subresource == Some("approval")
            && attributes.is_below(GROUP, REQUESTS)
    }

    fn validate(&self, attributes: &Attributes<'_>, _: &Value) -> Result<(), ApiError> {
        // The signer of the stored request counts, not that of the update.
        may(attributes, "approve", signer(attributes.old))
    }
}

/// Rejects a certificate from a user who may not `sign` for the signer of the request.
pub(crate) struct CertificateSigning;

impl Plugin for CertificateSigning {
    fn name(&self) -> &'static str {
        "CertificateSigning"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation == Operation::Update
            && attributes.subresource == Some("status")
            && attributes.is_below(GROUP, REQUESTS)
    }

    fn validate(&self, attributes: &Attributes<'_>, new: &Value) -> Result<(), ApiError> {
        let fields = |object: &Value| {
            let status = &object["status"];
            (status.get("certificate").cloned(), status.get("conditions").cloned())
        };
        if fields(attributes.old) == fields(new) {
            return Ok(());
        }
        may(attributes, "sign", signer(attributes.old))
    }
}

/// Rejects requests for a client certificate of the group `system:masters`, and, unlike upstream, of the user of the API
/// server at the node agents.
pub(crate) struct CertificateSubjectRestriction;

impl Plugin for CertificateSubjectRestriction {
    fn name(&self) -> &'static str {
        "CertificateSubjectRestriction"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation == Operation::Create && attributes.is(GROUP, REQUESTS)
    }

    fn validate(&self, attributes: &Attributes<'_>, new: &Value) -> Result<(), ApiError> {
        const SIGNER: &str = "kubernetes.io/kube-apiserver-client";
        if signer(new) != SIGNER {
            return Ok(());
        }
        let asked =
            read(new).map_err(|error| attributes.forbidden(&format!("failed to parse CSR: {error}")))?;
        if asked.organizations.iter().any(|group| group == MASTERS) {
            let why = format!("use of {SIGNER} signer with {MASTERS} group is not allowed");
            return Err(attributes.forbidden(&why));
        }
        if asked.common_name == NODE_CLIENT_USER {
            let why = format!("use of {SIGNER} signer with the user {NODE_CLIENT_USER} is not allowed");
            return Err(attributes.forbidden(&why));
        }
        Ok(())
    }
}

fn signer(object: &Value) -> &str {
    object["spec"]["signerName"].as_str().unwrap_or_default()
}

/// Rejects the request unless the user may use the verb for the signer, or for all signers of its domain.
fn may(attributes: &Attributes<'_>, verb: &str, signer: &str) -> Result<(), ApiError> {
    let domain = signer.split('/').next().unwrap_or_default();
    let whole = format!("{domain}/*");
    let allowed = [signer, &whole].into_iter().any(|name| {
        let objects = Objects { group: GROUP, resource: "signers", name, ..Objects::default() };
        let ask = Ask::about_objects(attributes.user, verb, objects);
        attributes.cluster.authorizer().decide(&ask).is_allowed()
    });
    if allowed {
        return Ok(());
    }
    let why = format!("user not permitted to {verb} requests with signerName {signer:?}");
    Err(attributes.forbidden(&why))
}
