//! The values of objects in etcd: the object without its revision, which etcd assigns, and its attributes, behind a magic number.
//!
//! A value of another program is an error. kube-apiserver's begin with `k8s\0`, or with `{`.

use std::sync::Arc;

use bytes::Bytes;
use plumb_store::{Attributes, Key, Object, Revision, Transformer, TransformerError};
use prost::Message as _;

use crate::layout::Layout;
use crate::proto::KeyValue;

/// The first bytes of each value.
const MAGIC: &[u8] = b"plumb\0";

/// A value without its magic number.
#[derive(Clone, PartialEq, Eq, prost::Message)]
struct Stored {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<Attribute>,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct Attribute {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

/// Why a value is not an object.
#[derive(Debug, thiserror::Error)]
pub enum ValueError {
    /// The key is not one of an object.
    #[error("{path:?} is not the key of an object")]
    Key {
        /// The key in etcd.
        path: String,
    },
    /// Another program has written the value.
    #[error("{path:?} was not written by plumb: --etcd-prefix must name a prefix that no other program uses")]
    Foreign {
        /// The key in etcd.
        path: String,
    },
    /// The value cannot be decoded.
    #[error("{path:?} cannot be decoded")]
    Malformed {
        /// The key in etcd.
        path: String,
        /// Why.
        source: prost::DecodeError,
    },
    /// The value cannot be transformed, for example because its encryption key is missing.
    #[error("{path:?} cannot be decrypted")]
    Transform {
        /// The key in etcd.
        path: String,
        /// Why.
        source: TransformerError,
    },
}

/// Inserts the revision of an object into its encoding.
pub type Stamp = fn(&Bytes, Revision) -> Bytes;

/// How objects are encoded as values of etcd.
#[derive(Debug)]
pub(crate) struct Codec {
    pub(crate) layout: Layout,
    pub(crate) transformer: Option<Arc<dyn Transformer>>,
    pub(crate) stamp: Stamp,
}

impl Codec {
    /// The value for an object.
    pub(crate) fn encode(
        &self,
        key: &Key,
        value: Bytes,
        attributes: &Attributes,
    ) -> Result<Bytes, TransformerError> {
        let attribute = |(name, value): (&str, &str)| Attribute { name: name.into(), value: value.into() };
        let stored = Stored { attributes: attributes.iter().map(attribute).collect(), value };
        let mut bytes = Vec::with_capacity(MAGIC.len() + stored.encoded_len());
        bytes.extend_from_slice(MAGIC);
        // The buffer grows, so encoding cannot run out of space.
        let _ = stored.encode(&mut bytes);
        let Some(transformer) = &self.transformer else { return Ok(bytes.into()) };
        Ok(transformer.transform_to_storage(key, &bytes)?.into_owned().into())
    }

    /// The object of a key and its value.
    pub(crate) fn decode(&self, kv: &KeyValue) -> Result<Object, ValueError> {
        let path = || String::from_utf8_lossy(&kv.key).into_owned();
        let key = self.key(kv)?;
        let read = |stored: &[u8]| {
            let Some(stored) = stored.strip_prefix(MAGIC) else {
                return Err(ValueError::Foreign { path: path() });
            };
            Stored::decode(stored).map_err(|source| ValueError::Malformed { path: path(), source })
        };
        let Stored { attributes, value } = match &self.transformer {
            None => read(&kv.value)?,
            Some(transformer) => {
                let transformed = transformer.transform_from_storage(&key, &kv.value);
                read(&transformed.map_err(|source| ValueError::Transform { path: path(), source })?.value)?
            }
        };
        let mod_revision = unsigned(kv.mod_revision);
        Ok(Object {
            key,
            value: (self.stamp)(&value, mod_revision),
            attributes: attributes.into_iter().map(|one| (one.name, one.value)).collect(),
            create_revision: unsigned(kv.create_revision),
            mod_revision,
            version: unsigned(kv.version),
        })
    }

    /// The key of an object.
    pub(crate) fn key(&self, kv: &KeyValue) -> Result<Key, ValueError> {
        let invalid = |_| ValueError::Key { path: String::from_utf8_lossy(&kv.key).into_owned() };
        self.layout.key(&kv.key).map_err(invalid)
    }
}

/// A number of etcd, which is never negative.
pub(crate) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

/// A revision as etcd encodes it.
pub(crate) fn signed(revision: Revision) -> i64 {
    i64::try_from(revision).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codec() -> Codec {
        Codec { layout: Layout::new("/registry"), transformer: None, stamp: |bytes, _| bytes.clone() }
    }

    fn kv(key: &'static str, value: Bytes) -> KeyValue {
        let key = Bytes::from_static(key.as_bytes());
        KeyValue { key, value, create_revision: 3, mod_revision: 7, version: 2 }
    }

    #[test]
    fn an_object_is_read_as_it_was_written() {
        let key = Key::new("core/pods/default/a").unwrap();
        let attributes = Attributes::one("spec.nodeName", "node-1");
        let value = codec().encode(&key, Bytes::from_static(b"{}"), &attributes).unwrap();
        let object = codec().decode(&kv("/registry/core/pods/default/a", value)).unwrap();
        assert_eq!((object.key, &*object.value, object.attributes), (key, &b"{}"[..], attributes));
        assert_eq!((object.create_revision, object.mod_revision, object.version), (3, 7, 2));
    }

    #[test]
    fn the_value_of_another_program_is_an_error_that_names_it() {
        for foreign in [&b"k8s\0\n\0"[..], b"{\"kind\":\"Pod\"}", b""] {
            let error =
                codec().decode(&kv("/registry/pods/default/a", Bytes::from_static(foreign))).unwrap_err();
            assert!(error.to_string().contains("/registry/pods/default/a"), "{error}");
            assert!(matches!(error, ValueError::Foreign { .. }));
        }
    }
}
