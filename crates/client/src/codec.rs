//! Encoding and decoding of objects as JSON.

use std::marker::PhantomData;

use kube::api::{PartialObjectMeta, WatchEvent};
use serde::{Serialize, de::DeserializeOwned};

use crate::event::Event;

/// A kind whose objects are encoded and decoded by functions that are not generic.
///
/// [`codec!`](crate::codec!) implements it.
pub trait Codec: Clone + Send + Sync + Sized + 'static {
    /// Decodes an object.
    fn decode(json: &str) -> Result<Self, serde_json::Error>;

    /// Decodes one event of a watch.
    fn decode_event(json: &str) -> Result<WatchEvent<Self>, serde_json::Error>;

    /// Encodes an object.
    fn encode(&self) -> Result<Vec<u8>, serde_json::Error>;
}

/// Implements [`Codec`](crate::Codec) for types that implement serde's traits.
///
/// The decoders are compiled in the crate that calls this, and nowhere else.
///
/// ```
/// #[derive(Clone, serde::Deserialize, serde::Serialize)]
/// struct Widget {
///     size: u32,
/// }
///
/// plumb_client::codec!(Widget);
/// ```
#[macro_export]
macro_rules! codec {
    ($($kind:ty),+ $(,)?) => {$(
        impl $crate::Codec for $kind {
            fn decode(json: &str) -> Result<Self, $crate::private::Error> {
                $crate::private::decode(json)
            }

            fn decode_event(json: &str) -> Result<$crate::private::WatchEvent<Self>, $crate::private::Error> {
                $crate::private::decode_event(json)
            }

            fn encode(&self) -> Result<Vec<u8>, $crate::private::Error> {
                $crate::private::encode(self)
            }
        }
    )+};
}

/// Decodes an object.
pub fn decode<T: DeserializeOwned>(json: &str) -> Result<T, serde_json::Error> {
    serde_json::from_str(json)
}

/// Decodes one event of a watch.
pub fn decode_event<T: DeserializeOwned>(json: &str) -> Result<WatchEvent<T>, serde_json::Error> {
    serde_json::from_str::<Event<T>>(json).map(|event| event.0)
}

/// Encodes an object.
pub fn encode<T: Serialize>(object: &T) -> Result<Vec<u8>, serde_json::Error> {
    serde_json::to_vec(object)
}

// One decoder serves the metadata of all kinds, since the kind is only a type parameter without a value.
impl<K: Clone + Send + Sync + 'static> Codec for PartialObjectMeta<K> {
    fn decode(json: &str) -> Result<Self, serde_json::Error> {
        metadata(json).map(of_kind)
    }

    fn decode_event(json: &str) -> Result<WatchEvent<Self>, serde_json::Error> {
        Ok(match metadata_event(json)? {
            WatchEvent::Added(object) => WatchEvent::Added(of_kind(object)),
            WatchEvent::Modified(object) => WatchEvent::Modified(of_kind(object)),
            WatchEvent::Deleted(object) => WatchEvent::Deleted(of_kind(object)),
            WatchEvent::Bookmark(bookmark) => WatchEvent::Bookmark(bookmark),
            WatchEvent::Error(status) => WatchEvent::Error(status),
        })
    }

    fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        encode_metadata(&PartialObjectMeta {
            types: self.types.clone(),
            metadata: self.metadata.clone(),
            _phantom: PhantomData,
        })
    }
}

fn metadata(json: &str) -> Result<PartialObjectMeta, serde_json::Error> {
    decode(json)
}

fn metadata_event(json: &str) -> Result<WatchEvent<PartialObjectMeta>, serde_json::Error> {
    decode_event(json)
}

fn encode_metadata(object: &PartialObjectMeta) -> Result<Vec<u8>, serde_json::Error> {
    encode(object)
}

fn of_kind<K>(object: PartialObjectMeta) -> PartialObjectMeta<K> {
    PartialObjectMeta { types: object.types, metadata: object.metadata, _phantom: PhantomData }
}
