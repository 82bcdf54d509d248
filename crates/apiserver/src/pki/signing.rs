//! The key that signs service account tokens.

use std::{fmt, path::Path};

use rcgen::KeyPair;

use super::{
    error::{PkiError, RESTORE_SIGNING_KEY},
    files,
    secret::Secret,
};

const KEY_FILE: &str = "sa.key";
const PUBLIC_FILE: &str = "sa.pub";

/// The key that signs service account tokens (ECDSA on P-256: `ES256`). It is permanent, since tokens outlive restarts.
pub struct SigningKey {
    private: Secret,
    public: String,
}

impl SigningKey {
    /// Reads the key in a directory, or creates one there.
    pub fn open(directory: &Path) -> Result<Self, PkiError> {
        let key_path = directory.join(KEY_FILE);
        let public_path = directory.join(PUBLIC_FILE);
        let written = files::read(&public_path)?;
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
        match written {
            Some(written) if written.trim_ascii() != public.trim().as_bytes() => {
                return Err(PkiError::unfit(public_path, "does not belong to sa.key", RESTORE_SIGNING_KEY));
            }
            Some(_) => {}
            None => files::replace(&public_path, &public, files::PUBLIC)?,
        }
        Ok(Self { private: Secret::new(key.serialize_pem()), public })
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

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("public", &self.public).finish_non_exhaustive()
    }
}
