//! The schema table of the Kubernetes API, and what it drives: decoding, patches, server-side apply, OpenAPI.
//!
//! Many parts of an API server need the names, field numbers, types, merge keys and list types of the API. One table of 170 kB
//! has them all. It is parsed in about a millisecond at first use, and each module walks over it:
//!
//! ```text
//!   data/facts/*.tsv ──examples/table──▶ data/kubernetes-1.36.schema
//!                                                 │ embedded
//!                                                 ▼
//!   discovery ◀── kinds, resources ─────────── Schema ──────── types, merge keys ──▶ OpenAPI v3
//!                                                 │
//!   protobuf body ──protobuf::decode──▶ ┌─────────┴──────────┐
//!   JSON body ─────────json::decode───▶ │ an object, as Go   │ ──▶ stored, returned
//!   patched object ─json::decode_value▶ │ would write it     │
//!          ▲                            └─────────┬──────────┘
//!          └── patch::{merge, json, strategic} ◀──┘
//! ```
//!
//! | question | module |
//! |---|---|
//! | which kinds, resources and fields does the API have? | [`schema`] |
//! | how is a body `application/vnd.kubernetes.protobuf` decoded and encoded? | [`protobuf`] |
//! | how is a JSON body decoded, and which fields are unknown? | [`json`] |
//! | what is the result of a patch? | [`patch`] |
//! | which fields does a field manager own? | [`apply`] |
//! | are two objects semantically equal? | [`semantic`] |
//! | which OpenAPI documents do clients get? | [`openapi`] |
//!
//! The crate has no I/O, no async, no clock and no client. All input is untrusted: depth, lengths and the number of
//! values are bounded, and errors have upstream's messages where they are known.
//!
//! # The form of an object
//!
//! kube-apiserver decodes an object into Go structs, stores it as protobuf and encodes it again, and clients rely on the
//! effects: `status: {}` is added, `hostNetwork: false` and `command: []` are removed, `cpu: 0.5` becomes `500m`, timestamps
//! are in UTC. Both decoders here build objects in that form. The exceptions are the few empty lists and maps that validation
//! distinguishes from missing ones: [`json::settle`] drops them before an object is stored.
//!
//! # Differences from upstream
//!
//! - JSON nested more than [127 deep](json::MAX_DEPTH), objects of more than half a million values, and text that
//!   is not UTF-8 are rejected. Upstream allows a depth of 10,000 and any number of values, and replaces invalid text.
//! - A pointer to Go's zero time (`0001-01-01T00:00:00Z`), and `items` of a JSON schema that is neither a schema nor a list,
//!   are omitted; upstream writes `null` for them.
//! - Numbers in values without a type keep their value, but not their notation: `1e3` is returned as `1000.0`.
//! - Where the result of a strategic merge depends on the order of a Go map upstream (two directives for one list, two errors
//!   in one patch), it is deterministic here. Where upstream panics, the patch is rejected with an error.
//! - `apiVersion` and `kind` of embedded objects are kept as they were sent. Upstream's storage drops them, and sets them again
//!   for the claim templates of a `StatefulSet`.

pub mod apply;
pub mod json;
pub mod openapi;
pub mod patch;
pub mod protobuf;
mod scalar;
pub mod schema;
pub mod semantic;
mod zero;

pub use schema::Schema;
