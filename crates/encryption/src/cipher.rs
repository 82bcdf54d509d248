//! The ciphers of the providers: what they append to the prefix of a stored value, and how they read it.
//!
//! Not ring, which has neither CBC nor `XSalsa20`, nor AES with 192 bits: one family of crates does all of them.

mod cbc;
mod gcm;
mod secretbox;

pub(crate) use cbc::aes_cbc;
pub(crate) use gcm::aes_gcm;
pub(crate) use secretbox::secretbox;

use crate::error::TransformError;

/// A source of random bytes for nonces and initialization vectors.
pub trait RandomBytes: Send + Sync {
    /// Fills a buffer.
    fn fill(&self, bytes: &mut [u8]) -> Result<(), NoRandomBytes>;
}

impl<F: Fn(&mut [u8]) -> Result<(), NoRandomBytes> + Send + Sync> RandomBytes for F {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), NoRandomBytes> {
        self(bytes)
    }
}

/// The source of random bytes failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there are no random bytes to encrypt with")]
pub struct NoRandomBytes;

/// A cipher with its key.
pub(crate) trait Cipher: Send + Sync {
    /// Appends a value, encrypted. `authenticated` must be the same to decrypt it, if the cipher has such data.
    fn encrypt(
        &self,
        value: &[u8],
        authenticated: &[u8],
        random: &dyn RandomBytes,
        out: &mut Vec<u8>,
    ) -> Result<(), TransformError>;

    /// Decrypts what [`Cipher::encrypt`] has appended, or says why it cannot.
    fn decrypt(&self, stored: &[u8], authenticated: &[u8]) -> Result<Vec<u8>, &'static str>;
}

/// The stored bytes are shorter than those of an empty value.
const TOO_SHORT: &str = "the stored data was shorter than the required size";
/// The tag is not that of the ciphertext.
const UNAUTHENTICATED: &str = "message authentication failed";

/// Appends random bytes, and returns them.
fn append_random<const N: usize>(
    random: &dyn RandomBytes,
    out: &mut Vec<u8>,
) -> Result<[u8; N], NoRandomBytes> {
    let mut bytes = [0; N];
    random.fill(&mut bytes)?;
    out.extend_from_slice(&bytes);
    Ok(bytes)
}
