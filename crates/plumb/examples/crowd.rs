//! Many clients of one API server at once, for `bench/compare`: over HTTP/2 and TLS, as fast as the server lets them.
//!
//! `crowd watch` has a thousand watchers of one namespace and says how long a change takes to reach the last of
//! them; `crowd fill` makes many objects. Both print one line of JSON.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a measurement that cannot be made has failed")]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::{Args, Parser, Subcommand};
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// A namespace with nothing in it but what is watched.
const WATCHED: &str = "/api/v1/namespaces/crowd/configmaps";

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    server: Server,
    #[command(subcommand)]
    what: What,
}

#[derive(Args)]
struct Server {
    /// Where it listens.
    #[arg(long)]
    address: SocketAddr,
    /// The certificate of its authority.
    #[arg(long)]
    ca: PathBuf,
    /// A token that may do everything.
    #[arg(long)]
    token: String,
    /// Over how many connections to ask.
    #[arg(long, default_value_t = 10)]
    connections: usize,
}

#[derive(Subcommand)]
enum What {
    /// Watches and changes.
    Watch {
        #[arg(long, default_value_t = 1_000)]
        watchers: usize,
        #[arg(long, default_value_t = 50)]
        events: usize,
    },
    /// Makes objects.
    Fill {
        #[arg(long, default_value_t = 100_000)]
        objects: usize,
        /// Where they are made.
        #[arg(long, default_value = MAPS)]
        path: String,
        /// What they are, in JSON; each gets a name of its own. [default: config maps of 1 KiB]
        #[arg(long, value_parser = |text: &str| serde_json::from_str::<Value>(text))]
        body: Option<Value>,
        /// How many are asked for at once.
        #[arg(long, default_value_t = 64)]
        at_once: usize,
    },
}

#[derive(Clone)]
struct Connection {
    sender: http2::SendRequest<Full<Bytes>>,
    bearer: Arc<str>,
}

impl Server {
    async fn connect(&self) -> Connection {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&self.ca).unwrap()).unwrap();
        let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let stream = TcpStream::connect(self.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let name = ServerName::from(self.address.ip());
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.initial_connection_window_size(16 << 20).initial_stream_window_size(1 << 20);
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(async move { drop(connection.await) });
        Connection { sender, bearer: format!("Bearer {}", self.token).into() }
    }

    async fn connect_all(&self) -> Vec<Connection> {
        let mut all = Vec::new();
        for _ in 0..self.connections {
            all.push(self.connect().await);
        }
        all
    }
}

impl Connection {
    async fn send(&self, method: Method, path: &str, media: &str, body: String) -> Response<Incoming> {
        let request = Request::builder()
            .method(method)
            .uri(format!("https://localhost{path}"))
            .header("authorization", &*self.bearer)
            .header("content-type", media)
            .body(Full::new(Bytes::from(body)))
            .unwrap();
        let mut sender = self.sender.clone();
        sender.ready().await.unwrap();
        sender.send_request(request).await.unwrap()
    }

    /// Sends a request that is to go well; again while the server says that it is busy.
    async fn ask(&self, method: Method, path: &str, media: &str, body: String) {
        loop {
            let response = self.send(method.clone(), path, media, body.clone()).await;
            let status = response.status();
            let answer = response.into_body().collect().await.unwrap().to_bytes();
            if status != 429 {
                assert!(status.is_success(), "{status} {}", String::from_utf8_lossy(&answer));
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[tokio::main]
async fn main() {
    plumb_apiserver::serve::install_crypto();
    let cli = Cli::parse();
    match cli.what {
        What::Watch { watchers, events } => watch(&cli.server, watchers, events).await,
        What::Fill { objects, path, body, at_once } => {
            let body = body.unwrap_or_else(
                || json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": { "k": "v".repeat(1024) } }),
            );
            fill(&cli.server, objects, &path, &body, at_once).await;
        }
    }
}

/// How long a change takes from the moment it is asked for, and from the moment it is acknowledged, until the last
/// byte of it has reached the last watcher.
async fn watch(server: &Server, watchers: usize, events: usize) {
    let connections = server.connect_all().await;
    let writer = server.connect().await;
    let object = |kind: &str, name: &str| {
        json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": name } }).to_string()
    };
    for (path, body) in
        [("/api/v1/namespaces", object("Namespace", "crowd")), (WATCHED, object("ConfigMap", "one"))]
    {
        // It may be there from an earlier round.
        drop(writer.send(Method::POST, path, "application/json", body).await);
    }

    let waited = Arc::new(AtomicUsize::new(watchers));
    let (reached, mut all) = mpsc::unbounded_channel::<Instant>();
    for watcher in 0..watchers {
        let connection = connections[watcher % connections.len()].clone();
        let (waited, reached) = (waited.clone(), reached.clone());
        tokio::spawn(async move {
            let path = format!("{WATCHED}?watch=1&resourceVersion=0");
            let response = connection.send(Method::GET, &path, "", String::new()).await;
            assert!(response.status().is_success(), "{}", response.status());
            let mut body = response.into_body();
            let mut rest: Vec<u8> = Vec::new();
            while let Some(Ok(frame)) = body.frame().await {
                rest.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
                while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                    rest.drain(..=end);
                    // The first line is the object as it is; each one after that is a change.
                    if waited.fetch_sub(1, Ordering::AcqRel) == 1 {
                        let _ = reached.send(Instant::now());
                    }
                }
            }
        });
    }
    tokio::time::timeout(Duration::from_mins(2), all.recv()).await.expect("all watchers begin");

    let (mut from_asked, mut from_answered) = (Vec::new(), Vec::new());
    for event in 1..=events {
        waited.store(watchers, Ordering::Release);
        let patch = json!({ "data": { "k": event.to_string() } }).to_string();
        let asked = Instant::now();
        writer.ask(Method::PATCH, &format!("{WATCHED}/one"), "application/merge-patch+json", patch).await;
        let answered = Instant::now();
        let last = tokio::time::timeout(Duration::from_mins(1), all.recv()).await;
        let last = last.expect("every watcher is notified").unwrap();
        from_asked.push((last - asked).as_secs_f64() * 1e3);
        from_answered.push(last.saturating_duration_since(answered).as_secs_f64() * 1e3);
    }
    let summary = |values: &mut Vec<f64>| {
        values.sort_by(f64::total_cmp);
        json!({ "p50": values[values.len() / 2], "p90": values[values.len() * 9 / 10], "max": values.last() })
    };
    println!(
        "{}",
        json!({ "watchers": watchers, "events": events,
            "asked_to_last_ms": summary(&mut from_asked), "answered_to_last_ms": summary(&mut from_answered) })
    );
}

async fn fill(server: &Server, objects: usize, path: &str, body: &Value, at_once: usize) {
    let connections = server.connect_all().await;
    let next = Arc::new(AtomicUsize::new(0));
    let started = Instant::now();
    let writers: Vec<_> = (0..at_once)
        .map(|writer| {
            let (connection, next) = (connections[writer % connections.len()].clone(), next.clone());
            let (path, mut body) = (path.to_owned(), body.clone());
            tokio::spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= objects {
                        return;
                    }
                    body["metadata"]["name"] = json!(format!("filled-{number}"));
                    connection.ask(Method::POST, &path, "application/json", body.to_string()).await;
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    println!("{}", json!({ "objects": objects, "seconds": started.elapsed().as_secs_f64() }));
}
