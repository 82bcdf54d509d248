//! The authority that issued client certificates before clients had an authority of their own.
//!
//! Earlier, `ca.crt` signed client and serving certificates alike. When a data directory of that time is opened, its clients
//! (nodes that joined, kubeconfigs) have certificates of `ca.crt`. A copy of it stays trusted for clients for a year, the
//! longest lifetime of such a certificate.

use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use rustls::pki_types::{CertificateDer, pem::PemObject as _};

use super::authority::{Authority, LEAF_DAYS};
use super::error::PkiError;
use super::files;

const FILE: &str = "client-ca-previous.crt";

/// Remembers that `authority` has issued client certificates so far.
pub(super) fn keep(directory: &Path, authority: &Authority) -> Result<(), PkiError> {
    Ok(files::replace(&directory.join(FILE), &authority.pem(), files::PUBLIC)?)
}

/// The previous authority of clients, until all of its certificates have expired.
pub(super) fn open(
    directory: &Path,
    clients: &Authority,
    now: Timestamp,
) -> Result<Option<CertificateDer<'static>>, PkiError> {
    let path = directory.join(FILE);
    let Some(pem) = files::read(&path)? else { return Ok(None) };
    let certificate = CertificateDer::from_pem_slice(&pem)
        .map_err(|_| PkiError::unfit(path, "does not hold a certificate", "remove the file"))?;
    let end = clients.not_before() + SignedDuration::from_hours(LEAF_DAYS * 24);
    Ok((now < end).then_some(certificate))
}
