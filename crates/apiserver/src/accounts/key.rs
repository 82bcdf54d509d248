//! The signing key of tokens: ECDSA on P-256 (`ES256`).

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, UnparsedPublicKey,
};
use rustls::pki_types::{PrivatePkcs8KeyDer, SubjectPublicKeyInfoDer, pem::PemObject as _};
use serde_json::{Value, json};

use crate::pki::SigningKey;

/// The first byte of an uncompressed point, and the size of a coordinate.
const UNCOMPRESSED: u8 = 4;
const COORDINATE: usize = 32;

/// The signing key of tokens.
pub(super) struct TokenKey {
    pair: EcdsaKeyPair,
    id: String,
    random: SystemRandom,
}

/// The SHA-256 of some bytes.
pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, bytes).as_ref());
    hash
}

fn encode(bytes: impl AsRef<[u8]>) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

impl TokenKey {
    /// `None` if the key is of another type.
    pub(super) fn read(key: &SigningKey) -> Option<Self> {
        let random = SystemRandom::new();
        let private = PrivatePkcs8KeyDer::from_pem_slice(key.private_pem().reveal().as_bytes()).ok()?;
        let private = private.secret_pkcs8_der();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, private, &random).ok()?;
        let public = SubjectPublicKeyInfoDer::from_pem_slice(key.public_pem().as_bytes()).ok()?;
        Some(Self { pair, id: encode(sha256(&public)), random })
    }

    /// A token with these claims, or `None` if the system has no random numbers.
    pub(super) fn sign(&self, claims: &Value) -> Option<String> {
        let header = format!(r#"{{"alg":"ES256","kid":{}}}"#, json!(self.id));
        let mut token = format!("{}.{}", encode(header), encode(claims.to_string()));
        let signature = self.pair.sign(&self.random, token.as_bytes()).ok()?;
        token.push('.');
        token.push_str(&encode(signature));
        Some(token)
    }

    /// Whether this key signed a token. The algorithm is ES256, whatever the header of the token says.
    pub(super) fn signed(&self, token: &str) -> bool {
        let Some((signed, signature)) = token.rsplit_once('.') else { return false };
        let Some(header) = signed.split('.').next().and_then(header) else { return false };
        let kid = header["kid"].as_str().unwrap_or_default();
        if header["alg"] != "ES256" || !(kid.is_empty() || kid == self.id) {
            return false;
        }
        let Ok(signature) = BASE64_URL_SAFE_NO_PAD.decode(signature) else { return false };
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.pair.public_key().as_ref());
        public.verify(signed.as_bytes(), &signature).is_ok()
    }

    /// The public key, by which other programs verify tokens.
    pub(super) fn to_jwk(&self) -> Value {
        let point = self.pair.public_key().as_ref();
        let coordinates = point.strip_prefix(&[UNCOMPRESSED]).unwrap_or_default();
        let (x, y) = coordinates.split_at(COORDINATE.min(coordinates.len()));
        json!({
            "use": "sig", "kty": "EC", "kid": self.id, "crv": "P-256", "alg": "ES256",
            "x": encode(x), "y": encode(y),
        })
    }
}

fn header(encoded: &str) -> Option<Value> {
    serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(encoded).ok()?).ok()
}

impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenKey").field("id", &self.id).finish_non_exhaustive()
    }
}
