//! A server for tests of connections, and its clients.

use std::{convert::Infallible, future::Future, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, Empty, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::Incoming,
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use plumb_apiserver::{
    authn::{Authenticator, Peer, Token},
    pki::{ADMIN_USER, Clock as _, KeyedCertificate, Pki},
    serve::{
        Drained, Interactive, Limits, Listener, Shutdown, Trigger, install_crypto, serve, shutdown, tls,
    },
};
use rustls::{
    ClientConfig, RootCertStore, SupportedProtocolVersion,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem::PemObject as _},
    time_provider::TimeProvider,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::{Notify, mpsc},
    task::JoinHandle,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::it::pki::{Place, TestClock};

type ServerBody = UnsyncBoxBody<Bytes, Infallible>;

/// Long enough for a loaded machine, and no test waits that long unless it fails.
const TIMEOUT: Duration = Duration::from_mins(3);

pub(super) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(TIMEOUT, future).await.expect("it happens in time")
}

/// A server, and the handles with which a test controls it.
pub(super) struct Server {
    pub(super) place: Place,
    pub(super) pki: Arc<Pki>,
    pub(super) address: SocketAddr,
    pub(super) trigger: Trigger,
    task: JoinHandle<Drained>,
    /// Receives one message for every request to `/wait` that began.
    pub(super) began: mpsc::UnboundedReceiver<()>,
    /// Receives the path and the bytes sent of every response to `/flood` and `/pause` that ended.
    pub(super) ended_floods: mpsc::UnboundedReceiver<(String, usize)>,
    /// Releases one request to `/wait`.
    pub(super) release: Arc<Notify>,
    pub(super) admin_token: Token,
}

/// The state of the service behind the server.
#[derive(Clone)]
struct Behind {
    authenticator: Arc<Authenticator>,
    began_sender: mpsc::UnboundedSender<()>,
    ended_floods: mpsc::UnboundedSender<(String, usize)>,
    release: Arc<Notify>,
}

/// A response without end.
struct Flood {
    path: String,
    bytes: usize,
    ended: mpsc::UnboundedSender<(String, usize)>,
}

impl Drop for Flood {
    fn drop(&mut self) {
        // The test may be over.
        drop(self.ended.send((std::mem::take(&mut self.path), self.bytes)));
    }
}

impl Server {
    /// A server whose drain timeout suffices for a loaded machine.
    pub(super) fn start() -> Self {
        Self::with(Limits { drain: TIMEOUT, ..Limits::default() })
    }

    pub(super) fn with(limits: Limits) -> Self {
        install_crypto();
        let place = Place::new();
        let listener = Listener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = listener.address();
        let pki = Arc::new(place.open().unwrap());
        let (trigger, end) = shutdown();
        let (began_sender, began) = mpsc::unbounded_channel();
        let (ended_floods_sender, ended_floods) = mpsc::unbounded_channel();
        let release = Arc::new(Notify::new());
        let tokens = place.admin_token().0;
        let admin_token = tokens.of(ADMIN_USER).unwrap().clone();
        let behind = Behind {
            authenticator: Arc::new(Authenticator::new(tokens, pki.clock())),
            began_sender,
            ended_floods: ended_floods_sender,
            release: Arc::clone(&release),
        };
        let service = tower::service_fn(move |request| respond(request, behind.clone()));
        let task = tokio::spawn(serve(listener, tls(&pki).unwrap(), limits, service, end));
        Self { place, pki, address, trigger, task, began, ended_floods, release, admin_token }
    }

    pub(super) async fn ended(self) -> Drained {
        soon(self.task).await.unwrap()
    }

    pub(super) fn client(&self) -> Client {
        Client {
            address: self.address,
            trust: Arc::clone(&self.pki),
            clock: Arc::clone(&self.place.clock),
            identity: None,
            alpn: "http/1.1",
            versions: rustls::ALL_VERSIONS,
        }
    }

    /// Asserts that the server responds.
    pub(super) async fn assert_responds(&self) {
        let mut connection = self.client().http1().await.unwrap();
        assert_eq!(connection.get("/who").await.unwrap(), "anonymous HTTP/1.1");
    }
}

async fn respond(mut request: Request<Incoming>, behind: Behind) -> Result<Response<ServerBody>, Infallible> {
    let full = |text: String| Full::from(text).boxed_unsync();
    let body = match request.uri().path() {
        "/who" => {
            let peer = request.extensions().get::<Peer>().unwrap();
            assert!(peer.remote().ip().is_loopback());
            let user = peer.certificate().map_or("anonymous", |certificate| certificate.user().name());
            full(format!("{user} {:?}", request.version()))
        }
        "/wait" => {
            // Created before the test is notified of the request, so that no notification is lost.
            let released = behind.release.notified();
            behind.began_sender.send(()).unwrap();
            released.await;
            full("waited".to_owned())
        }
        "/livez" | "/api" => {
            let (mut parts, _) = request.into_parts();
            match behind.authenticator.authenticate(&mut parts) {
                Ok(user) => full(format!("{} of {}", user.name(), user.groups().join(", "))),
                Err(refused) => {
                    return Ok(Response::builder().status(401).body(full(refused.to_string())).unwrap());
                }
            }
        }
        // One event at once, the next and last one on a shutdown.
        "/watch" => {
            let mut shutdown = request.extensions().get::<Shutdown>().unwrap().clone();
            let first = stream::once(async { "first " });
            let last = stream::once(async move {
                shutdown.requested().await;
                "last"
            });
            StreamBody::new(first.chain(last).map(|text| Ok(Frame::data(Bytes::from(text))))).boxed_unsync()
        }
        // As many bytes as the client reads; `/pause` is for a person.
        path @ ("/flood" | "/pause") => {
            const PIECE: &[u8] = &[b'x'; 4096];
            let interactive = path == "/pause";
            let flood = Flood { path: path.to_owned(), bytes: 0, ended: behind.ended_floods };
            let pieces = stream::unfold(flood, |mut flood| async move {
                flood.bytes += PIECE.len();
                Some((Ok(Frame::data(Bytes::from_static(PIECE))), flood))
            });
            let mut response = Response::new(StreamBody::new(pieces).boxed_unsync());
            if interactive {
                response.extensions_mut().insert(Interactive);
            }
            return Ok(response);
        }
        "/upgrade" => {
            let upgrade = hyper::upgrade::on(&mut request);
            tokio::spawn(async move {
                let mut stream = TokioIo::new(upgrade.await.unwrap());
                let mut word = [0; 5];
                stream.read_exact(&mut word).await.unwrap();
                word.reverse();
                stream.write_all(&word).await.unwrap();
            });
            let response =
                Response::builder().status(101).header("connection", "upgrade").header("upgrade", "echo");
            return Ok(response.body(full(String::new())).unwrap());
        }
        _ => {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            full(format!("{} bytes", body.len()))
        }
    };
    Ok(Response::new(body))
}

/// A client: the authority that it trusts, and its certificate.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) address: SocketAddr,
    pub(super) trust: Arc<Pki>,
    pub(super) clock: Arc<TestClock>,
    /// A certificate and a private key, as PEM.
    pub(super) identity: Option<String>,
    pub(super) alpn: &'static str,
    pub(super) versions: &'static [&'static SupportedProtocolVersion],
}

impl Client {
    pub(super) fn who_is(self, identity: KeyedCertificate) -> Self {
        Self { identity: Some(identity.certificate_pem() + identity.key_pem().reveal()), ..self }
    }

    pub(super) async fn connect(&self) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.trust.authority_der()).unwrap();
        let time = Arc::new(Wall(Arc::clone(&self.clock)));
        let builder = ClientConfig::builder_with_details(Arc::new(ring::default_provider()), time)
            .with_protocol_versions(self.versions)
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match &self.identity {
            Some(identity) => {
                let certificate = CertificateDer::from_pem_slice(identity.as_bytes()).unwrap();
                let key = PrivateKeyDer::from_pem_slice(identity.as_bytes()).unwrap();
                builder.with_client_auth_cert(vec![certificate], key).unwrap()
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = match self.alpn {
            "" => vec![],
            alpn => vec![alpn.into()],
        };
        let stream = TcpStream::connect(self.address).await?;
        TlsConnector::from(Arc::new(config)).connect("localhost".try_into().unwrap(), stream).await
    }

    pub(super) async fn http1(&self) -> Result<Connection, Box<dyn std::error::Error>> {
        let stream = self.connect().await?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let driver = tokio::spawn(async move { drop(connection.with_upgrades().await) });
        Ok(Connection { sender: Sender::One(sender), driver })
    }

    pub(super) async fn http2(&self) -> Result<Connection, Box<dyn std::error::Error>> {
        self.http2_with(&http2::Builder::new(TokioExecutor::new())).await
    }

    /// A connection whose peer may send so many bytes of each response before they are read.
    pub(super) async fn http2_with_window(
        &self,
        bytes: u32,
    ) -> Result<Connection, Box<dyn std::error::Error>> {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        self.http2_with(builder.initial_stream_window_size(bytes)).await
    }

    async fn http2_with(
        &self,
        builder: &http2::Builder<TokioExecutor>,
    ) -> Result<Connection, Box<dyn std::error::Error>> {
        let stream = Self { alpn: "h2", ..self.clone() }.connect().await?;
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
        let driver = tokio::spawn(async move { drop(connection.await) });
        Ok(Connection { sender: Sender::Two(sender), driver })
    }
}

/// A client's end of a connection.
pub(super) struct Connection {
    sender: Sender,
    driver: JoinHandle<()>,
}

enum Sender {
    One(http1::SendRequest<Empty<Bytes>>),
    Two(http2::SendRequest<Empty<Bytes>>),
}

impl Connection {
    pub(super) async fn send(&mut self, path: &str) -> hyper::Result<Response<Incoming>> {
        let request = Request::get(path).header("host", "localhost");
        self.send_request(request.body(Empty::new()).unwrap()).await
    }

    pub(super) async fn send_request(
        &mut self,
        mut request: Request<Empty<Bytes>>,
    ) -> hyper::Result<Response<Incoming>> {
        match &mut self.sender {
            Sender::One(sender) => {
                soon(sender.ready()).await?;
                soon(sender.send_request(request)).await
            }
            Sender::Two(sender) => {
                request.headers_mut().remove("host");
                *request.uri_mut() = format!("https://localhost{}", request.uri()).parse().unwrap();
                soon(sender.ready()).await?;
                soon(sender.send_request(request)).await
            }
        }
    }

    pub(super) async fn get(&mut self, path: &str) -> hyper::Result<String> {
        rest(self.send(path).await?).await
    }

    /// Waits until the server has closed the connection.
    pub(super) async fn closed(self) {
        // The sender is kept meanwhile: it is not this end that closes.
        soon(self.driver).await.unwrap();
        drop(self.sender);
    }
}

/// What is left of the body.
pub(super) async fn rest(response: Response<Incoming>) -> hyper::Result<String> {
    let bytes = soon(response.into_body().collect()).await?.to_bytes();
    Ok(String::from_utf8(bytes.to_vec()).unwrap())
}

/// The client's clock is the test's.
#[derive(Debug)]
struct Wall(Arc<TestClock>);

impl TimeProvider for Wall {
    fn current_time(&self) -> Option<UnixTime> {
        let second = u64::try_from(self.0.now().as_second()).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_secs(second)))
    }
}
