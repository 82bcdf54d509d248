//! exec, attach, port-forward and proxies over the wire, with real containers: `WebSocket`s and SPDY, as clients speak them.

use std::convert::Infallible;
use std::net::Ipv4Addr;

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams};
use nix::sched::{CloneFlags, setns};
use plumb_spdy::{Handle, Headers, Side, Stream};
use plumb_testkit::eventually;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::cluster::Cluster;
use super::exec::{runs, start_with};
use super::nodes::machine::{Machine, pods, until};
use super::wire::{Speech, soon};

const WEB: &str = "/api/v1/namespaces/default/pods/web";

/// Sends a request that upgrades its connection; answers with the head of the response, and the connection.
pub(super) async fn upgrade(
    cluster: &Cluster,
    (method, path): (&str, &str),
    headers: &str,
) -> (String, TlsStream<TcpStream>) {
    let wire = cluster.wire();
    let mut stream = wire.raw(Speech::Http1).await.unwrap();
    let token = &wire.token;
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\
         Connection: Upgrade\r\n{headers}\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(soon(stream.read_u8()).await.unwrap());
    }
    (String::from_utf8(head).unwrap(), stream)
}

pub(super) async fn websocket(
    cluster: &Cluster,
    path: &str,
    protocol: &str,
) -> WebSocketStream<TlsStream<TcpStream>> {
    let headers = format!(
        "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         Sec-WebSocket-Protocol: {protocol}\r\n"
    );
    let (head, stream) = upgrade(cluster, ("GET", path), &headers).await;
    assert!(head.starts_with("HTTP/1.1 101 ") && head.contains(protocol), "{head}");
    WebSocketStream::from_raw_socket(stream, Role::Client, None).await
}

/// The client's side of SPDY, which runs for as long as the runtime of the test does.
pub(super) async fn spdy(
    cluster: &Cluster,
    path: &str,
    protocol: &str,
) -> (Handle, tokio::task::JoinHandle<()>) {
    let headers =
        format!("Upgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: {protocol}\r\nContent-Length: 0\r\n");
    let (head, stream) = upgrade(cluster, ("POST", path), &headers).await;
    assert!(head.starts_with("HTTP/1.1 101 ") && head.contains(protocol), "{head}");
    running(stream)
}

fn running(
    io: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + 'static,
) -> (Handle, tokio::task::JoinHandle<()>) {
    let (handle, incoming, connection) = plumb_spdy::connect(io, Side::Client);
    drop(incoming);
    (handle, tokio::spawn(async move { drop(connection.await) }))
}

pub(super) async fn open(handle: &Handle, headers: &[(&str, &str)]) -> Stream {
    handle.open(headers.iter().copied().collect::<Headers>()).await.unwrap()
}

pub(super) async fn text(stream: Stream) -> String {
    let mut text = String::new();
    let (mut reader, _writer) = stream.split();
    soon(reader.read_to_string(&mut text)).await.unwrap();
    text
}

/// What comes on a channel until it contains this.
pub(super) async fn until_received(
    socket: &mut WebSocketStream<TlsStream<TcpStream>>,
    channel: u8,
    expected: &str,
) {
    let mut received = String::new();
    while !received.contains(expected) {
        let message =
            soon(socket.next()).await.unwrap_or_else(|| panic!("closed after {received:?}")).unwrap();
        let data = message.into_data();
        if data.first() == Some(&channel) {
            received.push_str(&String::from_utf8_lossy(&data[1..]));
        }
    }
}

/// Has something listen inside of the only pod of a machine.
pub(super) fn listen(machine: &Machine, address: Ipv4Addr) -> TcpListener {
    let sandboxes = machine.data().join("runtime/sandboxes");
    let sandbox = std::fs::read_dir(sandboxes).unwrap().next().unwrap().unwrap().path();
    let inside = std::thread::spawn(move || {
        setns(std::fs::File::open(sandbox.join("net")).unwrap(), CloneFlags::CLONE_NEWNET).unwrap();
        std::net::TcpListener::bind((address, 0)).unwrap()
    });
    let listener = inside.join().unwrap();
    listener.set_nonblocking(true).unwrap();
    TcpListener::from_std(listener).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_and_containers_are_streamed_over_websockets_and_spdy() {
    let Some(machine) = Machine::here() else { return };
    let cluster = machine.start(&[]);
    let script = "while read line; do echo got $line; done; echo end";
    start_with(&cluster, json!({ "command": ["sh", "-c", script], "stdin": true })).await;

    // A command over SPDY, to its exit code.
    let command = "cat; echo lost >&2; exit 7"
        .replace(' ', "%20")
        .replace(';', "%3B")
        .replace('>', "%3E")
        .replace('&', "%26");
    let path =
        format!("{WEB}/exec?command=sh&command=-c&command={command}&stdin=true&stdout=true&stderr=true");
    let (handle, connection) = spdy(&cluster, &path, "v4.channel.k8s.io").await;
    let error = open(&handle, &[("streamType", "error")]).await;
    let mut stdin = open(&handle, &[("streamType", "stdin")]).await;
    let stdout = open(&handle, &[("streamType", "stdout")]).await;
    let stderr = open(&handle, &[("streamType", "stderr")]).await;
    let large = "x".repeat(300_000);
    let typing = async {
        stdin.write_all(large.as_bytes()).await.unwrap();
        stdin.shutdown().await.unwrap();
    };
    let (received, ()) = tokio::join!(text(stdout), typing);
    assert!(received == large, "{} bytes", received.len());
    assert_eq!(text(stderr).await, "lost\n");
    let status: Value = serde_json::from_str(&text(error).await).unwrap();
    assert_eq!(status["details"]["causes"][0], json!({ "reason": "ExitCode", "message": "7" }));
    connection.abort();

    // The container itself over a WebSocket, twice: its input is not once.
    let path = format!("{WEB}/attach?container=main&stdin=true&stdout=true&stderr=true");
    for (line, message) in [
        ("a", Message::binary(b"\0a\n".to_vec())),
        // `write_stdin("b\n")` of Python's client is a text frame.
        ("b", Message::text("\0b\n")),
    ] {
        let mut socket = websocket(&cluster, &path, "v5.channel.k8s.io").await;
        socket.send(message).await.unwrap();
        until_received(&mut socket, 1, &format!("got {line}\n")).await;
        // Types no more: then it is detached.
        socket.send(Message::binary(vec![255, 0])).await.unwrap();
        until_received(&mut socket, 3, "Success").await;
    }
    // And over SPDY.
    let (handle, connection) = spdy(&cluster, &path, "v4.channel.k8s.io").await;
    let _error = open(&handle, &[("streamType", "error")]).await;
    let mut stdin = open(&handle, &[("streamType", "stdin")]).await;
    let mut stdout = open(&handle, &[("streamType", "stdout")]).await;
    let _stderr = open(&handle, &[("streamType", "stderr")]).await;
    stdin.write_all(b"c\n").await.unwrap();
    let mut received = [0; 6];
    soon(stdout.read_exact(&mut received)).await.unwrap();
    assert_eq!(&received, b"got c\n");
    connection.abort();

    // A client that is gone takes its command with it, though the command reads nothing of what was typed.
    let path = format!("{WEB}/exec?command=sleep&command=86397&stdin=true&stdout=true");
    let mut socket = websocket(&cluster, &path, "v5.channel.k8s.io").await;
    for _ in 0..10 {
        socket.send(Message::binary([vec![0], vec![b'x'; 20_000]].concat())).await.unwrap();
    }
    super::nodes::machine::soon("started", || runs("86397")).await;
    drop(socket);
    super::nodes::machine::soon("ended", || !runs("86397")).await;
    drop(cluster);
    machine.clear();
}

#[tokio::test(flavor = "multi_thread")]
async fn ports_of_a_pod_are_forwarded_and_closed_with_the_client() {
    let Some(machine) = Machine::here() else { return };
    let cluster = machine.start(&[]);
    start_with(&cluster, json!({})).await;
    let listener = listen(&machine, Ipv4Addr::LOCALHOST);
    let port = listener.local_addr().unwrap().port();
    let number = port.to_string();
    // Answers with what it received, in brackets, until the other side is done.
    let (gone, mut ended) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let gone = gone.clone();
            tokio::spawn(async move {
                let mut piece = [0; 64];
                while let Ok(length @ 1..) = stream.read(&mut piece).await {
                    let answer = [b"<", &piece[..length], b">"].concat();
                    stream.write_all(&answer).await.unwrap();
                }
                gone.send(()).unwrap();
            });
        }
    });
    let path = format!("{WEB}/portforward");
    // SPDY, and the same inside of a WebSocket, as kubectl does it.
    let socket = websocket(&cluster, &path, "SPDY/3.1+portforward.k8s.io").await;
    for (handle, connection) in
        [spdy(&cluster, &path, "portforward.k8s.io").await, running(tunnel::Tunnel::new(socket))]
    {
        for request in ["0", "1"] {
            let headers = |kind| [("streamType", kind), ("port", number.as_str()), ("requestID", request)];
            let mut error = open(&handle, &headers("error")).await;
            error.shutdown().await.unwrap();
            let mut data = open(&handle, &headers("data")).await;
            data.write_all(b"hi").await.unwrap();
            let mut received = [0; 4];
            soon(data.read_exact(&mut received)).await.unwrap();
            assert_eq!(&received, b"<hi>");
            data.shutdown().await.unwrap();
            assert_eq!(text(data).await, "");
            soon(ended.recv()).await.unwrap();
        }
        // A port at which nothing listens.
        let headers = |kind| [("streamType", kind), ("port", "1"), ("requestID", "2")];
        let error = open(&handle, &headers("error")).await;
        let data = open(&handle, &headers("data")).await;
        let why = text(error).await;
        assert!(why.contains("error forwarding port 1 to pod web") && why.contains("refused"), "{why}");
        assert_eq!(text(data).await, "");
        // Killed in the middle: the pod's end of the connection is closed.
        let headers = |kind| [("streamType", kind), ("port", number.as_str()), ("requestID", "3")];
        let _error = open(&handle, &headers("error")).await;
        let mut data = open(&handle, &headers("data")).await;
        data.write_all(b"x").await.unwrap();
        soon(data.read_exact(&mut [0; 3])).await.unwrap();
        connection.abort();
        soon(ended.recv()).await.unwrap();
    }
    // Channels, whose ports are in the query.
    let mut socket = websocket(&cluster, &format!("{path}?ports={port}"), "v4.channel.k8s.io").await;
    for channel in [0, 1] {
        let first = soon(socket.next()).await.unwrap().unwrap().into_data();
        assert_eq!(first[..], [&[channel][..], &port.to_le_bytes()].concat());
    }
    socket.send(Message::binary(b"\0hi".to_vec())).await.unwrap();
    until_received(&mut socket, 0, "<hi>").await;
    // The same in a text frame, as some clients send it.
    socket.send(Message::text("\0ho")).await.unwrap();
    until_received(&mut socket, 0, "<ho>").await;
    drop(socket);
    soon(ended.recv()).await.unwrap();
    drop(cluster);
    machine.clear();
}

mod tunnel {
    //! A client's end of bytes inside of a `WebSocket`.

    use std::io;

    use futures_util::{SinkExt as _, StreamExt as _};
    use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream};
    use tokio_tungstenite::WebSocketStream;
    use tokio_tungstenite::tungstenite::Message;

    pub(super) struct Tunnel;

    impl Tunnel {
        /// The byte stream; it ends when it is dropped.
        #[expect(clippy::new_ret_no_self, reason = "it is the other end of a pipe")]
        pub(super) fn new<S>(socket: WebSocketStream<S>) -> DuplexStream
        where
            S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
        {
            let (ours, theirs) = tokio::io::duplex(1 << 16);
            tokio::spawn(async move {
                let (mut to, mut from) = socket.split();
                let (mut read, mut write) = tokio::io::split(theirs);
                let send = async {
                    let mut piece = vec![0; 1 << 15];
                    while let length @ 1.. = read.read(&mut piece).await? {
                        let message = Message::binary(piece[..length].to_vec());
                        to.send(message).await.map_err(io::Error::other)?;
                    }
                    Ok::<_, io::Error>(())
                };
                let receive = async {
                    while let Some(Ok(message)) = from.next().await {
                        if write.write_all(&message.into_data()).await.is_err() {
                            return;
                        }
                    }
                };
                tokio::select! {
                    _ = send => {}
                    () = receive => {}
                }
            });
            ours
        }
    }
}

/// What a pod serves: its own request, a redirect, or an upgrade.
async fn serve(mut request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut response = Response::new(Full::default());
    match request.uri().path() {
        "/page" => {
            response.headers_mut().insert("content-type", "text/html; charset=utf-8".parse().unwrap());
            *response.body_mut() = Full::from("<a href=\"/there\">there</a>");
        }
        "/redirect" => {
            *response.status_mut() = StatusCode::FOUND;
            response.headers_mut().insert("location", "/there?a=b".parse().unwrap());
        }
        "/upgrade" => {
            *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            response.headers_mut().insert("upgrade", "echo".parse().unwrap());
            response.headers_mut().insert("connection", "Upgrade".parse().unwrap());
            let upgraded = hyper::upgrade::on(&mut request);
            tokio::spawn(async move {
                let (mut from, mut to) = tokio::io::split(TokioIo::new(upgraded.await.unwrap()));
                tokio::io::copy(&mut from, &mut to).await
            });
        }
        _ => {
            let header =
                |name: &str| request.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
            let mut seen = json!({
                "method": request.method().as_str(),
                "target": request.uri().to_string(),
                "forwarded": header("x-forwarded-uri"),
                "from": header("x-forwarded-for"),
                "authorization": header("authorization"),
                "own": header("x-own"),
            });
            seen["body"] =
                String::from_utf8(request.into_body().collect().await.unwrap().to_bytes().to_vec())
                    .unwrap()
                    .into();
            response.headers_mut().insert("x-answer", "yes".parse().unwrap());
            response.headers_mut().insert("access-control-allow-origin", "*".parse().unwrap());
            *response.body_mut() = Full::from(seen.to_string());
        }
    }
    Ok(response)
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_and_services_are_proxied_to() {
    let Some(machine) = Machine::here() else { return };
    let cluster = machine.start(&[]);
    start_with(&cluster, json!({})).await;
    let listener = listen(&machine, Ipv4Addr::UNSPECIFIED);
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(serve));
            tokio::spawn(connection.with_upgrades());
        }
    });
    let connection = cluster.wire().connect(Speech::Http1).await;
    let base = format!("{WEB}:{port}/proxy");
    let request = Request::post(format!("{base}/a%2Fb/?c=d"))
        .header("x-own", "mine")
        .body(Full::from("content"))
        .unwrap();
    let response = soon(connection.send(request)).await.unwrap();
    assert_eq!(response.headers()["x-answer"], "yes");
    assert!(!response.headers().contains_key("access-control-allow-origin"));
    let seen: Value =
        serde_json::from_slice(&response.into_body().collect().await.unwrap().to_bytes()).unwrap();
    assert_eq!(
        seen,
        json!({ "method": "POST", "target": "/a%2Fb/?c=d", "forwarded": format!("{base}/a%2Fb/"), "from": "127.0.0.1",
                "authorization": null, "own": "mine", "body": "content" })
    );
    let ask = |method: Method, path: String| {
        let connection = connection.clone();
        async move {
            soon(connection.send(Request::builder().method(method).uri(path).body(Full::default()).unwrap()))
                .await
                .unwrap()
        }
    };
    let root = ask(Method::GET, format!("{base}?a=b")).await;
    assert_eq!(
        (root.status().as_u16(), &root.headers()["location"]),
        (301, &format!("{base}/?a=b").parse::<http::HeaderValue>().unwrap())
    );
    let redirect = ask(Method::GET, format!("{base}/redirect")).await;
    assert_eq!(redirect.headers()["location"], format!("{base}/there?a=b"));
    let page = ask(Method::GET, format!("{base}/page")).await.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(page, format!("<a href=\"{base}/there\">there</a>"));
    for method in [Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS] {
        assert_eq!(ask(method, format!("{base}/x")).await.status(), 200);
    }
    // Upgrades.
    let (head, mut stream) =
        upgrade(&cluster, ("GET", &format!("{base}/upgrade")), "Upgrade: echo\r\n").await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    stream.write_all(b"hello").await.unwrap();
    let mut received = [0; 5];
    soon(stream.read_exact(&mut received)).await.unwrap();
    assert_eq!(&received, b"hello");
    let refused = |path: String| {
        let connection = connection.clone();
        async move {
            let (code, body) = soon(connection.ask(Method::GET, &path, "", "")).await.unwrap();
            (code, body["message"].as_str().unwrap_or_default().to_owned())
        }
    };
    let (code, why) = refused(format!("{WEB}:1/proxy/")).await;
    assert!(
        code == 503
            && why.starts_with("error trying to reach service: dial tcp ")
            && why.ends_with("connect: connection refused"),
        "{code} {why}"
    );

    // A service: by its port's name and number, and without endpoints.
    let services = "/api/v1/namespaces/default/services";
    let create = |path: &'static str, body: Value| {
        let connection = connection.clone();
        async move {
            soon(connection.ask(Method::POST, path, "application/json", body.to_string())).await.unwrap()
        }
    };
    let service =
        json!({ "metadata": { "name": "web" }, "spec": { "ports": [{ "name": "http", "port": 80 }] } });
    assert_eq!(create("/api/v1/namespaces/default/services", service).await.0, 201);
    assert_eq!(
        refused(format!("{services}/web:http/proxy/")).await,
        (503, "no endpoints available for service \"web\"".to_owned())
    );
    assert_eq!(
        refused(format!("{services}/web:81/proxy/")).await,
        (503, "no service port 81 found for service \"web\"".to_owned())
    );
    assert_eq!(
        refused(format!("{services}/none/proxy/")).await,
        (404, "services \"none\" not found".to_owned())
    );
    let api: Api<Pod> = pods(&cluster).await;
    let ip = api.get("web").await.unwrap().status.unwrap().pod_ip.unwrap();
    let address = json!({ "ip": ip, "targetRef": { "kind": "Pod", "namespace": "default", "name": "web" } });
    let endpoints = json!({ "metadata": { "name": "web" }, "subsets": [{
        "addresses": [{ "ip": "192.0.2.1" }, address],
        "ports": [{ "name": "http", "port": port }],
    }]});
    assert_eq!(create("/api/v1/namespaces/default/endpoints", endpoints).await.0, 201);
    for name in ["web:http", "web:80", "http:web:80"] {
        assert_eq!(ask(Method::GET, format!("{services}/{name}/proxy/x")).await.status(), 200, "{name}");
    }
    drop(cluster);
    machine.clear();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ephemeral_container_comes_into_a_pod_that_runs() {
    let Some(machine) = Machine::here() else { return };
    let cluster = machine.start(&[]);
    start_with(&cluster, json!({})).await;
    let api = pods(&cluster).await;
    let mounts = api.get("web").await.unwrap().spec.unwrap().containers[0].volume_mounts.clone();
    let debugger = |name: &str, image: &str, target: &str| {
        json!({ "name": name, "image": image, "command": ["sh", "-c", "cat /proc/1/cmdline; echo; read line; exit 3"],
                "env": [{ "name": "PATH", "value": "/bin" }], "volumeMounts": mounts, "stdin": true,
                "targetContainerName": target })
    };
    let patch = json!({ "spec": { "ephemeralContainers": [
        debugger("debugger", "plumb/load", "main"), debugger("missing", "none/such", ""),
    ] } });
    let patch = Patch::Strategic(patch);
    let patched = api.patch_subresource("ephemeralcontainers", "web", &PatchParams::default(), &patch).await;
    patched.unwrap();
    let state = |pod: &Pod, name: &str| {
        let statuses = pod.status.as_ref()?.ephemeral_container_statuses.as_ref()?;
        statuses.iter().find(|status| status.name == name)?.state.clone()
    };
    until(&api, "web", "debugged", |pod| state(pod, "debugger").is_some_and(|state| state.running.is_some()))
        .await;
    until(&api, "web", "waiting", |pod| {
        let waiting = state(pod, "missing").and_then(|state| state.waiting);
        waiting.and_then(|waiting| waiting.reason).is_some_and(|reason| reason.contains("Image"))
    })
    .await;
    // It sees the processes of its target.
    let mut socket = websocket(
        &cluster,
        &format!("{WEB}/attach?container=debugger&stdin=true&stdout=true"),
        "v5.channel.k8s.io",
    )
    .await;
    let connection = cluster.wire().connect(Speech::Http1).await;
    // It runs before it has printed anything.
    let printed = async || {
        let path = format!("{WEB}/log?container=debugger");
        let (code, log) = soon(connection.ask(Method::GET, &path, "", "")).await.unwrap();
        assert_eq!(code, 200, "{log}");
        log.as_str().is_some_and(|log| log.contains("--memory"))
    };
    eventually(printed).await;
    // The log inside of a WebSocket, as browsers read it.
    for protocol in ["binary.k8s.io", "base64.binary.k8s.io"] {
        let mut socket = websocket(&cluster, &format!("{WEB}/log?container=debugger"), protocol).await;
        let message = soon(socket.next()).await.unwrap().unwrap();
        assert_eq!(message.is_text(), protocol.starts_with("base64"));
        assert!(!message.into_data().is_empty());
        assert!(soon(socket.next()).await.unwrap().unwrap().is_close());
    }
    socket.send(Message::binary(b"\0go\n".to_vec())).await.unwrap();
    until_received(&mut socket, 3, "Success").await;
    // It has ended, and is not started again; the pod runs on.
    let ended = until(&api, "web", "over", |pod| {
        state(pod, "debugger").and_then(|state| state.terminated).is_some_and(|ended| ended.exit_code == 3)
    })
    .await;
    assert_eq!(ended.status.unwrap().phase.as_deref(), Some("Running"));
    drop(cluster);
    machine.clear();
}
