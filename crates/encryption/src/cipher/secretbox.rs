//! `XSalsa20` and Poly1305 as in `NaCl`, with a random nonce and the tag before the ciphertext.

use crypto_secretbox::aead::AeadInPlace;
use crypto_secretbox::{KeyInit, Nonce, Tag, XSalsa20Poly1305};

use super::{Cipher, RandomBytes, TOO_SHORT, UNAUTHENTICATED, append_random};
use crate::error::TransformError;

const NONCE: usize = 24;
const TAG: usize = 16;

struct Secretbox(XSalsa20Poly1305);

/// The cipher for a key; `None` if the key has a wrong length.
pub(crate) fn secretbox(key: &[u8]) -> Option<Box<dyn Cipher>> {
    Some(Box::new(Secretbox(XSalsa20Poly1305::new_from_slice(key).ok()?)))
}

impl Cipher for Secretbox {
    fn encrypt(
        &self,
        value: &[u8],
        _authenticated: &[u8],
        random: &dyn RandomBytes,
        out: &mut Vec<u8>,
    ) -> Result<(), TransformError> {
        out.reserve(NONCE + TAG + value.len());
        let nonce = append_random::<NONCE>(random, out)?;
        let start = out.len();
        out.extend_from_slice(&[0; TAG]);
        out.extend_from_slice(value);
        let (tag, ciphertext) = out[start..].split_at_mut(TAG);
        let computed = self.0.encrypt_in_place_detached(Nonce::from_slice(&nonce), b"", ciphertext);
        tag.copy_from_slice(&computed.map_err(|_| TransformError::TooLarge)?);
        Ok(())
    }

    fn decrypt(&self, stored: &[u8], _authenticated: &[u8]) -> Result<Vec<u8>, &'static str> {
        let (nonce, sealed) = stored.split_at_checked(NONCE).ok_or(TOO_SHORT)?;
        let (tag, ciphertext) = sealed.split_at_checked(TAG).ok_or(TOO_SHORT)?;
        let mut value = ciphertext.to_vec();
        self.0
            .decrypt_in_place_detached(Nonce::from_slice(nonce), b"", &mut value, Tag::from_slice(tag))
            .map_err(|_| UNAUTHENTICATED)?;
        Ok(value)
    }
}
