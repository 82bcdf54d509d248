//! Equality and concatenation of lists of the types `set` and `map` (`x-kubernetes-list-type`), in linear time, since their
//! costs are linear too.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, DefaultHasher, Hash as _, Hasher as _, RandomState};

use serde_json::Value as Json;

use super::equal;
use super::operator::order_of;
use crate::decl::ListOrder;
use crate::value::{Key, List, Map, Value};

/// Whether a set has all elements of another list of the same length.
pub(super) fn same_set(set: &List<'_>, other: &List<'_>) -> bool {
    let mut elements = Elements::default();
    set.iter().for_each(|element| {
        elements.insert(&element);
    });
    other.iter().all(|element| elements.has(&element))
}

/// Appends the elements that a set does not have yet.
pub(super) fn add_to_set<'a>(set: &mut Vec<Value<'a>>, other: &List<'a>) {
    let mut elements = Elements::default();
    for element in &*set {
        elements.insert(element);
    }
    for element in other.iter() {
        if elements.insert(&element) {
            set.push(element);
        }
    }
}

/// Whether a list with keys has, for each element of another list of the same length, one with the same keys that is equal.
/// Like upstream, the last of several elements with the same keys is used.
pub(super) fn same_keyed(list: &List<'_>, keys: &[String], other: &List<'_>) -> bool {
    let elements: Vec<Value<'_>> = list.iter().collect();
    let indexes = indexes(&elements, keys);
    other.iter().all(|element| {
        let index = keys_of(&element, keys).and_then(|keys| indexes.get(&keys));
        index.is_some_and(|index| equal(&elements[*index], &element))
    })
}

/// Replaces the elements of a list with keys by those of another one with the same keys, and appends the others.
pub(super) fn add_to_keyed<'a>(list: &mut Vec<Value<'a>>, keys: &[String], other: &List<'a>) {
    // Like upstream, appended elements are not replaced.
    let indexes = indexes(list, keys);
    for element in other.iter() {
        match keys_of(&element, keys).and_then(|keys| indexes.get(&keys)) {
            Some(index) => list[*index] = element,
            None => list.push(element),
        }
    }
}

/// The index of each element by the values of its keys.
fn indexes<'a>(list: &[Value<'a>], keys: &[String]) -> HashMap<Vec<Option<&'a Json>>, usize> {
    let elements = list.iter().enumerate();
    elements.filter_map(|(index, element)| Some((keys_of(element, keys)?, index))).collect()
}

/// The values of an element's keys; `None` if the element is not JSON, since upstream finds no keys in other values.
fn keys_of<'a>(element: &Value<'a>, keys: &[String]) -> Option<Vec<Option<&'a Json>>> {
    match element {
        Value::Map(Map::Data(map, _)) => Some(keys.iter().map(|key| map.get(key)).collect()),
        _ => None,
    }
}

/// A set of values. Equal values have the same hash, even if their types differ.
#[derive(Default)]
struct Elements<'a> {
    /// A random key, so that a client cannot choose many values with the same hash.
    hashes: RandomState,
    by_hash: HashMap<u64, Vec<Value<'a>>>,
}

impl<'a> Elements<'a> {
    /// Adds a value. Returns whether it is new.
    fn insert(&mut self, value: &Value<'a>) -> bool {
        let Some(hash) = self.hash(value) else { return true };
        let same = self.by_hash.entry(hash).or_default();
        let is_new = !same.iter().any(|existing| equal(existing, value));
        if is_new {
            same.push(value.clone());
        }
        is_new
    }

    /// Whether the set contains a value.
    fn has(&self, value: &Value<'_>) -> bool {
        let same = self.hash(value).and_then(|hash| self.by_hash.get(&hash));
        same.is_some_and(|same| same.iter().any(|existing| equal(existing, value)))
    }

    /// The hash of a value; `None` if it is not equal to itself.
    fn hash(&self, value: &Value<'_>) -> Option<u64> {
        let mut state = self.hashes.build_hasher();
        self.feed(value, &mut state)?;
        Some(state.finish())
    }

    fn feed(&self, value: &Value<'_>, state: &mut DefaultHasher) -> Option<()> {
        match value {
            // Numbers compare across types.
            Value::Int(_) | Value::Uint(_) | Value::Double(_) => "number".hash(state),
            _ => value.type_name().hash(state),
        }
        match value {
            Value::Null => {}
            Value::Double(number) if number.is_nan() => return None,
            Value::Access(_) | Value::Decision(_) => return None,
            Value::Int(number) => i128::from(*number).hash(state),
            Value::Uint(number) => i128::from(*number).hash(state),
            Value::Double(number) => match Key::from_value(value) {
                Some(Key::Int(whole)) => whole.hash(state),
                _ => number.to_bits().hash(state),
            },
            Value::Bool(truth) => truth.hash(state),
            Value::Text(text) => text.hash(state),
            Value::Bytes(bytes) => bytes.hash(state),
            Value::Duration(nanoseconds) => nanoseconds.hash(state),
            Value::Timestamp(moment) => moment.at.hash(state),
            Value::Type(name) | Value::Format(name) => name.hash(state),
            Value::Quantity(amount) => amount.amount.hash(state),
            Value::Ip(address) => address.hash(state),
            Value::Cidr(address, bits) => (address, bits).hash(state),
            Value::Url(url) => url.hash(state),
            Value::Semver(version) => version.hash(state),
            Value::Optional(inner) => match inner {
                Some(inner) => self.feed(inner, state)?,
                None => 0_u8.hash(state),
            },
            Value::List(list) => self.feed_list(list, state)?,
            Value::Map(map) => {
                map.len().hash(state);
                let mut all = 0_u64;
                for (key, value) in map.entries() {
                    let mut entry = self.hashes.build_hasher();
                    self.feed(&key, &mut entry)?;
                    self.feed(&value, &mut entry)?;
                    all = all.wrapping_add(entry.finish());
                }
                all.hash(state);
            }
            Value::Message(message) => {
                message.name.hash(state);
                for (name, value) in &message.fields {
                    name.hash(state);
                    self.feed(value, state)?;
                }
            }
        }
        Some(())
    }

    fn feed_list(&self, list: &List<'_>, state: &mut DefaultHasher) -> Option<()> {
        list.len().hash(state);
        if matches!(order_of(list), ListOrder::Listed) {
            return list.iter().try_for_each(|element| self.feed(&element, state));
        }
        let mut all = 0_u64;
        for element in list.iter() {
            all = all.wrapping_add(self.hash(&element)?);
        }
        all.hash(state);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::sync::Arc;

    use proptest::collection::vec;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::decl::{Decl, DeclKind};

    fn declared(of: Arc<Decl>, order: ListOrder) -> Arc<Decl> {
        Arc::new(Decl { kind: DeclKind::List(of), max_elements: u64::MAX, min_size: 2, order })
    }

    /// Values of all types that sets can have, many of them equal to values of another type.
    fn value() -> impl Strategy<Value = Value<'static>> {
        let floats = [0.0, -0.0, 1.0, 1.5, f64::NAN, f64::INFINITY, 1e300, 9_007_199_254_740_992.0];
        let scalar = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::Bool),
            prop_oneof![-2..3_i64, Just(1 << 53)].prop_map(Value::Int),
            (0..3_u64).prop_map(Value::Uint),
            prop::sample::select(floats.to_vec()).prop_map(Value::Double),
            "[ab]{0,2}".prop_map(|text| Value::Text(Cow::Owned(text))),
            "[ab]{0,2}".prop_map(|text| Value::Bytes(text.into_bytes().into())),
            (0..3_i64).prop_map(Value::Duration),
        ];
        scalar.prop_recursive(3, 12, 3, |inner| {
            let entry = ("[ab]".prop_map(Key::Text), inner.clone());
            prop_oneof![
                vec(inner.clone(), 0..3).prop_map(Value::list),
                prop::collection::btree_map(entry.0, entry.1, 0..3)
                    .prop_map(|map| Value::Map(Map::Made(Arc::new(map)))),
                inner.prop_map(|inner| Value::Optional(Some(Box::new(inner)))),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_set_contains_values_that_are_equal_to_an_element(
            first in vec(value(), 0..8),
            other in vec(value(), 0..8),
        ) {
            let first = List::Made(Arc::new(first), None);
            let other = List::Made(Arc::new(other), None);
            let expected = other.iter().all(|element| first.iter().any(|value| equal(&value, &element)));
            prop_assert_eq!(same_set(&first, &other), expected);

            let mut expected: Vec<Value<'_>> = first.iter().collect();
            for element in other.iter() {
                if !expected.iter().any(|value| equal(value, &element)) {
                    expected.push(element);
                }
            }
            let mut sum: Vec<Value<'_>> = first.iter().collect();
            add_to_set(&mut sum, &other);
            // The comparison is by text since NaN is not equal to itself.
            prop_assert_eq!(format!("{sum:?}"), format!("{expected:?}"));
        }
    }

    #[test]
    fn the_order_of_sets_inside_a_set_does_not_matter() {
        let of = declared(Decl::simple(DeclKind::Int, 0, 1), ListOrder::Set);
        let outer = declared(of, ListOrder::Set);
        let a = json!([[1, 2], [3, 4]]);
        let b = json!([[4, 3], [2, 1]]);
        let list = |data: &'_ Json| data.as_array().cloned().unwrap();
        let a = list(&a);
        let b = list(&b);
        assert!(same_set(&List::Data(&a, &outer), &List::Data(&b, &outer)));
    }

    #[test]
    fn the_last_of_several_elements_with_the_same_keys_is_used() {
        let dynamic = declared(Decl::dynamic(), ListOrder::Keyed(vec!["k".to_owned()]));
        let keys = ["k".to_owned()];
        let list = |data: Json| data.as_array().cloned().unwrap();
        let first = list(json!([{"k": 1, "v": 1}, {"k": 1, "v": 2}, {"k": 2, "v": 3}]));
        let first = List::Data(&first, &dynamic);
        for (other, is_same) in [
            (json!([{"k": 2, "v": 3}, {"k": 1, "v": 2}, {"k": 1, "v": 2}]), true),
            (json!([{"k": 2, "v": 3}, {"k": 1, "v": 1}, {"k": 1, "v": 2}]), false),
            (json!([{"k": 2, "v": 3}, {"k": 1, "v": 2}, {"k": 3, "v": 2}]), false),
        ] {
            let other = list(other);
            assert_eq!(same_keyed(&first, &keys, &List::Data(&other, &dynamic)), is_same, "{other:?}");
        }
        let other = list(json!([{"k": 1, "v": 4}, {"k": 5, "v": 5}, {"k": 5, "v": 6}]));
        let mut sum: Vec<Value<'_>> = first.iter().collect();
        add_to_keyed(&mut sum, &keys, &List::Data(&other, &dynamic));
        let sum: Vec<Json> = sum.iter().map(|element| element.to_json().unwrap()).collect();
        let expected = json!([
            {"k": 1, "v": 1}, {"k": 1, "v": 4}, {"k": 2, "v": 3}, {"k": 5, "v": 5}, {"k": 5, "v": 6},
        ]);
        assert_eq!(json!(sum), expected);
    }
}
