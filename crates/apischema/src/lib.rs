//! The schema table of the Kubernetes API, and everything it drives.
//!
//! Names, field numbers, types, merge keys and list types of an API are facts that many parts of an API server need. Here they stand once, in a table of 170 kB that is read in about a millisecond at first use, and the
//! parts are walks over it:
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
//! | which kinds and resources are there, what are they made of? | [`schema`] |
//! | what is in this `application/vnd.kubernetes.protobuf` body? | [`protobuf`] |
//! | what is in this JSON body, and what does not belong? | [`json`] |
//! | what does this patch leave? | [`patch`] |
//! | do these two objects mean the same? | [`semantic`] |
//! | which OpenAPI documents do clients read? | [`openapi`] |
//!
//! The crate has no I/O, no async, no clock and no client. All input is untrusted: depth, lengths and the number of
//! values are bounded, and errors have upstream's messages where they are known.
//!
//! # The form of an object
//!
//! kube-apiserver decodes an object into Go structs, stores it as protobuf and encodes it again, and
//! clients have come to rely on what that does: `status: {}` appears, `hostNetwork: false` and `command: []` are
//! gone, `cpu: 0.5` is `500m`, timestamps are in UTC. Both decoders here build objects in that form at once, but for the
//! few empty lists and maps that some rule asks about, which [`json::settle`] drops before an object is stored.
//!
//! # Where this and upstream part
//!
//! - JSON nested more than [127 deep](json::MAX_DEPTH), objects of more than half a million values, and text that
//!   is not UTF-8 are refused; upstream goes on to 10,000, to the size of the body, and replaces the text.
//! - A pointer to the moment that Go takes for none (`0001-01-01T00:00:00Z`), and a JSON schema's `items` that is
//!   neither a schema nor a list, are left out; upstream writes `null` for them.
//! - Numbers in values of no known type keep their value, not their notation: `1e3` comes back as `1000.0`.
//! - Where the outcome of a strategic merge upstream hangs on the order of a Go map (two directives for one
//!   list, two errors in one patch), it is always the same here; where upstream panics, a sentence is the answer.
//! - `apiVersion` and `kind` of objects inside objects are kept as they were sent; through upstream's storage they
//!   are lost, and written anew for the claim templates of a `StatefulSet`.

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
