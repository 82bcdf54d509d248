//! AES in Cipher Block Chaining, padded as in PKCS #7, with a random initialization vector before the ciphertext.
//!
//! It is not authenticated: a changed value may be decrypted to something else. Upstream has it, and warns of it.

use aes::cipher::block_padding::Pkcs7;
use aes::cipher::consts::U16;
use aes::cipher::{
    BlockCipher, BlockDecryptMut, BlockEncryptMut, BlockSizeUser, InnerIvInit, KeyInit,
    generic_array::GenericArray,
};
use aes::{Aes128, Aes192, Aes256};

use super::{Cipher, RandomBytes, TOO_SHORT, append_random};
use crate::error::TransformError;

const BLOCK: usize = 16;

struct Cbc<C>(C);

/// The cipher for a key; `None` if the key has a wrong length.
pub(crate) fn aes_cbc(key: &[u8]) -> Option<Box<dyn Cipher>> {
    Some(match key.len() {
        16 => Box::new(Cbc(Aes128::new_from_slice(key).ok()?)),
        24 => Box::new(Cbc(Aes192::new_from_slice(key).ok()?)),
        32 => Box::new(Cbc(Aes256::new_from_slice(key).ok()?)),
        _ => return None,
    })
}

impl<C> Cipher for Cbc<C>
where
    C: BlockCipher + BlockEncryptMut + BlockDecryptMut + BlockSizeUser<BlockSize = U16> + Clone + Send + Sync,
{
    fn encrypt(
        &self,
        value: &[u8],
        _authenticated: &[u8],
        random: &dyn RandomBytes,
        out: &mut Vec<u8>,
    ) -> Result<(), TransformError> {
        out.reserve(2 * BLOCK + value.len());
        let iv = append_random::<BLOCK>(random, out)?;
        let cipher = cbc::Encryptor::inner_iv_init(self.0.clone(), GenericArray::from_slice(&iv));
        out.extend_from_slice(&cipher.encrypt_padded_vec_mut::<Pkcs7>(value));
        Ok(())
    }

    fn decrypt(&self, stored: &[u8], _authenticated: &[u8]) -> Result<Vec<u8>, &'static str> {
        let (iv, ciphertext) = stored.split_at_checked(BLOCK).ok_or(TOO_SHORT)?;
        if ciphertext.len() % BLOCK != 0 {
            return Err("the stored data is not a multiple of the block size");
        }
        let cipher = cbc::Decryptor::inner_iv_init(self.0.clone(), GenericArray::from_slice(iv));
        cipher.decrypt_padded_vec_mut::<Pkcs7>(ciphertext).map_err(|_| "invalid padding")
    }
}
