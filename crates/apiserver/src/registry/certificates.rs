//! The kinds of `certificates.k8s.io`.

mod certificate_signing_request;

pub(super) use certificate_signing_request::CertificateSigningRequestStrategy;
pub(crate) use certificate_signing_request::validate_approval;
