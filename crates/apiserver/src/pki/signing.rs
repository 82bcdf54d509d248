//! The key that signs service account tokens.

use std::os::unix::fs::MetadataExt as _;
use std::{fmt, path::Path};

use rcgen::KeyPair;
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::pki_types::pem::PemObject as _;

use super::{
    error::{PkiError, REMOVE_PREVIOUS_KEYS, RESTORE_SIGNING_KEY},
    files,
    secret::Secret,
};

const KEY_FILE: &str = "sa.key";
const PUBLIC_FILE: &str = "sa.pub";
/// The public keys before the last rotations, the newest first.
const PREVIOUS_FILE: &str = "sa-previous.pub";
const END: &str = "-----END PUBLIC KEY-----";

/// The key that signs service account tokens (ECDSA on P-256: `ES256`). It is kept until it is rotated, since tokens outlive
/// restarts; the public keys before it verify the tokens that they signed until they are forgotten.
pub struct SigningKey {
    private: Secret,
    public: String,
    previous: Vec<String>,
}

impl SigningKey {
    /// Reads the key in a directory, or creates one there.
    pub fn open(directory: &Path) -> Result<Self, PkiError> {
        let key_path = directory.join(KEY_FILE);
        let public_path = directory.join(PUBLIC_FILE);
        let written = files::read(&public_path)?;
        let mut previous = read_previous(&directory.join(PREVIOUS_FILE))?;
        let key = match files::read_private(&key_path)? {
            Some(pem) => KeyPair::from_pem(&String::from_utf8_lossy(&pem)).map_err(|error| {
                let what = format!("holds no usable private key ({error})");
                PkiError::unfit(&key_path, what, RESTORE_SIGNING_KEY)
            })?,
            None if written.is_some() => {
                return Err(PkiError::unfit(
                    key_path,
                    "is missing, though sa.pub is there",
                    RESTORE_SIGNING_KEY,
                ));
            }
            None => {
                let key = KeyPair::generate().map_err(PkiError::make("the service-account key"))?;
                files::replace(&key_path, &key.serialize_pem(), files::PRIVATE)?;
                key
            }
        };
        let public = key.public_key_pem();
        // A rotation that was interrupted before it replaced the key.
        previous.retain(|pem| pem.trim() != public.trim());
        let is_previous = |written: &[u8]| previous.iter().any(|pem| pem.trim().as_bytes() == written);
        match written {
            // A rotation that was interrupted after it replaced the key.
            Some(written) if is_previous(written.trim_ascii()) => {
                files::replace(&public_path, &public, files::PUBLIC)?;
            }
            Some(written) if written.trim_ascii() != public.trim().as_bytes() => {
                return Err(PkiError::unfit(public_path, "does not belong to sa.key", RESTORE_SIGNING_KEY));
            }
            Some(_) => {}
            None => files::replace(&public_path, &public, files::PUBLIC)?,
        }
        Ok(Self { private: Secret::new(key.serialize_pem()), public, previous })
    }

    /// Replaces the key in a directory by a new one. The old one goes to the previous ones first, so that its tokens are valid
    /// wherever this is interrupted.
    pub fn rotate(directory: &Path) -> Result<Self, PkiError> {
        let old = Self::open(directory)?;
        let key = KeyPair::generate().map_err(PkiError::make("the service-account key"))?;
        let previous: Vec<String> = std::iter::once(old.public).chain(old.previous).collect();
        files::replace(&directory.join(PREVIOUS_FILE), &previous.concat(), files::PUBLIC)?;
        let private = key.serialize_pem();
        files::replace(&directory.join(KEY_FILE), &private, files::PRIVATE)?;
        let public = key.public_key_pem();
        files::replace(&directory.join(PUBLIC_FILE), &public, files::PUBLIC)?;
        Ok(Self { private: Secret::new(private), public, previous })
    }

    /// Forgets the previous keys in a directory, and returns how many there were: their tokens are invalid.
    pub fn forget_previous(directory: &Path) -> Result<usize, PkiError> {
        let count = Self::open(directory)?.previous.len();
        files::remove(&directory.join(PREVIOUS_FILE))?;
        Ok(count)
    }

    /// What tells whether a directory has other keys than before: the files are only ever replaced.
    pub fn stamp(directory: &Path) -> [Option<(u64, i64)>; 2] {
        [KEY_FILE, PREVIOUS_FILE].map(|name| {
            let metadata = std::fs::metadata(directory.join(name)).ok()?;
            Some((metadata.ino(), metadata.mtime_nsec()))
        })
    }

    /// The public keys before the last rotations, as PEM, the newest first.
    pub fn previous_pems(&self) -> impl Iterator<Item = &str> {
        self.previous.iter().map(String::as_str)
    }

    /// The private key, as PEM (PKCS #8).
    pub fn private_pem(&self) -> &Secret {
        &self.private
    }

    /// The public key, as PEM.
    pub fn public_pem(&self) -> &str {
        &self.public
    }
}

/// The public keys in a file; none if it does not exist.
fn read_previous(path: &Path) -> Result<Vec<String>, PkiError> {
    let Some(text) = files::read(path)? else { return Ok(Vec::new()) };
    let text = String::from_utf8_lossy(&text);
    let keys: Vec<String> = text.split_inclusive(END).map(|pem| format!("{}\n", pem.trim())).collect();
    let keys: Vec<String> = keys.into_iter().filter(|pem| !pem.trim().is_empty()).collect();
    let is_key = |pem: &String| SubjectPublicKeyInfoDer::from_pem_slice(pem.as_bytes()).is_ok();
    if !keys.iter().all(is_key) {
        return Err(PkiError::unfit(path, "holds something else than public keys", REMOVE_PREVIOUS_KEYS));
    }
    Ok(keys)
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("public", &self.public).finish_non_exhaustive()
    }
}
