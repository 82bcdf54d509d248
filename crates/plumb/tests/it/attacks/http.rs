//! Attacks on the HTTP server: memory and connections of clients without rights.

use std::path::Path;
use std::process::Command;

use http::Method;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;

use crate::it::cluster::{Cluster, admin_token, token_file};
use crate::it::hostile::frames::Frames;
use crate::it::wire::{Speech, soon};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// A path that every authenticated user may create objects at.
const SELF_REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const JSON: &str = "application/json";
/// The token of a user without roles.
pub(super) const TENANT: &str = "token-of-the-tenant";
const MIB: usize = 1 << 20;

pub(super) struct Target {
    pub(super) cluster: Cluster,
    folder: tempfile::TempDir,
}

impl Target {
    /// An API server whose administrator has a token, and one user without roles.
    pub(super) fn start(flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let tokens = format!("{},kubernetes-admin,,system:masters\n{TENANT},tenant,,\n", admin_token(&data));
        std::fs::write(token_file(&data), tokens).unwrap();
        let flags = [&["--components", "apiserver"], flags].concat();
        Self { cluster: Cluster::start_with(&data, &flags), folder }
    }

    /// The memory of its process.
    pub(super) fn memory(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.cluster.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
    }

    /// The status of a request with the administrator's token, over a new connection.
    pub(super) async fn ask(&self, speech: Speech) -> u16 {
        let connection = soon(self.cluster.wire().connect(speech)).await;
        soon(connection.ask(Method::GET, MAPS, "", "")).await.map_or(0, |(status, _)| status)
    }

    fn authority(&self) -> std::path::PathBuf {
        self.folder.path().join("data/pki/ca.crt")
    }
}

/// The status that curl gets for a POST over HTTP/2; 0 if it gets none.
fn curl(target: &Target, path: &str, token: Option<&str>, body: &Path) -> Option<(u16, String)> {
    let mut command = Command::new("curl");
    command.args([
        "--silent",
        "--show-error",
        "--http2",
        "--output",
        "/dev/null",
        "--write-out",
        "%{http_code}",
    ]);
    command.arg("--cacert").arg(target.authority());
    command.args(["--header", "Content-Type: application/json", "--data-binary"]);
    command.arg(format!("@{}", body.display()));
    if let Some(token) = token {
        command.args(["--header", &format!("Authorization: Bearer {token}")]);
    }
    command.arg(format!("https://{}{path}", target.cluster.address()));
    let output = command.output().ok()?;
    let code = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap_or(0);
    Some((code, String::from_utf8_lossy(&output.stderr).into_owned()))
}

#[test]
fn curl_gets_the_status_of_a_refused_request() {
    let target = Target::start(&[]);
    let admin = target.cluster.wire().token;
    let requests =
        [(MAPS, None, 401), ("/apis/nothing/v1/here", Some(admin.as_str()), 404), (MAPS, Some(TENANT), 403)];
    for size in [2_000, 200_000] {
        let body = target.folder.path().join(format!("body-{size}"));
        std::fs::write(&body, "x".repeat(size)).unwrap();
        for (path, token, expected) in requests {
            for _ in 0..5 {
                let Some((status, error)) = curl(&target, path, token, &body) else {
                    plumb_testkit::skip(plumb_testkit::MACHINE, "there is no curl here");
                    return;
                };
                assert_eq!(status, expected, "{size} bytes to {path}: {error}");
            }
        }
    }
}

#[test]
fn a_client_in_go_gets_the_status_of_a_refused_request() {
    let target = Target::start(&[]);
    let program = target.folder.path().join("refused-posts");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/attacks/refused_posts.go");
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(&program).arg(source);
    // The program needs the standard library only.
    build.env("CGO_ENABLED", "0").env("GOPROXY", "off").env("GO111MODULE", "off");
    match build.output() {
        Ok(built) if built.status.success() => {}
        Ok(built) => panic!("{}", String::from_utf8_lossy(&built.stderr)),
        Err(_) => {
            plumb_testkit::skip(plumb_testkit::MACHINE, "there is no Go toolchain here");
            return;
        }
    }
    let admin = target.cluster.wire().token;
    let requests =
        [(MAPS, "unknown", 401), ("/apis/nothing/v1/here", admin.as_str(), 404), (MAPS, TENANT, 403)];
    let mut command = Command::new(&program);
    command.arg(target.authority());
    let mut expected = Vec::new();
    // The last one is larger than what the server discards.
    for size in [2_000, 200_000, 8_000_000] {
        for (path, token, status) in requests {
            for _ in 0..5 {
                let url = format!("https://{}{path}", target.cluster.address());
                command.args([url.as_str(), token, &size.to_string()]);
                expected.push(format!("{status} 2 <nil>"));
            }
        }
    }
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(said.lines().collect::<Vec<_>>(), expected, "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_requests_whose_body_does_not_come_do_not_all_wait_for_it() {
    let target = Target::start(&[]);
    let wire = target.cluster.wire().with_token("unknown");
    let mut frames = Frames::open(&wire).await;
    // More than one source may have the server wait for.
    frames.headers_at_once((0..250).map(|i| 2 * i + 1), "POST", MAPS, &[("content-type", JSON)]).await;
    let first = loop {
        let frame = frames.next().await.unwrap();
        if frame.ends_response() {
            break frame.stream;
        }
    };
    // The server waits for the bodies of those before it.
    assert!(first > 250, "the response to stream {first} came first");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_stream_of_a_refused_request_is_not_reset_when_its_body_is_small() {
    let target = Target::start(&[]);
    let wire = target.cluster.wire().with_token("unknown");
    let mut frames = Frames::open(&wire).await;
    frames.headers(1, "POST", MAPS, &[("content-type", JSON)], false).await;
    // The server has received the head when it answers, and could refuse the request.
    let mut received = frames.until_pong().await;
    frames.data(1, &[b'x'; 1_000], true).await;
    while !received.iter().any(|frame| frame.stream == 1 && frame.ends_response()) {
        received.push(frames.next().await.unwrap());
    }
    received.extend(frames.until_pong().await);
    assert!(!received.iter().any(|frame| frame.is_reset()), "{received:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heads_without_credentials_do_not_fill_the_memory() {
    const CONNECTIONS: usize = 400;
    let target = Target::start(&[]);
    let wire = target.cluster.wire();
    let before = target.memory();
    let head = format!("GET /livez HTTP/1.1\r\nHost: localhost\r\nX: {}", "x".repeat(380 << 10));
    let mut open = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut stream = soon(wire.raw(Speech::Http1)).await.unwrap();
        // The server closes it before everything is written.
        drop(soon(stream.write_all(head.as_bytes())).await);
        open.push(stream);
    }
    let grown = target.memory().saturating_sub(before);
    assert!(grown < CONNECTIONS * (160 << 10), "{} MiB", grown / MIB);
    assert_eq!(target.ask(Speech::Http1).await, 200);
    drop(open);

    // The same with heads that are just not too large: they share a budget.
    let head = format!("GET /livez HTTP/1.1\r\nHost: localhost\r\nX: {}", "x".repeat(60 << 10));
    let mut open = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut stream = soon(wire.raw(Speech::Http1)).await.unwrap();
        drop(soon(stream.write_all(head.as_bytes())).await);
        open.push(stream);
    }
    assert_eq!(target.ask(Speech::Http2).await, 200);
    let mut closed = 0;
    for mut stream in open {
        // Those that the budget was for are closed too, since no request comes.
        drop(soon(stream.read_to_end(&mut Vec::new())).await);
        closed += 1;
    }
    assert_eq!(closed, CONNECTIONS);
}

/// As many heads as one user may have incomplete at a time: three quarters of 16 MiB.
const HEADS_OF_A_USER: usize = 192;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heads_of_a_user_with_a_token_do_not_fill_the_memory() {
    const CONNECTIONS: usize = 240;
    let target = Target::start(&[]);
    let wire = target.cluster.wire().with_token(TENANT);
    let request = format!("GET /api HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TENANT}\r\n\r\n");
    let head = format!("GET /livez HTTP/1.1\r\nHost: localhost\r\nX: {}", "x".repeat(60 << 10));
    let mut open = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let mut stream = soon(wire.raw(Speech::Http1)).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        soon(stream.read_u8()).await.unwrap();
        drop(soon(stream.write_all(head.as_bytes())).await);
        open.spawn(async move { drop(stream.read_to_end(&mut Vec::new()).await) });
    }
    for _ in HEADS_OF_A_USER..CONNECTIONS {
        soon(open.join_next()).await.unwrap().unwrap();
    }
    assert_eq!(target.ask(Speech::Http1).await, 200);
    drop(open);

    // The same over HTTP/2.
    let mut open = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let mut frames = Frames::open(&wire).await;
        frames.headers(1, "GET", "/api", &[], true).await;
        while !frames.next().await.unwrap().ends_response() {}
        frames.begin_headers(3, "GET", "/api").await;
        open.spawn(frames.closed());
    }
    for _ in HEADS_OF_A_USER..CONNECTIONS {
        soon(open.join_next()).await.unwrap().unwrap();
    }
    assert_eq!(target.ask(Speech::Http2).await, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_of_one_address_that_send_nothing_do_not_keep_out_other_addresses() {
    // More than may be in the handshake.
    const CONNECTIONS: usize = 900;
    let target = Target::start(&[]);
    let mut silent = Vec::new();
    for round in 0..3 {
        for _ in 0..CONNECTIONS / 3 {
            silent.push(soon(target.cluster.wire().tcp()).await.unwrap());
        }
        let wire = target.cluster.wire().with_source([127, 0, 0, 2].into());
        let connection = soon(wire.connect(Speech::Http2)).await;
        let (status, _) = soon(connection.ask(Method::GET, MAPS, "", "")).await.unwrap();
        assert_eq!(status, 200, "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn floods_of_frames_without_credentials_end_their_connection_and_no_other() {
    let target = Target::start(&[]);
    let wire = target.cluster.wire().with_token("unknown");
    let admin = target.cluster.wire().connect(Speech::Http2).await;
    let before = target.memory();

    // Rapid reset.
    let mut frames = Frames::open(&wire).await;
    for i in 0..20_000 {
        let sent = frames.try_headers(2 * i + 1, "POST", MAPS, &[], false).await.is_ok()
            && frames.try_reset(2 * i + 1).await.is_ok();
        if !sent {
            break;
        }
    }
    frames.closed().await;

    // CONTINUATION without end, of fields and of nothing.
    for block in [[0x00, 0x01, b'x', 0x01, b'y'].repeat(3_000), Vec::new()] {
        let mut frames = Frames::open(&wire).await;
        frames.begin_headers(1, "GET", MAPS).await;
        for _ in 0..100_000 {
            if frames.try_continuation(1, &block).await.is_err() {
                break;
            }
        }
        frames.closed().await;
    }
    let grown = target.memory().saturating_sub(before);
    assert!(grown < 64 * MIB, "{} MiB", grown / MIB);
    assert_eq!(soon(admin.ask(Method::GET, MAPS, "", "")).await.unwrap().0, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_without_credentials_do_not_lock_out_clients_with_a_token() {
    const MOST: usize = 32;
    let target = Target::start(&["--max-connections", &MOST.to_string()]);
    let wire = target.cluster.wire();
    let controller = wire.connect(Speech::Http1).await;
    assert_eq!(soon(controller.ask(Method::GET, MAPS, "", "")).await.unwrap().0, 200);
    let mut idle = Vec::new();
    for i in 0..8 * MOST {
        let speech = if i % 2 == 0 { Speech::Http1 } else { Speech::Http2 };
        idle.push(soon(wire.raw(speech)).await.unwrap());
        if i % MOST == 0 {
            assert_eq!(target.ask(Speech::Http1).await, 200, "after {i} connections");
            assert_eq!(target.ask(Speech::Http2).await, 200, "after {i} connections");
        }
    }
    // The connection that was there before is still open.
    assert_eq!(soon(controller.ask(Method::GET, MAPS, "", "")).await.unwrap().0, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_without_roles_does_not_fill_the_memory_with_requests_whose_body_does_not_come() {
    // More than one user may have.
    const STREAMS: u32 = 250;
    const CONNECTIONS: usize = 2;
    const HEAD: usize = 48 << 10;
    let target = Target::start(&[]);
    let wire = target.cluster.wire().with_token(TENANT);
    let before = target.memory();
    let padding = "x".repeat(HEAD);
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut frames = Frames::open(&wire).await;
        for i in 0..STREAMS {
            let more = [("content-type", JSON), ("x-padding", padding.as_str())];
            frames.large_headers(2 * i + 1, SELF_REVIEWS, &more).await;
        }
        connections.push(frames);
    }
    // Some of them are refused, though no body comes.
    let refused = async { while !connections[CONNECTIONS - 1].next().await.unwrap().ends_response() {} };
    soon(refused).await;
    let grown = target.memory().saturating_sub(before);
    assert!(grown < 64 * MIB, "{} MiB", grown / MIB);
    let admin = target.cluster.wire().connect(Speech::Http2).await;
    let (_, metrics) = soon(admin.ask(Method::GET, "/metrics", "", "")).await.unwrap();
    let rejected = "apiserver_flowcontrol_rejected_requests_total{flow_schema=\"all\",\
                    priority_level=\"request-body\",reason=\"user-limit\"} ";
    let count = metrics.as_str().unwrap().lines().find_map(|line| line.strip_prefix(rejected));
    assert_ne!(count.unwrap().parse(), Ok(0));

    drop(connections);
    let falls = async {
        while target.memory().saturating_sub(before) > 16 * MIB {
            // The allocator returns memory to the system when it is used.
            assert_eq!(target.ask(Speech::Http2).await, 200);
        }
    };
    soon(Box::pin(falls)).await;
}
