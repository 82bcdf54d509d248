//! Connections to the ports of a pod.
//!
//! Over SPDY, directly or inside of a `WebSocket`, a client opens two streams for each connection: one for data, and one on which
//! it receives the reason why there is none. Over the channels of a `WebSocket` each port that the request names has one connection and two
//! channels, which begin with the number of the port.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, SplitSink};
use futures_util::{SinkExt as _, StreamExt as _};
use http::request::Parts;
use http::{Response, StatusCode};
use plumb_runtime::types::SandboxId;
use plumb_runtime::{Connection, Error, Runtime, Streaming};
use plumb_spdy::{Incoming, Side, Stream};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use super::super::ServerConfig;
use super::super::answer::Body;
use super::super::query::Query;
use super::super::sessions::{SessionSlot, Sessions};
use super::handshake::{Handshake, Spoken};
use super::spdy::STREAM_TYPE;
use super::tunnel::Tunnel;
use super::{Refused, channels, ready_sandbox, remote, upgrade, websocket};

/// SPDY inside of a `WebSocket`.
const TUNNEL: &str = "SPDY/3.1+portforward.k8s.io";
const BASE64: &str = "v4.base64.channel.k8s.io";
const SPOKEN: Spoken =
    Spoken { websocket: &[TUNNEL, "v4.channel.k8s.io", BASE64], spdy: &["portforward.k8s.io"] };

/// The headers of the streams of a connection.
const PORT: &str = "port";
const REQUEST: &str = "requestid";
/// Connections whose second stream has not come yet; more are refused.
const HALF_OPEN: usize = 64;
/// The ports that a request may name.
const PORTS: usize = 32;
/// How much is read at a time.
const PIECE: usize = 32 << 10;
/// Messages for a connection that does not take them yet.
const READ_AHEAD: usize = 16;

/// Responds with connections to the ports of a pod; or with an error.
pub(in super::super) async fn answer(
    config: &ServerConfig,
    sessions: &Arc<Sessions>,
    (namespace, pod): (&str, &str),
    query: &Query,
    request: &Parts,
) -> Result<Response<Body>, Refused> {
    let found = config.pods.find(namespace, pod).ok_or_else(Refused::no_pod)?;
    let uid = found.metadata.uid.clone().unwrap_or_default();
    let handshake = Handshake::read(&request.headers, SPOKEN)
        .map_err(|why| Refused::new(StatusCode::BAD_REQUEST, format!("unable to upgrade: {why}")))?;
    let sandbox = ready_sandbox(config, (namespace, pod), &uid).await?;
    let slot = Refused::or_slot(sessions, &uid)?;
    let pod = Pod {
        runtime: config.runtime.clone(),
        sessions: sessions.clone(),
        sandbox: sandbox.id,
        name: pod.to_owned(),
        uid,
    };
    let agreed = handshake.clone();
    let ports = match handshake {
        Handshake::WebSocket { protocol, .. } if protocol != TUNNEL => ports(query)?,
        _ => Vec::new(),
    };
    upgrade(request, &handshake, slot, move |io| async move {
        match agreed {
            // It is never agreed on.
            Handshake::Raw => {}
            Handshake::Spdy(_) => pod.serve_spdy(io).await,
            Handshake::WebSocket { protocol: TUNNEL, .. } => {
                pod.serve_spdy(Tunnel::new(websocket(io).await)).await;
            }
            Handshake::WebSocket { protocol, .. } => {
                pod.serve_channels(&ports, protocol == BASE64, websocket(io).await).await;
            }
        }
    })
}

/// The ports that a request names.
fn ports(query: &Query) -> Result<Vec<u16>, Refused> {
    let bad = |why: String| Refused::new(StatusCode::BAD_REQUEST, why);
    let mut ports = Vec::new();
    for text in query.all("port").flat_map(|list| list.split(',')) {
        let number = text.parse::<u16>().ok().filter(|port| *port > 0);
        ports.push(number.ok_or_else(|| bad(format!("invalid port {text:?}")))?);
    }
    if ports.is_empty() || ports.len() > PORTS {
        return Err(bad("query parameter \"port\" is required".to_owned()));
    }
    Ok(ports)
}

/// A pod whose ports are connected to.
struct Pod {
    runtime: Arc<dyn Runtime>,
    sessions: Arc<Sessions>,
    sandbox: SandboxId,
    name: String,
    uid: String,
}

/// Why a port is not forwarded: the client receives the kubelet's message.
#[derive(Debug, thiserror::Error)]
#[error("error forwarding port {port} to pod {name}, uid {uid}: {error}")]
struct ForwardError {
    port: u16,
    name: String,
    uid: String,
    error: Error,
}

/// A connection whose second stream is missing.
#[derive(Default)]
struct HalfOpen {
    error: Option<Stream>,
    data: Option<Stream>,
}

impl Pod {
    /// A connection to a port, with the slot that it is counted by.
    async fn connect(&self, port: u16) -> Result<(Connection, SessionSlot), ForwardError> {
        let failed =
            |error: Error| ForwardError { port, name: self.name.clone(), uid: self.uid.clone(), error };
        let slot = self.sessions.enter(&self.uid);
        let slot =
            slot.ok_or_else(|| failed(Error::FailedPrecondition("too many connections".to_owned())))?;
        let connected = match self.runtime.port_forward(&self.sandbox, port).await {
            Ok(Streaming::Streams(connection)) => Ok(connection),
            Ok(Streaming::Url(url)) => remote::connection(&url, port).await,
            Err(error) => Err(error),
        };
        connected.map(|connection| (connection, slot)).map_err(failed)
    }

    /// Serves a client until it disconnects.
    async fn serve_spdy(&self, io: impl AsyncRead + AsyncWrite + Send) {
        let (_handle, incoming, connection) = plumb_spdy::connect(io, Side::Server);
        tokio::select! {
            ended = connection => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a port-forward ended with an error");
                }
            }
            () = self.accept(incoming) => {}
        }
    }

    /// Pairs the streams of each connection, and forwards it.
    async fn accept(&self, mut incoming: Incoming) {
        let mut half_open: HashMap<String, HalfOpen> = HashMap::new();
        let mut forwards: FuturesUnordered<BoxFuture<'_, ()>> = FuturesUnordered::new();
        loop {
            let stream = tokio::select! {
                stream = incoming.recv() => stream,
                Some(()) = forwards.next() => continue,
            };
            // The connection ends it.
            let Some(stream) = stream else { return };
            let headers = stream.headers();
            let Some(port) =
                headers.get(PORT).and_then(|port| port.parse::<u16>().ok()).filter(|port| *port > 0)
            else {
                tracing::debug!("a stream without a valid port was refused");
                continue;
            };
            let (kind, request) = (headers.get(STREAM_TYPE).unwrap_or_default(), headers.get(REQUEST));
            // A client without numbers opens the streams of one connection after those of another.
            let key = format!("{}/{port}", request.unwrap_or_default());
            let is_data = kind == "data";
            if !half_open.contains_key(&key) && half_open.len() >= HALF_OPEN {
                continue;
            }
            let pair = half_open.entry(key.clone()).or_default();
            if is_data {
                pair.data = Some(stream);
            } else {
                pair.error = Some(stream);
            }
            if let HalfOpen { error: Some(_), data: Some(_) } = pair
                && let Some(HalfOpen { error: Some(error), data: Some(data) }) = half_open.remove(&key)
            {
                forwards.push(Box::pin(self.forward(port, data, error)));
            }
        }
    }

    /// Forwards one connection to its end.
    async fn forward(&self, port: u16, mut data: Stream, mut error: Stream) {
        match self.connect(port).await {
            Ok((mut connection, _slot)) => {
                if let Err(why) = tokio::io::copy_bidirectional(&mut data, &mut connection).await
                    && why.kind() != io::ErrorKind::BrokenPipe
                {
                    tracing::debug!(error = %why, port, "a forwarded connection broke");
                }
            }
            Err(why) => {
                // The client may have disconnected.
                let _ = error.write_all(why.to_string().as_bytes()).await;
                let _ = data.shutdown().await;
            }
        }
        let _ = error.shutdown().await;
    }

    /// Serves a client with one connection for each port until it disconnects or all are closed.
    async fn serve_channels<S>(&self, ports: &[u16], base64: bool, socket: WebSocketStream<S>)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin,
    {
        let (mut to_client, mut from_client) = socket.split();
        let (sender, mut messages) = mpsc::channel::<(u8, Bytes)>(READ_AHEAD);
        let mut inputs = Vec::new();
        let mut forwards: FuturesUnordered<BoxFuture<'_, ()>> = FuturesUnordered::new();
        for (index, port) in ports.iter().enumerate() {
            let (input, typed) = mpsc::channel(READ_AHEAD);
            inputs.push(Some(input));
            // There are at most [`PORTS`].
            let channel = u8::try_from(2 * index).unwrap_or(u8::MAX);
            forwards.push(Box::pin(self.forward_channel(*port, channel, typed, sender.clone())));
        }
        drop(sender);
        let talk = async {
            let forward = async { while forwards.next().await.is_some() {} };
            let deliver = async {
                while let Some((channel, data)) = messages.recv().await {
                    if send(&mut to_client, base64, channel, &data).await.is_err() {
                        return;
                    }
                }
                let _ = to_client.send(Message::Close(None)).await;
            };
            tokio::join!(forward, deliver);
        };
        let listen = async {
            while let Some(Ok(message)) = from_client.next().await {
                if let Message::Close(_) = message {
                    return;
                }
                let decoded = channels::decoded(base64, message);
                let Some(mut data) = decoded.filter(|bytes| !bytes.is_empty()) else { continue };
                let channel = data.split_to(1)[0];
                // Only the even channels carry data.
                if channel.is_multiple_of(2)
                    && let Some(slot) = inputs.get_mut(usize::from(channel / 2))
                    && let Some(input) = slot
                    && input.send(data).await.is_err()
                {
                    *slot = None;
                }
            }
        };
        tokio::select! {
            () = talk => {}
            () = listen => {}
        }
    }

    async fn forward_channel(
        &self,
        port: u16,
        channel: u8,
        mut typed: mpsc::Receiver<Bytes>,
        to_client: mpsc::Sender<(u8, Bytes)>,
    ) {
        let number = Bytes::copy_from_slice(&port.to_le_bytes());
        for channel in [channel, channel + 1] {
            if to_client.send((channel, number.clone())).await.is_err() {
                return;
            }
        }
        let (connection, _slot) = match self.connect(port).await {
            Ok(connected) => connected,
            Err(why) => return drop(to_client.send((channel + 1, why.to_string().into())).await),
        };
        let (mut from, mut to) = tokio::io::split(connection);
        let write = async {
            while let Some(bytes) = typed.recv().await {
                if to.write_all(&bytes).await.is_err() {
                    break;
                }
            }
            std::future::pending::<()>().await;
        };
        let read = async {
            let mut piece = vec![0; PIECE];
            while let Ok(length @ 1..) = from.read(&mut piece).await {
                if to_client.send((channel, Bytes::copy_from_slice(&piece[..length]))).await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            () = read => {}
            () = write => {}
        }
    }
}

/// Sends a piece of a channel.
async fn send<S: AsyncRead + AsyncWrite + Unpin>(
    to_client: &mut SplitSink<WebSocketStream<S>, Message>,
    base64: bool,
    channel: u8,
    data: &[u8],
) -> Result<(), tokio_tungstenite::tungstenite::Error> {
    to_client.send(channels::encoded(base64, [&[channel], data].concat().into())).await
}
