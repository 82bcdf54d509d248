//! Encryption at rest, as kube-apiserver has it: which resources are encrypted by which provider, and how.
//!
//! ```text
//! EncryptionConfiguration (YAML)  ──parse, validate──▶  Transformers  ──for_resource──▶  ResourceTransformer
//!                                                                                         │         ▲
//!                                                                 value ─transform_to_storage─▶  stored bytes
//!                                                                 value ◀─transform_from_storage─┘
//! ```
//!
//! The first provider of a resource encrypts, with its first key; each of them decrypts. A stored value begins with the
//! provider and the name of the key, in upstream's format, for example `k8s:enc:aesgcm:v1:key1:`. The bytes after it:
//!
//! | provider | stored | key | authenticated with the value |
//! |---|---|---|---|
//! | `aesgcm` | nonce (12), ciphertext, tag (16) | 16, 24 or 32 bytes | the path of the object |
//! | `aescbc` | IV (16), ciphertext padded as in PKCS #7 | 16, 24 or 32 bytes | nothing |
//! | `secretbox` | nonce (24), tag (16), ciphertext (`XSalsa20` and Poly1305) | 32 bytes | nothing |
//! | `identity` | the value, without a prefix | | |
//!
//! `aesgcm` authenticates the path so that a stored value cannot be moved to another object.
//!
//! This crate reads no file and has no source of random bytes: both are arguments. No error contains a secret.
//!
//! ```
//! use plumb_encryption::{EncryptionConfiguration, NoRandomBytes};
//!
//! let configuration = EncryptionConfiguration::parse(r#"
//! apiVersion: apiserver.config.k8s.io/v1
//! kind: EncryptionConfiguration
//! resources:
//! - resources: [secrets]
//!   providers:
//!   - secretbox:
//!       keys:
//!       - name: key1
//!         secret: YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXoxMjM0NTY=
//!   - identity: {}
//! "#)?;
//! // A program passes random bytes.
//! let transformers = configuration.transformers(|bytes: &mut [u8]| -> Result<(), NoRandomBytes> {
//!     bytes.fill(7);
//!     Ok(())
//! });
//! let secrets = transformers.for_resource("", "secrets");
//! let stored = secrets.transform_to_storage(b"{}", b"core/secrets/default/db")?;
//! assert!(stored.starts_with(b"k8s:enc:secretbox:v1:key1:"));
//! assert_eq!(&*secrets.transform_from_storage(&stored, b"core/secrets/default/db")?.value, b"{}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cipher;
mod configuration;
mod error;
mod non_empty;
mod provider;
mod resource;
mod transformers;
mod validation;

pub use cipher::{NoRandomBytes, RandomBytes};
pub use configuration::EncryptionConfiguration;
pub use error::{ConfigurationError, Origin, Rejection, TransformError};
pub use resource::GroupResource;
pub use transformers::{ResourceTransformer, Transformed, Transformers};
