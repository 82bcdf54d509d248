//! The kinds of `certificates.k8s.io`.

pub(crate) mod certificate_signing_request;

pub(super) use certificate_signing_request::CertificateSigningRequestStrategy;
