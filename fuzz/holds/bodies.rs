//! Any bytes, read as a body of any kind: refused or read, and what is read stays what it is.

use plumb_apischema::{Schema, json, protobuf};

/// Fails where it does not hold.
pub(crate) fn holds(choice: u8, bytes: &[u8]) {
    let schema = Schema::builtin();
    let resources = schema.resources();
    let resource = &resources[usize::from(choice) % resources.len()];
    let Some(kind) = schema.kind(resource.group, resource.version, resource.kind) else { return };

    let _ = protobuf::decode(schema, bytes, Some(kind));
    for object in [
        protobuf::decode_message(schema, kind, bytes).ok(),
        json::decode(schema, kind, bytes).ok().map(|decoded| decoded.value),
    ] {
        let Some(object) = object else { continue };
        let body =
            protobuf::encode_message(schema, kind, &object).expect("an object that was read can be written");
        let again = protobuf::decode_message(schema, kind, &body).expect("and read again");
        let body = protobuf::encode_message(schema, kind, &again).expect("and written again");
        assert_eq!(protobuf::decode_message(schema, kind, &body).as_ref(), Ok(&again));
    }
}
