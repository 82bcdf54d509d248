//! AES in Galois/Counter Mode, with a random nonce before the ciphertext and the tag after it.

use aes::Aes192;
use aes_gcm::aead::AeadInPlace;
use aes_gcm::aead::consts::{U12, U16};
use aes_gcm::{Aes128Gcm, Aes256Gcm, AesGcm, KeyInit, Nonce, Tag};

use super::{Cipher, RandomBytes, TOO_SHORT, UNAUTHENTICATED, append_random};
use crate::error::TransformError;

const NONCE: usize = 12;
const TAG: usize = 16;

struct Gcm<C>(C);

/// The cipher for a key; `None` if the key has a wrong length.
pub(crate) fn aes_gcm(key: &[u8]) -> Option<Box<dyn Cipher>> {
    Some(match key.len() {
        16 => Box::new(Gcm(Aes128Gcm::new_from_slice(key).ok()?)),
        24 => Box::new(Gcm(AesGcm::<Aes192, U12>::new_from_slice(key).ok()?)),
        32 => Box::new(Gcm(Aes256Gcm::new_from_slice(key).ok()?)),
        _ => return None,
    })
}

impl<C: AeadInPlace<NonceSize = U12, TagSize = U16> + Send + Sync> Cipher for Gcm<C> {
    fn encrypt(
        &self,
        value: &[u8],
        authenticated: &[u8],
        random: &dyn RandomBytes,
        out: &mut Vec<u8>,
    ) -> Result<(), TransformError> {
        out.reserve(NONCE + value.len() + TAG);
        let nonce = append_random::<NONCE>(random, out)?;
        let start = out.len();
        out.extend_from_slice(value);
        let sealed =
            self.0.encrypt_in_place_detached(Nonce::from_slice(&nonce), authenticated, &mut out[start..]);
        let tag = sealed.map_err(|_| TransformError::TooLarge)?;
        out.extend_from_slice(&tag);
        Ok(())
    }

    fn decrypt(&self, stored: &[u8], authenticated: &[u8]) -> Result<Vec<u8>, &'static str> {
        let (nonce, sealed) = stored.split_at_checked(NONCE).ok_or(TOO_SHORT)?;
        let end = sealed.len().checked_sub(TAG).ok_or(TOO_SHORT)?;
        let (ciphertext, tag) = sealed.split_at(end);
        let mut value = ciphertext.to_vec();
        self.0
            .decrypt_in_place_detached(
                Nonce::from_slice(nonce),
                authenticated,
                &mut value,
                Tag::from_slice(tag),
            )
            .map_err(|_| UNAUTHENTICATED)?;
        Ok(value)
    }
}
