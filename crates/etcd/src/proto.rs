//! The messages of etcd's API, version 3: those that the store needs, with the numbers of their fields in etcd's `rpc.proto` and
//! `kv.proto`.

use bytes::Bytes;

/// The header of each response.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Header {
    /// The cluster of the member.
    #[prost(uint64, tag = "1")]
    pub cluster_id: u64,
    /// The revision of the cluster when the request was applied.
    #[prost(int64, tag = "3")]
    pub revision: i64,
}

/// A key and its value.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct KeyValue {
    /// The key.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// The revision at which it was last created.
    #[prost(int64, tag = "2")]
    pub create_revision: i64,
    /// The revision of this version.
    #[prost(int64, tag = "3")]
    pub mod_revision: i64,
    /// The version: 1 at creation.
    #[prost(int64, tag = "4")]
    pub version: i64,
    /// The value.
    #[prost(bytes = "bytes", tag = "5")]
    pub value: Bytes,
}

/// A read of a key, or of the keys from it to another one.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RangeRequest {
    /// The first key.
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// The key after the last one; empty for one key.
    #[prost(bytes = "vec", tag = "2")]
    pub range_end: Vec<u8>,
    /// The maximum number of keys.
    #[prost(int64, tag = "3")]
    pub limit: i64,
    /// The revision to read at; 0 for the current one.
    #[prost(int64, tag = "4")]
    pub revision: i64,
    /// Whether only the number of keys is returned.
    #[prost(bool, tag = "9")]
    pub count_only: bool,
}

/// The keys that were read.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RangeResponse {
    /// The header.
    #[prost(message, optional, tag = "1")]
    pub header: Option<Header>,
    /// The keys, in their order.
    #[prost(message, repeated, tag = "2")]
    pub kvs: Vec<KeyValue>,
    /// Whether there are more keys than the limit.
    #[prost(bool, tag = "3")]
    pub more: bool,
}

/// A write of a key.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PutRequest {
    /// The key.
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// The value.
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
}

/// A deletion of a key.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DeleteRangeRequest {
    /// The key.
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
}

/// One operation of a transaction.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RequestOp {
    /// The operation.
    #[prost(oneof = "Operation", tags = "1, 2, 3")]
    pub request: Option<Operation>,
}

/// The operations.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum Operation {
    /// A read.
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    /// A write.
    #[prost(message, tag = "2")]
    Put(PutRequest),
    /// A deletion.
    #[prost(message, tag = "3")]
    Delete(DeleteRangeRequest),
}

impl From<Operation> for RequestOp {
    fn from(operation: Operation) -> Self {
        Self { request: Some(operation) }
    }
}

/// The response to one operation: only that of a read is needed.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ResponseOp {
    /// The keys that were read.
    #[prost(message, optional, tag = "1")]
    pub range: Option<RangeResponse>,
}

/// How two values are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Comparison {
    /// They are equal.
    Equal = 0,
    /// That of the key is greater.
    Greater = 1,
}

/// What of a key is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Target {
    /// Its version.
    Version = 0,
    /// Its revision; 0 if there is no such key.
    ModRevision = 2,
}

/// A condition of a transaction.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Compare {
    /// How it is compared.
    #[prost(enumeration = "Comparison", tag = "1")]
    pub result: i32,
    /// What is compared.
    #[prost(enumeration = "Target", tag = "2")]
    pub target: i32,
    /// The key.
    #[prost(bytes = "vec", tag = "3")]
    pub key: Vec<u8>,
    /// The value that it is compared with.
    #[prost(oneof = "Operand", tags = "4, 6")]
    pub operand: Option<Operand>,
}

/// The value that something of a key is compared with.
#[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
pub enum Operand {
    /// A version.
    #[prost(int64, tag = "4")]
    Version(i64),
    /// A revision.
    #[prost(int64, tag = "6")]
    ModRevision(i64),
}

impl Compare {
    /// Compares the revision of a key.
    pub fn mod_revision(key: Vec<u8>, result: Comparison, revision: i64) -> Self {
        let operand = Some(Operand::ModRevision(revision));
        Self { result: result.into(), target: Target::ModRevision.into(), key, operand }
    }

    /// Compares the version of a key.
    pub fn version(key: Vec<u8>, version: i64) -> Self {
        let operand = Some(Operand::Version(version));
        Self { result: Comparison::Equal.into(), target: Target::Version.into(), key, operand }
    }
}

/// A transaction: if all conditions hold, the operations of a success, or else those of a failure.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct TxnRequest {
    /// The conditions.
    #[prost(message, repeated, tag = "1")]
    pub compare: Vec<Compare>,
    /// The operations if they hold.
    #[prost(message, repeated, tag = "2")]
    pub success: Vec<RequestOp>,
    /// The operations if one does not hold.
    #[prost(message, repeated, tag = "3")]
    pub failure: Vec<RequestOp>,
}

/// The outcome of a transaction.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct TxnResponse {
    /// The header.
    #[prost(message, optional, tag = "1")]
    pub header: Option<Header>,
    /// Whether the conditions held.
    #[prost(bool, tag = "2")]
    pub succeeded: bool,
    /// A response for each operation.
    #[prost(message, repeated, tag = "3")]
    pub responses: Vec<ResponseOp>,
}

/// A request to forget revisions.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CompactionRequest {
    /// The oldest revision that can be read afterwards.
    #[prost(int64, tag = "1")]
    pub revision: i64,
}

/// The response to a request whose response is only a header.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct HeaderResponse {
    /// The header.
    #[prost(message, optional, tag = "1")]
    pub header: Option<Header>,
}

/// A message without fields.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Empty {}

/// The status of a member.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StatusResponse {
    /// The header.
    #[prost(message, optional, tag = "1")]
    pub header: Option<Header>,
    /// The version of etcd.
    #[prost(string, tag = "2")]
    pub version: String,
    /// The size of its database in bytes.
    #[prost(int64, tag = "3")]
    pub db_size: i64,
}

/// A message to a stream of watches.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct WatchRequest {
    /// The message.
    #[prost(oneof = "WatchMessage", tags = "1, 3")]
    pub request: Option<WatchMessage>,
}

/// The messages to a stream of watches.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum WatchMessage {
    /// Creates a watch.
    #[prost(message, tag = "1")]
    Create(WatchCreateRequest),
    /// Asks for the revision up to which all events were sent.
    #[prost(message, tag = "3")]
    Progress(Empty),
}

impl From<WatchMessage> for WatchRequest {
    fn from(message: WatchMessage) -> Self {
        Self { request: Some(message) }
    }
}

/// Creates a watch of the keys from one to another.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct WatchCreateRequest {
    /// The first key.
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// The key after the last one.
    #[prost(bytes = "vec", tag = "2")]
    pub range_end: Vec<u8>,
    /// The revision of the first event.
    #[prost(int64, tag = "3")]
    pub start_revision: i64,
    /// Whether etcd reports now and then up to which revision there were no events.
    #[prost(bool, tag = "4")]
    pub progress_notify: bool,
}

/// The events of a watch, or how it stands.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct WatchResponse {
    /// The header.
    #[prost(message, optional, tag = "1")]
    pub header: Option<Header>,
    /// Whether the watch was created.
    #[prost(bool, tag = "3")]
    pub created: bool,
    /// Whether the watch ended.
    #[prost(bool, tag = "4")]
    pub canceled: bool,
    /// The oldest revision that can be watched, if the one of the watch is compacted.
    #[prost(int64, tag = "5")]
    pub compact_revision: i64,
    /// Why the watch ended.
    #[prost(string, tag = "6")]
    pub cancel_reason: String,
    /// The events.
    #[prost(message, repeated, tag = "11")]
    pub events: Vec<WatchEvent>,
}

/// The kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum EventType {
    /// A new version.
    Put = 0,
    /// A deletion.
    Delete = 1,
}

/// A change of a key.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct WatchEvent {
    /// The kind.
    #[prost(enumeration = "EventType", tag = "1")]
    pub r#type: i32,
    /// The new version, or the key and the revision of a deletion.
    #[prost(message, optional, tag = "2")]
    pub kv: Option<KeyValue>,
}
