//! Decoding of watch events.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use kube::api::WatchEvent;
use serde::de::{DeserializeOwned, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// An event of a watch.
///
/// The implementation of serde for [`WatchEvent`] works for any order of `type` and `object`, so it needs a second decoder for
/// objects that were buffered because they came first. API servers send `type` first. Here an object that comes first is skipped
/// as raw text, and then decoded by the same decoder.
pub(crate) struct Event<K>(pub(crate) WatchEvent<K>);

impl<'de, K: DeserializeOwned> serde::Deserialize<'de> for Event<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EventVisitor(PhantomData))
    }
}

struct EventVisitor<K>(PhantomData<K>);

impl<'de, K: DeserializeOwned> Visitor<'de> for EventVisitor<K> {
    type Value = Event<K>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an event of a watch")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Event<K>, A::Error> {
        let mut type_ = None;
        let mut skipped = None;
        let mut event = None;
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            match (&*key, type_) {
                ("type", _) => type_ = Some(map.next_value()?),
                ("object", None) => skipped = Some(map.next_value::<&'de RawValue>()?),
                ("object", Some(Type::Added)) => event = Some(WatchEvent::Added(map.next_value()?)),
                ("object", Some(Type::Modified)) => event = Some(WatchEvent::Modified(map.next_value()?)),
                ("object", Some(Type::Deleted)) => event = Some(WatchEvent::Deleted(map.next_value()?)),
                ("object", Some(Type::Bookmark)) => event = Some(WatchEvent::Bookmark(map.next_value()?)),
                ("object", Some(Type::Error)) => event = Some(WatchEvent::Error(map.next_value()?)),
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        if let Some(event) = event {
            return Ok(Event(event));
        }
        let json = skipped.ok_or_else(|| A::Error::missing_field("object"))?.get();
        let type_ = type_.ok_or_else(|| A::Error::missing_field("type"))?;
        read(type_, json).map(Event).map_err(A::Error::custom)
    }
}

/// Decodes the object of an event whose type followed it.
fn read<K: DeserializeOwned>(type_: Type, json: &str) -> Result<WatchEvent<K>, serde_json::Error> {
    Ok(match type_ {
        Type::Added => WatchEvent::Added(serde_json::from_str(json)?),
        Type::Modified => WatchEvent::Modified(serde_json::from_str(json)?),
        Type::Deleted => WatchEvent::Deleted(serde_json::from_str(json)?),
        Type::Bookmark => WatchEvent::Bookmark(serde_json::from_str(json)?),
        Type::Error => WatchEvent::Error(serde_json::from_str(json)?),
    })
}

/// The type of an event.
#[derive(Clone, Copy, serde::Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum Type {
    Added,
    Modified,
    Deleted,
    Bookmark,
    Error,
}
