//! The messages of the CRI v1 (`runtime.v1`) that this client uses, with the field numbers that shipped.
//!
//! Written by hand rather than compiled from a `.proto`: a field with its number takes one line either way, and neither
//! `protoc` nor a compiler of it is needed to build. Fields that this client neither sends nor reads are left out.
//!
//! In one place KEP-1287 and the CRI v1 differ: the KEP gives `UpdateContainerResourcesRequest` a field
//! `ContainerResources resources = 3`, while in the CRI v1 that shipped field 3 is `WindowsContainerResources windows`.
//! A runtime would read the KEP's message as Windows resources, so the shipped one is used, and `linux` is always set,
//! as the KEP asks for the sake of runtimes that know only that.
#![expect(missing_docs, reason = "the fields are documented by the CRI")]

mod container;
mod image;
mod resources;
mod sandbox;
mod service;

pub use container::*;
pub use image::*;
pub use resources::*;
pub use sandbox::*;
pub use service::*;

/// Labels, annotations, and other maps.
pub type Map = std::collections::BTreeMap<String, String>;

/// The response of a call that returns nothing.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Empty {}

/// A number that may be missing.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Int64Value {
    #[prost(int64, tag = "1")]
    pub value: i64,
}

/// A number that may be missing.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct UInt64Value {
    #[prost(uint64, tag = "1")]
    pub value: u64,
}
