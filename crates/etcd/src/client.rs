//! Calls to the members of a cluster: one after the other, until one can be reached.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::Stream;
use http::HeaderValue;
use plumb_grpc::{Code, Connection, Host, InvalidHost, Messages, Status, TlsError, TlsFiles};
use prost::Message;

use crate::proto::{
    CompactionRequest, Empty, Header, HeaderResponse, RangeRequest, RangeResponse, StatusResponse,
    TxnRequest, TxnResponse, WatchRequest,
};

/// The timeout of a call: what kube-apiserver's health check allows, and longer than an election takes.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum size of a response: a page of large objects, and all changes of a thousand revisions.
const MAX_MESSAGE: usize = 1 << 30;
/// gRPC's code for a database without space, or too many requests.
const RESOURCE_EXHAUSTED: u32 = 8;
/// gRPC's codes for clients that may not.
const DENIED: [u32; 2] = [7, 16];

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No member is named.
    #[error("no etcd member is named")]
    NoEndpoint,
    /// A URL cannot be used.
    #[error(transparent)]
    Endpoint(#[from] InvalidHost),
    /// A certificate or a key cannot be used.
    #[error("TLS to etcd")]
    Tls(#[from] TlsError),
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// No member was reached: nothing was sent.
    #[error("etcd cannot be reached: {}", .0.message)]
    Unreachable(Status),
    /// etcd has rejected the request, which had no effect.
    #[error("{}", .0.message)]
    Rejected(Status),
    /// Whether the request had an effect is unknown.
    #[error("{}", .0.message)]
    Unknown(Status),
}

impl CallError {
    fn of(status: Status) -> Self {
        let is_definite = match status.code {
            Code::InvalidArgument | Code::FailedPrecondition | Code::NotFound | Code::Unimplemented => true,
            Code::Other(code) => code == RESOURCE_EXHAUSTED || DENIED.contains(&code),
            _ => false,
        };
        if is_definite { Self::Rejected(status) } else { Self::Unknown(status) }
    }

    /// Whether the revision of a read is compacted.
    pub fn is_compacted(&self) -> bool {
        let (Self::Unreachable(status) | Self::Rejected(status) | Self::Unknown(status)) = self;
        status.code == Code::OutOfRange && status.message.contains("compacted")
    }
}

/// A client of a cluster.
#[derive(Debug)]
pub struct Client {
    connections: Vec<Connection>,
    /// The member that is called first.
    current: AtomicUsize,
}

impl Client {
    /// Creates a client of the members at some URLs. It connects with the first call.
    pub fn new(endpoints: &[String], tls: &TlsFiles) -> Result<Self, ClientError> {
        let is_encrypted = endpoints.iter().any(|url| url.starts_with("https:"));
        let tls = if is_encrypted || !tls.is_empty() { Some(tls.read()?) } else { None };
        let connect = |url: &String| {
            let host = Host::new(url, tls.as_ref())?;
            Ok(Connection::to_host(host, TIMEOUT).with_max_message(MAX_MESSAGE))
        };
        let connections = endpoints.iter().map(connect).collect::<Result<Vec<_>, InvalidHost>>()?;
        if connections.is_empty() {
            return Err(ClientError::NoEndpoint);
        }
        Ok(Self { connections, current: AtomicUsize::new(0) })
    }

    /// The first member that can be reached.
    async fn connection(&self) -> Result<(usize, &Connection), CallError> {
        let first = self.current.load(Ordering::Relaxed);
        let mut last = Status::unavailable("no member");
        for offset in 0..self.connections.len() {
            let index = (first + offset) % self.connections.len();
            match self.connections[index].connect().await {
                Ok(()) => {
                    self.current.store(index, Ordering::Relaxed);
                    return Ok((index, &self.connections[index]));
                }
                Err(status) => last = status,
            }
        }
        Err(CallError::Unreachable(last))
    }

    /// Has the next call begin with the next member.
    fn avoid(&self, index: usize) {
        let next = (index + 1) % self.connections.len();
        // Another call may have moved on already.
        let _ = self.current.compare_exchange(index, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Makes a call to one member.
    async fn call<A: Message + Default>(
        &self,
        path: &'static str,
        request: impl Message,
    ) -> Result<A, CallError> {
        let (index, connection) = self.connection().await?;
        connection.call(path, request).await.map_err(CallError::of).inspect_err(|error| {
            if matches!(error, CallError::Unknown(_)) {
                self.avoid(index);
            }
        })
    }

    /// Makes a call without an effect, to each member until one responds.
    async fn read<A: Message + Default>(
        &self,
        path: &'static str,
        request: impl Message + Clone,
    ) -> Result<A, CallError> {
        let mut result = self.call(path, request.clone()).await;
        for _ in 1..self.connections.len() {
            match result {
                Err(CallError::Unknown(ref status)) if status.code != Code::OutOfRange => {
                    result = self.call(path, request.clone()).await;
                }
                _ => break,
            }
        }
        result
    }

    /// Reads keys; linearizable.
    pub async fn range(&self, request: RangeRequest) -> Result<RangeResponse, CallError> {
        self.read("/etcdserverpb.KV/Range", request).await
    }

    /// The revision of the last write of any client; linearizable.
    pub async fn revision(&self, key: &[u8]) -> Result<i64, CallError> {
        let nothing = RangeRequest { key: key.to_vec(), count_only: true, ..RangeRequest::default() };
        Ok(revision(self.range(nothing).await?.header))
    }

    /// Makes a transaction.
    pub async fn txn(&self, request: TxnRequest) -> Result<TxnResponse, CallError> {
        self.call("/etcdserverpb.KV/Txn", request).await
    }

    /// Has etcd forget the revisions before one.
    pub async fn compact(&self, revision: i64) -> Result<(), CallError> {
        self.call::<HeaderResponse>("/etcdserverpb.KV/Compact", CompactionRequest { revision })
            .await
            .map(drop)
    }

    /// The status of a member.
    pub async fn status(&self) -> Result<StatusResponse, CallError> {
        self.read("/etcdserverpb.Maintenance/Status", Empty {}).await
    }

    /// Opens a stream of watches. If it ends, the next one begins with another member.
    pub async fn watch(
        &self,
        requests: impl Stream<Item = WatchRequest> + Send + 'static,
    ) -> Result<WatchStream<'_>, CallError> {
        let (index, connection) = self.connection().await?;
        // A member that is cut off from the others ends the watch.
        let metadata = [("hasleader", HeaderValue::from_static("true"))];
        let opened = connection.exchange("/etcdserverpb.Watch/Watch", &metadata, requests);
        let late =
            |_| CallError::Unknown(Status::new(Code::DeadlineExceeded, "a watch was not opened in time"));
        let opened = tokio::time::timeout(TIMEOUT, opened).await.map_err(late);
        match opened.and_then(|opened| opened.map_err(CallError::of)) {
            Ok(messages) => Ok(WatchStream { client: self, index, messages }),
            Err(error) => {
                self.avoid(index);
                Err(error)
            }
        }
    }
}

/// A stream of watches of one member.
#[derive(Debug)]
pub struct WatchStream<'c> {
    client: &'c Client,
    index: usize,
    messages: Messages,
}

impl WatchStream<'_> {
    /// The next response. Dropping the future loses none.
    pub async fn next(&mut self) -> Result<crate::proto::WatchResponse, CallError> {
        let next = self.messages.next().await.map_err(CallError::of);
        let ended = || CallError::Unknown(Status::unavailable("the watch ended"));
        next.and_then(|response| response.ok_or_else(ended)).inspect_err(|_| self.client.avoid(self.index))
    }
}

/// The revision in a header.
pub(crate) fn revision(header: Option<Header>) -> i64 {
    header.map_or(0, |header| header.revision)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_rejection_says_that_nothing_was_written() {
        let of = |code, message: &str| CallError::of(Status::new(code, message));
        let no_space = of(Code::Other(RESOURCE_EXHAUSTED), "etcdserver: mvcc: database space exceeded");
        assert!(matches!(no_space, CallError::Rejected(_)), "{no_space:?}");
        assert_eq!(no_space.to_string(), "etcdserver: mvcc: database space exceeded");
        for code in
            [Code::Unavailable, Code::DeadlineExceeded, Code::Cancelled, Code::Unknown, Code::OutOfRange]
        {
            assert!(matches!(of(code, "etcdserver: request timed out"), CallError::Unknown(_)), "{code:?}");
        }
    }

    #[test]
    fn a_compacted_revision_is_recognised() {
        let status = Status::new(Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted");
        assert!(CallError::of(status).is_compacted());
    }

    #[test]
    fn a_client_needs_members_and_an_authority_for_https() {
        let of = |urls: &[&str]| {
            let urls: Vec<String> = urls.iter().map(|url| (*url).to_owned()).collect();
            Client::new(&urls, &TlsFiles::default()).map(drop)
        };
        assert!(matches!(of(&[]), Err(ClientError::NoEndpoint)));
        assert!(matches!(of(&["https://a:2379"]), Err(ClientError::Tls(TlsError::NoAuthority))));
        assert!(matches!(of(&["a:2379"]), Err(ClientError::Endpoint(_))));
        assert!(of(&["http://a:2379", "http://b:2379"]).is_ok());
    }
}
