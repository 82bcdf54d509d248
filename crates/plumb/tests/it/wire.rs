//! Requests as they go over the wire, without a client library that would mend them first.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// Long enough for a loaded machine, and no test waits that long unless it fails.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(plumb_testkit::TIMEOUT, future).await.expect("it happens in time")
}

/// Where a cluster listens, whom to trust there, and the administrator's token.
#[derive(Clone)]
pub(crate) struct Wire {
    address: SocketAddr,
    roots: Arc<RootCertStore>,
    pub(crate) token: String,
    /// The address to connect from, if the system is not to choose it.
    source: Option<IpAddr>,
}

/// What a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speech {
    Http1,
    Http2,
}

/// A connection that was made. Clones of an HTTP/2 one share it.
#[derive(Clone)]
pub(crate) struct Connection {
    sender: Sender,
    token: String,
}

#[derive(Clone)]
enum Sender {
    One(Arc<tokio::sync::Mutex<http1::SendRequest<Full<Bytes>>>>),
    Two(http2::SendRequest<Full<Bytes>>),
}

impl Wire {
    pub(crate) fn new(address: SocketAddr, pki: &Path, token: String) -> Self {
        plumb_apiserver::serve::install_crypto();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(pki.join("ca.crt")).unwrap()).unwrap();
        Self { address, roots: Arc::new(roots), token, source: None }
    }

    /// The same for another user.
    pub(crate) fn with_token(self, token: &str) -> Self {
        Self { token: token.to_owned(), ..self }
    }

    /// The same from another address of this machine.
    pub(crate) fn with_source(self, source: IpAddr) -> Self {
        Self { source: Some(source), ..self }
    }

    /// A TCP connection without TLS.
    pub(crate) async fn tcp(&self) -> std::io::Result<TcpStream> {
        let Some(source) = self.source else { return TcpStream::connect(self.address).await };
        let socket = if source.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.bind((source, 0).into())?;
        socket.connect(self.address).await
    }

    /// A stream of bytes inside TLS.
    pub(crate) async fn raw(&self, speech: Speech) -> std::io::Result<TlsStream<TcpStream>> {
        let mut config =
            ClientConfig::builder().with_root_certificates(self.roots.clone()).with_no_client_auth();
        config.alpn_protocols = vec![match speech {
            Speech::Http1 => b"http/1.1".to_vec(),
            Speech::Http2 => b"h2".to_vec(),
        }];
        let stream = self.tcp().await?;
        stream.set_nodelay(true)?;
        let name = ServerName::from(self.address.ip());
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }

    /// A connection to send requests over.
    pub(crate) async fn connect(&self, speech: Speech) -> Connection {
        let stream = TokioIo::new(self.raw(speech).await.unwrap());
        let sender = match speech {
            Speech::Http1 => {
                let (sender, connection) = http1::handshake(stream).await.unwrap();
                tokio::spawn(async move { drop(connection.await) });
                Sender::One(Arc::new(tokio::sync::Mutex::new(sender)))
            }
            Speech::Http2 => {
                let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
                tokio::spawn(async move { drop(connection.await) });
                Sender::Two(sender)
            }
        };
        Connection { sender, token: self.token.clone() }
    }
}

impl Connection {
    /// Sends a request of the administrator's; its body streams.
    pub(crate) async fn send(&self, mut request: Request<Full<Bytes>>) -> hyper::Result<Response<Incoming>> {
        let bearer = format!("Bearer {}", self.token).parse().unwrap();
        request.headers_mut().insert("authorization", bearer);
        match &self.sender {
            Sender::One(sender) => {
                request.headers_mut().insert("host", "localhost".parse().unwrap());
                let mut sender = sender.lock().await;
                sender.ready().await?;
                sender.send_request(request).await
            }
            Sender::Two(sender) => {
                let mut sender = sender.clone();
                *request.uri_mut() = format!("https://localhost{}", request.uri()).parse().unwrap();
                sender.ready().await?;
                sender.send_request(request).await
            }
        }
    }

    /// Sends a request and reads the whole answer: its status and, where it is JSON, its body.
    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        media: &str,
        body: impl Into<Bytes>,
    ) -> hyper::Result<(u16, Value)> {
        let mut request = Request::builder().method(method).uri(path);
        if !media.is_empty() {
            request = request.header("content-type", media);
        }
        let response = self.send(request.body(Full::new(body.into())).unwrap()).await?;
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await?.to_bytes();
        let body = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        Ok((status, body))
    }
}
