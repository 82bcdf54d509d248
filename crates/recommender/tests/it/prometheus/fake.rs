//! An HTTP server that answers as a test says.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use percent_encoding::percent_decode_str;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// A request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) path: String,
    headers: BTreeMap<String, String>,
    fields: BTreeMap<String, String>,
}

impl Asked {
    /// A field of the form, or of the URL.
    pub(crate) fn field(&self, name: &str) -> String {
        self.fields.get(name).cloned().unwrap_or_default()
    }

    pub(crate) fn header(&self, name: &str) -> Option<String> {
        self.headers.get(name).cloned()
    }
}

/// What is answered.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    status: u16,
    body: String,
    /// How much of the body is sent before the connection is closed.
    sent: Option<usize>,
    never: bool,
    /// It is answered once this is closed.
    gate: Option<Arc<Semaphore>>,
}

impl Reply {
    pub(crate) fn ok(body: &Value) -> Self {
        Self::with(200, &body.to_string())
    }

    pub(crate) fn with(status: u16, body: &str) -> Self {
        Self { status, body: body.to_owned(), sent: None, never: false, gate: None }
    }

    /// The connection is closed without an answer.
    pub(crate) fn broken() -> Self {
        Self { status: 0, ..Self::with(0, "") }
    }

    pub(crate) fn never() -> Self {
        Self { never: true, ..Self::with(200, "") }
    }

    /// The answer waits until a gate is closed.
    pub(crate) fn after(self, gate: &Arc<Semaphore>) -> Self {
        Self { gate: Some(gate.clone()), ..self }
    }

    /// The connection is closed in the middle of the answer.
    pub(crate) fn cut_short(self) -> Self {
        Self { sent: Some(self.body.len() / 2), ..self }
    }
}

type Script = Arc<dyn Fn(&Asked) -> Reply + Send + Sync>;

/// The server.
pub(crate) struct Fake {
    pub(crate) address: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    _serving: JoinSet<()>,
}

impl Fake {
    pub(crate) async fn start(script: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (script, log): (Script, _) = (Arc::new(script), asked.clone());
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (script, log) = (script.clone(), log.clone());
                connections.spawn(async move { serve(stream, &script, &log).await });
            }
        });
        Self { address, asked, _serving: serving }
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

/// Answers the one request of a connection.
async fn serve(stream: TcpStream, script: &Script, log: &Mutex<Vec<Asked>>) {
    let mut stream = BufReader::new(stream);
    let asked = read(&mut stream).await;
    let reply = script(&asked);
    log.lock().unwrap().push(asked);
    if reply.never {
        std::future::pending::<()>().await;
    }
    if let Some(gate) = reply.gate {
        assert!(gate.acquire().await.is_err(), "a gate has no permits");
    }
    if reply.status == 0 {
        return;
    }
    let head = format!(
        "HTTP/1.1 {} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        reply.status,
        reply.body.len()
    );
    let body = &reply.body.as_bytes()[..reply.sent.unwrap_or(reply.body.len())];
    // The client may have gone away.
    let _ = stream.write_all(&[head.as_bytes(), body].concat()).await;
    let _ = stream.shutdown().await;
}

async fn read(stream: &mut BufReader<TcpStream>) -> Asked {
    let mut line = String::new();
    stream.read_line(&mut line).await.unwrap();
    let mut words = line.split_whitespace();
    let mut asked = Asked { method: words.next().unwrap_or_default().to_owned(), ..Asked::default() };
    let (path, query) = words.next().unwrap_or_default().split_once('?').unzip();
    asked.path =
        path.map_or_else(|| line.split_whitespace().nth(1).unwrap_or_default().to_owned(), str::to_owned);
    loop {
        let mut header = String::new();
        stream.read_line(&mut header).await.unwrap();
        let Some((name, value)) = header.trim_end().split_once(": ") else { break };
        asked.headers.insert(name.to_lowercase(), value.to_owned());
    }
    let length = asked.header("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    let body = String::from_utf8(body).unwrap();
    for field in query.unwrap_or(&body).split('&') {
        let (name, value) = field.split_once('=').unwrap_or((field, ""));
        asked.fields.insert(name.to_owned(), percent_decode_str(value).decode_utf8().unwrap().into_owned());
    }
    asked
}
