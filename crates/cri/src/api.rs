//! The messages of the CRI v1 (`runtime.v1`) that this client uses, with the field numbers that shipped.
//!
//! The messages are written by hand and not compiled from a `.proto`: a field takes one line either way, and the build needs
//! neither `protoc` nor another compiler. The crate `k8s-cri` needs `protoc` and lacks `UpdatePodSandboxResources`. Fields
//! that this client neither sends nor reads are omitted.
//!
//! KEP-1287 and the CRI v1 differ in one field: the KEP gives `UpdateContainerResourcesRequest` a field
//! `ContainerResources resources = 3`, but field 3 of the CRI v1 is `WindowsContainerResources windows`. A runtime would
//! decode the KEP's message as Windows resources, so this client uses the CRI's. It always sets `linux`, as the KEP requires
//! for runtimes that know no other field.
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

/// An optional signed number.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Int64Value {
    #[prost(int64, tag = "1")]
    pub value: i64,
}

/// An optional unsigned number.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct UInt64Value {
    #[prost(uint64, tag = "1")]
    pub value: u64,
}
