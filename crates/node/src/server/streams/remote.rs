//! Streams at the streaming server of a runtime, as runtimes behind a CRI socket have one: SPDY after an upgrade.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, HOST, UPGRADE};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use plumb_runtime::{AttachRequest, Connection, Error, Execution, Result, TerminalSize};
use plumb_spdy::{Handle, Headers, Side, Stream};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;

use super::handshake::{SPDY, STREAM_PROTOCOL};

/// How long a streaming server may take to answer.
const ANSWER: Duration = Duration::from_secs(30);
/// How much of a refusal, or of a status, is read.
const LONGEST_ANSWER: usize = 64 << 10;
/// The capacity for data on the way to or from a client.
const BUFFER: usize = 64 << 10;

fn failed(error: impl ToString) -> Error {
    Error::failed("connecting to the runtime's streaming server", error)
}

/// An upgraded connection to a streaming server.
async fn upgraded(url: &str, protocol: &'static str) -> Result<TokioIo<Upgraded>> {
    let uri: Uri = url.parse().map_err(failed)?;
    let authority = uri.authority().filter(|_| uri.scheme_str() == Some("http"));
    let authority = authority.ok_or_else(|| failed(format!("unsupported URL {url:?}")))?;
    let host = authority.host().trim_matches(['[', ']']);
    let stream = TcpStream::connect((host, authority.port_u16().unwrap_or(80))).await.map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    // It ends with the connection that it was upgraded to.
    tokio::spawn(connection.with_upgrades());
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let request = Request::builder()
        .method(Method::POST)
        .uri(path)
        .header(HOST, authority.as_str())
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, SPDY)
        .header(STREAM_PROTOCOL, protocol)
        .body(Empty::<Bytes>::new())
        .map_err(failed)?;
    let response = sender.send_request(request).await.map_err(failed)?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        let code = response.status();
        let body = Limited::new(response.into_body(), LONGEST_ANSWER).collect().await;
        let body =
            body.map(|body| String::from_utf8_lossy(&body.to_bytes()).into_owned()).unwrap_or_default();
        return Err(failed(format!("{code}: {}", body.trim())));
    }
    Ok(TokioIo::new(hyper::upgrade::on(response).await.map_err(failed)?))
}

async fn connected(url: &str, protocol: &'static str) -> Result<TokioIo<Upgraded>> {
    let late = |_| Error::DeadlineExceeded("the runtime's streaming server does not answer".to_owned());
    timeout(ANSWER, upgraded(url, protocol)).await.map_err(late)?
}

/// Opens the streams of a client, each by its type.
async fn open(handle: &Handle, wanted: AttachRequest) -> io::Result<[Option<Stream>; 5]> {
    let AttachRequest { stdin, stdout, stderr, tty } = wanted;
    let mut all = [const { None }; 5];
    let kinds = [(true, "error"), (stdin, "stdin"), (stdout, "stdout"), (stderr, "stderr"), (tty, "resize")];
    for (own, (_, kind)) in all.iter_mut().zip(kinds).filter(|(_, (wanted, _))| *wanted) {
        *own = Some(handle.open([("streamType", kind)].into_iter().collect()).await?);
    }
    Ok(all)
}

/// A command, or a container to attach to, at a streaming server.
pub(super) async fn execution(url: &str, wanted: AttachRequest) -> Result<Execution> {
    let io = connected(url, "v4.channel.k8s.io").await?;
    let (handle, incoming, connection) = plumb_spdy::connect(io, Side::Client);
    // A server opens no streams.
    drop(incoming);
    let mut connection = Box::pin(connection);
    let opened = tokio::select! {
        opened = open(&handle, wanted) => opened.map_err(failed)?,
        ended = &mut connection => return Err(failed(ended.err().map_or("it disconnected".to_owned(), |error| error.to_string()))),
    };
    let half = |stream: Option<Stream>| stream.map(Stream::split).unzip();
    let [error, stdin, stdout, stderr, resize] = opened.map(half);
    let (mut errors, (_, typed), sizes) = (error.0, stdin, resize.1);
    // Dropped, they would reset their streams, and lose what the server sends on them.
    let unused = (error.1, stdout.1, stderr.1);
    let pipe = |reader: Option<plumb_spdy::Reader>| reader.map(|reader| (reader, tokio::io::duplex(BUFFER)));
    let (printed, out) = pipe(stdout.0).map(|(reader, (ours, theirs))| ((reader, ours), theirs)).unzip();
    let (complaints, err) = pipe(stderr.0).map(|(reader, (ours, theirs))| ((reader, ours), theirs)).unzip();
    let (set_size, size) = watch::channel(None);
    let ended = async move {
        let status = async {
            let mut text = Vec::new();
            if let Some(errors) = &mut errors {
                // The exit status is unknown if the connection broke off.
                let _ = errors.take(LONGEST_ANSWER as u64).read_to_end(&mut text).await;
            }
            text
        };
        let streams = async { tokio::join!(status, pass(printed), pass(complaints)).0 };
        let mut streams = Box::pin(streams);
        let text = tokio::select! {
            text = &mut streams => text,
            // Data that was received before is read.
            _ = connection => streams.await,
            never = resizes(sizes, size) => match never {},
        };
        drop((handle, unused));
        outcome(&text)
    };
    Ok(Execution {
        stdin: typed.map(|writer| Box::new(writer) as _),
        stdout: out.map(|reader| Box::new(reader) as _),
        stderr: err.map(|reader| Box::new(reader) as _),
        resize: wanted.tty.then(|| {
            let resize = move |size: TerminalSize| {
                set_size.send_replace(Some(size));
                Ok(())
            };
            Box::new(resize) as _
        }),
        ended: Box::pin(ended),
    })
}

/// Passes on what comes over a stream until it ends.
async fn pass(stream: Option<(impl AsyncRead + Unpin, impl AsyncWrite + Unpin)>) {
    if let Some((mut from, mut to)) = stream {
        // The client may not read any more.
        let _ = tokio::io::copy(&mut from, &mut to).await;
    }
}

/// Sends each size of the terminal.
async fn resizes(
    mut to: Option<impl AsyncWrite + Unpin>,
    mut size: watch::Receiver<Option<TerminalSize>>,
) -> std::convert::Infallible {
    while let (Some(stream), Ok(())) = (&mut to, size.changed().await) {
        let Some(TerminalSize { columns, rows }) = *size.borrow_and_update() else { continue };
        let text = json!({ "Width": columns, "Height": rows }).to_string();
        if stream.write_all(text.as_bytes()).await.is_err() {
            break;
        }
    }
    std::future::pending().await
}

/// The exit code in a `Status`.
fn outcome(text: &[u8]) -> Result<i32> {
    let status: Value = serde_json::from_slice(text).unwrap_or_default();
    if status["status"] == "Success" {
        return Ok(0);
    }
    let causes = status.pointer("/details/causes").and_then(Value::as_array);
    let mut causes = causes.into_iter().flatten();
    let code = causes.find(|cause| cause["reason"] == "ExitCode");
    if let Some(code) = code.and_then(|code| code["message"].as_str()?.parse().ok()) {
        return Ok(code);
    }
    match status["message"].as_str() {
        Some(message) => Err(Error::failed("streaming", message)),
        None => Err(Error::Unavailable("the runtime's streaming server disconnected".to_owned())),
    }
}

/// A connection to a port at a streaming server.
pub(super) async fn connection(url: &str, port: u16) -> Result<Connection> {
    let io = connected(url, "portforward.k8s.io").await?;
    let (ours, mut theirs) = tokio::io::duplex(BUFFER);
    // It ends when the other end of the pipe is dropped, or the server disconnects.
    tokio::spawn(async move {
        let (handle, incoming, connection) = plumb_spdy::connect(io, Side::Client);
        drop(incoming);
        let forward = async {
            let number = port.to_string();
            let headers = |kind: &str| -> Headers {
                [("streamType", kind), ("port", &number), ("requestID", "0")].into_iter().collect()
            };
            let (errors, mut error_writer) = handle.open(headers("error")).await?.split();
            error_writer.shutdown().await?;
            let mut data = handle.open(headers("data")).await?;
            tokio::io::copy_bidirectional(&mut data, &mut theirs).await?;
            let mut text = String::new();
            errors.take(LONGEST_ANSWER as u64).read_to_string(&mut text).await?;
            if text.is_empty() { Ok(()) } else { Err(io::Error::other(text)) }
        };
        let ended = tokio::select! {
            forwarded = forward => forwarded,
            ended = connection => ended,
        };
        if let Err(error) = ended {
            tracing::debug!(%error, port, "a connection of the runtime's streaming server ended with an error");
        }
    });
    Ok(Box::new(ours))
}
