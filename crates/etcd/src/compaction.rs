//! Compaction: etcd forgets revisions that are older than the interval, in the manner of kube-apiserver.
//!
//! Each server has a timer. The key `compact_rev_key`, which kube-apiserver uses too, has a version that each compaction
//! increments: of several servers whose timers end at the same version, one compacts, and the others learn the version.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;

use crate::client::{CallError, Client, revision};
use crate::engine::Inner;
use crate::proto::{Compare, Operation, PutRequest, RangeRequest, TxnRequest};

const KEY: &[u8] = b"compact_rev_key";

/// What a server knows of compactions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Compactor {
    /// The version of the key.
    version: i64,
    /// The revision when it was last looked at, which is compacted next.
    revision: i64,
}

impl Compactor {
    /// Compacts up to the revision of the last call, unless another server has compacted since. Returns the revision that was
    /// compacted.
    pub async fn compact(&mut self, client: &Client) -> Result<Option<i64>, CallError> {
        let put = PutRequest { key: KEY.to_vec(), value: Bytes::from(self.revision.to_string()) };
        let get = RangeRequest { key: KEY.to_vec(), ..RangeRequest::default() };
        let request = TxnRequest {
            compare: vec![Compare::version(KEY.to_vec(), self.version)],
            success: vec![Operation::Put(put).into()],
            failure: vec![Operation::Range(get).into()],
        };
        let response = client.txn(request).await?;
        let compacted = self.revision;
        self.revision = revision(response.header);
        if !response.succeeded {
            let found = response.responses.first().and_then(|response| response.range.as_ref());
            self.version = found.and_then(|range| range.kvs.first()).map_or(0, |kv| kv.version);
            return Ok(None);
        }
        self.version += 1;
        // The first time, it is not known which revision is old.
        if compacted == 0 {
            return Ok(None);
        }
        match client.compact(compacted).await {
            // An operator or another program has compacted more.
            Err(error) if error.is_compacted() => Ok(None),
            result => result.map(|()| Some(compacted)),
        }
    }
}

/// Compacts at an interval.
pub(crate) async fn run(inner: Arc<Inner>, interval: Duration) {
    let mut compactor = Compactor::default();
    loop {
        match compactor.compact(&inner.client).await {
            Ok(Some(revision)) => tracing::debug!(revision, "compacted etcd"),
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "cannot compact etcd"),
        }
        sleep(interval).await;
    }
}
