//! containerd's own services on the same socket. They are needed since the CRI can pull images, but not import them.

mod messages;

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::time::Duration;

use futures_util::stream;
use http::HeaderValue;
use plumb_oci::{Digest, Digesting};
use plumb_runtime::{Error, Result};
use prost::Message;
use tokio::sync::mpsc;

use crate::api;
use crate::error::from_status;
use messages::{
    CreateLease, DeleteLease, Descriptor, GetImage, Image, ImageMessage, Lease, WriteAction, WriteContent,
    WriteContentResponse,
};
use plumb_grpc::Connection;
use plumb_grpc::{Code, Status};

/// The containerd namespace of pods.
const NAMESPACE: &str = "k8s.io";
/// The time after which containerd may collect written blobs if this process dies during an import.
const LEASE: Duration = Duration::from_hours(1);
/// The size of the chunks in which a blob is sent.
const CHUNK: usize = 1 << 20;
/// The timeout of an import.
const IMPORT: Duration = Duration::from_mins(5);
/// The digest and the size of a blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Blob {
    pub(crate) digest: String,
    pub(crate) size: i64,
}

impl Blob {
    /// Describes a blob with these bytes.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        let size = i64::try_from(bytes.len()).unwrap_or(i64::MAX);
        Self { digest: Digest::of(bytes).to_string(), size }
    }

    /// Describes a blob with the contents of a file, which is read completely.
    pub(crate) fn from_file(file: &Path) -> io::Result<Self> {
        let mut file = Digesting::new(BufReader::with_capacity(CHUNK, File::open(file)?));
        let size = io::copy(&mut file, &mut io::sink())?;
        let digest = file.finish()?.to_string();
        Ok(Self { digest, size: i64::try_from(size).unwrap_or(i64::MAX) })
    }
}

/// The contents of a blob.
pub(crate) type Source = Box<dyn Read + Send>;

/// A client of containerd's services, with a lease.
#[derive(Clone, Debug)]
pub(crate) struct Containerd {
    connection: Connection,
    lease: String,
}

impl Containerd {
    /// Creates a lease, which protects written blobs from garbage collection until [`finish`](Self::finish). `None` if the
    /// socket is that of another runtime.
    pub(crate) async fn begin(connection: Connection, lease: String) -> Result<Option<Self>> {
        let this = Self { connection, lease };
        let expires = jiff::Timestamp::now() + LEASE;
        let labels = [("containerd.io/gc.expire".to_owned(), expires.to_string())].into();
        let request = CreateLease { id: this.lease.clone(), labels };
        let created: Result<Lease, Status> =
            this.call("/containerd.services.leases.v1.Leases/Create", request).await;
        match created {
            Ok(_) => Ok(Some(this)),
            // The lease is left over from an import that did not finish.
            Err(status) if status.code == Code::AlreadyExists => Ok(Some(this)),
            Err(status) if status.code == Code::Unimplemented => Ok(None),
            Err(status) => Err(from_status("creating a lease", "lease", &this.lease, &status)),
        }
    }

    /// The labels of an image, if it exists.
    pub(crate) async fn labels(&self, name: &str) -> Result<Option<api::Map>> {
        let request = GetImage { name: name.to_owned() };
        let found: Result<ImageMessage, Status> =
            self.call("/containerd.services.images.v1.Images/Get", request).await;
        match found {
            Ok(found) => Ok(found.image.map(|image| image.labels)),
            Err(status) if status.code == Code::NotFound => Ok(None),
            Err(status) => Err(from_status("reading", "image", name, &status)),
        }
    }

    /// Names a manifest. An image that had the name loses it.
    pub(crate) async fn name(&self, name: &str, manifest: &Blob, labels: api::Map) -> Result<()> {
        let image = Image {
            name: name.to_owned(),
            labels,
            target: Some(Descriptor {
                media_type: "application/vnd.oci.image.manifest.v1+json".to_owned(),
                digest: manifest.digest.clone(),
                size: manifest.size,
            }),
        };
        let request = ImageMessage { image: Some(image) };
        let created: Result<ImageMessage, Status> =
            self.call("/containerd.services.images.v1.Images/Create", request.clone()).await;
        let named = match created {
            Err(status) if status.code == Code::AlreadyExists => {
                self.call("/containerd.services.images.v1.Images/Update", request).await
            }
            named => named,
        };
        named.map(|_: ImageMessage| ()).map_err(|status| from_status("naming", "image", name, &status))
    }

    /// Writes a blob, unless it exists. Its labels name the blobs that it refers to.
    pub(crate) async fn write(&self, blob: &Blob, source: Source, labels: api::Map) -> Result<()> {
        match tokio::time::timeout(IMPORT, self.try_write(blob, source, labels)).await {
            Ok(Err(status)) if status.code != Code::AlreadyExists => {
                Err(from_status("writing", "blob", &blob.digest, &status))
            }
            Ok(_) => Ok(()),
            Err(_) => Err(Error::DeadlineExceeded(format!(
                "writing blob {} took longer than {IMPORT:?}",
                blob.digest
            ))),
        }
    }

    async fn try_write(&self, blob: &Blob, mut source: Source, labels: api::Map) -> Result<(), Status> {
        let (sender, receiver) = mpsc::channel(2);
        let part = WriteContent {
            r#ref: format!("plumb-{}", blob.digest),
            total: blob.size,
            expected: blob.digest.clone(),
            ..WriteContent::default()
        };
        // Reading a file blocks, so this runs on a blocking thread.
        let feed = tokio::task::spawn_blocking(move || {
            let mut offset = 0;
            loop {
                let mut data = vec![0; CHUNK];
                let length = source.read(&mut data)?;
                data.truncate(length);
                let last = length == 0;
                let (action, labels) = if last {
                    (WriteAction::Commit, labels.clone())
                } else {
                    (WriteAction::Write, api::Map::new())
                };
                let request = WriteContent { action: action.into(), offset, data, labels, ..part.clone() };
                // Sending fails after the call has ended, which reports the error.
                if sender.blocking_send(request).is_err() || last {
                    return io::Result::Ok(());
                }
                offset += i64::try_from(length).unwrap_or(i64::MAX);
            }
        });
        let requests = stream::unfold(receiver, |mut receiver| async {
            let request = receiver.recv().await?;
            Some((request, receiver))
        });
        let path = "/containerd.services.content.v1.Content/Write";
        let mut responses = self.connection.exchange(path, &self.metadata(), requests).await?;
        let written = loop {
            match responses.next::<WriteContentResponse>().await {
                Ok(Some(response)) if response.action() == WriteAction::Commit => break Ok(()),
                Ok(Some(_)) => {}
                Ok(None) => break Err(Status::unavailable("the call ended before the blob was committed")),
                Err(status) => break Err(status),
            }
        };
        // This ends the stream of requests, and so the thread that feeds it.
        drop(responses);
        written?;
        let fed = feed.await.map_err(io::Error::other).and_then(|fed| fed);
        fed.map_err(|error| Status::new(Code::Unknown, error.to_string()))
    }

    /// Deletes the lease.
    pub(crate) async fn finish(self) {
        let request = DeleteLease { id: self.lease.clone() };
        let deleted: Result<api::Empty, Status> =
            self.call("/containerd.services.leases.v1.Leases/Delete", request).await;
        if let Err(status) = deleted {
            tracing::debug!(%status, "cannot delete a lease, which will expire");
        }
    }

    async fn call<A: Message + Default>(
        &self,
        path: &'static str,
        request: impl Message,
    ) -> Result<A, Status> {
        let timeout = Some(self.connection.timeout());
        self.connection.call_within(path, &self.metadata(), request, timeout).await
    }

    fn metadata(&self) -> Vec<(&'static str, HeaderValue)> {
        let namespace = ("containerd-namespace", HeaderValue::from_static(NAMESPACE));
        // Without the lease, containerd may collect a blob before it is named, and the import would fail.
        let lease = HeaderValue::from_str(&self.lease).ok().map(|lease| ("containerd-lease", lease));
        [namespace].into_iter().chain(lease).collect()
    }
}
