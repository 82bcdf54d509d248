//! The keys of tokens: ECDSA on P-256 (`ES256`). The newest signs; those before it still verify.

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, UnparsedPublicKey,
};
use rustls::pki_types::{PrivatePkcs8KeyDer, SubjectPublicKeyInfoDer, pem::PemObject as _};
use serde_json::{Value, json};

use crate::pki::SigningKey;

/// The first byte of an uncompressed point, and the size of a coordinate.
const UNCOMPRESSED: u8 = 4;
const COORDINATE: usize = 32;

/// How the DER of a public key on P-256 begins; the point follows.
const P256: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
    0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// The keys of a cluster.
pub(super) struct TokenKeys {
    pair: EcdsaKeyPair,
    random: SystemRandom,
    /// The public keys that verify tokens; the first is that of the pair.
    public: Vec<PublicKey>,
}

/// A key that verifies tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PublicKey {
    id: String,
    point: Vec<u8>,
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

impl TokenKeys {
    /// `None` if a key is of another type.
    pub(super) fn read(key: &SigningKey) -> Option<Self> {
        let random = SystemRandom::new();
        let private = PrivatePkcs8KeyDer::from_pem_slice(key.private_pem().reveal().as_bytes()).ok()?;
        let private = private.secret_pkcs8_der();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, private, &random).ok()?;
        let all = std::iter::once(key.public_pem()).chain(key.previous_pems());
        let public: Vec<PublicKey> = all.map(PublicKey::read).collect::<Option<_>>()?;
        Some(Self { pair, random, public })
    }

    /// A token with these claims, or `None` if the system has no random numbers.
    pub(super) fn sign(&self, claims: &Value) -> Option<String> {
        let id = self.public.first().map(|key| key.id.as_str());
        let header = format!(r#"{{"alg":"ES256","kid":{}}}"#, json!(id));
        let mut token = format!("{}.{}", encode(header), encode(claims.to_string()));
        let signature = self.pair.sign(&self.random, token.as_bytes()).ok()?;
        token.push('.');
        token.push_str(&encode(signature));
        Some(token)
    }

    /// The id of the key that signed a token. The algorithm is ES256, whatever the header of the token says.
    pub(super) fn signer(&self, token: &str) -> Option<&str> {
        let (signed, signature) = token.rsplit_once('.')?;
        let header = signed.split('.').next().and_then(header)?;
        let kid = header["kid"].as_str().unwrap_or_default();
        if header["alg"] != "ES256" {
            return None;
        }
        let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).ok()?;
        let mut candidates = self.public.iter().filter(|key| kid.is_empty() || kid == key.id);
        let signer = candidates.find(|key| {
            let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, &key.point);
            public.verify(signed.as_bytes(), &signature).is_ok()
        });
        signer.map(|key| key.id.as_str())
    }

    /// Whether tokens of the key with this id are valid.
    pub(super) fn has(&self, id: &str) -> bool {
        self.public.iter().any(|key| key.id == id)
    }

    /// The public keys, by which other programs verify tokens.
    pub(super) fn to_jwks(&self) -> Value {
        let keys: Vec<Value> = self.public.iter().map(PublicKey::to_jwk).collect();
        json!({ "keys": keys })
    }
}

impl PublicKey {
    fn read(pem: &str) -> Option<Self> {
        let der = SubjectPublicKeyInfoDer::from_pem_slice(pem.as_bytes()).ok()?;
        let point = der.strip_prefix(&P256).filter(|point| point.len() == 1 + 2 * COORDINATE)?.to_vec();
        Some(Self { id: encode(sha256(&der)), point })
    }

    fn to_jwk(&self) -> Value {
        let coordinates = self.point.strip_prefix(&[UNCOMPRESSED]).unwrap_or_default();
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

impl fmt::Debug for TokenKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenKeys").field("public", &self.public).finish_non_exhaustive()
    }
}
