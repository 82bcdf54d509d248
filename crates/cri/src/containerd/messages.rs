//! The messages of containerd's services for content, images and leases that an import needs.

use crate::api::Map;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub(super) enum WriteAction {
    Stat = 0,
    Write = 1,
    Commit = 2,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct WriteContent {
    #[prost(enumeration = "WriteAction", tag = "1")]
    pub(super) action: i32,
    #[prost(string, tag = "2")]
    pub(super) r#ref: String,
    #[prost(int64, tag = "3")]
    pub(super) total: i64,
    #[prost(string, tag = "4")]
    pub(super) expected: String,
    #[prost(int64, tag = "5")]
    pub(super) offset: i64,
    #[prost(bytes = "vec", tag = "6")]
    pub(super) data: Vec<u8>,
    #[prost(btree_map = "string, string", tag = "7")]
    pub(super) labels: Map,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct WriteContentResponse {
    #[prost(enumeration = "WriteAction", tag = "1")]
    pub(super) action: i32,
    #[prost(string, tag = "6")]
    pub(super) digest: String,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct Descriptor {
    #[prost(string, tag = "1")]
    pub(super) media_type: String,
    #[prost(string, tag = "2")]
    pub(super) digest: String,
    #[prost(int64, tag = "3")]
    pub(super) size: i64,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct Image {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(btree_map = "string, string", tag = "2")]
    pub(super) labels: Map,
    #[prost(message, optional, tag = "3")]
    pub(super) target: Option<Descriptor>,
}

/// `CreateImageRequest`, `UpdateImageRequest`, and the responses with an image, which have the same first field.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct ImageMessage {
    #[prost(message, optional, tag = "1")]
    pub(super) image: Option<Image>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct GetImage {
    #[prost(string, tag = "1")]
    pub(super) name: String,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct CreateLease {
    #[prost(string, tag = "1")]
    pub(super) id: String,
    #[prost(btree_map = "string, string", tag = "3")]
    pub(super) labels: Map,
}

/// The response, whose fields are not needed.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(super) struct Lease {}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct DeleteLease {
    #[prost(string, tag = "1")]
    pub(super) id: String,
}
